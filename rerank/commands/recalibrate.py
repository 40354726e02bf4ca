"""`rerank recalibrate`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rerank.commands.command import Command
from rerank.commands.inputs import load_model, read_set
from rerank.commands.options import (
    add_model,
    add_name,
    add_out,
    add_split,
    add_unjudged,
    add_work,
    positive,
)
from rerank.commands.printing import print_run
from rerank.errors import TrackingError


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument(
        "--labels",
        type=Path,
        required=True,
        help='lines of {"query": TEXT, "right": true or false} or {"query": TEXT, "relevant": '
        '[IDS]}, with "passages" where callers brought them; or a BEIR folder, whose corpus the '
        "new model then searches",
    )
    add_out(p, "model")
    add_split(p, "train", "split of a BEIR folder")
    add_unjudged(p)
    p.add_argument("--max-labels", type=positive, help="take only so many of them, drawn at random")
    add_name(p, "that of MODEL; calibrated-rerank-SET where the labels are of another corpus")
    add_work(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.jobs.recalibrate import recalibrate

    labels = read_set(o.labels, o.unjudged) if o.labels.is_dir() else o.labels
    model = load_model(o)
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
        _print_model(o.out)
        raise
    _print_model(o.out)
    print_run(made.run, made.notes)


def _print_model(folder: Path) -> None:
    from rerank.assessment.model_folder import REPORT

    print((folder / REPORT).read_text(encoding="utf-8"))
    print(f"{folder}: the recalibrated model; open its report.html")


COMMAND = Command(
    "recalibrate",
    "move a model's confidence by a few new labels",
    "recalibrate work/model --labels labels.jsonl --out work/moved",
    _arguments,
    _run,
    resumes=True,
)
