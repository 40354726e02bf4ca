"""`rerank calibrate`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rerank.commands.command import command
from rerank.commands.options import (
    WORK,
    Json,
    MostRequests,
    Name,
    Out,
    Overwrite,
    Reading,
    Verbose,
    Work,
    limit_requests,
)
from rerank.commands.printing import print_headline, print_json, print_run, rescorable, run_fields
from rerank.config import Config, Option
from rerank.errors import TrackingError

if TYPE_CHECKING:
    from rerank.assessment.model_folder import ModelFolder


@command("datasets/pydata --out work/model", resumes=True)
def calibrate(
    dataset: Path,
    config: Config,
    reading: Reading,
    *,
    out: Out,
    overwrite: Overwrite = False,
    index: Path | None = None,
    retriever: Annotated[Path | None, Option(metavar="FILE.toml")] = None,
    max_queries: Annotated[int | None, Option(ge=1)] = None,
    name: Name = "",
    self_contained: bool = False,
    most_requests: MostRequests = None,
    verbose: Verbose = False,
    work: Work = WORK,
    json: Json = False,
) -> None:
    """Fit a model's confidence on a labelled set, and measure it on other queries.

    Args:
        dataset: BEIR folder, or a JSONL file of labelled lists with the scores of any other system
        index: folder that `rerank data index` wrote of this corpus (default: one is made in --work)
        retriever: another search system that finds the candidates instead: see docs/your-models.md
        max_queries: use at most so many queries to fit, and as many to report
        self_contained: include the exported networks, to be deployed without torch and weights
    """
    from rerank.assessment.model_folder import MEASURED, REPORT, open_folder
    from rerank.evaluation.measure import OURS
    from rerank.jobs.calibrate import calibrate
    from rerank.report.headline import split_report

    def print_model(*, tracked: bool) -> None:
        folder = open_folder(out)
        head, rest = split_report(folder.text(REPORT))
        print_headline(head, _next_step(folder, dataset, out, max_queries, tracked=tracked))
        if verbose:
            print(f"\n{rest}")
        print(f"{out}: the model; its report.html has all measurements (here: --verbose)")

    limit_requests(most_requests)
    try:
        outcome = calibrate(
            reading.read(dataset, corpus_elsewhere=retriever is not None),
            out,
            config,
            work=work,
            max_queries=max_queries,
            overwrite=overwrite,
            index=index,
            name=name,
            self_contained=self_contained,
            retriever=retriever,
        )
    except TrackingError:
        if not json:
            print_model(tracked=False)
        raise
    tracked = outcome.run is not None
    if json:
        folder = open_folder(out)
        print_json(
            model=out,
            manifest_sha256=folder.sha256(),
            made=outcome.made,
            headline=split_report(outcome.report)[0],
            measured=folder.json(MEASURED)["confidence"][OURS],
            next=_next_step(folder, dataset, out, max_queries, tracked=tracked),
            notes=outcome.notes,
            **run_fields(outcome.run),
        )
        return
    print_model(tracked=tracked)
    if not outcome.made:
        print("it was there already, made from the same data, configuration and weights")
    print_run(outcome.run, outcome.notes)
    print(f"--manifest-sha256 {open_folder(out).sha256()} loads this model and no other")


def _next_step(
    folder: ModelFolder, dataset: Path, out: Path, max_queries: int | None, *, tracked: bool
) -> str:
    """The command to run next; `promote` if queries of a random sample are left to measure on."""
    from rerank.assessment.fitted_maps import read_maps
    from rerank.fitting.plan import count_unused
    from rerank.report.headline import after_calibration

    maps = read_maps(folder)
    counts: Mapping[str, Any] = folder.manifest["queries"]
    queries = folder.manifest["dataset"]["queries"]
    at_random = counts["report_split"] == "test" and counts.get("reported_at_random", True)
    step = after_calibration(
        maps.main.certificate,
        promotable=tracked and bool(at_random),
        mode=maps.main_mode,
        unused=count_unused(counts, of=queries) if max_queries else 0,
    )
    model, path = (shlex.quote(str(path)) for path in (out, rescorable(dataset)))
    return step.format(model=model, dataset=path)
