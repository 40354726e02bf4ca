"""`rerank recalibrate`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.commands.command import Command
from rerank.commands.inputs import load_model, read_set
from rerank.commands.options import (
    add_json,
    add_model,
    add_name,
    add_out,
    add_split,
    add_unjudged,
    add_work,
    positive,
)
from rerank.commands.printing import note, print_json, print_run, run_fields
from rerank.errors import InputError, TrackingError

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.data.feedback import Feedback
    from rerank.data.labelled_set import LabelledSet


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument(
        "--labels",
        type=Path,
        help='lines of {"query": TEXT, "right": true or false} or {"query": TEXT, "relevant": '
        '[IDS]}, with "passages" if they came with the query; or a BEIR folder, whose corpus the '
        "new model then searches",
    )
    p.add_argument(
        "--journal",
        metavar="URL",
        help="instead of --labels: what people said of answers in a journal",
    )
    p.add_argument(
        "--answers",
        action="store_true",
        help="with --journal: fit the confidence of generated answers, on what people said of "
        "them, refusals aside, and leave the rest of the model as it is",
    )
    add_out(p, "model")
    add_split(p, "train", "split of a BEIR folder")
    add_unjudged(p)
    p.add_argument(
        "--max-labels",
        type=positive,
        help="labels to use at most, drawn at random; of a journal the newest",
    )
    add_name(p, "that of MODEL; calibrated-rerank-SET where the labels are of another corpus")
    add_work(p)
    add_json(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.jobs.recalibrate import recalibrate

    if o.answers and o.journal is None:
        raise InputError("--answers takes what people said of answers from a --journal URL")
    if (o.labels is None) == (o.journal is None):
        raise InputError(
            "expected labels: a file or a set with --labels, or a journal's URL with --journal; "
            f"got {'neither' if o.labels is None else 'both'}"
        )
    if o.answers:
        if o.name:
            raise InputError("--name: not with --answers, which tracks nothing")
        _recalibrate_answers(o)
        return
    model, labels = _labels(o)
    try:
        made = recalibrate(
            model,
            labels,
            o.out,
            split=o.split,
            work=o.work,
            max_labels=o.max_labels,
            overwrite=o.overwrite,
            name=o.name,
        )
    except TrackingError:
        if not o.json:
            _print_model(o.out)
        raise
    if o.json:
        print_json(model=o.out, worse=made.worse, notes=made.notes, **run_fields(made.run))
    else:
        report = _print_model(o.out)
        print_run(made.run, [one for one in made.notes if one not in report])


def _recalibrate_answers(o: argparse.Namespace) -> None:
    from rerank.jobs.answer_confidence import recalibrate_answers

    count, right = recalibrate_answers(
        load_model(o), o.journal, o.out, newest=o.max_labels, overwrite=o.overwrite
    )
    if o.json:
        print_json(model=o.out, labels=count, right=right)
        return
    print(
        f"{o.out}: the model with a confidence of answers, fitted on {count} labelled ones, of "
        f"which {right} were right; `rerank answer` and the server show it"
    )


def _labels(
    o: argparse.Namespace,
) -> tuple[CalibratedReranker, Path | LabelledSet | list[Feedback]]:
    if o.journal is None:
        model = load_model(o)
        if not o.labels.is_dir():
            return model, o.labels
        elsewhere = model.searches_elsewhere
        return model, read_set(o.labels, o.unjudged, o.on_bad_lines, corpus_elsewhere=elsewhere)
    from rerank.jobs.journal import journal_labels

    model = load_model(o)
    found, notes = journal_labels(model, o.journal, newest=o.max_labels)
    for one in notes:
        note(one)
    return model, found


def _print_model(folder: Path) -> str:
    """Print the report, which is returned, and where the model is."""
    from rerank.assessment.model_folder import REPORT

    report = (folder / REPORT).read_text(encoding="utf-8")
    print(report)
    print(f"{folder}: the recalibrated model; open its report.html")
    return report


COMMAND = Command(
    "recalibrate",
    "recalibrate a model's confidence on a few new labels",
    "recalibrate work/model --labels labels.jsonl --out work/moved",
    _arguments,
    _run,
    resumes=True,
)
