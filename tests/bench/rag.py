"""Do calibrated numbers pay in RAG: fewer passages for the same answers, fewer wrong answers?

    python tests/bench/rag.py SET ... [--models FOLDER] [--work work] [--max-queries N]

Each set's model is calibrated with the default settings, and measured on the set's test questions
over the whole corpus. A model that FOLDER holds already is used if it was made from the same data,
settings and weights. Markdown tables come out after each set, of all sets so far:

1. Passages handed on: adaptive retrieval beside fixed k, for answerable questions.
2. Unanswerable questions answered: the context gate beside hand-set formulas, each at the threshold
   at which it answers the same share of the answerable questions.
3. What `rerank answer` would do before any sentence is written: answer, answer with LOW CONFIDENCE,
   refuse; and whether the confidence that it states is true of its sources.

Intervals (95%) resample the groups of questions, with the same draws on both sides.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from ratios import table

import rerank
from calibration.arrays import group_codes
from calibration.metrics import MIN_GROUPS
from rerank import CalibratedReranker, LabelledSet
from rerank.advice.adaptive import take
from rerank.advice.settings import DEEPEST, AnswerConfig, Strategy
from rerank.data.labels import hits
from rerank.inference.score_cache import ScoreCache
from rerank.rag.answer.bounded import usable_context
from rerank.storage.folder import Workspace
from rerank.types import Bools, Floats, Ints

THRESHOLDS = (0.5, 0.7, 0.8, 0.9)  # of adaptive retrieval; 0.7 is the default
FIXED = (1, 3, 5, 8)
RATES = (0.5, 0.7, 0.9)  # shares of the answerable questions that are answered
FORMULAS = ("sufficiency score", "seven-metric score", "coverage score")
VERDICTS = ("SUFFICIENT", "PARTIAL", "INSUFFICIENT")  # answered, with LOW CONFIDENCE, refused
DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Measured:
    """The test questions of one set, and what the model and the formulas say of them."""

    answerable: Bools  # (n,)
    groups: Ints  # (n,) 0, 1, ...
    within: Floats  # (n, DEEPEST + 1) 1 where a right passage is among the first k = 0, 1, ...
    passages: dict[float, Floats]  # adaptive threshold -> (n,) passages handed on
    found: dict[float, Floats]  # adaptive threshold -> (n,) 1 where one of these is right
    sufficiency: Floats  # (n,) what the gate decides from
    formulas: dict[str, Floats]  # name -> (n,)
    verdicts: list[str]  # (n,) of the gate of an answer
    stated: Floats  # (n,) its confidence that a source is right
    sourced: Floats  # (n,) 1 where a source is right


def drawn(labelled: LabelledSet, most: int | None) -> LabelledSet:
    """The set with at most so many test questions, drawn at random."""
    ids = labelled.split("test")
    if most is None or len(ids) <= most:
        return labelled
    kept = tuple(sorted(random.Random(0).sample(ids, most)))
    return replace(labelled, splits={**labelled.splits, "test": kept})


def measured(labelled: LabelledSet, model: CalibratedReranker, work: Path) -> Measured:
    """Rank and assess the test questions."""
    evaluation = rerank.evaluate(model, labelled, work=work)
    questions = evaluation.labelled
    answers = model.assess([ranking.query for ranking in questions.items])
    passages, found = {}, {}
    for threshold in THRESHOLDS:
        taken = [take(one, Strategy(sufficiency_threshold=threshold)) for one in answers]
        passages[threshold] = np.array([float(one.k) for one in taken])
        found[threshold] = np.array(
            [
                float(any(p.doc_id in grades for p in one.passages))
                for one, grades in zip(taken, questions.grades, strict=True)
            ]
        )
    gated = [usable_context(one, AnswerConfig()) for one in answers]
    sourced = [
        float(any(p.doc_id in grades for p in usable))
        for (usable, _), grades in zip(gated, questions.grades, strict=True)
    ]
    return Measured(
        answerable=np.array([bool(grades) for grades in questions.grades]),
        groups=group_codes(questions.groups.tolist(), len(questions)),
        within=np.column_stack([np.zeros(len(questions)), hits(questions, depth=DEEPEST)]),
        passages=passages,
        found=found,
        sufficiency=np.array([one.sufficiency for one in answers]),
        formulas={name: evaluation.confidences[name] for name in FORMULAS},
        verdicts=[verdict.verdict for _, verdict in gated],
        stated=np.array([verdict.sufficiency for _, verdict in gated], dtype=np.float64),
        sourced=np.array(sourced),
    )


def share_at(passages: float, shares: Floats) -> float:
    """The share that a fixed k finds; between two k, as many questions get k + 1 as are needed.

    `shares` are those of k = 0, 1, ...
    """
    return float(np.interp(passages, np.arange(len(shares)), shares))


def answered_wrongly(score: Floats, answerable: Bools, rate: float, weight: Floats) -> float:
    """Share of the unanswerable questions (n,) that reach the threshold of an answer rate.

    It is the threshold that the share `rate` of the answerable ones reaches. Of questions with
    equal scores at the threshold, as many are answered as are needed, drawn at random.
    """
    levels, place = np.unique(-score, return_inverse=True)
    right, wrong = (
        np.cumsum(np.bincount(place, weight * kind, len(levels))) / (weight * kind).sum()
        for kind in (answerable, ~answerable)
    )
    last = int(np.searchsorted(right, rate))
    before = (right[last - 1], wrong[last - 1]) if last else (0.0, 0.0)
    part = (rate - before[0]) / (right[last] - before[0])
    return float(before[1] + part * (wrong[last] - before[1]))


def interval(statistic: Callable[[Floats], float], groups: Ints) -> str:
    """The value at equal weights (n,), and its percentile bootstrap interval over groups."""
    many = int(groups.max()) + 1
    value = f"{statistic(np.ones(len(groups))):+.3f}"
    if many < MIN_GROUPS:
        return f"{value} (too few groups)"
    draw = np.random.default_rng(0)
    drawn = [
        statistic(draw.multinomial(many, np.full(many, 1 / many))[groups].astype(np.float64))
        for _ in range(DRAWS)
    ]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return f"{value} [{low:+.3f}, {high:+.3f}]"


def passages_row(m: Measured, threshold: float) -> dict[str, str]:
    """Adaptive retrieval at a threshold, beside a fixed k that hands on as many passages."""
    sure = m.answerable.astype(np.float64)

    def gain(of: Floats) -> Callable[[Floats], float]:
        """The gain in the share found; passages are counted over the questions in `of`."""

        def statistic(weight: Floats) -> float:
            mean = np.average(m.passages[threshold], weights=weight * of)
            shares = np.average(m.within, axis=0, weights=weight * sure)
            found = np.average(m.found[threshold], weights=weight * sure)
            return float(found) - share_at(float(mean), shares)

        return statistic

    every = np.ones(len(sure))
    return {
        "passages, answerable": f"{np.average(m.passages[threshold], weights=sure):.2f}",
        "passages, all": f"{m.passages[threshold].mean():.2f}",
        "answer among them": f"{np.average(m.found[threshold], weights=sure):.3f}",
        "less fixed k, passages of answerable": interval(gain(sure), m.groups),
        "less fixed k, passages of all": interval(gain(every), m.groups),
    }


def refusals_row(m: Measured, formula: str, rate: float) -> dict[str, str]:
    """Unanswerable questions answered by the gate and by a formula, at one answer rate."""

    def wrong(score: Floats, weight: Floats) -> float:
        return answered_wrongly(score, m.answerable, rate, weight)

    def fewer(weight: Floats) -> float:
        theirs = wrong(m.formulas[formula], weight)
        return 1 - wrong(m.sufficiency, weight) / theirs if theirs else float("nan")

    equal = np.ones(len(m.answerable))
    return {
        "gate": f"{wrong(m.sufficiency, equal):.3f}",
        "formula": f"{wrong(m.formulas[formula], equal):.3f}",
        "share fewer": interval(fewer, m.groups),
    }


def answers_row(m: Measured, verdict: str) -> dict[str, str]:
    """The questions of one verdict: how many, and how true the confidence in their sources is."""
    these = np.array([one == verdict for one in m.verdicts])
    row = {
        "of the answerable": f"{these[m.answerable].mean():.2f}",
        "of the unanswerable": f"{these[~m.answerable].mean():.2f}" if any(~m.answerable) else "-",
    }
    if verdict == "INSUFFICIENT" or not these.any():
        return row

    def too_sure(weight: Floats) -> float:
        own = weight * these
        return float(np.dot(own, m.stated - m.sourced) / own.sum()) if own.any() else float("nan")

    return {
        **row,
        "stated": f"{m.stated[these].mean():.3f}",
        "a source is right": f"{m.sourced[these].mean():.3f}",
        "stated minus right": interval(too_sure, m.groups),
    }


def main() -> None:
    """Read the command line, and print the tables of all sets."""
    parser = argparse.ArgumentParser(description="what calibrated numbers give in RAG")
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--models", type=Path, default=Path("work/rag"))
    parser.add_argument("--work", type=Path, default=Path("work"))
    parser.add_argument("--max-queries", type=int, help="bound on questions to fit on and to ask")
    o = parser.parse_args()
    curves, adaptive, refused, answered = {}, {}, {}, {}
    for folder in o.sets:
        labelled, out = drawn(LabelledSet.read(folder), o.max_queries), o.models / folder.name
        rerank.calibrate(labelled, out, work=o.work, max_queries=o.max_queries)
        cache = ScoreCache(Workspace(o.work).scores)
        m = measured(labelled, CalibratedReranker.load(out, cache=cache), o.work)
        curves[folder.name] = {
            "questions": f"{len(m.answerable)}",
            "answerable": f"{m.answerable.sum()}",
            "groups": f"{m.groups.max() + 1}",
            **{f"k = {k}": f"{m.within[m.answerable, k].mean():.3f}" for k in FIXED},
        }
        for threshold in THRESHOLDS:
            adaptive[f"{folder.name}, {threshold}"] = passages_row(m, threshold)
        for rate in RATES if not m.answerable.all() else ():
            for name in FORMULAS:
                refused[f"{folder.name}, {rate:.0%}, {name}"] = refusals_row(m, name, rate)
        for verdict in VERDICTS:
            answered[f"{folder.name}, {verdict}"] = answers_row(m, verdict)
        print("\n\n".join(map(table, (curves, adaptive, refused, answered))), flush=True)


if __name__ == "__main__":
    main()
