"""Maps pooled over many labelled sets, and how good they are on a set that they have not seen.

The usual fit, with each set as a group: cross-fitting leaves out whole sets. The maps are measured
for few labels and for many, beside a fit without pooled maps; which passages are scored is decided
anew for each number of labels, as for a user who has only these.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, cycle, islice
from typing import Any

import numpy as np

from calibration import metrics
from calibration.metrics.intervals import student_interval
from calibration.monitoring.drift import MIN_ROWS
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.pipeline import Pipeline, ReadPolicy
from rerank.assessment.predictions import predict
from rerank.config import Config
from rerank.data.labels import Labelled, hits
from rerank.errors import InputError
from rerank.fitting.certificates import refuse_certificates
from rerank.fitting.fit import fit
from rerank.fitting.passage_maps import fit_prior_map, limit_labelled
from rerank.fitting.scored_plan import ScoredPlan, score_planned
from rerank.types import Candidates, Scored

MIN_SETS = 4
LOW = 0.25  # quantile of the sets' cutoffs
NO_LABELS = (
    "No label is of this corpus: the confidence is not calibrated here. Label queries and run "
    "`rerank calibrate`."
)
FitPooled = Callable[[Mapping[str, ScoredPlan], Config], FittedMaps]
LABELS = (0, 25, 50, 100)
MIN_MEASURED = 50  # queries of a set, to be measured on
FIGURES = ("log_loss", "auroc", "smece", "hit1", "accepted", "accepted_right")

Figures = dict[str, float]


def fit_pooled_maps(sets: Mapping[str, ScoredPlan], config: Config) -> FittedMaps:
    """Maps of one mode, fitted on the scored candidates of many sets, which have equal weight.

    Each set's candidates are scored down to its own cutoff; the pooled policy takes the lower
    quartile of these cutoffs. The maps certify nothing, of a set that they have not seen.
    """
    if len(sets) < MIN_SETS:
        raise InputError(f"expected at least {MIN_SETS} labelled sets to pool, got {len(sets)}")
    cutoffs = {name: planned.policy.cutoff for name, planned in sets.items()}
    limited = {n: limit_labelled(planned.to_fit, cutoffs[n]) for n, planned in sets.items()}
    scored = balance_sets(limited)
    prior = fit_prior_map(scored.with_items([s.candidates for s in scored.items]))
    folds = min(config.folds, len(sets))
    pooled_config = replace(config, calibrator="logistic", segment_by="", folds=folds)
    maps = fit(ScoredPlan(scored, scored, ReadPolicy(prior)), pooled_config).maps
    policy = ReadPolicy(prior, float(np.quantile(list(cutoffs.values()), LOW)))
    return replace(refuse_certificates(maps, NO_LABELS), policy=policy, calibrated=False)


def balance_sets(sets: Mapping[str, Labelled[Scored]]) -> Labelled[Scored]:
    """All queries of the sets, each a group; smaller sets repeat theirs, until all are as large."""
    largest = max(map(len, sets.values()))

    def repeated(parts: Sequence[Sequence[Any]]) -> list[Any]:
        return list(chain.from_iterable(islice(cycle(values), largest) for values in parts))

    return Labelled(
        repeated([scored.items for scored in sets.values()]),
        np.repeat(np.array(list(sets)), largest),
        repeated([scored.grades for scored in sets.values()]),
    )


def leave_one_set_out(
    sets: Mapping[str, ScoredPlan],
    pipelines: Mapping[str, Pipeline],
    config: Config,
    *,
    labels: Sequence[int] = LABELS,
    fit_pooled: FitPooled = fit_pooled_maps,
    done: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Figures by set and number of labels: `pooled`, shrunk to the maps of the others, and `alone`.

    The labels come group by group from the queries to fit on; the figures are measured on its other
    groups. The pipeline of each set scores its passages. `done` is called after each set. A number
    of labels is skipped for a set with too few other queries.
    """
    figures: dict[str, Any] = {}
    for name, held_out in sets.items():
        others = {other: planned for other, planned in sets.items() if other != name}
        maps = fit_pooled(others, config)
        rows: dict[str, dict[str, Figures]] = {}
        for count, labelled, measured in _parts(held_out, labels, config.seed):
            arms: dict[str, Figures] = {}
            for arm, pooled in (("pooled", maps), ("alone", None)):
                fitted = _fit_and_score(pipelines[name], labelled, measured, config, pooled)
                if fitted is not None:
                    arms[arm] = _figures(*fitted, config)
            rows[count] = arms
        figures[name] = rows
        done()
    return figures


def summary(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Means by number of labels and arm; the difference of log loss with Student's 95% interval."""
    counts = dict.fromkeys(count for rows in figures.values() for count in rows)
    means: dict[str, Any] = {}
    for count in counts:
        rows_of_sets = [rows[count] for rows in figures.values() if count in rows]
        means[count] = {}
        for arm in ("pooled", "alone"):
            if rows := [r[arm] for r in rows_of_sets if arm in r]:
                accepted = sum(r["accepted_count"] for r in rows)
                right = sum(r["accepted_right"] for r in rows)
                means[count][arm] = {
                    **{figure: _mean([r[figure] for r in rows]) for figure in FIGURES},
                    "accepted_right": right / accepted if accepted else math.nan,
                    "sets": len(rows),
                }
        both = [r for r in rows_of_sets if len(r) == 2]
        gaps = [r["pooled"]["log_loss"] - r["alone"]["log_loss"] for r in both]
        if len(gaps) > 1:
            gap = student_interval(np.array(gaps), least_groups=2)
            means[count]["gap"] = {
                "log_loss": gap.mean,
                "low": gap.low,
                "high": gap.high,
                "worst": max(gaps),
                "better": sum(g < 0 for g in gaps),
                "sets": len(gaps),
            }
    return means


def markdown_table(means: Mapping[str, Any]) -> str:
    """The figures of `summary`, as the Markdown of a model card."""
    head = ["labels", "maps", "sets", "log loss", "AUROC", "smECE", "hit@1"]
    head += ["accepted at 0.7 (share of queries)", "right (share of the accepted)"]
    lines = [head, ["---"] * len(head)]
    for count, arms in means.items():
        for arm in ("pooled", "alone"):
            if arm in arms:
                values = [arms[arm][name] for name in FIGURES]
                figures = ["" if v is None else f"{v:.3f}" for v in values]
                lines.append([count, arm, str(arms[arm]["sets"]), *figures])
    gaps = [
        f"At {count} labels the log loss differs by {gap['log_loss']:+.3f} "
        f"[{gap['low']:+.3f}, {gap['high']:+.3f}] (95% over sets); it is lower in {gap['better']} "
        f"of {gap['sets']} sets, and {gap['worst']:+.3f} at worst."
        for count, arms in means.items()
        if (gap := arms.get("gap"))
    ]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *gaps])


def _fit_and_score(
    pipeline: Pipeline,
    labelled: Labelled[Candidates],
    measured: Labelled[Candidates],
    config: Config,
    pooled: FittedMaps | None,
) -> tuple[FittedMaps, Labelled[Scored]] | None:
    """The maps fitted on `labelled`, and what is measured, scored; None if the labels are too few.

    Without any label the maps are the `pooled` ones.
    """
    if not len(labelled):
        if pooled is None:
            return None
        return pooled, measured.with_items(pipeline.score_by(measured.items, pooled.policy))
    # with fewer there are too few to cross-fit, and to watch for drift
    if len(set(labelled.groups.tolist())) < MIN_ROWS:
        return None
    try:
        planned = score_planned(pipeline, labelled, measured, pooled=pooled)
        maps = fit(planned, config).maps
    except InputError:  # the labels cannot be fitted on
        return None
    return maps, planned.to_report


def _parts(
    planned: ScoredPlan, labels: Sequence[int], seed: int
) -> Iterable[tuple[str, Labelled[Candidates], Labelled[Candidates]]]:
    """The number of labels, the labels, and the queries to measure on: no group is in both."""
    to_fit = planned.to_fit.with_items([s.candidates for s in planned.to_fit.items])
    groups = sorted(set(to_fit.groups.tolist()))
    random.Random(seed).shuffle(groups)
    place = {group: i for i, group in enumerate(groups)}
    order = sorted(range(len(to_fit)), key=lambda i: place[to_fit.groups[i]])
    for count in labels:
        chosen = np.isin(np.arange(len(to_fit)), order[:count])
        others = ~np.isin(to_fit.groups, to_fit.groups[chosen])
        if others.sum() >= MIN_MEASURED:
            yield str(count), to_fit.where(chosen), to_fit.where(others)


def _figures(maps: FittedMaps, measured: Labelled[Scored], config: Config) -> Figures:
    seen = limit_labelled(measured, maps.policy.cutoff)
    predicted = predict(seen.items, maps, config)
    right = hits(seen.with_items(predicted.rankings))[:, 0]
    p = predicted.confidence
    accepted = p >= config.thresholds.advisory
    return {
        "n": len(p),
        **{name: getattr(metrics, name)(right, p) for name in ("log_loss", "auroc", "smece")},
        "hit1": float(right.mean()),
        "accepted": float(accepted.mean()),
        "accepted_right": float(right[accepted].sum()),
        "accepted_count": float(accepted.sum()),
    }


def _mean(values: Sequence[float]) -> float:
    return math.nan if np.isnan(values).all() else float(np.nanmean(values))
