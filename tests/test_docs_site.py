"""The guide as a site: built without a warning, complete, and loading nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import calibration
import rerank

ROOT = Path(__file__).parents[1]
LOADED = re.compile(
    r"<(?:script|img|iframe)[^>]* src=\"(https?://[^\"]*)|<link[^>]*stylesheet[^>]*(https?:[^\"]*)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a warning, such as one of a broken link, is an error."""
    pytest.importorskip("mkdocstrings", reason="`make docs` needs the extra [docs]")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    """The front page is the README, every page of docs/ has one, and none needs a network."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in site.glob("*.html")}
    assert set(pages) >= {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    assert "The number to act on" in pages["index.html"]
    assert {name: LOADED.findall(page) for name, page in pages.items() if LOADED.search(page)} == {}


@pytest.mark.parametrize(
    ("page", "package"), [("api.html", rerank), ("statistics.html", calibration)]
)
def test_the_reference_has_every_public_name(site: Path, page: str, package: ModuleType) -> None:
    """Each name of `__all__` has an entry."""
    text = (site / page).read_text(encoding="utf-8")
    names = [f"{package.__name__}.{name}" for name in package.__all__]
    assert [name for name in names if f'id="{name}"' not in text] == []
