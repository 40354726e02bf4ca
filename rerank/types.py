"""The values passed from stage to stage: a query, its candidates, their scores, the ranking.

Query -> Candidates -> Scored -> Ranking -> Assessment
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from rerank.config import VERDICTS, Thresholds
from rerank.errors import FilterError, InputError
from rerank.filters import Where

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Mode = Literal["search", "rerank", "lists"]
"""Our index makes the candidates; the caller brings them; or brings them with their scores."""
MODES: tuple[Mode, ...] = ("search", "rerank")  # of a model that scores passages itself
INSTRUCTION = "instruction"  # metadata of a query, which the reranker reads; see `segment_by`
LARGEST_SCORE = 1e100  # limit for another system's scores: their differences and sums stay finite


def main_mode(modes: Iterable[Mode]) -> Mode:
    """The mode of a model with these modes that its report, sketch and certificate are about."""
    return next(iter(modes))


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrievable text. `title` may be empty; `text` only beside a title or scores.

    Raises:
        InputError: an id, a title or a text that is not text.
    """

    doc_id: str
    title: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("doc_id", "title", "text"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise InputError(f"`{name}` of a passage should be text, got {value!r:.100}")

    @property
    def full_text(self) -> str:
        """Title and text as the models read them: `"title. text"`, or the one that is there."""
        return f"{self.title}. {self.text}" if self.title and self.text else self.title or self.text


@dataclass(frozen=True, slots=True)
class ListKind:
    """What lists with scores have in common: the names of the `stages` that scored them, of which
    the last one is the caller's ranking; and whether every passage has a text.
    """

    stages: tuple[str, ...]
    texts: bool


OWN_STAGES = ListKind((), texts=True)  # no lists: our own stages score the passages


@dataclass(frozen=True, slots=True)
class Query:
    """A query to the index, or to the passages that come with it, in any order.

    `passages` is None to search the index. `logits` (n,) are the scores of the passages by the
    model's own cross-encoder, which then does not score them again. `scores` are those of another
    system's stages, for each stage one number per passage (n,); NaN or None if the stage did not
    return it. A search finds none of the passages `without`, by id, and only those whose metadata
    fits `where`: a mapping, or a `rerank.filters.Where`; its keys, `filtered_by`, stay.

    Raises:
        InputError: a field of another type; logits or scores without passages, both of them, or not
            one finite number per passage (or NaN, of scores); a filter that cannot be used.
    """

    text: str
    query_id: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    passages: tuple[Passage, ...] | None = None
    logits: Floats | None = field(default=None, compare=False)
    scores: Mapping[str, Floats] | None = field(default=None, compare=False)
    without: frozenset[str] = field(default=frozenset(), compare=False)
    where: Where | None = None
    filtered_by: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InputError(f"the query should be text, got {self.text!r:.100}")
        if not isinstance(self.metadata, Mapping):
            raise InputError(
                "the metadata of a query should be a mapping of names to values, such as "
                f'{{"language": "en"}}, got {self.metadata!r:.100}'
            )
        if self.passages is not None:
            if not isinstance(self.passages, Iterable) or isinstance(self.passages, (str, Mapping)):
                raise InputError(f"expected a list of passages, got {self.passages!r:.100}")
            object.__setattr__(self, "passages", tuple(self.passages))
            for passage in self.passages:
                if not isinstance(passage, Passage):
                    raise InputError(f"expected a Passage, got {passage!r:.100}")
        object.__setattr__(self, "where", Where.read(self.where))
        keys = self.where.keys if self.where else self.filtered_by
        object.__setattr__(self, "filtered_by", keys)
        if self.where and self.passages is not None:
            raise FilterError("a filter is for a search: leave out passages that it excludes")
        n = len(self.passages or ())
        if self.scores is not None:
            if not isinstance(self.scores, Mapping) or not self.scores:
                raise InputError(
                    "expected scores by stage, such as {'bm25': [2.1, 0.3]}, one of each passage, "
                    f"got {self.scores!r:.100}"
                )
            if self.passages is None or self.logits is not None:
                raise InputError("expected scores of passages that come with them, and no logits")
            scores = {s: _numbers(f"score of {s!r}", v, n) for s, v in self.scores.items()}
            object.__setattr__(self, "scores", scores)
        if self.logits is not None:
            if self.passages is None:
                raise InputError("expected logits only of passages that come with them")
            object.__setattr__(self, "logits", _numbers("finite logit", self.logits, n))

    @property
    def instruction(self) -> str:
        """What counts as an answer to it, by its metadata; "" if it does not say."""
        return metadata_name(self.metadata, INSTRUCTION)

    @property
    def mode(self) -> Mode:
        """Who makes the candidates: see `Mode`."""
        if self.passages is None:
            return "search"
        return "rerank" if self.scores is None else "lists"

    def scores_of(self, row: int) -> dict[str, float | None]:
        """The scores of the passage at `row` by stage, or None."""
        scores = {stage: float(values[row]) for stage, values in (self.scores or {}).items()}
        return {stage: None if np.isnan(value) else value for stage, value in scores.items()}


IDS, TEXTS = ("_id", "id", "doc_id"), ("text", "content", "page_content")
TITLES = ("title", "document_title")
"""Keys that hold a title: that of most loaders, and of LlamaIndex's TitleExtractor."""
AnyPassage = Passage | str | Mapping[str, Any]


def as_passage(given: AnyPassage, position: int) -> Passage:
    """A text, or a dictionary with a text (`TEXTS`), a title and an id, as a passage.

    Without an id it is the position. The metadata is its `metadata`, else all other keys.

    Raises:
        InputError: an id, a title or a text that is not text.
    """
    if isinstance(given, Passage):
        return given
    if not isinstance(given, Mapping):
        return Passage(str(position), "", given)
    id_key, title_key, text_key = (
        next((key for key in keys if given.get(key) is not None), "")
        for keys in (IDS, TITLES, TEXTS)
    )
    named = {id_key, title_key, text_key}
    others = {key: value for key, value in given.items() if key not in named}
    metadata = given.get("metadata")
    return Passage(
        str(given[id_key]) if id_key else str(position),
        given[title_key] if title_key else "",
        given[text_key] if text_key else "",
        metadata if isinstance(metadata, Mapping) else others,
    )


def as_passages(given: Sequence[AnyPassage]) -> tuple[Passage, ...]:
    """The passages that a caller brings, each as `as_passage`."""
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
        raise InputError(
            "expected a list of passages, each a text, a dictionary or a Passage, got "
            f"{given!r:.100}"
        )
    return tuple(as_passage(p, i) for i, p in enumerate(given))


def _numbers(what: str, values: Any, n: int) -> Floats:
    """The values (n,) as an array, None as NaN, which only a score may be."""
    may_be_nan = what.startswith("score")
    with suppress(TypeError, ValueError):
        array = np.array(values, dtype=np.float64)
        fits = (np.abs(array) <= LARGEST_SCORE) | (np.isnan(array) & may_be_nan)
        if array.shape == (n,) and fits.all():
            return array
    raise InputError(
        f"expected one {what} per passage, {n} in all, up to {LARGEST_SCORE:g}"
        f"{' or NaN' if may_be_nan else ''}, got {values!r:.200}"
    )


def metadata_name(metadata: Mapping[str, Any], key: str) -> str:
    """The metadata under `key`, as a name: 1.0 as 1; "" for blank, None and NaN."""
    value = metadata.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = "" if value is None else str(value).strip()
    return "" if name.lower() == "nan" else name


class Stage:
    """The values of a stage: about the query, or one per passage."""

    __slots__ = ()

    def take(self, order: Ints) -> Self:
        """The same of the passages at the positions `order`, each at most once."""
        taken: list[Any] = []
        for value in (getattr(self, f.name) for f in fields(cast(Any, self))):
            if isinstance(value, tuple):
                taken.append(tuple(value[i] for i in order))
            elif isinstance(value, Stage):
                taken.append(value.take(order))
            else:
                taken.append(value[order] if isinstance(value, np.ndarray) else value)
        return type(self)(*taken)


@dataclass(frozen=True, slots=True)
class FirstStage(Stage):
    """The scores of one query's candidates by BM25 and the bi-encoder; arrays of shape (n,).

    A passage found by only one of them has its true score in the other too; its *rank* there is one
    more than the number of passages that the stage may find: `Config.pool`, or all that came with
    the query. Passages that came with scores have NaN for both, and ranks of 0. Equal passages
    share a rank and count once.
    """

    rows: Ints  # positions in the index, or among the passages that came with the query
    bm25: Floats  # BM25Okapi score, >= 0 in practice
    dense: Floats  # cosine similarity, in [-1, 1]
    bm25_rank: Ints  # 1 is best; see above for a passage that BM25 did not find
    dense_rank: Ints  # likewise for the bi-encoder
    fused: Floats  # reciprocal rank fusion, > 0

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Candidates(Stage):
    """The passages that the first stage found for one query, best fused first."""

    query: Query
    passages: tuple[Passage, ...]
    first_stage: FirstStage
    features: Floats  # (n, d): of `rerank.assessment.fitted_maps`, without the cross-encoder's

    def __len__(self) -> int:
        return len(self.passages)


@dataclass(frozen=True, slots=True)
class Scored:
    """Candidates, of which the cross-encoder has scored the first m of n, the likeliest; of lists,
    those with a score.
    """

    candidates: Candidates
    prior_scores: Floats  # (n,) by the first stage only; they chose what to score
    logits: Floats  # (m,)
    truncated: Bools  # (m,) the cross-encoder did not see all of this passage
    failed: bool = False  # the cross-encoder did not answer, so m is 0

    def __len__(self) -> int:
        return len(self.candidates)

    @property
    def query(self) -> Query:
        """The query of these candidates."""
        return self.candidates.query


@dataclass(frozen=True, slots=True)
class Ranking(Stage):
    """The candidates of one query, best first, each with its score. Arrays have shape (n,). A
    passage that was not scored gets the logit of an equal passage, or else the lowest one.
    """

    candidates: Candidates
    logits: Floats
    scored: Bools
    truncated: Bools
    features: Floats  # (n, d): see `rerank.assessment.fitted_maps`
    score: Floats  # of the passage alone, in [0, 1]; the probability shown is the answer's

    def __len__(self) -> int:
        return len(self.candidates)

    def __iter__(self) -> Iterator[Passage]:
        """The passages, best first; `Assessment.passages` have their probabilities."""
        return iter(self.passages)

    @property
    def query(self) -> Query:
        """The query of this ranking."""
        return self.candidates.query

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The passages, best first."""
        return self.candidates.passages

    @property
    def first_stage(self) -> FirstStage:
        """What the first stage says of the passages, best first."""
        return self.candidates.first_stage

    @property
    def doc_ids(self) -> tuple[str, ...]:
        """Passage ids, best first."""
        return tuple(passage.doc_id for passage in self.passages)


@dataclass(frozen=True, slots=True)
class RankedPassage:
    """One passage of an answer, with its calibrated relevance and the score of each stage."""

    doc_id: str
    title: str
    text: str
    metadata: Mapping[str, Any]
    relevance: float  # P(this passage is right)
    logit: float | None  # of the cross-encoder; None if it did not score the passage's text
    bm25: float
    dense: float
    row: int  # position in the index, or among the passages that came with the query
    scores: Mapping[str, float | None] = field(default_factory=dict)  # that came with it, by stage

    def to_dict(self) -> dict[str, Any]:
        """The passage as in a prediction: id and numbers, no text."""
        if self.scores:
            scores = dict(self.scores)
            return {"doc_id": self.doc_id, "relevance": self.relevance, "scores": scores}
        numbers = ("doc_id", "logit", "relevance", "bm25", "dense")
        return {name: getattr(self, name) for name in numbers}


PREDICTED = ["confidence", "sufficiency", "sufficiency_at", "level", "verdict", "accepted"]
PREDICTED += ["certified", "context_certified", "calibrated", "reasons"]


@dataclass(frozen=True, slots=True)
class Assessment:
    """A ranking and how far to trust it. Probabilities are calibrated and lie in [0, 1].

    They agree with each other: see `rerank.assessment.predictions`. `level`, `verdict` and
    `accepted` follow from `thresholds`: those of the model, or others (`by`).
    """

    ranking: Ranking
    relevance: Floats  # (n,) P(this passage is right); never rises; the first is the confidence
    confidence: float  # P(the top passage is right)
    sufficiency_at: tuple[float, ...]  # P(one of the first k is right), k = 1 to 10; never falls
    sufficiency_k: int  # the k of `sufficiency`
    thresholds: Thresholds
    certified: bool  # accepted, at the certified threshold, and like the labelled questions
    reasons: tuple[str, ...]  # where the confidence starts and what moved it, in words
    features: Floats  # (d,) of the ranking, which the confidence was computed from
    mode: Mode  # of the query as it came, even if another system has found its passages
    context_certified: bool = False  # SUFFICIENT, and at its certified threshold
    calibrated: bool = True  # False: no label of this corpus; only the order is meaningful
    first_stage: bool = False  # the reranker failed, and its numbers are those of the first stage
    answered_by: str = ""  # of a model that is two: first or second
    asked_before: Assessment | None = None  # that of the first one, where the second has answered

    @property
    def sufficiency(self) -> float:
        """P(one of the first `sufficiency_k` is right), >= confidence."""
        return self.sufficiency_at[self.sufficiency_k - 1]

    @property
    def level(self) -> str:
        """HIGH, MEDIUM, LOW or VERY_LOW confidence."""
        return self.thresholds.level(self.confidence, calibrated=self.calibrated)

    @property
    def verdict(self) -> str:
        """SUFFICIENT, PARTIAL or INSUFFICIENT, of the sufficiency."""
        return self.thresholds.verdict(self.sufficiency, calibrated=self.calibrated)

    @property
    def accepted(self) -> bool:
        """Whether the confidence reaches the advisory threshold, and is calibrated."""
        return self.thresholds.accepts(self.confidence, calibrated=self.calibrated)

    @property
    def context_accepted(self) -> bool:
        """The same of the first passages together: whether they are SUFFICIENT."""
        return self.verdict == VERDICTS[0]

    @property
    def marks(self) -> dict[str, Any]:
        """Who has answered, as plain JSON values; empty where one model has, as usual."""
        marks = {"answered_by": self.answered_by, "first_stage": self.first_stage}
        return {name: value for name, value in marks.items() if value}

    def by(self, thresholds: Thresholds | None) -> Assessment:
        """The assessment by other thresholds, for which no certificate was made; None: itself."""
        if thresholds is None or thresholds == self.thresholds:
            return self
        return replace(self, thresholds=thresholds, certified=False, context_certified=False)

    @property
    def passages(self) -> Sequence[RankedPassage]:
        """The passages, best first."""
        return self.first(len(self.ranking))

    @property
    def top(self) -> RankedPassage | None:
        """The best passage; None if no passage was found."""
        return next(iter(self.first(1)), None)

    def first(self, count: int) -> list[RankedPassage]:
        """The `count` best passages, or all if there are fewer."""
        ranking, stage = self.ranking, self.ranking.first_stage
        return [
            RankedPassage(
                doc_id=passage.doc_id,
                title=passage.title,
                text=passage.text,
                metadata=passage.metadata,
                relevance=float(self.relevance[i]),
                logit=float(ranking.logits[i]) if ranking.scored[i] else None,
                bm25=float(stage.bm25[i]),
                dense=float(stage.dense[i]),
                row=int(stage.rows[i]),
                scores=ranking.query.scores_of(int(stage.rows[i])),
            )
            for i, passage in enumerate(ranking.passages[:count])
        ]

    def to_dict(self, *, top: int | None = None) -> dict[str, Any]:
        """The prediction as one JSON object; `top` keeps only the first passages."""
        count = len(self.ranking) if top is None else top
        values = {name: getattr(self, name) for name in PREDICTED}
        return {
            "query_id": self.ranking.query.query_id,
            **{name: list(v) if isinstance(v, tuple) else v for name, v in values.items()},
            **self.marks,
            "ranking": [passage.to_dict() for passage in self.first(count)],
        }
