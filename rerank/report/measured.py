"""What a calibration run measured, as one frozen result; `calibration` shows it.

Beside the evaluation: the confidence from fewer features and labels, and two queries explained.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from calibration.arrays import log_odds, logit, plain
from calibration.maps import LogisticMap, TwoStageMap
from calibration.reliability import Curves
from rerank.assessment.predictions import have_passages, segments_of
from rerank.assessment.ranking_features import meaning
from rerank.config import Config
from rerank.evaluation import ablation
from rerank.evaluation.measure import OURS, Evaluation
from rerank.fitting.fit import Fitted
from rerank.fitting.plan import Plan
from rerank.types import Floats, Passage


@dataclass(frozen=True, slots=True)
class Explained:
    """One measured query, and how its features lead to its confidence."""

    file: str  # name of its picture
    title: str
    query: str
    top: str  # the passage that was ranked first
    answer: str  # a right passage, or a note that there is none; empty if the top one is right
    base: float  # log odds of a query whose features are all usual
    contributions: Floats  # log odds that each feature adds; last the segment, if there are any
    names: tuple[str, ...]  # of the features, with this query's value and the usual one
    confidence: float


@dataclass(frozen=True, slots=True)
class Report:
    """All that is shown of a run; showing it computes nothing."""

    name: str  # of the labelled set
    made_from: Mapping[str, Any]  # configuration, fingerprints, counts: see the manifest
    planned: Plan
    fitted: Fitted
    evaluation: Evaluation
    curves: Curves  # of the evaluation
    rerank: Evaluation | None  # of the same queries, with passages as a caller might bring
    steps: tuple[ablation.Step, ...]
    budgets: ablation.Budgets
    explained: tuple[Explained, ...]

    @property
    def copies(self) -> int:
        """The number of queries fitted on that are copies, with their answers taken out."""
        return int(self.fitted.copies.sum())

    def to_dict(self) -> dict[str, Any]:
        """What `reliability.json` holds: plain JSON values; undefined values are None."""
        return {
            "report_split": self.planned.report_split,
            "reported": self.planned.reported,
            "copies": self.copies,
            "grouped_by": self.planned.grouping.name,
            "groups": len(set(self.fitted.groups)),
            "effective_queries": self.fitted.effective,
            **self.evaluation.to_dict(),
            "curves": plain(self.curves),
            **({"rerank": self.rerank.to_dict()} if self.rerank else {}),
            "ablation": [plain(asdict(step)) for step in self.steps],
            "labels": plain(asdict(self.budgets)),
        }


def make_report(
    planned: Plan,
    fitted: Fitted,
    evaluation: Evaluation,
    config: Config,
    *,
    rerank: Evaluation | None,
    made_from: Mapping[str, Any],
    fits: Sequence[Fitted],
) -> Report:
    """Compute what the evaluation does not hold: ablations, and two queries explained.

    `fits` measured one fold each; if there was one fold, the only one is `fitted`.
    """
    trials, groups = [], evaluation.labelled.groups
    for k, one in enumerate(fits):  # the rows that it was fitted on, and those of its fold
        rows, fold = one.rows, evaluation.fold_of == k
        fitted_on = ablation.Examples(one.features[rows], one.right[rows], one.groups[rows])
        held = ablation.Examples(evaluation.features[fold], evaluation.right[fold], groups[fold])
        trials.append(ablation.Trial(fitted_on, held, one.calibrator, one.reference))
    columns = ablation.columns_by_step(fitted.maps.features)
    how: dict[str, Any] = {"folds": config.folds, "random_state": config.seed}
    steps = ablation.by_features(trials, columns=columns, **how)
    penalties, threshold = steps[-1].penalties, config.thresholds.advisory
    extremes, ours = [], evaluation.confidences[OURS]
    wrong = (evaluation.right == 0) & have_passages(evaluation.labelled.items)
    if wrong.any():
        row = int(np.where(wrong, ours, -1).argmax())
        extremes.append(("surest_wrong", "The surest answer that was wrong", row))
    if evaluation.right.any():
        row = int(np.where(evaluation.right == 1, ours, 2).argmin())
        extremes.append(("least_sure_right", "The least sure answer that was right", row))
    return Report(
        name=str(made_from["dataset"]["name"]),
        made_from=made_from,
        planned=planned,
        fitted=fitted,
        evaluation=evaluation,
        curves=evaluation.curves(),
        rerank=rerank,
        steps=steps,
        budgets=ablation.by_labels(trials, threshold=threshold, penalties=penalties, **how),
        explained=tuple(_explain(*one, evaluation, config) for one in extremes),
    )


def _explain(file: str, title: str, row: int, evaluation: Evaluation, config: Config) -> Explained:
    """A measured row, explained by the maps that measured it."""
    maps = evaluation.fold_maps[evaluation.fold_of[row]]
    ranking, grades = evaluation.labelled.items[row], evaluation.labelled.grades[row]
    answer = "no passage: nothing here answers it"  # the first that would be right
    if grades:
        answer = f"{min(grades)}, which is not among the {len(ranking)} candidates"
        answer = next((_shorten(p) for p in ranking.passages if p.doc_id in grades), answer)
    values, usual = evaluation.features[row], maps.confidence.first.mean
    table = maps.features.ranking
    names = [
        f"{meaning(name, table)}\n{value:.2f}, usually {mean:.2f}"
        for name, value, mean in zip(table, values.tolist(), usual, strict=True)
    ]
    contributions = maps.confidence.contributions(values[None, :])[0]
    confidence = float(evaluation.confidences[OURS][row])
    if maps.segments.updates:
        (segment,) = segments_of([ranking], config.segment_by)
        without_segment = float(maps.confidence.predict(values[None, :])[0])
        names.append(f"Segment ({config.segment_by})\n{textwrap.shorten(segment, 30)}")
        of_segment = log_odds(confidence) - log_odds(without_segment)
        contributions = np.append(contributions, of_segment)
    return Explained(
        file=file,
        title=title,
        query=ranking.query.text,
        top=_shorten(ranking.passages[0]),
        answer="" if evaluation.right[row] else answer,
        base=usual_log_odds(maps.confidence),
        contributions=contributions,
        names=tuple(names),
        confidence=confidence,
    )


def usual_log_odds(confidence: TwoStageMap) -> float:
    """The base of `TwoStageMap.contributions`: the log odds if all features are usual."""
    if not isinstance(confidence.second, LogisticMap):
        return confidence.first.intercept
    return float(logit(confidence.predict([confidence.first.mean]))[0])


def _shorten(passage: Passage) -> str:
    return textwrap.shorten(passage.full_text, 160, placeholder=" …")


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested names joined by dots."""
    by_path: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, Mapping)
        by_path |= flatten(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return by_path
