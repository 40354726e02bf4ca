"""Passages that do not compete with each other: those with equal title and text, or without any.

Whatever compares passages takes equal ones as one. Otherwise a passage that occurs twice would have
no lead over the others, and would count as two chances that one is right. Labels go by id: if they
name only one of two equal passages, the other one counts as wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rerank.data.checks import has_text
from rerank.types import Floats, Ints, Passage, RankedPassage


def distinct(passages: Sequence[Passage | RankedPassage]) -> tuple[Ints, Ints]:
    """The first of each group of equal passages, and the group of each passage.

    Positions (m,) in rising order, and numbers (n,) from 0 to m - 1: `np.unique`'s `return_index`
    and `return_inverse`. Passages without text are never equal.
    """
    first: dict[tuple[str, str] | int, int] = {}
    keys: list[tuple[str, str] | int] = [
        (p.title, p.text) if p.text else i for i, p in enumerate(passages)
    ]
    for i, key in enumerate(keys):
        first.setdefault(key, i)
    number = {key: group for group, key in enumerate(first)}
    return (
        np.array(list(first.values()), dtype=np.int64),
        np.array([number[key] for key in keys], dtype=np.int64),
    )


def with_text(passages: Sequence[Passage]) -> Ints:
    """The positions of the passages that hold any text; the others cannot be right."""
    return np.flatnonzero([has_text(p.text) or has_text(p.title) for p in passages])


def ranks_without_equal(ranks: Ints, first: Ints, group: Ints) -> Ints:
    """The ranks (n,), from 1, if equal passages shared the best rank of their group.

    `first` (m,) and `group` (n,) are those of `distinct`.
    """
    best = np.full(len(first), ranks.max(initial=0))
    np.minimum.at(best, group, ranks)
    left_out = np.sort(ranks[ranks > best[group]])
    return (best - np.searchsorted(left_out, best))[group]


def highest_of_equal(scores: Floats, group: Ints) -> Floats:
    """The scores (n,), with the highest one of its group for each passage; NaN if all are missing.

    `group` (n,) is that of `distinct`.
    """
    highest = np.full(group.max(initial=-1) + 1, np.nan)
    if len(highest) == len(scores):  # all differ
        return scores
    np.fmax.at(highest, group, scores)
    return np.asarray(highest[group])
