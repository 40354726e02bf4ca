"""The training job: a labelled set in; a calibrated, measured, tracked model folder out.

Index, rank, fit, measure, save, track. The queries it reports on share no group with those it
fits on, and queries that the cross-encoder was trained on are left out of both: on them its
logits flatter themselves.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.plots import reliability_diagram, risk_coverage_curve
from calibration.store import StoreError, refuse_to_replace, verify_folder, write_folder
from calibration.tracking import RunRecord, TrackedRun, log_run
from rerank.assessor import MODEL_KIND, CalibratedReranker, fingerprints
from rerank.config import Config
from rerank.fitting import Evaluation, Fitted, evaluate, fit
from rerank.labelled_set import LabelledSet
from rerank.models import resolve, trained_on
from rerank.pipeline import Pipeline, ScoreCache
from rerank.retrieval.dense import Encoder
from rerank.retrieval.index import Index, build_index
from rerank.text import query_hash
from rerank.types import InputError

REPORT_SHARE = 0.3  # of the groups, where a set has no split to report on
LEAST_QUERIES = 30  # to fit on; below it no map is worth having


@dataclass(frozen=True, slots=True)
class Plan:
    """Which queries a run fits on and which it reports on; the two share no group."""

    fit: tuple[str, ...]
    report: tuple[str, ...]
    report_split: str
    seen_by_reranker: int  # left out, because the cross-encoder was trained on them


def plan(
    labelled: LabelledSet, *, trained_on: frozenset[str], max_queries: int | None, seed: int
) -> Plan:
    """Decide who is fitted on and who is reported on.

    Reported on: `test`, else `dev`, else a held-out part of the groups. Fitted on: every other
    query that shares no group with those. `max_queries` bounds each of the two, drawn by group.

    Raises:
        InputError: too few queries are left to fit or to report on.
    """
    kept: dict[str, list[str]] = {}
    seen = 0
    for split, ids in labelled.splits.items():
        fresh = [i for i in ids if query_hash(labelled.queries[i].text) not in trained_on]
        seen += len(ids) - len(fresh)
        kept[split] = fresh
    named = next((s for s in ("test", "dev") if kept.get(s) and len(kept) > 1), None)
    if named:
        report = kept[named]
        held = {labelled.group(i) for i in report}
    else:
        groups = sorted({labelled.group(i) for ids in kept.values() for i in ids})
        random.Random(seed).shuffle(groups)
        held = set(groups[: max(1, round(REPORT_SHARE * len(groups)))])
        report = [i for ids in kept.values() for i in ids if labelled.group(i) in held]
    rest = [i for split, ids in kept.items() if split != named for i in ids]
    fit = [i for i in rest if labelled.group(i) not in held]
    fit, report = (_at_most(labelled, ids, max_queries, seed) for ids in (fit, report))
    if len(fit) < LEAST_QUERIES or not report:
        raise InputError(
            f"{labelled.name}: {len(fit)} queries to fit on and {len(report)} to report on, of "
            f"{len(labelled.queries)} ({seen} left out because the cross-encoder was trained on "
            f"them); expected at least {LEAST_QUERIES} to fit on; label more queries"
        )
    return Plan(tuple(fit), tuple(report), named or "held out", seen)


def _at_most(labelled: LabelledSet, ids: list[str], limit: int | None, seed: int) -> list[str]:
    """At most `limit` of the ids, whole groups in drawn order, in their old order."""
    if limit is None or len(ids) <= limit:
        return ids
    by_group: dict[str, list[str]] = {}
    for i in ids:
        by_group.setdefault(labelled.group(i), []).append(i)
    groups = sorted(by_group)
    random.Random(seed).shuffle(groups)
    drawn = [i for g in groups for i in by_group[g]][:limit]
    return [i for i in ids if i in set(drawn)]


def open_index(labelled: LabelledSet, config: Config, work: Path) -> Index:
    """The index of a set's corpus under `work/index`: built once, reused when nothing changed."""
    encoder = Encoder(resolve(config.encoder), max_length=config.encoder_max_length)
    key = "-".join(
        [
            labelled.name,
            labelled.corpus_digest()[:16],
            encoder.files.fingerprint[:16],
            str(encoder.max_length),
            config.language,
        ]
    )
    home = work / "index" / key
    try:
        verify_folder(home)
    except StoreError:
        shutil.rmtree(home, ignore_errors=True)
        build_index(labelled.corpus.values(), home, encoder, language=config.language)
    return Index(home)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gives back: where the model is, what was measured, where the run is tracked."""

    folder: Path
    plan: Plan
    fitted: Fitted
    evaluation: Evaluation
    run: TrackedRun


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

    Indexes and cross-encoder scores are kept under `work`; the same call, after an interruption,
    goes on from them.

    Raises:
        InputError: too few queries, or a model that does not exist.
        StoreError: `out` exists and `overwrite` is False.
    """
    refuse_to_replace(out, overwrite=overwrite)
    reranker = resolve(config.reranker)
    planned = plan(
        labelled, trained_on=trained_on(reranker), max_queries=max_queries, seed=config.seed
    )
    pipeline = Pipeline(
        open_index(labelled, config, work), config, cache=ScoreCache(work / "scores")
    )
    every = [labelled.queries[i] for i in (*planned.fit, *planned.report)]
    rankings = pipeline.rank(every, label="reranking queries")
    to_fit, to_report = rankings[: len(planned.fit)], rankings[len(planned.fit) :]
    fitted = fit(to_fit, labelled, config)
    evaluation = evaluate(to_report, labelled, fitted.calibrators, fitted.ways, config)
    taken = f"ours, {fitted.taken}"
    figures = {
        "reliability": reliability_diagram(
            evaluation.right,
            evaluation.confidences[taken],
            title=f"{labelled.name}, {planned.report_split}: {taken}",
            threshold=config.thresholds.medium,
        ),
        "risk_coverage": risk_coverage_curve(
            evaluation.right, evaluation.confidences, threshold=config.thresholds.medium
        ),
    }

    def fill(folder: Path) -> dict[str, Any]:
        shutil.copytree(pipeline.index.folder, folder / "index")
        (folder / "calibrators.json").write_text(json.dumps(fitted.calibrators.to_dict()) + "\n")
        report = {"report_split": planned.report_split, **evaluation.to_dict()}
        (folder / "reliability.json").write_text(json.dumps(report, indent=2) + "\n")
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}.png", dpi=130)
        return {
            "kind": MODEL_KIND,
            "config": config.to_dict(),
            "fingerprints": fingerprints(pipeline),
            "dataset": {"name": labelled.name, "digest": labelled.digest(), **labelled.counts()},
            "corpus_digest": labelled.corpus_digest(),
            "queries": {
                "fit": len(planned.fit),
                "report": len(planned.report),
                "report_split": planned.report_split,
                "left_out_seen_by_reranker": planned.seen_by_reranker,
            },
            "calibrator": {"name": fitted.taken, "reason": fitted.choice.reason},
        }

    manifest = write_folder(out, fill, overwrite=overwrite)
    run = log_run(
        RunRecord(
            params=_flat({k: v for k, v in manifest.items() if k not in ("files", "kind")}),
            metrics=evaluation.flat(taken),
            tags={"dataset": labelled.name, "calibrator": fitted.taken},
            figures=figures,
            tables={"comparison": evaluation.frame(), "feature_weights": fitted.weights()},
            folder=out,
            registered_name="calibrated-rerank",
        ),
        experiment="calibrated-rerank",
        run_name=f"{labelled.name}-{fitted.taken}",
        tracking_uri=f"sqlite:///{(work / 'mlflow.db').resolve()}",
        artifact_location=(work / "mlartifacts").resolve().as_uri(),
    )
    return Outcome(out, planned, fitted, evaluation, run)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested names joined by dots."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def evaluate_model(folder: Path, labelled: LabelledSet, split: str, *, work: Path) -> Evaluation:
    """Measure a model on a split, on the set's own corpus.

    Where the corpus is another than the model's, it is indexed under `work`.

    Raises:
        InputError: not a model folder, or no such split.
    """
    if split not in labelled.splits:
        raise InputError(f"{labelled.name} has no split {split!r}; it has {list(labelled.splits)}")
    model = CalibratedReranker.load(folder, cache=ScoreCache(work / "scores"))
    config, calibrators = model.pipeline.config, model.calibrators
    if labelled.corpus_digest() != model.manifest["corpus_digest"]:
        index = open_index(labelled, config, work)
        model = CalibratedReranker(Pipeline(index, config, cache=model.pipeline.cache), calibrators)
    queries = [labelled.queries[i] for i in labelled.splits[split]]
    rankings = model.pipeline.rank(queries, label="reranking queries")
    way = {"calibrated": calibrators.confidence}
    return evaluate(rankings, labelled, calibrators, way, config)
