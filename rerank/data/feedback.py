"""Labels that came after calibration: what people said of answers, read from a file.

One JSON object a line: `query`, and either `right` (was the top passage right?) or `relevant` (the
ids of the right passages, none for a query that nothing answers). A folder of a labelled set holds
the same and more, and has a corpus of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rerank.data.beir import LONGEST_PROBLEM, SHOWN_PROBLEMS
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import Labels
from rerank.errors import InputError
from rerank.storage.files import regular
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
    found: list[Feedback] = []
    wrong: list[str] = []
    bad = 0
    try:
        with regular(path) as handle, open(handle, encoding="utf-8", closefd=False) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    found.append(_feedback(json.loads(line), number))
                except (ValueError, RecursionError) as error:
                    bad += 1
                    if len(wrong) < SHOWN_PROBLEMS:
                        wrong.append(f"{path}:{number}: {str(error)[:LONGEST_PROBLEM]}")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error})") from None
    if bad:
        shown = "\n".join(wrong)
        raise InputError(f"{bad} lines are not labels:\n{shown}")
    if not found:
        raise InputError(f"{path} holds no label; expected a JSON object a line")
    return found


def _feedback(value: Any, number: int) -> Feedback:
    expected = 'expected {"query": TEXT, "right": true or false} or {..., "relevant": [IDS]}'
    if not isinstance(value, dict) or not isinstance(value.get("query"), str):
        raise ValueError(f"{expected}, got {str(value)[:80]}")
    text, right, relevant = value["query"], value.get("right"), value.get("relevant")
    if not text.strip():
        raise ValueError("the query is empty")
    if (right is None) == (relevant is None):
        raise ValueError(f"{expected}: one of the two, got {sorted(value)}")
    if right is not None and not isinstance(right, bool):
        raise ValueError(f"right should be true or false, got {right!r}")
    if relevant is not None and not (
        isinstance(relevant, list) and all(isinstance(i, str) for i in relevant)
    ):
        raise ValueError(f"relevant should be a list of passage ids, got {str(relevant)[:80]}")
    group = " ".join(text.lower().split())
    return Feedback(Query(text, f"line-{number}"), group, right, frozenset(relevant or ()))


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
