"""`rerank data build`, `check`, `index` and `import-trec`."""

from __future__ import annotations

import json as json_lines
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rerank.commands import options
from rerank.commands.command import Only, command
from rerank.commands.printing import tell
from rerank.config import Config, Option
from rerank.errors import InputError

OF_INDEXES = (
    *("encoder", "encoder_max_length", "encoder_windows", "encoder_precision", "dense", "language"),
)
MATCHES = {
    "new": "its manifest.json holds the package versions and the digest",
    "same": "the same set, to the byte, as the manifest says",
    "other versions": "made with other package versions than the manifest's: "
    "figures will differ a little",
    "differs": "WARNING: not the set of the manifest, although the package versions are the same",
}


@command("pydata --out datasets/pydata")
def build(
    name: str, *, out: options.Out, libraries: tuple[str, ...] = (), json: options.Json = False
) -> None:
    """Build a labelled set from the documentation of installed libraries.

    Args:
        name: pydata, pydata_questions or ruff_questions; documentation or documentation_questions,
            to train on
        libraries: installed libraries with numpydoc docstrings, which documentation is built from
    """
    from rerank.data.recipes import build
    from rerank.storage.folder import reserved

    with reserved(out):
        made = build(name, out, libraries)
    counts, matches = made["counts"], made["matches"]
    text = f"{out}: {counts['passages']} passages, {counts['queries']} queries"
    tell(json, text, MATCHES[matches], out=out, matches=matches, **counts)


@command("datasets/pydata")
def check(
    dataset: Path,
    reading: Annotated[options.Reading, Only(("on_bad_lines", "unjudged"))],
    *,
    json: options.Json = False,
) -> None:
    """Check a labelled set, and count what is in it.

    Args:
        dataset: BEIR folder, or labelled lists
    """
    from rerank.data.grouping import grouped

    labelled = reading.read(dataset)
    every = grouped(labelled, list(labelled.queries))
    counts = {**labelled.counts(), "groups": len({every.group(q) for q in labelled.queries})}
    by = every.grouping.name if every.grouping else "question"
    lines = [f"{name:<20}{count:>8}" for name, count in counts.items()]
    facts = {"grouped_by": by, "digest": labelled.digest()}
    lines += [f"grouped by {by}", f"digest {facts['digest']}"]
    tell(json, *lines, dataset=dataset, **counts, **facts, **asdict(labelled.reading))


@command("datasets/pydata --out work/pydata-index", networks=True)
def index(
    dataset: Path,
    config: Annotated[Config, Only(OF_INDEXES)],
    *,
    out: options.Out,
    overwrite: options.Overwrite = False,
    on_bad_lines: options.OnBadLines = "refuse",
    json: options.Json = False,
) -> None:
    """Index a corpus for BM25 and dense search.

    Args:
        dataset: folder with corpus.jsonl
    """
    from rerank.data.beir import read_corpus
    from rerank.inference.model_files import find_model
    from rerank.jobs.automatic import with_language
    from rerank.retrieval.dense import Encoder
    from rerank.retrieval.index import INDEX_KIND, build_index
    from rerank.storage.folder import output_folder

    with output_folder(out, overwrite=overwrite, kind=INDEX_KIND):
        corpus = read_corpus(dataset, on_bad_lines).values()
        config = with_language(config, corpus)
        encoder = Encoder.from_config(find_model(config.encoder, "encoder"), config)
        made = build_index(
            corpus,
            out,
            encoder,
            language=config.language,
            approximate=config.dense == "approximate",
            overwrite=overwrite,
            known=[out],  # if it replaces an index, unchanged passages are not encoded again
        )
    tell(json, f"{out}: {len(made)} passages indexed", index=out, passages=len(made))


@command("bm25=bm25.run reranker=reranker.run --qrels qrels.txt --out lists.jsonl")
def import_trec(
    runs: Annotated[tuple[str, ...], Option(metavar="[NAME=]RUN")],
    *,
    qrels: Path,
    queries: Path | None = None,
    corpus: Path | None = None,
    depth: Annotated[int, Option(ge=1)] = 100,
    out: options.OutFile,
    overwrite: options.Overwrite = False,
    unjudged: options.Unjudged = "refuse",
    json: options.Json = False,
) -> None:
    """Convert TREC runs and qrels to labelled lists, which `rerank calibrate` takes.

    Args:
        runs: TREC run of each stage, in their order, the reranker last (NAME: that of the file)
        qrels: TREC qrels, or those of BEIR
        queries: JSONL, or lines of id, tab and text
        corpus: JSONL of the passages, for features of their words
        depth: passages of a run
    """
    from rerank.data.lists import import_trec
    from rerank.storage.files import write_file

    files: dict[str, Path] = {}
    for given in runs:
        name, equals, path = given.partition("=")
        if not equals or Path(given).exists():  # the name of a file may hold "=" too
            name, path = "", given
        name = name or Path(path).stem
        if name in files:
            raise InputError(f"two runs are named {name!r}; name them: NAME=RUN")
        files[name] = Path(path)
    if out.exists():
        inputs = [*files.values(), *filter(None, (qrels, queries, corpus))]
        if any(out.samefile(path) for path in inputs if path.exists()):
            raise InputError(f"{out} of --out is also an input; write to another file")
        if not overwrite:
            raise InputError(f"{out} exists; write to another file, or replace it with --overwrite")
    if not out.parent.is_dir():
        raise InputError(f"{out}: there is no folder {out.parent}; make it, or give another")
    rows = import_trec(files, qrels, queries=queries, corpus=corpus, depth=depth, unjudged=unjudged)
    answered, empty = [], []

    def written() -> Iterator[str]:
        for row in rows:
            answered.append(bool(row["relevant"]))
            if not row["passages"]:
                empty.append(str(row["_id"]))
            yield json_lines.dumps(row, ensure_ascii=False) + "\n"

    write_file(out, written())
    counts = {"queries": len(answered), "answerable": sum(answered), "empty": len(empty)}
    lines = [f"{out}: lists of {len(answered)} queries, {sum(answered)} of them answerable"]
    if empty:
        lines.append(f"{len(empty)} of the lists are empty: no run has the query, as {empty[0]}")
    lines.append(f"stages: {', '.join(files)}; the last one is taken as the one that orders")
    tell(json, *lines, out=out, **counts, stages=list(files))
