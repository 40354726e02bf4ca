"""`rerank calibrate`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.commands.command import Command
from rerank.commands.inputs import read_dataset, rescorable
from rerank.commands.options import (
    add_group_by,
    add_json,
    add_name,
    add_out,
    add_verbose,
    add_work,
    from_options,
    positive,
)
from rerank.commands.printing import print_headline, print_json, print_run, run_fields
from rerank.config import Config
from rerank.errors import TrackingError

if TYPE_CHECKING:
    from rerank.assessment.model_folder import ModelFolder


def _arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "dataset",
        type=Path,
        help="BEIR folder, or a JSONL file of labelled lists with the scores of any other system",
    )
    add_out(p, "model")
    p.add_argument(
        "--index",
        type=Path,
        help="folder that `rerank index` wrote of this corpus (default: one is made in --work)",
    )
    p.add_argument(
        "--retriever",
        type=Path,
        metavar="FILE.toml",
        help="another search system that finds the candidates instead: see docs/retrievers.md",
    )
    p.add_argument(
        "--max-queries", type=positive, help="bound on queries to fit on, and to report on"
    )
    add_name(p, "calibrated-rerank-SET, after the data set")
    add_verbose(p)
    p.add_argument(
        "--self-contained",
        action="store_true",
        help="include the exported networks, to be deployed without torch and weights",
    )
    add_group_by(p)
    add_work(p)
    add_json(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.assessment.model_folder import MEASURED, open_folder
    from rerank.evaluation.measure import OURS
    from rerank.jobs.calibrate import calibrate
    from rerank.report.headline import split_report

    config = from_options(Config, o)
    try:
        outcome = calibrate(
            read_dataset(o),
            o.out,
            config,
            work=o.work,
            max_queries=o.max_queries,
            overwrite=o.overwrite,
            index=o.index,
            name=o.name,
            self_contained=o.self_contained,
            retriever=o.retriever,
        )
    except TrackingError:
        if not o.json:
            _print_model(o, tracked=False)
        raise
    if o.json:
        folder = open_folder(o.out)
        print_json(
            model=o.out,
            manifest_sha256=folder.sha256(),
            made=outcome.made,
            headline=split_report(outcome.report)[0],
            measured=folder.json(MEASURED)["confidence"][OURS],
            next=_next_step(o, folder, tracked=outcome.run is not None),
            notes=outcome.notes,
            **run_fields(outcome.run),
        )
        return
    _print_model(o, tracked=outcome.run is not None)
    if not outcome.made:
        print("it was there already, made from the same data, configuration and weights")
    print_run(outcome.run, outcome.notes)


def _promotable(counts: Mapping[str, Any]) -> bool:
    """Whether queries of a random sample are left that the model was not fitted on."""
    return bool(counts["report_split"] == "test" and counts.get("reported_at_random", True))


def _next_step(o: argparse.Namespace, folder: ModelFolder, *, tracked: bool) -> str:
    """The command to run next."""
    from rerank.assessment.fitted_maps import read_maps
    from rerank.fitting.plan import count_unused
    from rerank.report.headline import after_calibration

    maps, counts = read_maps(folder), folder.manifest["queries"]
    queries = folder.manifest["dataset"]["queries"]
    command = after_calibration(
        maps.main.certificate,
        promotable=tracked and _promotable(counts),
        mode=maps.main_mode,
        unused=count_unused(counts, of=queries) if o.max_queries else 0,
    )
    model, dataset = (shlex.quote(str(path)) for path in (o.out, rescorable(o.dataset)))
    return command.format(model=model, dataset=dataset)


def _print_model(o: argparse.Namespace, *, tracked: bool) -> None:
    from rerank.assessment.model_folder import REPORT, open_folder
    from rerank.report.headline import split_report

    folder = open_folder(o.out)
    head, rest = split_report(folder.text(REPORT))
    print_headline(head, _next_step(o, folder, tracked=tracked))
    if o.verbose:
        print(f"\n{rest}")
    print(f"{o.out}: the model; its report.html has all measurements (here: --verbose)")
    print(f"--manifest-sha256 {folder.sha256()} loads this one and no other")


COMMAND = Command(
    "calibrate",
    "calibrate a model on a labelled set, measure and track it; exit code 3: untracked",
    "calibrate datasets/pydata --out work/model",
    _arguments,
    _run,
    config=Config,
    resumes=True,
)
