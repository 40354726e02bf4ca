"""Arguments and flags of several commands, and what they name: labelled sets, models, journals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rerank.commands.printing import note
from rerank.config import ON_RERANKER_ERROR, Option
from rerank.data.beir import UNJUDGED
from rerank.data.lines import ON_BAD_LINES
from rerank.errors import InputError, nearest
from rerank.protocols import Record, unrecorded
from rerank.rooms import offered
from rerank.serving.settings import Settings

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.data.labelled_set import LabelledSet
    from rerank.types import Query

Json = Annotated[bool, Option("print one JSON object")]
JsonLines = Annotated[bool, Option("print one JSON object per query")]
Verbose = Annotated[bool, Option("print the comparison and all measurements too")]
Work = Annotated[Path, Option("folder for indexes, scores and MLflow's database")]
WORK = Path("work")
Out = Annotated[Path, Option("folder to write")]
OutFile = Annotated[Path, Option("JSONL file to write")]
Overwrite = Annotated[bool, Option("replace what is in --out")]
Restart = Annotated[bool, Option("discard an interrupted run of another model, input or options")]
Name = Annotated[
    str,
    Option(
        "name of the experiment in MLflow, and of the registered model, which gets a new version; "
        "if empty: calibrated-rerank-SET, after the data set; of a recalibration: as the model's"
    ),
]
Corpus = Annotated[Path, Option("JSONL file, or a folder with corpus.jsonl")]
Documents = Annotated[
    Path, Option("folder of documents: Markdown, HTML, PDF, DOCX, reStructuredText, text")
]
JournalUrl = Annotated[
    str, Option("URL of the journal: sqlite:///PATH or postgresql://USER@HOST/DATABASE")
]
Segment = Annotated[
    str,
    Option("segment of the query, if the model was calibrated with --segment-by", metavar="NAME"),
]
Entities = Annotated[
    str,
    Option(
        "comma-separated names in the query, if the model was calibrated with "
        "--metadata-features query_entities; a lone comma: none",
        metavar="NAMES",
    ),
]
OnBadLines = Annotated[
    str,
    Option(
        "what to do with unusable lines, such as a passage without words or a judgement of a "
        "missing passage: refuse (all are listed), or skip (they are counted and listed)",
        choices=ON_BAD_LINES,
    ),
]
Unjudged = Annotated[
    str,
    Option(
        "what to do with queries without qrels, in a set without splits/: refuse, leave them out, "
        "or count them as questions without an answer",
        choices=UNJUDGED,
    ),
]

OnRerankerError = Annotated[
    str,
    Option(
        "if a remote reranker fails: an error (over HTTP 503), or the answer of the first stage, "
        "not calibrated",
        choices=ON_RERANKER_ERROR,
    ),
]
Filter = Annotated[
    str,
    Option(
        "metadata that a passage must have, as JSON: "
        '{"language": "en", "source": ["manual", "faq"], "year": {"gte": 2020}}',
        metavar="JSON",
    ),
]


@dataclass(frozen=True, slots=True)
class Reading:
    """How labelled sets are read. Notes go to stderr."""

    _: KW_ONLY
    on_bad_lines: OnBadLines = ON_BAD_LINES[0]
    unjudged: Unjudged = UNJUDGED[0]
    group_by: Annotated[
        str,
        Option(
            "metadata of a query, such as its article; queries with the same value stay on one "
            "side of every split; if empty: its `group`, else the documents that it is about",
            metavar="KEY",
        ),
    ] = ""

    def read(self, folder: Path, *, corpus_elsewhere: bool = False) -> LabelledSet:
        """The set, as `read_all`."""
        return self.read_all([folder], corpus_elsewhere=corpus_elsewhere)[0]

    def read_all(
        self, folders: Sequence[Path], *, corpus_elsewhere: bool = False
    ) -> list[LabelledSet]:
        """The sets, grouped by a query metadata key that at least one of them has.

        corpus_elsewhere: another search system holds the passages, so `corpus.jsonl` is not needed.
        """
        sets = [self.read_one(folder, corpus_elsewhere=corpus_elsewhere) for folder in folders]
        if not self.group_by:
            return sets
        known = {key for labelled in sets for q in labelled.queries.values() for key in q.metadata}
        if self.group_by not in known:
            raise InputError(
                f"no query has the metadata {self.group_by!r} of --group-by, only "
                f"{', '.join(sorted(known)) or 'none at all'}{nearest(self.group_by, known)}"
            )
        return [labelled.grouped_by(self.group_by) for labelled in sets]

    def read_one(self, folder: Path, *, corpus_elsewhere: bool = False) -> LabelledSet:
        """The set, not grouped; notes say what is left out, or counts as unanswerable."""
        from rerank.data.labelled_set import LabelledSet

        how: Any = {"unjudged": self.unjudged, "on_bad_lines": self.on_bad_lines}
        labelled = LabelledSet.read(folder, corpus_elsewhere=corpus_elsewhere, **how)
        count = len(labelled.queries)
        for one in labelled.reading.notes(count):
            note(f"{folder}: {one}")
        if left_out := count - sum(map(len, labelled.splits.values())):
            note(f"{folder}: {left_out} of {count} queries are in no split and are left out.")
        if self.unjudged == "unanswerable":
            nothing = sum(i not in labelled.qrels for i in labelled.queries)
            split = ", ".join(labelled.splits)
            note(f"{folder}: {nothing} of {count} queries count as unanswerable ({split}).")
        return labelled


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model to load."""

    model: Annotated[
        Path,
        Option("model folder, or MLflow's name for it: models:/calibrated-rerank-pydata@champion"),
    ]
    _: KW_ONLY
    download: Annotated[
        bool, Option("fetch models of a hub that are not in its cache on this machine")
    ] = False
    manifest_sha256: Annotated[
        str | None,
        Option(
            "refuse the model unless its manifest.json has this sha256, which `calibrate` and "
            "`model export` print",
            metavar="SHA256",
        ),
    ] = None

    def load(
        self, work: Path | None = None, *, on_reranker_error: str = ON_RERANKER_ERROR[0]
    ) -> CalibratedReranker:
        """Load it; its cross-encoder's scores are cached under `work`, if that is given."""
        from rerank.assessment.model import CalibratedReranker
        from rerank.inference.score_cache import ScoreCache
        from rerank.storage.folder import Workspace

        how: Any = {"allow_download": self.download, "manifest_sha256": self.manifest_sha256}
        how["on_reranker_error"] = on_reranker_error
        if work:
            space = Workspace(work)
            how |= {"cache": ScoreCache(space.scores), "tracking_uri": space.tracking_uri}
        return CalibratedReranker.load(self.model, **how)

    def load_once(self, on_reranker_error: str) -> CalibratedReranker:
        """Load it for one command, which asks no reranker again that did not answer."""
        model = self.load(on_reranker_error=on_reranker_error)
        for one in model.stages:
            one.pipeline.away = one.lost
        return model


def typed_queries(
    model: CalibratedReranker,
    texts: Sequence[str],
    segment: str,
    where: str = "",
    entities: str = "",
) -> list[Query]:
    """The queries, with ids from 1 up; a note says if no segment was given or fitted."""
    from rerank.assessment.metadata_features import QUERY_ENTITIES
    from rerank.filters import Where
    from rerank.types import INSTRUCTION, Query

    metadata: dict[str, Any] = dict(model.of_segment(segment))
    if entities:
        if not model.source.said:
            raise InputError(
                f"the model uses no names in a query (--entities); calibrate it with "
                f"--metadata-features {QUERY_ENTITIES}"
            )
        metadata[QUERY_ENTITIES] = [n for name in entities.split(",") if (n := name.strip())]
    if segment and segment not in model.segments and model.segment_by != INSTRUCTION:
        note(
            f"nothing was fitted for {model.segment_by} {segment!r}, so the confidence is that of "
            f"all queries{nearest(segment, model.segments)}"
        )
    if model.segment_by and not segment:
        note(f"no {model.segment_by} with --segment, so the confidence is that of all queries")
    fits = Where.read(where or None)
    return [Query(text, str(i), metadata, where=fits) for i, text in enumerate(texts, start=1)]


@contextmanager
def journal_kept(settings: Settings) -> Iterator[Record]:
    """A function that records answers in the journal, as a server does; at the end all are written.

    A failing journal gives one warning on stderr, and never a failed answer. No entry is removed:
    only the server enforces retention.
    """
    if not settings.journal:
        yield unrecorded
        return
    with offered("records in a journal")(settings) as record:
        yield record
