"""What a calibration run says of itself: one frozen result, its sentences, and the text it prints.

`report_page` makes pictures and a page of the same result.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from calibration.arrays import log_odds, logit, plain
from calibration.maps import LogisticMap, TwoStageMap
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.judge import segments_of
from rerank.assessment.ranking_features import meaning
from rerank.config import Config
from rerank.data.labels import Grades
from rerank.evaluation.ablation import (
    Budgets,
    Examples,
    Step,
    Trial,
    by_features,
    by_labels,
    steps,
)
from rerank.evaluation.baselines import sources
from rerank.evaluation.evaluate import OURS, Evaluation
from rerank.fitting.context_size import LOST
from rerank.fitting.fit import Fitted
from rerank.fitting.label_checks import NO_LISTS
from rerank.fitting.plan import Plan
from rerank.fitting.rankings import LENGTHS
from rerank.report.headline import headline
from rerank.types import Floats, Passage, Ranking

WIDTH = 96  # characters of a line of the text


@dataclass(frozen=True, slots=True)
class Explained:
    """One measured query, and how its features lead to its confidence."""

    file: str  # name of its picture
    title: str
    query: str
    top: str  # the passage that was put first
    answer: str  # a passage that would be right, or that there is none; empty for a right one
    base: float  # log odds of a query whose features are all usual
    moves: Floats  # log odds that each feature adds, and last the segment, where there are some
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
    rerank: Evaluation | None  # of the same queries, with passages as their callers might bring
    steps: tuple[Step, ...]
    budgets: Budgets
    explained: tuple[Explained, ...]
    copies: int = 0  # of the queries fitted on, with their answers taken out

    def to_dict(self) -> dict[str, Any]:
        """What `reliability.json` holds: plain JSON values; what cannot be told is None."""
        tables = {"ablation": [asdict(step) for step in self.steps], "labels": asdict(self.budgets)}
        measured = {
            "report_split": self.planned.report_split,
            "reported": reported_sentence(self.planned),
            "copies": self.copies,
            "grouped_by": self.planned.grouping.name,
            "groups": len(set(self.fitted.groups)),
            "effective_queries": self.fitted.effective,
            **self.evaluation.to_dict(),
            "curves": self.evaluation.curves(),
        }
        also = {"rerank": self.rerank.to_dict()} if self.rerank else {}
        return {**measured, **also, **plain(tables)}


def make_report(
    planned: Plan,
    fitted: Fitted,
    evaluation: Evaluation,
    config: Config,
    *,
    rerank: Evaluation | None,
    made_from: Mapping[str, Any],
    fits: Sequence[Fitted] = (),
    copies: int = 0,
) -> Report:
    """Compute what the evaluation does not hold: ablations, and two queries explained.

    `fits` are those that measured a fold each; without, `fitted` measured all. `copies` of the
    queries fitted on had their answers taken out.
    """
    trials = list(_trials(fits or [fitted], evaluation))
    made = by_features(
        trials,
        columns=steps(fitted.maps.features),
        folds=config.folds,
        random_state=config.seed,
    )
    budgets = by_labels(
        trials,
        whole=evaluation.confidences[OURS],
        threshold=config.thresholds.medium,
        penalties=made[-1].penalties,
        folds=config.folds,
        random_state=config.seed,
    )
    explained = tuple(
        _explained(file, title, _maps_of(row, fitted, evaluation), evaluation, config, row)
        for file, title, row in _telling(evaluation)
    )
    return Report(
        str(made_from["dataset"]["name"]),
        made_from,
        planned,
        fitted,
        evaluation,
        rerank,
        made,
        budgets,
        explained,
        copies,
    )


def _trials(fits: Sequence[Fitted], evaluation: Evaluation) -> Iterator[Trial]:
    """What each fit was fitted on, and what it measured."""
    for k, one in enumerate(fits):
        rows = slice(None) if evaluation.fold is None else evaluation.fold == k
        measured_on = Examples(
            evaluation.features[rows], evaluation.right[rows], evaluation.labelled.groups[rows]
        )
        fitted_on = Examples(one.features, one.right, one.groups)
        yield Trial(fitted_on, measured_on, one.calibrator)


def _maps_of(row: int, fitted: Fitted, evaluation: Evaluation) -> FittedMaps:
    """The maps that measured a row."""
    return fitted.maps if evaluation.fold is None else evaluation.folds[evaluation.fold[row]]


def _telling(evaluation: Evaluation) -> Iterator[tuple[str, str, int]]:
    """The measured rows that are worth a look: the surest mistake, the least sure success."""
    ours = evaluation.confidences[OURS]
    filled = evaluation.features.any(axis=1)
    wrong = np.flatnonzero((evaluation.right == 0) & filled)
    right = np.flatnonzero(evaluation.right == 1)
    if len(wrong):
        yield "surest_wrong", "The surest answer that was wrong", int(wrong[ours[wrong].argmax()])
    if len(right):
        yield (
            "least_sure_right",
            "The least sure answer that was right",
            int(right[ours[right].argmin()]),
        )


def _explained(
    file: str, title: str, maps: FittedMaps, evaluation: Evaluation, config: Config, row: int
) -> Explained:
    ranking, grades = evaluation.labelled.items[row], evaluation.labelled.grades[row]
    values, usual = evaluation.features[row], maps.confidence.first.mean
    table = maps.features.ranking
    names = [
        f"{meaning(name, table)}\n{value:.2f}, usually {mean:.2f}"
        for name, value, mean in zip(table, values.tolist(), usual, strict=True)
    ]
    moves = maps.confidence.contributions(values[None, :])[0]
    confidence = float(evaluation.confidences[OURS][row])
    if maps.segments.updates:
        (segment,) = segments_of([ranking], config.segment_by)
        before = float(maps.confidence.predict(values[None, :])[0])
        names.append(f"Segment ({config.segment_by})\n{textwrap.shorten(segment, 30)}")
        moves = np.append(moves, log_odds(confidence) - log_odds(before))
    return Explained(
        file,
        title,
        ranking.query.text,
        _beginning(ranking.passages[0]),
        "" if evaluation.right[row] else _right_answer(ranking, grades),
        usual_log_odds(maps.confidence),
        moves,
        tuple(names),
        confidence,
    )


def _right_answer(ranking: Ranking, grades: Grades) -> str:
    """The first passage that would be right, in words."""
    if not grades:
        return "no passage: nothing here answers it"
    known = next((p for p in ranking.passages if p.doc_id in grades), None)
    if known is not None:
        return _beginning(known)
    return f"{min(grades)}, which is not among the {len(ranking)} candidates"


def usual_log_odds(learned: TwoStageMap) -> float:
    """Where `TwoStageMap.contributions` start from: the log odds of features that are all usual.

    Of the first stage's score where the second is not logistic.
    """
    if not isinstance(learned.then, LogisticMap):
        return learned.first.intercept
    return float(logit(learned.predict([learned.first.mean]))[0])


def _beginning(passage: Passage) -> str:
    return textwrap.shorten(passage.full_text, 160, placeholder=" …")


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested names joined by dots."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


# --- sentences --------------------------------------------------------------------------------


def reported_sentence(planned: Plan) -> str:
    """What the figures are measured on: others than the queries fitted on, or these in folds."""
    if not planned.cross_fitted:
        return (
            f"Measured on {len(planned.report)} queries ({planned.report_split}) that were not "
            "fitted on."
        )
    return (
        f"Measured on the same {len(planned.report)} queries by nested cross-fitting: the whole "
        "fit (cutoff, calibrator and certified threshold too) is made again for each fold, without "
        "the groups that it then measures. So no label is held out, and none measures a fit that "
        "has seen it. Name a split `test` to measure on that instead."
    )


def split_sentences(report: Report) -> list[str]:
    """Who was fitted on, who was measured on, and who was left out and why."""
    planned = report.planned
    found = [f"{report.name}: fitted on {len(planned.fit)} queries. {reported_sentence(planned)}"]
    if report.copies:
        found.append(copies_sentence(report))
    if planned.seen_by_reranker:
        found.append(
            f"Left out: {planned.seen_by_reranker} queries, because the cross-encoder was trained "
            "on them or on their split."
        )
    found += warnings(report)
    if planned.asked_twice:
        found.append(f"Left out: {planned.asked_twice} queries that the measured ones ask again.")
    return found


def copies_sentence(report: Report) -> str:
    """How many queries without an answer were made, and what the figures are of then."""
    measured = report.evaluation.labelled
    return (
        f"Questions that nothing answers: {sum(not g for g in report.planned.fit.grades)} of the "
        f"queries fitted on, so {report.copies} copies of others, with their answers taken out of "
        "the index, were added (--expected-unanswerable), and as many in a hundred to the measured "
        f"ones: {sum(not g for g in measured.grades)} of {len(measured)} have no answer. All "
        "figures and the certificate are of this mixture."
    )


def warnings(report: Report) -> list[str]:
    """What makes every figure too good, if anything does."""
    if not report.planned.beside_training:
        return []
    return [
        "Warning: the cross-encoder was trained on other queries about the same documents, and "
        "knows these better than it will know new ones: expect to be promised too much. Nothing is "
        "certified. Keep documents apart from its training, or take another --reranker."
    ]


def groups_sentence(report: Report) -> str:
    """What keeps queries together, how many groups there are, and what the labels are worth."""
    fitted, planned = report.fitted, report.planned
    made = ", copies included," if report.copies else ""
    said = (
        f"Groups: {planned.grouping.name}, {len(set(fitted.groups))} of them; the "
        f"{len(fitted.right)} queries fitted on{made} are worth {fitted.effective:.0f} independent "
        "ones."
    )
    if planned.same_group:
        said += (
            f" {planned.same_group} of the measured queries are of groups that were fitted on: the "
            "figures are of new questions about the same, and flatter the model on others."
        )
    return said


def scored_sentence(report: Report) -> str:
    """How many passages the cross-encoder scores; or by which stages the lists came scored."""
    kind = report.fitted.maps.lists
    if kind and "retriever" not in report.made_from:
        *first, last = kind.stages
        others = f" and fused the fused ranks of {', '.join(first)}" if first else ""
        said = f"The lists came with their scores: below, logit is the score of {last}{others}."
        return said if kind.texts else f"{said} Not all passages have a text: none was read."
    cutoff = report.fitted.maps.policy.cutoff
    how = f", those at least {cutoff:g} times as likely as the likeliest" if cutoff else ""
    return f"Passages scored per query: {report.evaluation.passages_scored:.1f}{how}."


def band_sentence(report: Report) -> str:
    """What a confidence near the threshold promises and holds; empty where there is none."""
    ours = report.evaluation.table[OURS]
    if not ours.band_rows:
        return ""
    return (
        f"Within 0.05 of {ours.threshold:g} lie {ours.band_rows} queries: they were promised "
        f"{ours.band_confidence:.1%} on average, and {ours.band_accuracy:.1%} of them are right."
    )


def certificate_sentences(report: Report) -> list[str]:
    """The certificate, and how it fared on the measured queries."""
    maps = report.fitted.maps
    found, of_context = maps.certificate, []
    if maps.context:
        of_context.append(f"The context: {maps.context.sentence}")
    if maps.enough is not None:
        of_context.append(
            f"Passages handed on until the sufficiency reaches {maps.enough:g}, ten at most, lose "
            f"the answer of at most {LOST:.0%} of all questions, at 95% confidence."
        )
    if found.threshold is None:
        return [found.sentence, *of_context]
    evaluation = report.evaluation
    kept = evaluation.right[evaluation.reaching(found)]
    share = f", {kept.mean():.1%}" if len(kept) else ""
    which = "by the threshold of their own fold " if evaluation.folds else ""
    fared = f"Of the measured queries {which}{kept.sum()} of {len(kept)} were{share}."
    return [found.sentence, fared, *of_context]


def rerank_sentence(report: Report) -> str:
    """How the confidence fares where askers bring their own passages; "" where that is all."""
    if report.rerank is None:
        return ""
    ours = report.rerank.table[OURS]
    accepted = f"{ours.accepted} of {ours.n} are at >= {ours.threshold:g}"
    if ours.accuracy_accepted is not None:
        accepted += f", {ours.right_accepted} ({ours.accuracy_accepted:.1%}) of these right"
    auroc = "-" if math.isnan(ours.auroc) else f"{ours.auroc:.3f}"
    return (
        f"Where callers bring {LENGTHS[0]} to {LENGTHS[-1]} passages: AUROC {auroc}, smECE "
        f"{ours.smece:.3f} (exactly calibrated: up to {ours.smece_floor95:.3f}); {accepted}. "
        f"Nothing is certified there. {NO_LISTS}"
    )


def table_note(report: Report) -> str:
    """How to read the comparison."""
    ours = report.evaluation.table[OURS]
    return (
        "AUROC: is a higher confidence right more often (0.5: no, 1: always)? Brier and smECE: "
        "error of the probabilities, lower is better; exactly calibrated ones would show smECE up "
        f"to {ours.smece_floor95:.3f} here. Of the queries at >= {ours.threshold:g}, that share or "
        f"more should be right; the lower bound takes our {ours.accepted} as the "
        f"{ours.effective_accepted:.0f} independent ones that they are worth by group."
    )


def sources_of_ways(report: Report) -> dict[str, str]:
    """What each way of being confident is, and where it comes from."""
    fitted = {
        "temperature": "The best logit divided by one number, which was fitted.",
        OURS: "This model.",
    }
    every = {**sources(), **fitted}
    return {way: text for way, text in every.items() if way in report.evaluation.confidences}


def report_text(report: Report) -> str:
    """The headline with its warnings; a blank line; all the rest."""
    evaluation, fitted = report.evaluation, report.fitted
    head = [*headline(evaluation, fitted.maps.certificate), *warnings(report)]
    first = [
        *(sentence for sentence in split_sentences(report) if sentence not in head),
        groups_sentence(report),
        scored_sentence(report),
        f"Calibrator: {fitted.calibrator}. {fitted.reason}",
        *certificate_sentences(report),
    ]
    parts = (
        "\n".join(head),
        "\n".join(textwrap.fill(sentence, WIDTH) for sentence in first),
        evaluation.orders_table(),
        evaluation.table.table(),
        textwrap.fill(table_note(report), WIDTH),
        "\n".join(
            textwrap.fill(f"{n}: {text}", WIDTH) for n, text in sources_of_ways(report).items()
        ),
        evaluation.events_table(),
        textwrap.fill(rerank_sentence(report), WIDTH),
    )
    return "\n\n".join(filter(None, parts)) + "\n"
