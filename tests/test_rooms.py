"""Each room can be taken away: the rest imports nothing of it, lists its commands, and serves.

So can the adapters, which nothing enters: other libraries' programs import them.
"""

from __future__ import annotations

import ast
import compileall
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from rerank import rooms

ROOT = Path(__file__).parent.parent
CHECK = """
import sys
from pathlib import Path

# of an editable installation, which would find what is taken away
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]

import rerank

assert Path(rerank.__file__).is_relative_to(sys.argv[1]), rerank.__file__

from rerank.cli import overview
from rerank.cli import COMMANDS, find

overview()
for name in COMMANDS:
    find(name)
print(*COMMANDS, sep="\\n")

import rerank.serving.app
from rerank.serving.model_source import ModelHolder
from rerank.serving.parts import parts_of
from rerank.serving.settings import Settings
from rerank.serving.telemetry import Metrics

holder = object.__new__(ModelHolder)  # of no model: nothing is asked
holder.metrics = Metrics()
for part in parts_of(holder, Settings(), None, {}):
    print(*(route.path for router in part.routers for route in router.routes), sep="\\n")
"""
ROUTES = {"rag": "/v1/answer", "journal": "/v1/journal", "labelling": "/v1/label"}


def imported(path: Path) -> set[str]:
    """The modules that a file imports from, within functions too."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    plain = {name.name for n in nodes if isinstance(n, ast.Import) for name in n.names}
    return plain | {str(n.module) for n in nodes if isinstance(n, ast.ImportFrom)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled copy of the two packages."""
    folder = tmp_path_factory.mktemp("whole")
    for package in ("rerank", "calibration"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
        compileall.compile_dir(folder / package, quiet=2)
    return folder


@pytest.fixture(scope="module")
def imports(whole: Path) -> dict[Path, set[str]]:
    """What each file of `rerank` imports from."""
    return {p.relative_to(whole): imported(p) for p in (whole / "rerank").rglob("*.py")}


PACKAGES = {**{name: room.package for name, room in rooms.ROOMS.items()}, "": "rerank.adapters"}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_room_can_be_taken_away(
    name: str, whole: Path, imports: dict[Path, set[str]], tmp_path: Path
) -> None:
    """Everything else is there: modules, commands, and the routes of the server."""
    shutil.copytree(whole, tmp_path, copy_function=os.link, dirs_exist_ok=True)
    gone = PACKAGES[name]
    place = Path(*gone.split("."))  # a package, or one module
    shutil.rmtree(tmp_path / place, ignore_errors=True)
    (tmp_path / place.with_suffix(".py")).unlink(missing_ok=True)
    assert not [found for found in (tmp_path / "rerank").iterdir() if found.stem == place.stem]
    for path, named in imports.items():
        if not path.with_suffix("").is_relative_to(place):
            assert not [m for m in named if f"{m}.".startswith(f"{gone}.")], path
    done = subprocess.run(
        [sys.executable, "-P", "-c", CHECK, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = set(done.stdout.splitlines())
    assert {"search", "serve", "calibrate"} <= told
    for other, room in rooms.ROOMS.items():
        brought = {*room.commands, *([ROUTES[other]] if other in ROUTES else [])}
        assert (brought & told) == (set() if other == name else brought), other


SUPPORT = {path.stem: path for path in (ROOT / "tests" / "support").glob("*.py")}


@cache
def at_its_top(path: Path) -> set[str]:
    """The modules that importing a test file imports, through our helpers too."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    tops = [n for n in body if isinstance(n, ast.Import | ast.ImportFrom)]
    named = {str(n.module) for n in tops if isinstance(n, ast.ImportFrom)}
    named |= {name.name for n in tops if isinstance(n, ast.Import) for name in n.names}
    return named.union(*(at_its_top(SUPPORT[name]) for name in named & SUPPORT.keys()))


@pytest.mark.parametrize("name", PACKAGES)
def test_the_tests_of_the_rest_are_found_without_it(name: str) -> None:
    """Only a room's own tests import it when they are found; others import it as they run."""
    gone = PACKAGES[name]
    own = ROOT.joinpath("tests", *gone.split("."))
    found = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "tests").rglob("conftest.py")]
    for path in found:
        if not path.is_relative_to(own):
            assert not [m for m in at_its_top(path) if f"{m}.".startswith(f"{gone}.")], path


def test_what_tests_import_of_a_room_exists() -> None:
    """A module that was renamed would skip its tests, and nobody would be told."""
    needed = re.compile(r"importorskip\(\s*\"(rerank(?:\.\w+)+)\"")
    for path in (ROOT / "tests").rglob("*.py"):
        for module in needed.findall(path.read_text(encoding="utf-8")):
            assert importlib.util.find_spec(module), f"{path}: {module}"
