"""Which letters of a PDF a line strikes out. It knows only boxes, and nothing of PDF files.

A line that strikes crosses the middle of its letters, and begins and ends where they do: so no
underline, rule of a table, bar of a fraction, or edge of a drawing does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

APART = 0.5  # points between the parts of a line, at most
THICK = 0.25  # of a line over the height of its text, at most
LOW, HIGH = 0.2, 0.85  # where it crosses its letters, over the height of the highest
OUTSIDE, INSIDE = 0.4, 0.15  # of it beyond its letters, or of them beyond it, over their height
LETTERS = 0.5  # share of its length that letters take, at least
CROSSED = 0.6  # share of the letters along a line that it crosses in the middle, at least
TURNED = {  # by quarters: what is left, bottom, right and top of a box when its text is upright
    1: ((3, 0, 1, 2), (-1, 1, -1, 1)),
    2: ((2, 3, 0, 1), (-1, -1, -1, -1)),
    3: ((1, 2, 3, 0), (1, -1, 1, -1)),
}
Array = NDArray[Any]


class Letters(NamedTuple):
    """Characters, each with its boxes when its text is upright."""

    around: Array  # from descent to ascent
    ink: Array
    base: Array  # heights of the line on which they stand
    is_letter: Array  # or digit


def turned(boxes: Array, turn: int) -> Array:
    """The boxes, in the last axis, as they lie when their text is upright."""
    order, signs = TURNED.get(turn, ((0, 1, 2, 3), (1, 1, 1, 1)))
    return np.asarray(boxes[..., order] * signs)


def joined(boxes: Array) -> Array:
    """The lines among these boxes that run from left to right; parts of a line are one."""
    lines = boxes[boxes[:, 2] - boxes[:, 0] > 2 * (boxes[:, 3] - boxes[:, 1])]
    height = np.round((lines[:, 1] + lines[:, 3]) / (2 * APART))
    order = np.lexsort((lines[:, 0], height))
    lines, height = lines[order], height[order]
    if not len(lines):
        return lines
    aside = height * (np.ptp(lines[:, ::2]) + 2 * APART)  # so that other heights are far off
    ends = np.maximum.accumulate(lines[:, 2] + aside)
    at = np.flatnonzero(np.append(True, (lines[:, 0] + aside)[1:] > ends[:-1] + APART))
    low, high = np.minimum.reduceat(lines, at), np.maximum.reduceat(lines, at)
    return np.hstack([low[:, :2], high[:, 2:]])


def may_strike(lines: Array, texts: Array) -> Iterator[tuple[Array, Array]]:
    """Lines, each with the indices of the texts with these boxes that it may strike."""
    middle, pad = (lines[:, 1] + lines[:, 3]) / 2, OUTSIDE * (texts[:, 3] - texts[:, 1])
    left, right = texts[:, 0] - pad, texts[:, 2] + pad
    for line, height in zip(lines, middle.tolist(), strict=True):
        is_beside = (texts[:, 1] < height) & (height < texts[:, 3])
        at = np.flatnonzero(is_beside & (left < line[2]) & (line[0] < right))
        if len(at) and left[at].min() < line[0] and line[2] < right[at].max():
            yield line, at


def are_struck(line: Array, letters: Letters) -> Array:
    """Which of the letters the line strikes out."""
    left, bottom, right, top = line
    middle = (bottom + top) / 2
    around, ink = letters.around, letters.ink
    along = (around[:, 0] + around[:, 2]) / 2
    found = (left < along) & (along < right) & (around[:, 1] < middle) & (middle < around[:, 3])
    crossed = found & letters.is_letter
    if not crossed.any():
        return np.asarray(crossed)
    size = np.median(around[crossed, 3] - around[crossed, 1])
    tallest = (ink[crossed, 3] - letters.base[crossed]).max()
    is_middle = (middle - letters.base > LOW * tallest) & (middle - letters.base < HIGH * tallest)
    is_middle &= (ink[:, 1] < middle) & (middle < ink[:, 3])
    width = (around[crossed, 2] - around[crossed, 0]).sum()
    before, after = around[found, 0].min() - left, right - around[found, 2].max()
    is_struck = bool(
        top - bottom < THICK * size
        and width > LETTERS * (right - left)
        and is_middle[crossed].mean() >= CROSSED
        and -INSIDE * min(size, width) < min(before, after)
        and before + after < OUTSIDE * size
    )
    return np.asarray(found & is_struck)
