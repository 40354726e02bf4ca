"""Labels that came after calibration: what people said of answers, read from a file.

One JSON object a line: `query`, and either `right` (was the top passage right?) or `relevant` (the
ids of the right passages, none for a query that nothing answers). A folder of a labelled set holds
the same and more, and has a corpus of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import Labels
from rerank.data.lines import read_records
from rerank.data.records import LONGEST_QUERY, read_id, read_text
from rerank.data.text import kind
from rerank.errors import InputError
from rerank.types import Passage, Query, Ranking


@dataclass(frozen=True, slots=True)
class Feedback:
    """A query, and what was said of it: `right`, or else the ids that would be."""

    query: Query
    group: str
    right: bool | None
    relevant: frozenset[str]

    def is_hit(self, ranking: Ranking) -> bool:
        """Whether the top passage of the ranking is right."""
        if self.right is not None:
            return self.right
        return len(ranking) > 0 and ranking.doc_ids[0] in self.relevant


def feedback_of(labelled: LabelledSet, split: str) -> list[Feedback]:
    """What the qrels say of a split's queries, in its order.

    Raises:
        InputError: no such split.
    """
    queries = labelled.select(labelled.split(split))
    rows = zip(queries.items, queries.groups.tolist(), queries.grades, strict=True)
    return [Feedback(query, group, None, frozenset(grades)) for query, group, grades in rows]


def hit_labels(feedback: Sequence[Feedback], rankings: Sequence[Ranking]) -> Labels:
    """1 where the top passage is right, shape (n,)."""
    rows = zip(feedback, rankings, strict=True)
    return np.array([f.is_hit(r) for f, r in rows], dtype=np.int64)


def read_feedback(path: Path) -> list[Feedback]:
    """The labels of a file, in its order; a query's text is its group.

    Raises:
        InputError: no such file, no line, or bad lines (all are listed).
    """
    return read_records(path, _feedback, "label")


def _feedback(row: Mapping[str, Any]) -> Feedback:
    text = read_text(row, "query", most=LONGEST_QUERY)
    right, relevant = row.get("right"), row.get("relevant")
    if (right is None) == (relevant is None):
        raise InputError(f"expected one of 'right' and 'relevant', got {sorted(row)}")
    if right is not None and not isinstance(right, bool):
        raise InputError(f"'right' should be true or false, got {right!r:.80}")
    if relevant is not None and not isinstance(relevant, list):
        raise InputError(f"'relevant' should be a list of passage ids, got {kind(relevant)}")
    ids = [read_id({"relevant": i}, "relevant") for i in relevant or ()]
    return Feedback(Query(text), " ".join(text.lower().split()), right, frozenset(ids))


def refuse_unknown(feedback: Sequence[Feedback], passages: Iterable[Passage]) -> None:
    """Refuse labels that name passages which are not among these.

    Raises:
        InputError: the first such ids, and how many there are.
    """
    named = {i for f in feedback for i in f.relevant}
    if not named:
        return
    unknown = sorted(named - {passage.doc_id for passage in passages})
    if unknown:
        raise InputError(
            f"{len(unknown)} of the {len(named)} passages that the labels name are not in the "
            f"index, such as {unknown[0]!r:.80}; expected the ids of its corpus"
        )
