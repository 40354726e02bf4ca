"""`rerank evaluate`."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from rerank.commands.command import Command
from rerank.commands.inputs import load_model, read_dataset, rescorable
from rerank.commands.options import (
    add_group_by,
    add_json,
    add_model,
    add_split,
    add_verbose,
    add_work,
)
from rerank.commands.printing import note, print_headline


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument("dataset", type=Path, help="BEIR folder, or labelled lists")
    add_split(p, "test", "split to measure on")
    add_json(p)
    add_verbose(p)
    add_group_by(p)
    add_work(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.jobs.evaluate import evaluate
    from rerank.report.headline import after_evaluation, headline

    model = load_model(o)
    labelled = read_dataset(o, corpus_elsewhere=model.searches_elsewhere)
    evaluation = evaluate(model, labelled, o.split, work=o.work)
    for one in evaluation.notes:
        note(one)
    if o.json:
        print(json.dumps(evaluation.to_dict()))
        return
    model_path, dataset = (shlex.quote(str(path)) for path in (o.model, rescorable(o.dataset)))
    following = after_evaluation(evaluation, labelled.mode)
    command = following.format(model=model_path, dataset=dataset)
    maps = model.maps[labelled.mode]
    recalibrated = maps.confidence.update is not None
    print_headline(headline(evaluation, maps.certificate, recalibrated=recalibrated), command)
    if o.verbose:
        print()
        print(*evaluation.tables(), sep="\n\n")
    else:
        print("(--verbose: the comparison and all measurements)")


COMMAND = Command(
    "evaluate",
    "measure a model on a split of a labelled set",
    "evaluate work/model datasets/pydata --split test",
    _arguments,
    _run,
    resumes=True,
)
