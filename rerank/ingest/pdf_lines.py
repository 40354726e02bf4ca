"""The lines of a page in reading order, from pieces of lines and their boxes.

It knows nothing of PDF files: boxes are in points, with the text upright and y growing upwards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby, pairwise
from statistics import median
from typing import NamedTuple

GAP = 0.8  # width of a gap that divides a line into pieces, over the height of its text
SECTION = 2.5  # height of a gap that ends columns, likewise
ROWS = 3  # least lines of a column
WORDS = 2.5  # least words of a column's line, on average
FULL = 0.6  # median width of a column's lines over the widest one
CONTINUED = 0.25  # share of a column's lines that go on with the sentence of the line before
END = re.compile(r"[.!?:;][\"'”’)]*$")
RAISED, LOWERED = (
    str.maketrans("0123456789+-−–=()", signs)
    for signs in ("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁻⁼⁽⁾", "₀₁₂₃₄₅₆₇₈₉₊₋₋₋₌₍₎")
)


class Box(NamedTuple):
    """A rectangle."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def height(self) -> float:
        """Its height."""
        return self.top - self.bottom

    def is_beside(self, other: Box) -> bool:
        """Whether the middle of one of them is at a height of the other."""
        ours, theirs = (self.bottom + self.top) / 2, (other.bottom + other.top) / 2
        return other.bottom < ours < other.top or self.bottom < theirs < self.top


class Piece(NamedTuple):
    """A part of a line; `box` is None if it runs in another direction than the page's text."""

    text: str
    row: int  # pieces of one line have the same
    box: Box | None
    is_value: bool = False  # of a field, or free text


def with_raised_digits(word: Sequence[tuple[str, Box]]) -> str:
    """A word of characters with boxes; digits that are raised or lowered become such signs.

    So 10 with a raised 6 is 10⁶ and not 106, and the mark of a note before 30 stands apart.
    """
    boxes = [box for sign, box in word if sign.isalnum()]
    large = 0.85 * max((box.height for box in boxes), default=0)
    text, base = "", next((box for box in boxes if box.height > large), None)
    for sign, box in word:
        small = base is not None and 0 < box.height < 0.85 * base.height
        middle = (box.bottom + box.top) / 2
        if base and small and middle > base.bottom + 0.58 * base.height:
            text += sign.translate(RAISED)
        elif base and small and middle < base.bottom + 0.42 * base.height:
            text += sign.translate(LOWERED)
        else:
            is_apart = sign.isdecimal() and text[-1:].isdigit() and not text[-1].isdecimal()
            text += " " * is_apart + sign
            base = box if sign.isalnum() else base
    return text


def placed(on_page: list[Piece], text: str, box: Box, *, name: str = "") -> None:
    """Put the value of a field behind the piece on its left, or below the one above it.

    A tick may stand in front of its label. `name` is set before the value if no label is near.
    """
    boxes = [(i, piece.box) for i, piece in enumerate(on_page) if piece.box]
    size = median([b.height for _, b in boxes]) if boxes else box.height
    first = Box(box.left, max(box.bottom, box.top - 2 * size), box.right, box.top)
    beside = [(i, b) for i, b in boxes if b.is_beside(first)]
    left = max(((b.right, i) for i, b in beside if b.left < box.left), default=None)
    right = min(((b.left, i) for i, b in beside if b.left >= box.left), default=None)
    higher = [(b.bottom, -i, b) for i, b in boxes if b.bottom >= first.top - size]
    labels = [h for h in higher if h[2].left < box.right and box.left < h[2].right]
    labels = [h for h in labels if h[0] - first.top < 2 * size]
    above = min(labels or higher, default=None)
    if left and on_page[left[1]].is_value and labels:
        left = None  # fields in a row, each below its label
    is_tick = text.startswith("[")
    nearer = right and left and is_tick and right[0] - box.right < box.left - left[0]
    before = right if nearer or not left else None  # what it stands before
    if one := before or left:
        at, row = one[1] + (before is None), on_page[one[1]].row
    else:
        at, row = 1 - above[1] if above else 0, -1 - len(on_page)
    near = left or (is_tick and right) or labels
    on_page.insert(at, Piece(text if near or not name else f"{name}: {text}", row, box, True))


def lines(on_page: Sequence[Piece]) -> list[tuple[str, float]]:
    """The lines of a page with their heights, 0 for one that is not known.

    Columns whose lines alternate follow each other, if they are prose.
    """
    boxes = [piece.box for piece in on_page if piece.box]
    if sum(b.right < a.left for a, b in pairwise(boxes)) < 2:
        return _rows(on_page)
    found: list[Piece] = []
    start = 0
    while start < len(on_page):
        here, after = on_page[start].box, on_page[min(start + 1, len(on_page) - 1)].box
        if not here or not after or (here.left < after.right and after.left < here.right):
            found.append(on_page[start])  # the next line is below it
            start += 1
            continue
        end, columns = _columns(on_page, start)
        of = {id(piece): i for i, column in enumerate(columns) for piece in column}
        back = sum(of[id(b)] < of[id(a)] for a, b in pairwise(on_page[start:end]))  # to the left
        is_prose = back > 1 and all(map(_is_prose, columns))
        end = end if is_prose or end - start > 4 * ROWS else start + 1
        found += [p for column in columns for p in column] if is_prose else on_page[start:end]
        start = end
    return _rows(found)


def _rows(on_page: Sequence[Piece]) -> list[tuple[str, float]]:
    rows = (list(row) for _, row in groupby(on_page, key=lambda p: p.row))
    return [
        (" ".join(p.text for p in row), min((p.box.height for p in row if p.box), default=0))
        for row in rows
    ]


def _columns(on_page: Sequence[Piece], start: int) -> tuple[int, list[list[Piece]]]:
    """Where the columns that begin at `start` end, and their pieces; one if there are none."""
    spans: list[tuple[float, float]] = []
    low = 0.0
    end = start
    for piece in on_page[start:]:
        box = piece.box
        if box is None or (spans and low - box.top > SECTION * box.height):
            break
        left, right = box.left - box.height / 4, box.right + box.height / 4
        over = [s for s in spans if s[0] < right and left < s[1]]
        if len(over) > 1 or (over and len(spans) == 1):
            break
        joined = (min(left, *(s[0] for s in over), left), max(right, *(s[1] for s in over), right))
        spans = sorted([*(s for s in spans if s not in over), joined])
        low = min(low, box.bottom) if end > start else box.bottom
        end += 1
    columns: list[list[Piece]] = [[] for _ in spans]
    for piece in on_page[start:end]:
        assert piece.box is not None
        at = next(i for i, (a, b) in enumerate(spans) if a < piece.box.left < b)
        columns[at].append(piece)
    return end, columns


def _is_prose(column: Sequence[Piece]) -> bool:
    """Whether the lines of a column are sentences that go on, rather than cells of a table."""
    if len(column) < ROWS:
        return False
    texts = [piece.text for piece in column]
    words = sum(max(len(text.split()), len(text) / 8) for text in texts) / len(texts)
    widths = [piece.box.right - piece.box.left for piece in column if piece.box]
    begins_on = (b[0].isalpha() and not b[0].isupper() for b in texts[1:])
    on = sum(low and not END.search(a) for a, low in zip(texts, begins_on, strict=False))
    is_full = median(widths) >= FULL * max(widths)
    return words >= WORDS and is_full and on >= CONTINUED * (len(column) - 1)
