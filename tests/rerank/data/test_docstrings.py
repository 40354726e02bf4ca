"""What is read out of a numpydoc docstring."""

from __future__ import annotations

import inspect

from rerank.data.recipes import _parse


def test_see_also_sections_are_parsed_by_hand() -> None:
    """The forms that numpydoc allows: lists, roles, continued lines, no description."""
    docstring = """Fill gaps.

    See Also
    --------
    drop, cut : Take rows
        away for good.
    :func:`numpy.interp` : Values in between.
    bare
    method() : With parentheses.

    Notes
    -----
    More.
    """
    found = _parse("lib.fill", inspect.cleandoc(docstring))
    assert found.see_also == (
        ("drop", "Take rows away for good."),
        ("cut", "Take rows away for good."),
        ("numpy.interp", "Values in between."),
        ("method", "With parentheses."),
    )
    assert "Take rows" not in found.body
    assert "Notes" in found.body
    assert found.summary == "Fill gaps."
