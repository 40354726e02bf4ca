"""Plain text tables: cells in, aligned columns out. It knows nothing of what they hold."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 100  # characters of a line, at most


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of equal length, one line each: the first column to the left, the others to the right.

    Names in the first column that do not fit into `WIDTH` characters are cut.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    first = max(1, min(widths[0], WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1)))
    lines = []
    for name, *cells in rows:
        shown = name if len(name) <= first else f"{name[: first - 1]}…"
        right = [f"{cell:>{w}}" for cell, w in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([f"{shown:<{first}}", *right]).rstrip())
    return "\n".join(lines)
