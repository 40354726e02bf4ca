"""The scripts beside the tests (bench, promise, torture) import names that exist."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPTS = sorted(p for name in ("bench", "promise", "torture") for p in (HERE / name).glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_script_imports_what_is_there(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is run; a script whose own libraries are missing is skipped."""
    monkeypatch.syspath_prepend(str(script.parent))
    try:
        runpy.run_path(str(script), run_name="imported")
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] in ("calibration", "rerank"):
            raise
        pytest.skip(f"needs {error.name}")
