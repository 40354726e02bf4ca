"""Aligned tables: names to the left, figures to the right, no line longer than `WIDTH`."""

from __future__ import annotations

from calibration.reliability import WIDTH, aligned


def test_columns_by_hand() -> None:
    """Two blanks between columns; none at the end of a line."""
    rows = [("", "n", "share"), ("one", "1", "0.5"), ("twelve", "12", "")]
    assert aligned(rows).split("\n") == [
        "         n  share",
        "one      1    0.5",
        "twelve  12",
    ]


def test_a_long_name_is_cut() -> None:
    """The figures are whole, the name ends in an ellipsis, the line fits."""
    (line,) = aligned([("a long name" * 20, "0.123")]).split("\n")
    assert line == ("a long name" * 20)[:92] + "…  0.123"
    assert len(line) == WIDTH
