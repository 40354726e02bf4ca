"""The short version of tests/torture/soak.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SOAK = Path(__file__).parents[2] / "torture" / "soak.py"


def test_soak(
    run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 clients at once, and a swap between: every answer is that of a single call."""
    monkeypatch.syspath_prepend(SOAK.parent)
    spec = importlib.util.spec_from_file_location("soak", SOAK)
    assert spec is not None
    assert spec.loader is not None
    soak = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(soak)
    code = soak.main([str(run.folder), "--seconds", "3", "--swaps", "1", "--patience", "3600"])
    assert code == 0, capsys.readouterr().out
