"""docs/statistics.md: what it names is there, and what is there it names."""

from __future__ import annotations

import re
from pathlib import Path

import calibration

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/statistics.md").read_text(encoding="utf-8")


def test_the_page_has_every_public_name_and_no_other() -> None:
    """Each entry is imported from `calibration` itself, once, and has a docstring."""
    entries = re.findall(r"^::: calibration\.(\S+)$", PAGE, flags=re.MULTILINE)
    assert sorted(entries) == sorted(calibration.__all__)
    undocumented = {n for n in entries if not getattr(calibration, n).__doc__}
    assert undocumented <= {"CalibrationMap"}  # a union of types


def test_guarantees_name_functions_and_tests_that_exist() -> None:
    """The first column is importable from `calibration`; the last one is a file that has a run."""
    table = PAGE.partition("## Guarantees")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) > 10
    for guarantee, *_, tests in rows[1:]:
        names = re.findall(r"`(\w+)`", guarantee)
        assert all(name == "p" or hasattr(calibration, name) for name in names), guarantee
        for file in re.findall(r"`(\S+)`", tests):
            text = (ROOT / "tests/promise" / file).read_text(encoding="utf-8")
            assert "def experiments" in text, file
