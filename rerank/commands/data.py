"""`rerank data build`, `check`, `ingest`, `index` and `import-trec`."""

from __future__ import annotations

import json as json_lines
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rerank.commands.command import Only, command
from rerank.commands.options import (
    Documents,
    Json,
    OnBadLines,
    Out,
    OutFile,
    Overwrite,
    Reading,
    Unjudged,
)
from rerank.commands.printing import note, print_json, tell
from rerank.config import Config, IngestConfig, Option
from rerank.errors import InputError, command_line

if TYPE_CHECKING:
    from rerank.ingest.ingest import Ingested

MATCHES = {
    "new": "its manifest.json holds the package versions and the digest",
    "same": "the same set, to the byte, as the manifest says",
    "other versions": "made with other package versions than the manifest's: "
    "figures will differ a little",
    "differs": "WARNING: not the set of the manifest, although the package versions are the same",
}
SHOWN = 10  # files that are named, of each sort


@command("pydata --out datasets/pydata")
def build(name: str, *, out: Out, libraries: tuple[str, ...] = (), json: Json = False) -> None:
    """Build a labelled set from the documentation of installed libraries.

    Args:
        name: pydata or pydata_questions; documentation or documentation_questions, to train on
        libraries: installed libraries with numpydoc docstrings, which documentation is built from
    """
    from rerank.data.build.recipes import build
    from rerank.storage.locks import reserved

    with reserved(out):
        made = build(name, out, libraries)
    counts, matches = made["counts"], made["matches"]
    text = f"{out}: {counts['passages']} passages, {counts['queries']} queries"
    tell(json, text, MATCHES[matches], out=out, matches=matches, **counts)


@command("datasets/pydata")
def check(
    dataset: Path,
    reading: Annotated[Reading, Only(("on_bad_lines", "unjudged"))],
    *,
    json: Json = False,
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
    digest = labelled.digest()
    if json:
        read = asdict(labelled.reading)
        print_json(dataset=dataset, **counts, grouped_by=by, digest=digest, **read)
        return
    for name, count in counts.items():
        print(f"{name:<20}{count:>8}")
    print(f"grouped by {by}\ndigest {digest}")


@command("docs --out work/corpus", resumes=True)
def ingest(folder: Documents, config: IngestConfig, *, out: Path, json: Json = False) -> None:
    """Make a corpus of a folder of documents; run again, it reads only what changed.

    Args:
        out: corpus folder to write, or to update
    """
    from rerank.ingest.ingest import ingest

    found = ingest(folder, out, config)
    if json:
        print_json(corpus=out, **asdict(found))
        return
    print_ingested(found, out)
    print(f"Next: {command_line('model', 'init', out, '--out', 'work/model')}")
    update = command_line("model", "update", "work/model", out)
    print(f"or, if there is a model of this corpus: {update}")


def print_ingested(found: Ingested, out: Path) -> None:
    """Print what a run did; what it skipped goes to stderr."""
    from rerank.ingest.ingest import DUPLICATES, SKIPPED

    print(
        f"{out}: {found.passages} passages of {found.files} files; {found.read} files read, "
        f"{found.gone} gone, the others unchanged"
    )
    if found.exact or found.near:
        print(
            f"duplicate passages left out: {found.exact}; nearly the same: {found.near} pairs; see "
            f"{out / DUPLICATES}"
        )
    if found.other:
        kinds = ", ".join(f"{n} {kind or 'no ending'}" for kind, n in found.other.items())
        note(f"files of other kinds, not read: {kinds}")
    _note_files("files skipped", found.skipped, out / SKIPPED)
    _note_files("files read without a part of them", found.left_out, out / SKIPPED)


def _note_files(what: str, files: Mapping[str, str], listed: Path) -> None:
    if files:
        note(f"{what}: {len(files)}, all in {listed}:")
    for name, why in list(files.items())[:SHOWN]:
        note(f"  {name}: {why}")


@command("datasets/pydata --out work/pydata-index")
def index(
    dataset: Path,
    config: Annotated[
        Config, Only(("encoder", "encoder_max_length", "encoder_windows", "dense", "language"))
    ],
    *,
    out: Out,
    overwrite: Overwrite = False,
    on_bad_lines: OnBadLines = "refuse",
    json: Json = False,
) -> None:
    """Index a corpus for BM25 and dense search.

    Args:
        dataset: folder with corpus.jsonl
    """
    from rerank.data.beir import read_corpus
    from rerank.inference.model_files import find_model
    from rerank.retrieval.dense import Encoder
    from rerank.retrieval.index import INDEX_KIND, build_index
    from rerank.storage.locks import output_folder

    with output_folder(out, overwrite=overwrite, kind=INDEX_KIND):
        corpus = read_corpus(dataset, on_bad_lines).values()
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
    out: OutFile,
    overwrite: Overwrite = False,
    unjudged: Unjudged = "refuse",
    json: Json = False,
) -> None:
    """Convert TREC runs and qrels to labelled lists, which `rerank calibrate` takes.

    Args:
        runs: TREC run of each stage, in their order, the reranker last (NAME: that of the file)
        qrels: TREC qrels, or those of BEIR
        queries: JSONL, or lines of id, tab and text
        corpus: JSONL of the passages, for features of their words
        depth: passages of a run
    """
    from rerank.data.trec import import_trec
    from rerank.storage.files import write_file

    files: dict[str, Path] = {}
    for name, path in map(_named_run, runs):
        if name in files:
            raise InputError(f"two runs are named {name!r}; name them: NAME=RUN")
        files[name] = path
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
    count, answerable = len(answered), sum(answered)
    if json:
        print_json(
            out=out, queries=count, answerable=answerable, empty=len(empty), stages=list(files)
        )
        return
    print(f"{out}: lists of {count} queries, {answerable} of them answerable")
    if empty:
        print(f"{len(empty)} of the lists are empty: no run has the query, as {empty[0]}")
    print(f"stages: {', '.join(files)}; the last one is taken as the one that orders")


def _named_run(given: str) -> tuple[str, Path]:
    """The name and the file of `[NAME=]RUN`; the name of the file may hold "=" too."""
    name, equals, path = given.partition("=")
    if not equals or Path(given).exists():
        return Path(given).stem, Path(given)
    return name or Path(path).stem, Path(path)
