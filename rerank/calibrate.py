"""The training job: a labelled set in; a calibrated, measured, tracked model folder out.

Index, rank, fit, measure, save, track. The questions it reports on are not among those it fits
on, and queries that the cross-encoder was trained on are left out of both: on them its
logits flatter themselves.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibration.store import is_made_from, refuse_to_replace, write_folder
from rerank.assessor import FITTED_ON, MODEL_KIND, bound_to, fingerprints
from rerank.config import Config
from rerank.evidence import EVIDENCE
from rerank.features import FEATURES
from rerank.fitting import Fitted, choose_floor, cross_ordered, fit, fit_relevance
from rerank.heuristics import HEURISTICS
from rerank.labelled_set import LabelledSet
from rerank.measuring import OURS, Evaluation, evaluate
from rerank.models import lasting_name, resolve, trained_on
from rerank.pipeline import Pipeline, Reading, forget
from rerank.plan import Plan, plan
from rerank.progress import progress
from rerank.retrieval.index import LAYOUT
from rerank.sufficiency import INPUTS
from rerank.text import query_hash
from rerank.types import Ranking
from rerank.workspace import NAME, open_pipeline, track

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibration.tracking import TrackedRun

REPORT = "report.txt"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where the model is and what was measured; `run` is None where nothing had to be done."""

    folder: Path
    report: str  # the text that the model folder keeps as report.txt
    run: TrackedRun | None


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
    weights, nothing is done.

    Raises:
        InputError: too few queries, or a model that does not exist.
        StoreError: `out` exists, is another model, and `overwrite` is False.
    """
    config = replace(
        config, encoder=lasting_name(config.encoder), reranker=lasting_name(config.reranker)
    )
    encoder, reranker = resolve(config.encoder), resolve(config.reranker)
    made_from: dict[str, Any] = {
        "config": config.to_dict(),
        "fingerprints": fingerprints(encoder, reranker, config),
        "dataset": {"name": labelled.name, "digest": labelled.digest(), **labelled.counts()},
        "max_queries": max_queries,
        "inputs": {
            "evidence": list(EVIDENCE),
            "features": list(FEATURES),
            "hazard": list(INPUTS),
            "index": LAYOUT,
        },
    }
    if not overwrite and is_made_from(out, made_from):
        return Outcome(out, (out / REPORT).read_text(encoding="utf-8"), None)
    refuse_to_replace(out, overwrite=overwrite, kind=MODEL_KIND)
    out.parent.mkdir(parents=True, exist_ok=True)
    planned = plan(
        labelled, trained_on=trained_on(reranker), max_queries=max_queries, seed=config.seed
    )
    pipeline = open_pipeline(labelled, config, work)
    to_fit, to_report, reading = rank_planned(pipeline, labelled, planned)
    with progress(4, "fitting, measuring, saving", unit="step") as bar:
        fitted = fit([forget(r, reading.floor) for r in to_fit], labelled, reading, config)
        bar.update()
        evaluation = evaluate(
            to_report,
            labelled,
            fitted.calibrators,
            config,
            baselines={**HEURISTICS, "temperature": fitted.scaled_logit},
        )
        bar.update()
        report = report_text(labelled, planned, fitted, evaluation)
        figures = _figures(labelled, planned, fitted, evaluation, config)

        def fill(folder: Path) -> dict[str, Any]:
            shutil.copytree(pipeline.index.folder, folder / "index")
            bound = bound_to(made_from["config"], made_from["fingerprints"])
            learned = {"bound_to": bound, **fitted.calibrators.to_dict()}
            _write_json(folder / "calibrators.json", learned)
            measured = {"report_split": planned.report_split, **evaluation.to_dict()}
            _write_json(folder / "reliability.json", measured)
            (folder / REPORT).write_text(report, encoding="utf-8")
            fitted_on = sorted({query_hash(labelled.queries[i].text) for i in planned.fit})
            (folder / FITTED_ON).write_text("\n".join(fitted_on) + "\n", encoding="utf-8")
            for name, figure in figures.items():
                figure.savefig(folder / f"{name}.png", dpi=130)
            return {
                **made_from,
                "corpus_digest": labelled.corpus_digest(),
                "queries": planned.counts(),
                "calibrator": {"name": fitted.taken, "reason": fitted.reason},
            }

        manifest = write_folder(out, fill, overwrite=overwrite, kind=MODEL_KIND)
        bar.update()
        run = _track(out, manifest, fitted, evaluation, figures, work)
        bar.update()
    return Outcome(out, report, run)


def rank_planned(
    pipeline: Pipeline, labelled: LabelledSet, planned: Plan
) -> tuple[list[Ranking], list[Ranking], Reading]:
    """Rankings to fit on, rankings to report on, and how the model is to read.

    Both are read with no floor, a ranking to fit on in the order of a prior that has not seen its
    query's group.
    """
    config = pipeline.config
    to_fit = pipeline.find(
        [labelled.queries[i] for i in planned.fit], label="finding candidates to fit on"
    )
    prior = fit_relevance(to_fit, labelled)
    likely = cross_ordered(to_fit, labelled, config, rank_by="relevance")
    to_fit = pipeline.read(likely, label="reranking queries to fit on")
    reading = Reading(prior, choose_floor(to_fit, labelled, config))
    to_report = pipeline.rank(
        [labelled.queries[i] for i in planned.report],
        replace(reading, floor=0.0),
        label="reranking queries to report on",
    )
    return to_fit, to_report, reading


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _figures(
    labelled: LabelledSet, planned: Plan, fitted: Fitted, evaluation: Evaluation, config: Config
) -> dict[str, Figure]:
    from calibration.plots import reliability_diagram, risk_coverage_curve

    threshold = config.thresholds.medium
    return {
        "reliability": reliability_diagram(
            evaluation.right,
            evaluation.confidences[OURS],
            title=f"{labelled.name}, {planned.report_split}: {fitted.taken}",
            threshold=threshold,
        ),
        "risk_coverage": risk_coverage_curve(
            evaluation.right, evaluation.confidences, threshold=threshold
        ),
    }


def report_text(
    labelled: LabelledSet, planned: Plan, fitted: Fitted, evaluation: Evaluation
) -> str:
    """What a run prints: who was fitted on, the orders, the table, and how to read it."""
    left_out = (
        f"Left out: {planned.seen_by_reranker} queries, because the cross-encoder was trained on "
        "them or on their split.\n"
        if planned.seen_by_reranker
        else ""
    )
    if planned.beside_training:
        left_out += (
            "Warning: the cross-encoder was trained on other queries of these splits, and knows "
            "what they\nask about better than it will know new passages: expect to be promised too "
            "much.\nKeep a split apart from its training, or take another --reranker.\n"
        )
    if planned.asked_twice:
        left_out += f"Left out: {planned.asked_twice} queries that the measured ones ask again.\n"
    ours = evaluation.table[OURS]
    return (
        f"{labelled.name}: fitted on {len(planned.fit)} queries, measured on "
        f"{len(planned.report)} others ({planned.report_split}).\n{left_out}"
        f"Read: {evaluation.passages_read:.1f} passages a query{_how_far(fitted)}.\n"
        f"Calibrator: {fitted.taken}. {fitted.reason}\n"
        f"{_certified(fitted, evaluation)}\n\n"
        f"{evaluation.orders_table()}\n\n{evaluation.table.table()}\n\n"
        "AUROC: is a higher confidence right more often (0.5: no, 1: always)? Brier and smECE:\n"
        "error of the probabilities, lower is better; exactly calibrated ones would show\n"
        f"smECE up to {ours.smece_floor95:.3f} here. Of the queries at >= {ours.threshold:g}, "
        "that share or more should be\n"
        "right; the lower bound takes queries as independent.\n\n"
        f"{evaluation.events_table()}\n"
    )


def _certified(fitted: Fitted, evaluation: Evaluation) -> str:
    """The certificate, and how it fared on the measured queries."""
    found = fitted.calibrators.certificate
    if found.threshold is None:
        return found.sentence
    kept = evaluation.right[evaluation.confidences[OURS] >= found.threshold]
    share = f", {kept.mean():.1%}" if len(kept) else ""
    return f"{found.sentence}\nOf the measured queries {kept.sum()} of {len(kept)} were{share}."


def _how_far(fitted: Fitted) -> str:
    floor = fitted.calibrators.reading.floor
    return f", where at least {floor:g} times as likely as the likeliest" if floor else ""


def _track(
    out: Path,
    manifest: Mapping[str, Any],
    fitted: Fitted,
    evaluation: Evaluation,
    figures: Mapping[str, Figure],
    work: Path,
) -> TrackedRun:
    from calibration.tracking import RunRecord

    dataset = manifest["dataset"]["name"]
    record = RunRecord(
        params=_flat({k: v for k, v in manifest.items() if k not in ("files", "kind")}),
        metrics=evaluation.flat(),
        tags={"dataset": dataset, "calibrator": fitted.taken},
        figures=figures,
        tables={"comparison": evaluation.frame(), "feature_weights": fitted.weights()},
        folder=out,
        registered_name=NAME,
    )
    return track(record, run_name=f"{dataset}-{fitted.taken}", work=work, written=out)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested names joined by dots."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
