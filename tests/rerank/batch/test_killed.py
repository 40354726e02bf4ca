"""A rescoring that is killed anywhere: a few of the deaths of tests/torture/rescore.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

Run = Any  # the session's run, see conftest
TORTURE = Path(__file__).parents[2] / "torture" / "rescore.py"
KILLS = 12


def test_a_killed_run_finishes_to_the_byte(run: Run, small_folder: Path) -> None:
    """Killed at random, before a line or in a write: whole files, and those of a run left alone."""
    command = [sys.executable, TORTURE, run.folder, small_folder / "queries.jsonl"]
    done = subprocess.run(
        [*map(str, command), "--kills", str(KILLS), "--rows", "12"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kills = re.match(r"(\d+) kills .*: 0 wrong", done.stdout)
    assert kills
    assert int(kills[1]) >= KILLS
