"""Which queries are fitted on and which are reported on, by group, before anything is computed.

No query is left out because of its labels: that would bias the share of answerable queries.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from calibration.drift import MIN_ROWS
from rerank.assessment.predictions import CALIBRATED_FROM
from rerank.data.grouping import NEW_DOCUMENTS, choose_grouping, groupings, marks_of
from rerank.data.labelled_set import Grouping, LabelledSet
from rerank.data.labels import Labelled, drawn_at_random
from rerank.errors import InputError
from rerank.types import Query

CROSS_FITTED = "cross-fitted"  # the report split of a set that has none
MIN_GROUPS_TO_FIT = MIN_ROWS  # for the drift alarm; cross-fitting in folds needs three
REPORT_NOT_AT_RANDOM = (
    "the measured queries are no random sample: they were drawn by their confidence, or evenly, "
    "but different shares of several files. The figures are of these alone; `rerank evaluate` "
    "estimates those of all, if the queries have weights"
)
TRAINED_SHARE = 0.05  # a split is "trained on" when more than this share of its queries was


@dataclass(frozen=True, slots=True)
class Plan:
    """Which queries a run fits on, and which it reports on: others, or these in folds by group."""

    fit: Labelled[Query]
    report: Labelled[Query]
    report_split: str
    seen_by_reranker: int  # left out: a model was trained on them or on their split
    seen_by_pooled: int  # left out: the pooled maps were fitted on them
    asked_twice: int  # left out of fitting: a reported query has its words or its group
    beside_training: bool  # queries used here ask about documents that were trained on
    reported_of_fitted_groups: int  # reported queries whose group has queries that are fitted on
    grouping: Grouping  # what keeps queries together
    fitted_on: frozenset[str]  # `marks_of` the queries fitted on

    @property
    def cross_fitted(self) -> bool:
        """Whether the queries fitted on are reported on too: see `rerank.fitting.fit`."""
        return self.report_split == CROSS_FITTED

    @property
    def reported(self) -> str:
        """What the figures are measured on, in words: other queries, or these in folds."""
        n, pooled = len(self.report), ""
        if self.seen_by_pooled:
            left_out = f"{self.seen_by_pooled} queries that the pooled maps were fitted on"
            pooled = f" Left out: {left_out}."
        if not self.cross_fitted:
            split = self.report_split
            return f"Measured on {n} queries ({split}) that were not fitted on.{pooled}"
        return (
            f"Measured on the same {n} queries by nested cross-fitting: the fit (cutoff, "
            "calibrator and certified threshold too) is made again for each fold, without the "
            "groups that it then measures. So no label is held out, and none measures a fit that "
            f"has seen it. Name a split `test` to measure on that instead.{pooled}"
        )

    @property
    def fitted_at_random(self) -> bool:
        """Whether the queries fitted on are a random sample: only then they may certify."""
        return drawn_at_random(self.fit.items)

    @property
    def reported_at_random(self) -> bool:
        """Whether the queries reported on are a random sample, as far as their metadata say."""
        return drawn_at_random(self.report.items)

    @property
    def warning(self) -> str:
        """What the figures are of, if the queries reported on are no random sample; else ""."""
        return "" if self.reported_at_random else REPORT_NOT_AT_RANDOM

    def counts(self) -> dict[str, int | str | bool]:
        """The plan in numbers."""
        return {
            "fit": len(self.fit),
            "report": len(self.report),
            "report_split": self.report_split,
            "left_out_seen_by_reranker": self.seen_by_reranker,
            "left_out_seen_by_pooled": self.seen_by_pooled,
            "left_out_asked_twice": self.asked_twice,
            "beside_training": self.beside_training,
            "reported_of_fitted_groups": self.reported_of_fitted_groups,
            "reported_at_random": self.reported_at_random,
        }


def count_unused(counts: Mapping[str, Any], *, of: int) -> int:
    """How many `of` a set's queries were neither used nor left out, by the `Plan.counts`."""
    taken = ["fit", *(key for key in counts if key.startswith("left_out_"))]
    if counts["report_split"] != CROSS_FITTED:  # else it is on those that were fitted on
        taken.append("report")
    return max(0, of - sum(int(counts[key]) for key in taken))


def plan(
    labelled: LabelledSet,
    *,
    trained_hashes: frozenset[str],
    max_queries: int | None,
    seed: int,
    pooled_marks: frozenset[str] = frozenset(),
) -> Plan:
    """Decide which queries are fitted on and which are reported on.

    The report is on `test`, else on `dev`, else on the queries that are fitted on, cross-fitted, so
    that no label is spent on reporting alone. The fit is on the other splits, without queries that
    ask the question of a reported one, in the same words or by its given group.

    A split that a model was trained on is left out whole, because its other queries ask about the
    same passages; if nothing else is left, only the questions trained on are left out, and then the
    report is on what is left, cross-fitted. If some of the remaining queries ask about the same
    documents, the plan says so: a cross-encoder is better on passages like its training data.

    `trained_hashes` are those of the queries that a model was trained on, and `pooled_marks` those
    that the pooled maps were fitted on: these are left out, not their split. `max_queries` limits
    the fit and the report each: queries are drawn one by one at random, so that they are a random
    sample of the questions.

    Groups are the largest of `rerank.data.grouping.groupings` that still give the fitted queries
    ten groups; if the labels name groups, those are used.
    """
    if max_queries is not None and max_queries < CALIBRATED_FROM:
        raise InputError(f"at most {max_queries} queries: expected at least {CALIBRATED_FROM}")
    all_ids = [i for ids in labelled.splits.values() for i in ids]
    marks = Marks.of_set(labelled)
    unpooled_ids = frozenset(marks.unseen(all_ids, pooled_marks))
    unpooled = {s: tuple(filter(unpooled_ids.__contains__, i)) for s, i in labelled.splits.items()}
    untrained_ids = frozenset(marks.unseen(all_ids, trained_hashes))
    splits = {s: i for s, i in unpooled.items() if i}
    to_fit, to_report, report_split, beside_training = _divide(splits, untrained_ids)
    once = marks.without_repeats(to_fit, to_report)
    cross_fitted = report_split == CROSS_FITTED
    pooled, twice = len(all_ids) - len(unpooled_ids), len(to_fit) - len(once)
    seen = len(unpooled_ids) - len(to_fit) - len(to_report)
    fit, report = (_drawn(ids, max_queries, seed) for ids in (once, to_report or once))
    if len(fit) < CALIBRATED_FROM or not report:
        remedy = "label more queries, or group them more finely"
        if 2 * pooled > len(all_ids):
            remedy = "label queries that the pooled maps have not seen"
        elif 2 * seen > len(all_ids):
            remedy = "use queries that no model was trained on, or another --reranker"
        reported = "the same ones, cross-fitted," if cross_fitted else f"{len(report)}"
        reasons = {
            "a model was trained on them": seen,
            "the pooled maps were fitted on them": pooled,
            "a reported query has the same words or group": twice,
        }
        parts = [f"{count} because {why}" for why, count in reasons.items() if count]
        left_out = f" (left out: {', '.join(parts)})" if parts else ""
        raise InputError(
            f"{labelled.name}: {len(fit)} queries to fit on and {reported} to report on, of "
            f"{len(all_ids)}{left_out}; expected at least {CALIBRATED_FROM} to fit on; "
            f"{remedy}"
        )
    possible = list(groupings(labelled, all_ids))
    grouping, group_of = choose_grouping(possible, labelled, fit, least_groups=MIN_GROUPS_TO_FIT)
    if (count := len(set(group_of.values()))) < MIN_GROUPS_TO_FIT:
        raise InputError(
            f"{labelled.name}: the {len(fit)} queries to fit on are {count} "
            f"{'group' if count == 1 else 'groups'}; expected at least {MIN_GROUPS_TO_FIT}: group "
            "them more finely, or label queries about more documents"
        )
    grouped = replace(labelled, grouping=grouping)
    fitted_groups = {grouped.group(i) for i in fit}
    reported_apart = [] if cross_fitted else report
    fitted = labelled.select(fit, group_of)
    documents = next((g for g in possible[:-1] if g.about == NEW_DOCUMENTS), None)
    if beside_training and documents:
        beside_training = documents.shares({*fit, *report}, {*all_ids} - untrained_ids)
    return Plan(
        fit=fitted,
        report=fitted if cross_fitted else grouped.select(report),
        report_split=report_split,
        seen_by_reranker=seen,
        seen_by_pooled=pooled,
        asked_twice=twice,
        beside_training=beside_training,
        reported_of_fitted_groups=sum(grouped.group(i) in fitted_groups for i in reported_apart),
        grouping=grouping,
        fitted_on=frozenset(mark for i in fit for mark in marks.of[i]),
    )


def _divide(
    splits: Mapping[str, Sequence[str]], untrained_ids: frozenset[str]
) -> tuple[list[str], list[str], str, bool]:
    """Hold a split out, if one can be, and fit on the others.

    Returns ids of both, the split, and whether a model was trained on others of these splits.
    """
    untrained = {split: [i for i in ids if i in untrained_ids] for split, ids in splits.items()}
    untrained_splits = {
        s for s, ids in splits.items() if len(untrained[s]) >= (1 - TRAINED_SHARE) * len(ids)
    }
    to_report = [s for s in ("test", "dev") if untrained.get(s) and len(untrained) > 1]
    held_out = next((s for s in to_report if s in untrained_splits), next(iter(to_report), None))
    others = [split for split in untrained if split != held_out]
    to_fit = [split for split in others if split in untrained_splits]
    if sum(len(untrained[split]) for split in to_fit) < CALIBRATED_FROM:
        to_fit = others
    if held_out and not any(untrained[split] for split in to_fit):
        # the models were trained on all others: no split can be held out
        to_fit, held_out = [held_out], None
    fit = [i for split in to_fit for i in untrained[split]]
    report = untrained[held_out] if held_out else []
    used_splits = [*to_fit, held_out] if held_out else to_fit
    return fit, report, held_out or CROSS_FITTED, not untrained_splits.issuperset(used_splits)


class Marks(NamedTuple):
    """`marks_of` each query of a set, by its id: two with a mark in common repeat each other."""

    of: Mapping[str, frozenset[str]]

    @classmethod
    def of_set(cls, labelled: LabelledSet) -> Marks:
        """Those of all queries of a set."""
        return cls({i: marks_of([query]) for i, query in labelled.queries.items()})

    def without_repeats(self, ids: Iterable[str], others: Iterable[str]) -> list[str]:
        """The `ids`, in order, that do not repeat one of the others."""
        known = {mark for i in others for mark in self.of[i]}
        return [i for i in ids if known.isdisjoint(self.of[i])]

    def unseen(self, ids: Iterable[str], seen: frozenset[str]) -> list[str]:
        """The ids whose question a model has not seen (`seen`: its marks), nor one of its group.

        Right passages are not compared: that would leave too many unanswerable queries.
        """
        return self.without_repeats(ids, (i for i, own in self.of.items() if own & seen))


def unseen(labelled: LabelledSet, ids: Iterable[str], seen: frozenset[str]) -> list[str]:
    """The ids of a set that are not among the marks of others: see `Marks.unseen`."""
    return Marks.of_set(labelled).unseen(ids, seen)


def _drawn(ids: list[str], limit: int | None, seed: int) -> list[str]:
    """At most `limit` ids, drawn at random, in the old order; of a lower limit the same first."""
    if limit is None or len(ids) <= limit:
        return ids
    shuffled = sorted(ids)
    random.Random(seed).shuffle(shuffled)
    drawn = set(shuffled[:limit])
    return [i for i in ids if i in drawn]


def check_corpus(labelled: LabelledSet) -> None:
    """Refuse a corpus with nothing to choose between."""
    if len(labelled.corpus) < 2:
        raise InputError(
            f"{labelled.name}: its corpus has {len(labelled.corpus)} passage; every query would "
            "get the same one. Expected two at least"
        )
