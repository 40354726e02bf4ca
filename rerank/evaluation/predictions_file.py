"""Measure predictions that anything made, against the labels: no model is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.arrays import plain
from calibration.metrics import aurc, log_loss
from calibration.reliability import Comparison, comparison
from rerank.data.grouping import grouped, sampled_units
from rerank.data.labelled_set import LabelledSet
from rerank.data.lines import Problems, records, stem
from rerank.data.records import read_number, read_text
from rerank.errors import InputError
from rerank.evaluation.measure import order_quality

LINE = 'expected {"query_id": ID, "confidence": 0 to 1, "ranking": [IDS, best first]}'


@dataclass(frozen=True, slots=True)
class MeasuredPredictions:
    """The confidence of a file of predictions, measured, and its order."""

    table: Comparison  # of one row, named as the file
    order: Mapping[str, float]  # hit1 of all queries; mrr10, ndcg10 of the answerable
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; undefined values are None."""
        return {
            "confidence": self.table.to_dict(),
            "orders": {name: plain(dict(self.order)) for name, _ in self.table.rows},
        }


def measure_predictions(
    path: Path, labelled: LabelledSet, split: str = "test", *, threshold: float = 0.7
) -> MeasuredPredictions:
    """Measure a file with a line for each query of a split, as `rerank rescore` writes it.

    A line has `query_id`, `confidence` and `ranking`: ids, or objects with `doc_id`. A query is
    right if its first passage is; one without a right passage never is. Of a passage that is named
    twice the first place counts. Lines of other queries are
    counted and left out. At `threshold` the share of accepted ones that are right is measured.

    Raises:
        InputError: no such split or no query in it; lines that cannot be read, which are listed; or
            a query without a line, or with two.
    """
    ids = labelled.split(split)
    said = read_predictions(path, ids, split)
    queries = grouped(labelled, ids).select(ids)
    order = order_quality([said[i][1] for i in ids], queries.grades)
    table = comparison(
        {stem(path): np.array([said[i][0] for i in ids])},
        order.hit1,
        groups=queries.groups.tolist(),
        units=sampled_units(queries.items).tolist(),
        threshold=threshold,
        extra={"AURC": aurc, "log loss": log_loss},
    )
    others = len(said) - len(ids)
    notes = (f"left out: {others} lines of queries that are not in {split!r}.",) if others else ()
    return MeasuredPredictions(table, order.means, notes)


def read_predictions(
    path: Path, ids: Sequence[str], split: str
) -> dict[str, tuple[float, list[str]]]:
    """The confidence and the ranking of each query of a file, which has all `ids` of the split.

    Raises:
        InputError: as `measure_predictions`.
    """
    said, problems = dict[str, tuple[float, list[str]]](), Problems()
    for where, (query_id, confidence, found) in records(path, _prediction, problems):
        if query_id in said:
            problems.add(where, f"a second line of the query {query_id!r}")
        said[query_id] = confidence, found
    problems.raise_if_any(str(path))
    if missing := [i for i in ids if i not in said]:
        raise InputError(
            f"{path}: expected a line for each of the {len(ids)} queries of {split!r}, got none "
            f"for {len(missing)}, such as {missing[0]!r}"
        )
    return said


def _prediction(row: Mapping[str, Any]) -> tuple[str, float, list[str]]:
    ranking = row.get("ranking")
    if row.get("confidence") is None or not isinstance(ranking, (list, tuple)):
        raise InputError(f"{LINE}, got the fields {', '.join(row) or 'none'}")
    confidence = read_number(row, "confidence")
    if not 0 <= confidence <= 1:
        raise InputError(f"'confidence' should be from 0 to 1, got {confidence:g}")
    named = [one.get("doc_id") if isinstance(one, Mapping) else one for one in ranking]
    found = [one for one in named if isinstance(one, str)]
    if len(found) < len(named):
        raise InputError(f"{LINE}, got a passage without an id in 'ranking'")
    return read_text(row, "query_id"), confidence, list(dict.fromkeys(found))
