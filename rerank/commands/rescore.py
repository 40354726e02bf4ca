"""`rerank rescore`."""

from __future__ import annotations

import argparse
import signal
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.commands.command import REJECTED, Command
from rerank.commands.inputs import load_model
from rerank.commands.options import add_json, add_model, add_work, positive
from rerank.commands.printing import print_json

if TYPE_CHECKING:
    from rerank.batch.job import RescoreSummary


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument(
        "queries",
        type=Path,
        help="JSONL, CSV or Parquet (also .gz, .zst, a folder of parts) of _id and query, and of "
        "passages where a query brings its own",
    )
    p.add_argument(
        "--out",
        type=Path,
        required=True,
        help="JSONL or Parquet to write; rejected rows go to OUT.rejected.jsonl beside it",
    )
    p.add_argument(
        "--strict", action="store_true", help="check all rows first: if one is bad, score none"
    )
    p.add_argument(
        "--restart",
        action="store_true",
        help="throw away what an interrupted run of another model or input left",
    )
    p.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="this process, or Ray: the cluster of RAY_ADDRESS, else here (default: local)",
    )
    p.add_argument(
        "--actors",
        type=positive,
        help="how many actors of Ray, each with the model (default: one per 4 cores)",
    )
    add_work(p)
    add_json(p)


def _run(o: argparse.Namespace) -> int:
    from rerank.batch import rescore

    with suppress(ValueError):  # in another thread than the main one
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops as Ctrl-C does
    done = rescore(
        load_model(o),
        o.queries,
        o.out,
        strict=o.strict,
        restart=o.restart,
        engine=o.engine,
        actors=o.actors,
    )
    if o.json:
        print_json(out=o.out, **asdict(done))
    else:
        _print(done, o.out)
    return REJECTED if done.rejected else 0


def _print(done: RescoreSummary, out: Path) -> None:
    if done.resumed:
        print(f"{done.resumed} of the rows were done before an interruption")
    print(f"{out}: {done.answered} predictions")
    if done.rejected:
        print(f"{done.side}: {done.rejected} rows were rejected")


COMMAND = Command(
    "rescore",
    "assess a file of queries; exit code 3: some rows were rejected",
    "rescore work/model queries.jsonl --out predictions.jsonl",
    _arguments,
    _run,
    resumes=True,
)
