"""The training job: a labelled set in; a calibrated, measured, tracked model folder out.

Index, rank, fit, measure, save, track. The questions it reports on are not among those it fits
on, and queries that the cross-encoder was trained on are left out of both: on them its
logits flatter themselves.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibration.store import is_made_from, refuse_to_replace, write_folder, write_json
from rerank.config import Config
from rerank.evidence import EVIDENCE
from rerank.features import FEATURES
from rerank.fitting.fit import Fitted, fit
from rerank.fitting.labels_taught import refuse_one_outcome, refuse_one_passage
from rerank.fitting.plan import plan_grouped
from rerank.fitting.ranked import Ranked, rank_as_given, rank_planned
from rerank.heuristics import HEURISTICS
from rerank.jobs.record import track_model
from rerank.jobs.workspace import open_pipeline
from rerank.learned import learned_dict
from rerank.model_folder import (
    CALIBRATORS,
    FITTED_ON,
    MEASURED,
    MODEL_KIND,
    SKETCH,
    fingerprints,
)
from rerank.pipeline import forget
from rerank.progress import progress
from rerank.reporting.measuring import evaluate
from rerank.reporting.report import make_report, report_text
from rerank.reporting.report_page import report_figures, report_page, report_pictures
from rerank.retrieval.index import LAYOUT
from rerank.sets.labelled_set import LabelledSet
from rerank.sufficiency import INPUTS
from rerank.text import query_hash
from rerank.transformer.models import lasting_name, resolve, trained_on
from rerank.types import InputError

if TYPE_CHECKING:
    from calibration.tracking import TrackedRun

REPORT = "report.txt"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where the model is, what was measured, and MLflow's run of it."""

    folder: Path
    report: str  # the text that the model folder keeps as report.txt
    run: TrackedRun
    made: bool  # by this call; else it was there already


def calibrate(
    labelled: LabelledSet,
    out: Path,
    config: Config,
    *,
    work: Path,
    max_queries: int | None = None,
    overwrite: bool = False,
) -> Outcome:
    """Run the whole job and write the model folder `out`, whole or not at all.

    Indexes and cross-encoder scores are kept under `work`: the same call, after an interruption,
    goes on from them. Where `out` already is the model of this very data, configuration and
    weights, it is not made again, but sent to MLflow if no run of it is known.

    Raises:
        InputError: too few queries, one passage, labels that are all right or all wrong, or a
            model that does not exist.
        NotTrackedError: the model is written, and MLflow did not take its record; `track_model`
            sends it later.
        StoreError: `out` exists, is another model, and `overwrite` is False.
    """
    config = replace(
        config, encoder=lasting_name(config.encoder), reranker=lasting_name(config.reranker)
    )
    encoder, reranker = resolve(config.encoder), resolve(config.reranker)
    made_from: dict[str, Any] = {
        "config": config.to_dict(),
        "fingerprints": fingerprints(encoder, reranker, config),
        "dataset": labelled.described(),
        "max_queries": max_queries,
        "inputs": {
            "evidence": list(EVIDENCE),
            "features": list(FEATURES),
            "hazard": list(INPUTS),
            "index": LAYOUT,
        },
    }
    if not overwrite and is_made_from(out, made_from):
        run = track_model(out, work=work)
        return Outcome(out, (out / REPORT).read_text(encoding="utf-8"), run, made=False)
    refuse_to_replace(out, overwrite=overwrite, kind=MODEL_KIND)
    out.parent.mkdir(parents=True, exist_ok=True)
    labelled, planned = plan_grouped(
        labelled, trained_on=trained_on(reranker), max_queries=max_queries, seed=config.seed
    )
    if config.correct_by and not any(
        labelled.queries[i].named(config.correct_by) for i in planned.fit
    ):
        raise InputError(
            f"none of the queries has the metadata {config.correct_by!r} that --correct-by names"
        )
    refuse_one_passage(labelled)
    pipeline = open_pipeline(labelled, config, work)
    ranked = rank_planned(pipeline, labelled, planned)
    as_given = rank_as_given(pipeline, labelled, ranked)
    with progress(5, "fitting, measuring, saving", unit="step") as bar:
        fitted, given = (fit_ranked(r, labelled, config) for r in (ranked, as_given))
        refuse_one_outcome(fitted.right, labelled.name)
        bar.update()
        evaluation = evaluate(
            ranked.to_report,
            labelled,
            fitted.calibrators,
            config,
            baselines={**HEURISTICS, "temperature": fitted.scaled_logit},
        )
        of_given = evaluate(as_given.to_report, labelled, given.calibrators, config, baselines={})
        bar.update()
        report = make_report(
            labelled,
            planned,
            fitted,
            evaluation,
            config,
            given=of_given,
            rankings=ranked.to_report,
            made_from=made_from,
        )
        text, figures = report_text(report), report_figures(report)
        pictures = report_pictures(figures)
        bar.update()

        def fill(folder: Path) -> dict[str, Any]:
            shutil.copytree(pipeline.index.folder, folder / "index")
            made_with = made_from["config"], made_from["fingerprints"]
            learned = learned_dict(*made_with, fitted.calibrators, given.calibrators)
            write_json(folder / CALIBRATORS, learned)
            write_json(folder / SKETCH, fitted.sketch.to_dict())
            write_json(folder / MEASURED, report.to_dict())
            (folder / REPORT).write_text(text, encoding="utf-8")
            page = report_page(report, pictures)
            (folder / "report.html").write_text(page, encoding="utf-8")
            fitted_on = sorted({query_hash(labelled.queries[i].text) for i in planned.fit})
            (folder / FITTED_ON).write_text("\n".join(fitted_on) + "\n", encoding="utf-8")
            for name, picture in pictures.items():
                (folder / f"{name}.png").write_bytes(picture.whole)
            return {
                **made_from,
                "corpus_digest": labelled.corpus_digest(),
                "queries": planned.counts(),
                "calibrator": {"name": fitted.taken, "reason": fitted.reason},
            }

        write_folder(out, fill, overwrite=overwrite, kind=MODEL_KIND)
        bar.update()
        run = track_model(out, work=work)
        bar.update()
    return Outcome(out, text, run, made=True)


def fit_ranked(ranked: Ranked, labelled: LabelledSet, config: Config) -> Fitted:
    """`fit` on what the model will read of the rankings."""
    read = [forget(r, ranked.reading.floor) for r in ranked.to_fit]
    return fit(read, labelled, ranked.reading, config, whole=ranked.to_fit)
