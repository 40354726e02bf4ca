"""`rerank dataset build`, `rerank dataset check` and `rerank dataset import-trec`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rerank.commands.command import Command
from rerank.commands.inputs import read_set
from rerank.commands.options import add_json, add_unjudged, positive
from rerank.commands.printing import print_json
from rerank.errors import InputError

MATCHES = {
    "new": "its manifest.json holds the package versions and the digest",
    "same": "the same set, to the byte, as the manifest says",
    "other versions": "made with other package versions than the manifest's: "
    "figures will differ a little",
    "differs": "WARNING: not the set of the manifest, although the package versions are the same",
}


def _build_arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "name",
        help="pydata or pydata_questions; documentation or documentation_questions, to train on",
    )
    p.add_argument("--out", type=Path, required=True, help="folder to write into")
    p.add_argument(
        "--libraries",
        nargs="+",
        default=(),
        help="installed libraries with numpydoc docstrings, which documentation is built from",
    )
    add_json(p)


def _build(o: argparse.Namespace) -> None:
    from rerank.data.build.recipes import build
    from rerank.storage.locks import reserved

    with reserved(o.out):
        made = build(o.name, o.out, o.libraries)
    if o.json:
        print_json(out=o.out, matches=made["matches"], **made["counts"])
        return
    print(f"{o.out}: {made['counts']['passages']} passages, {made['counts']['queries']} queries")
    print(MATCHES[made["matches"]])


def _check_arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("dataset", type=Path, help="BEIR folder, or labelled lists")
    add_unjudged(p)
    add_json(p)


def _check(o: argparse.Namespace) -> None:
    from rerank.data.grouping import grouped

    labelled = read_set(o.dataset, o.unjudged, o.on_bad_lines)
    every = grouped(labelled, list(labelled.queries))
    counts = {**labelled.counts(), "groups": len({every.group(q) for q in labelled.queries})}
    by = every.grouping.name if every.grouping else "question"
    if o.json:
        print_json(
            dataset=o.dataset,
            **counts,
            grouped_by=by,
            digest=labelled.digest(),
            **asdict(labelled.reading),
        )
        return
    for name, count in counts.items():
        print(f"{name:<20}{count:>8}")
    print(f"grouped by {by}")
    print(f"digest {labelled.digest()}")


def _import_arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "runs",
        nargs="+",
        metavar="[NAME=]RUN",
        help="TREC run of each stage, in their order, the reranker last (NAME: that of the file)",
    )
    p.add_argument("--qrels", type=Path, required=True, help="TREC qrels, or those of BEIR")
    p.add_argument("--queries", type=Path, help="JSONL, or lines of id, tab and text")
    p.add_argument("--corpus", type=Path, help="JSONL of the passages, for features of their words")
    p.add_argument("--depth", type=positive, default=100, help="passages of a run (default: 100)")
    p.add_argument("--out", type=Path, required=True, help="JSONL file to write")
    p.add_argument("--overwrite", action="store_true", help="replace the file in --out")
    add_unjudged(p)
    add_json(p)


def _named_run(given: str) -> tuple[str, Path]:
    """The name and the file of `[NAME=]RUN`; the name of the file may hold "=" too."""
    name, equals, path = given.partition("=")
    if not equals or Path(given).exists():
        return Path(given).stem, Path(given)
    return name or Path(path).stem, Path(path)


def _import(o: argparse.Namespace) -> None:
    from rerank.data.trec import import_trec
    from rerank.storage.files import write_file

    runs: dict[str, Path] = {}
    for name, path in map(_named_run, o.runs):
        if name in runs:
            raise InputError(f"two runs are named {name!r}; name them: NAME=RUN")
        runs[name] = path
    if o.out.exists():
        inputs = [*runs.values(), *filter(None, (o.qrels, o.queries, o.corpus))]
        if any(o.out.samefile(path) for path in inputs if path.exists()):
            raise InputError(f"{o.out} of --out is also an input; write to another file")
        if not o.overwrite:
            raise InputError(
                f"{o.out} exists; write to another file, or replace it with --overwrite"
            )
    if not o.out.parent.is_dir():
        raise InputError(f"{o.out}: there is no folder {o.out.parent}; make it, or give another")
    rows = import_trec(
        runs,
        o.qrels,
        queries=o.queries,
        corpus=o.corpus,
        depth=o.depth,
        unjudged=o.unjudged,
    )
    answered, empty = [], []

    def written() -> Iterator[str]:
        for row in rows:
            answered.append(bool(row["relevant"]))
            if not row["passages"]:
                empty.append(str(row["_id"]))
            yield json.dumps(row, ensure_ascii=False) + "\n"

    write_file(o.out, written())
    if o.json:
        print_json(
            out=o.out,
            queries=len(answered),
            answerable=sum(answered),
            empty=len(empty),
            stages=list(runs),
        )
        return
    print(f"{o.out}: lists of {len(answered)} queries, {sum(answered)} of them answerable")
    if empty:
        print(f"{len(empty)} of the lists are empty: no run has the query, as {empty[0]}")
    print(f"stages: {', '.join(runs)}; the last one is taken as the one that orders")


BUILD = Command(
    "dataset build",
    "build a labelled set from the installed libraries' documentation",
    "dataset build pydata --out datasets/pydata",
    _build_arguments,
    _build,
)
CHECK = Command(
    "dataset check",
    "check a labelled set and count what is in it",
    "dataset check datasets/pydata",
    _check_arguments,
    _check,
)
IMPORT_TREC = Command(
    "dataset import-trec",
    "TREC runs and qrels to labelled lists, which `rerank calibrate` takes",
    "dataset import-trec bm25=bm25.run reranker=reranker.run --qrels qrels.txt --out lists.jsonl",
    _import_arguments,
    _import,
)
