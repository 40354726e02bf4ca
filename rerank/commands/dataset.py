"""`rerank dataset build` and `rerank dataset check`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rerank.commands.command import Command
from rerank.commands.inputs import read_set
from rerank.commands.options import add_unjudged

MATCHES = {
    "new": "its manifest.json holds the package versions and the digest",
    "same": "the same set, to the byte, as the manifest says",
    "other versions": "made with other package versions than the manifest's: "
    "figures will differ a little",
    "differs": "WARNING: not the set of the manifest, although the package versions are the same",
}


def _build_arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("name", help="pydata, pydata_questions, or documentation: a set to train on")
    p.add_argument("--out", type=Path, required=True, help="folder to write into")
    p.add_argument(
        "--libraries",
        nargs="+",
        default=(),
        help="installed libraries with numpydoc docstrings, which documentation is built from",
    )


def _build(o: argparse.Namespace) -> None:
    from rerank.data.build.recipes import build
    from rerank.storage.locks import reserved

    with reserved(o.out):
        made = build(o.name, o.out, o.libraries)
    print(f"{o.out}: {made['counts']['passages']} passages, {made['counts']['queries']} queries")
    print(MATCHES[made["matches"]])


def _check_arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("dataset", type=Path, help="BEIR folder")
    add_unjudged(p)


def _check(o: argparse.Namespace) -> None:
    from rerank.data.grouping import grouped

    labelled = read_set(o.dataset, o.unjudged)
    for name, count in labelled.counts().items():
        print(f"{name:<20}{count:>8}")
    every = grouped(labelled, list(labelled.queries))
    print(f"{'groups':<20}{len({every.group(q) for q in labelled.queries}):>8}")
    print(f"grouped by {every.grouping.name if every.grouping else 'question'}")
    print(f"digest {labelled.digest()}")


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
