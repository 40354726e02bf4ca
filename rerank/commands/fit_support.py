"""`rerank fit-support`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rerank.commands.command import Command
from rerank.commands.inputs import load_model, read_set
from rerank.commands.options import add_json, add_model, add_split, add_unjudged, add_work
from rerank.commands.printing import print_json
from rerank.errors import command_line


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument(
        "labels",
        type=Path,
        help='lines of {"claim": TEXT, "text": PASSAGE, "supported": true or false}; or a BEIR '
        "folder, whose queries count as claims that their right passages support",
    )
    add_split(p, "train", "split of a BEIR folder")
    add_unjudged(p)
    add_work(p)
    add_json(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.jobs.fit_support import fit_support_threshold

    labels = read_set(o.labels, o.unjudged, o.on_bad_lines) if o.labels.is_dir() else o.labels
    threshold, count = fit_support_threshold(load_model(o), labels, o.split)
    if o.json:
        print_json(support=threshold, claims=count)
        return
    print(
        f"{threshold:.2f}: fitted on those of {count} claims that words leave undecided\n"
        f"Next: {command_line('answer', o.model, 'QUERY', '--support', f'{threshold:.2f}')}"
    )


COMMAND = Command(
    "fit-support",
    "fit from which probability a source supports a sentence of an answer",
    "fit-support work/model datasets/pydata --split dev",
    _arguments,
    _run,
    resumes=True,
)
