"""Who is fitted on and who is reported on: queries split by group, before anything is computed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rerank.labelled_set import LabelledSet
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

    def counts(self) -> dict[str, int | str]:
        """The plan in numbers."""
        return {
            "fit": len(self.fit),
            "report": len(self.report),
            "report_split": self.report_split,
            "left_out_seen_by_reranker": self.seen_by_reranker,
        }


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
        fresh = unseen(labelled, ids, trained_on)
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


def unseen(labelled: LabelledSet, ids: Sequence[str], trained_on: frozenset[str]) -> list[str]:
    """The ids whose query the cross-encoder was not trained on."""
    return [i for i in ids if query_hash(labelled.queries[i].text) not in trained_on]


def _at_most(labelled: LabelledSet, ids: list[str], limit: int | None, seed: int) -> list[str]:
    """At most `limit` of the ids, whole groups in drawn order, in their old order."""
    if limit is None or len(ids) <= limit:
        return ids
    by_group: dict[str, list[str]] = {}
    for i in ids:
        by_group.setdefault(labelled.group(i), []).append(i)
    groups = sorted(by_group)
    random.Random(seed).shuffle(groups)
    drawn = set([i for g in groups for i in by_group[g]][:limit])
    return [i for i in ids if i in drawn]
