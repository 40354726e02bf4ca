"""`rerank calibrate`."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    from rerank.jobs.calibrate import calibrate

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
        head, _, following = _report_parts(o, tracked=outcome.run is not None)
        print_json(
            model=o.out,
            made=outcome.made,
            headline=head,
            measured=_measured(o.out),
            next=following,
            notes=outcome.notes,
            **run_fields(outcome.run),
        )
        return
    _print_model(o, tracked=outcome.run is not None)
    if not outcome.made:
        print("it was there already, made from the same data, configuration and weights")
    print_run(outcome.run, outcome.notes)


def _report_parts(o: argparse.Namespace, *, tracked: bool) -> tuple[list[str], str, str]:
    """The report's first sentences, the rest of it, and the command to run next."""
    from rerank.assessment.fitted_maps import maps_from_dict
    from rerank.assessment.model_folder import CALIBRATORS, REPORT
    from rerank.report.headline import after_calibration
    from rerank.storage.folder import read_manifest

    report, kept = ((o.out / name).read_text(encoding="utf-8") for name in (REPORT, CALIBRATORS))
    head, _, rest = report.partition("\n\n")
    maps = maps_from_dict(json.loads(kept))
    certificate = maps[maps.main].certificate
    manifest = read_manifest(o.out)
    command = after_calibration(
        certificate,
        promotable=tracked and manifest["queries"]["report_split"] == "test",
        mode=maps.main,
        unused=unused(manifest) if o.max_queries else 0,
    )
    model, dataset = (shlex.quote(str(path)) for path in (o.out, rescorable(o.dataset)))
    return head.splitlines(), rest, command.format(model=model, dataset=dataset)


def unused(manifest: Mapping[str, Any]) -> int:
    """How many labelled queries of the set were neither used nor left out for a reason."""
    from rerank.fitting.plan import CROSS_FITTED

    counts = manifest["queries"]
    taken = ["fit", "left_out_seen_by_reranker", "left_out_asked_twice"]
    if counts["report_split"] != CROSS_FITTED:  # else it is on those that were fitted on
        taken.append("report")
    return max(0, int(manifest["dataset"]["queries"]) - sum(int(counts[key]) for key in taken))


def _measured(folder: Path) -> Any:
    """The figures of the model's own confidence on the queries that it was measured on."""
    from rerank.assessment.model_folder import MEASURED
    from rerank.evaluation.measure import OURS

    return json.loads((folder / MEASURED).read_text(encoding="utf-8"))["confidence"][OURS]


def _print_model(o: argparse.Namespace, *, tracked: bool) -> None:
    head, rest, following = _report_parts(o, tracked=tracked)
    print_headline(head, following)
    if o.verbose:
        print(f"\n{rest}")
    print(f"{o.out}: the model; its report.html has all measurements (here: --verbose)")


COMMAND = Command(
    "calibrate",
    "calibrate a model on a labelled set, measure and track it; exit code 3: untracked",
    "calibrate datasets/pydata --out work/model",
    _arguments,
    _run,
    config=Config,
    resumes=True,
)
