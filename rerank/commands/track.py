"""`rerank track`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rerank.commands.command import Command
from rerank.commands.options import add_json, add_work
from rerank.commands.printing import print_json, print_run, run_fields


def _arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("model", type=Path, help="model folder")
    add_work(p)
    add_json(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.jobs.track import track_model
    from rerank.workspace import Workspace

    run = track_model(o.model, work=Workspace(o.work))
    if o.json:
        print_json(model=o.model, **run_fields(run))
    else:
        print_run(run)


COMMAND = Command(
    "track",
    "send a finished model to MLflow, where calibrate could not; once, however often it is run",
    "track work/model",
    _arguments,
    _run,
)
