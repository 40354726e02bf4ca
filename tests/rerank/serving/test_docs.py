"""docs/serving.md names all that the code has: what is added without a word there fails here."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerank.serving.app import REFUSALS
from rerank.serving.requests import HOSTED
from rerank.serving.telemetry import Metrics

PAGE = (Path(__file__).parents[3] / "docs" / "serving.md").read_text(encoding="utf-8")
OURS = [m.name for m in Metrics().registry.collect() if m.name.startswith("rerank_")]


@pytest.mark.parametrize("name", OURS)
def test_every_metric_is_in_the_documentation(name: str) -> None:
    """By its name, which of a counter ends in `_total`."""
    assert f"`{name}`" in PAGE or f"`{name}_total`" in PAGE


@pytest.mark.parametrize("field", HOSTED)
def test_every_field_that_is_passed_over_is_in_the_documentation(field: str) -> None:
    """With the reason that the code gives."""
    row = next(line for line in PAGE.splitlines() if line.startswith("|") and f"`{field}`" in line)
    assert HOSTED[field] in row


@pytest.mark.parametrize("status", REFUSALS)
def test_every_refusal_is_in_the_documentation(status: int) -> None:
    """By its status."""
    assert str(status) in PAGE.partition("## Refusals")[2].partition("## Keys")[0]
