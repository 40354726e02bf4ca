"""Reads the inputs that arguments name: labelled sets and models. Notes go to stderr."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.commands.printing import note
from rerank.errors import InputError, nearest

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.data.labelled_set import LabelledSet


def read_set(
    folder: Path, unjudged: str, on_bad_lines: str, *, corpus_elsewhere: bool = False
) -> LabelledSet:
    """The set. Notes say what is left out, and how many queries count as unanswerable."""
    from rerank.data.labelled_set import LabelledSet
    from rerank.data.pairs import read_training_set

    if corpus_elsewhere:
        labelled = LabelledSet.read(
            folder, unjudged=unjudged, corpus_elsewhere=True, on_bad_lines=on_bad_lines
        )
    else:
        labelled = read_training_set(folder, unjudged=unjudged, on_bad_lines=on_bad_lines)
    count = len(labelled.queries)
    for one in labelled.reading.notes(count):
        note(f"{folder}: {one}")
    left_out = count - sum(map(len, labelled.splits.values()))
    if left_out:
        note(f"{folder}: {left_out} of {count} queries are in no split and are left out.")
    if unjudged == "unanswerable":
        nothing = sum(i not in labelled.qrels for i in labelled.queries)
        split = ", ".join(labelled.splits)
        note(f"{folder}: {nothing} of {count} queries count as unanswerable ({split}).")
    return labelled


def rescorable(dataset: Path) -> Path:
    """The file of labelled lists, if `rescore` takes its ending; else a name that it takes."""
    from rerank.batch.input import ENDINGS

    return dataset if dataset.suffix.lower() in ENDINGS else Path("lists.jsonl")


def read_sets(
    folders: Sequence[Path], o: argparse.Namespace, *, corpus_elsewhere: bool = False
) -> list[LabelledSet]:
    """The sets, grouped by `--group-by`: a query metadata key that at least one of them has."""
    elsewhere = corpus_elsewhere or getattr(o, "retriever", None) is not None
    sets = [
        read_set(folder, o.unjudged, o.on_bad_lines, corpus_elsewhere=elsewhere)
        for folder in folders
    ]
    if o.group_by is None:
        return sets
    known = {key for labelled in sets for q in labelled.queries.values() for key in q.metadata}
    if o.group_by not in known:
        raise InputError(
            f"no query has the metadata {o.group_by!r} of --group-by, only "
            f"{', '.join(sorted(known)) or 'none at all'}"
            f"{nearest(o.group_by, known)}"
        )
    return [labelled.grouped_by(o.group_by) for labelled in sets]


def read_dataset(o: argparse.Namespace, *, corpus_elsewhere: bool = False) -> LabelledSet:
    """The set of a command that takes one.

    corpus_elsewhere: another search system holds the passages, so `corpus.jsonl` is not needed.
    """
    return read_sets([o.dataset], o, corpus_elsewhere=corpus_elsewhere)[0]


def load_model(o: argparse.Namespace) -> CalibratedReranker:
    """The requested model; its cross-encoder scores are cached under `work`, if that is given."""
    from rerank.assessment.model import CalibratedReranker
    from rerank.inference.score_cache import ScoreCache
    from rerank.workspace import Workspace

    work = Workspace(o.work) if hasattr(o, "work") else None
    return CalibratedReranker.load(
        o.model,
        cache=ScoreCache(work.scores) if work else None,
        allow_download=getattr(o, "download", False),
        tracking_uri=work.tracking_uri if work else None,
        manifest_sha256=o.manifest_sha256,
    )
