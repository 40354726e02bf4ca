"""`rerank drift`."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.commands.command import Command
from rerank.commands.inputs import load_model, read_set
from rerank.commands.options import add_json, add_model, add_on_bad_lines, add_work, positive
from rerank.errors import InputError

if TYPE_CHECKING:
    from rerank.data.labelled_set import LabelledSet

NEWEST = 1000  # searches of a journal


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument(
        "queries",
        type=Path,
        nargs="?",
        help="the new queries: a JSONL file, or the BEIR folder of another corpus, which needs no "
        "qrels",
    )
    p.add_argument(
        "--journal",
        metavar="URL",
        help="instead of QUERIES: take the new queries from the journal of a server",
    )
    p.add_argument(
        "--newest",
        type=positive,
        help=f"with --journal: compare only so many searches, the newest (default: {NEWEST})",
    )
    p.add_argument(
        "--split",
        help="split of a BEIR folder (default: test, with the queries that are of no split)",
    )
    p.add_argument(
        "--level",
        type=float,
        default=0.01,
        help="chance of an alarm if nothing has changed (default: 0.01)",
    )
    add_on_bad_lines(p)
    add_json(p)
    add_work(p)


def _run(o: argparse.Namespace) -> bool:
    from rerank.assessment.ranking_features import meaning
    from rerank.data.beir import UNLABELLED, read_queries
    from rerank.data.grouping import grouped
    from rerank.jobs.drift import detect_drift
    from rerank.jobs.pipelines import pipeline_over
    from rerank.types import LISTS
    from rerank.workspace import Workspace

    if (o.queries is None) == (o.journal is None):
        raise InputError("expected QUERIES, or a journal's URL with --journal")
    if o.newest and o.journal is None:
        raise InputError("--newest: only with --journal")
    if o.split and (o.queries is None or not o.queries.is_dir()):
        raise InputError("--split: only with a BEIR folder")
    model = load_model(o)
    if o.journal is not None:
        from rerank.jobs.journal import journal_queries

        asked = journal_queries(model, o.journal, newest=o.newest or NEWEST)
        found = detect_drift(model, asked, level=o.level)
    elif o.queries.is_dir():
        labelled = read_set(
            o.queries, UNLABELLED, o.on_bad_lines, corpus_elsewhere=model.searches_elsewhere
        )
        ids = _of_split(labelled, o.split)
        found = detect_drift(
            model,
            grouped(labelled, ids).select(ids),  # by the groups that the model's queries had
            pipeline=pipeline_over(labelled, model, Workspace(o.work)),
            level=o.level,
        )
    else:
        with_lists = model.maps.main_mode == LISTS
        found = detect_drift(model, read_queries(o.queries, passages=with_lists), level=o.level)
    if o.json:
        print(json.dumps(found.to_dict()))
    else:
        table = model.maps.main.features.ranking
        print(f"{found.sentence}\n\n{found.table(words=lambda name: meaning(name, table))}")
    return not found.fired


def _of_split(labelled: LabelledSet, split: str | None) -> tuple[str, ...]:
    """The ids of the queries to compare.

    Raises:
        InputError: there is no such split.
    """
    from rerank.data.beir import UNLABELLED

    splits = dict(labelled.splits)
    of_none = splits.pop(UNLABELLED, ())
    named = replace(labelled, splits=splits)
    if split:
        return tuple(named.split(split))
    return (*named.split("test"), *of_none) if splits else of_none


COMMAND = Command(
    "drift",
    "tell whether new queries differ from those that a model was fitted on, without labels; exit "
    "code 1: they differ",
    "drift work/model queries.jsonl",
    _arguments,
    _run,
    resumes=True,
)
