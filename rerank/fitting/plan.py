"""Which queries are fitted on and which are reported on, by group, before anything is computed.

No query is left out because of its labels: that would bias the share of answerable queries.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rerank.assessment.policy import LEAST_LABELS
from rerank.data.canonical import query_hash
from rerank.data.grouping import groupings, joined, usable_groups
from rerank.data.labelled_set import Grouping, LabelledSet
from rerank.data.labels import Labelled
from rerank.errors import InputError
from rerank.types import Query

CROSS_FITTED = "cross-fitted"  # the report split of a set that has none
LEAST_FOLDS = 3  # groups: one is measured, and the fit splits the others again
TRAINED_SHARE = 0.05  # a split is "trained on" when more than this share of its queries was
LEAST_QUERIES = LEAST_LABELS  # to fit on; with fewer, no map is useful


@dataclass(frozen=True, slots=True)
class Plan:
    """Which queries a run fits on and which it reports on; no question is in both.

    A cross-fitted report is on the queries that are fitted on, in folds by group.
    """

    fit: Labelled[Query]
    report: Labelled[Query]
    report_split: str
    seen_by_reranker: int  # left out: the cross-encoder was trained on them or on their split
    asked_twice: int  # left out of fitting: a reported query is the same question
    beside_training: bool  # queries used here ask about documents that were trained on
    same_group: int  # reported queries whose group has queries that are fitted on
    grouping: Grouping  # what keeps queries together

    @property
    def cross_fitted(self) -> bool:
        """Whether the queries fitted on are reported on too: see `rerank.fitting.cross_fitted`."""
        return self.report_split == CROSS_FITTED

    @property
    def reported(self) -> str:
        """What the figures are measured on, in a sentence: other queries, or these in folds."""
        if not self.cross_fitted:
            return (
                f"Measured on {len(self.report)} queries ({self.report_split}) that were not "
                "fitted on."
            )
        return (
            f"Measured on the same {len(self.report)} queries by nested cross-fitting: the whole "
            "fit (cutoff, calibrator and certified threshold too) is made again for each fold, "
            "without the groups that it then measures. So no label is held out, and none measures "
            "a fit that has seen it. Name a split `test` to measure on that instead."
        )

    def counts(self) -> dict[str, int | str | bool]:
        """The plan in numbers."""
        return {
            "fit": len(self.fit),
            "report": len(self.report),
            "report_split": self.report_split,
            "left_out_seen_by_reranker": self.seen_by_reranker,
            "left_out_asked_twice": self.asked_twice,
            "beside_training": self.beside_training,
            "reported_of_fitted_groups": self.same_group,
        }


def plan(
    labelled: LabelledSet, *, trained_on: frozenset[str], max_queries: int | None, seed: int
) -> Plan:
    """Decide which queries are fitted on and which are reported on.

    The report is on `test`, else on `dev`, else on the queries that are fitted on, cross-fitted, so
    that no label is spent on reporting alone. The fit is on the other splits, without queries that
    ask the question of a reported one, in the same words or by its given group.

    A split that the cross-encoder was trained on is left out whole, because its other queries ask
    about the same passages; if nothing else is left, only the questions trained on are left out. If
    some of the remaining queries ask about the same documents, the plan says so: a cross-encoder
    scores passages like its training data better than new ones, so a confidence fitted there is too
    high.

    `max_queries` limits the fit and the report each. Queries are drawn by question group, not by
    the larger groups, so that as many of these remain.

    Groups are the largest of `rerank.data.grouping.groupings` that still give the fitted queries
    ten groups; if the labels name groups, those are used.

    Raises:
        InputError: too few queries, or groups of them, are left to fit or to report on.
    """
    if max_queries is not None and max_queries < LEAST_QUERIES:
        raise InputError(f"at most {max_queries} queries: expected at least {LEAST_QUERIES}")
    every = [i for ids in labelled.splits.values() for i in ids]
    untrained = set(unseen(labelled, every, trained_on))
    ungrouped = _UngroupedSet(
        labelled,
        {split: [i for i in ids if i in untrained] for split, ids in labelled.splits.items()},
        {i: labelled.question_group(i) for i in every},
        {i: labelled.duplicate_keys(i) for i in every},
    )
    *larger, smallest = groupings(labelled, every)
    documents = next((g for g in larger if g.name == "document"), None)
    for grouping in larger:
        try:
            planned = _plan(ungrouped, grouping, documents, max_queries, seed)
        except InputError:
            continue
        ids = [query.query_id for query in planned.fit.items]
        if usable_groups([grouping.of[i] for i in ids if i in grouping.of], len(ids)):
            return planned
    return _plan(ungrouped, smallest, documents, max_queries, seed)


@dataclass(frozen=True, slots=True)
class _UngroupedSet:
    """A labelled set, and what does not depend on how its queries are grouped."""

    labelled: LabelledSet
    untrained: Mapping[str, list[str]]  # of each split: those that were not trained on
    group: Mapping[str, str]  # see `LabelledSet.question_group`
    same: Mapping[str, frozenset[str]]  # see `LabelledSet.duplicate_keys`


def _plan(
    ungrouped: _UngroupedSet,
    grouping: Grouping,
    documents: Grouping | None,
    max_queries: int | None,
    seed: int,
) -> Plan:
    """The plan for one grouping; `documents`, if known, tells which documents were trained on."""
    labelled, untrained, same = ungrouped.labelled, ungrouped.untrained, ungrouped.same
    group = {i: grouping.of.get(i) or own for i, own in ungrouped.group.items()}
    untouched = {
        split
        for split, ids in labelled.splits.items()
        if len(untrained[split]) >= (1 - TRAINED_SHARE) * len(ids)
    }
    to_report = [s for s in ("test", "dev") if untrained.get(s) and len(untrained) > 1]
    named = next((s for s in to_report if s in untouched), next(iter(to_report), None))
    others = [split for split in untrained if split != named]
    clean = [split for split in others if split in untouched]
    if sum(len(untrained[split]) for split in clean) < LEAST_QUERIES:
        clean = others
    rest = [i for split in clean for i in untrained[split]]
    if named:
        report = untrained[named]
        reported = frozenset[str]().union(*(same[i] for i in report))
        fit = [i for i in rest if same[i].isdisjoint(reported)]
    else:
        report = fit = rest
    whole = sum(len(ids) for ids in labelled.splits.values())
    asked_twice = len(rest) - len(fit)
    seen = whole - len(rest) - (len(report) if named else 0)
    fit, report = (_at_most(ids, ungrouped.group, max_queries, seed) for ids in (fit, report))
    if len(fit) < LEAST_QUERIES or not report:
        raise InputError(
            f"{labelled.name}: {len(fit)} queries to fit on and {len(report)} to report on, of "
            f"{whole} ({seen} left out because the cross-encoder was trained on them, "
            f"{asked_twice} because a reported query has the same words or group); expected at "
            f"least {LEAST_QUERIES} to fit on; label more queries, or group them more finely"
        )
    # groups that hold the same question are merged
    together = joined({i: [group[i], *sorted(same[i])] for i in fit}, ())
    least = 2 if named else LEAST_FOLDS
    if (many := len(set(together.values()))) < least:
        raise InputError(
            f"{labelled.name}: the {len(fit)} queries to fit on are {many} groups; expected at "
            f"least {least}: group them more finely, or label queries about more documents"
        )
    used = {*clean, *([named] if named else [])}
    beside_training = not used <= untouched
    if documents is not None:
        trained = set().union(*labelled.splits.values()).difference(*untrained.values())
        known = {documents.of[i] for i in trained if i in documents.of}
        beside_training &= any(documents.of.get(i) in known for i in (*fit, *report))
    fitted = {group[i] for i in fit}
    chosen = labelled.select(fit, together)
    return Plan(
        chosen,
        labelled.select(report, group) if named else chosen,
        named or CROSS_FITTED,
        seen,
        asked_twice,
        beside_training,
        sum(group[i] in fitted for i in report) if named else 0,
        grouping,
    )


def unseen(labelled: LabelledSet, ids: Sequence[str], trained_on: frozenset[str]) -> list[str]:
    """The ids whose question the cross-encoder was not trained on.

    Right passages are not compared: leaving queries out by these would leave too many unanswerable
    ones.
    """
    trained = [i for i, query in labelled.queries.items() if query_hash(query.text) in trained_on]
    known = frozenset[str]().union(*map(labelled.duplicate_keys, trained))
    return [i for i in ids if labelled.duplicate_keys(i).isdisjoint(known)]


def _at_most(ids: list[str], group: Mapping[str, str], limit: int | None, seed: int) -> list[str]:
    """At most `limit` of the ids, drawn group by group (the last one cut), in the old order."""
    if limit is None or len(ids) <= limit:
        return ids
    by_group: dict[str, list[str]] = {}
    for i in ids:
        by_group.setdefault(group[i], []).append(i)
    groups = sorted(by_group)
    random.Random(seed).shuffle(groups)
    drawn = set([i for g in groups for i in by_group[g]][:limit])
    return [i for i in ids if i in drawn]
