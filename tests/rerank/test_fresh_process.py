"""Libraries that are imported late live together in one process, in either order.

Each test starts a process of its own: in one that lives long, the first import decides.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# what comes with an extra or holds compiled code, and is imported by some command
LIBRARIES = (
    *("onnxruntime", "torch", "mlflow", "pyarrow.parquet", "ray.data"),
    *("fastapi,uvicorn,prometheus_client", "usearch.index"),
)

CODE = """
import importlib, sys
from rerank.cli import main
first, later, *command = sys.argv[1:]
for name in filter(None, first.split(",")):
    importlib.import_module(name)
code = main(command)
for name in filter(None, later.split(",")):
    importlib.import_module(name)
sys.exit(code)
"""


def run(
    command: list[str], *, first: str = "", later: str = ""
) -> subprocess.CompletedProcess[str]:
    """`rerank` in a process that imports other libraries too."""
    return subprocess.run(
        [sys.executable, "-c", CODE, first, later, *command],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of three passages."""
    folder = tmp_path_factory.mktemp("few")
    rows = [{"_id": i, "title": "", "text": f"text {i}"} for i in "abc"]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def index_command(passages: Path, folder: Path) -> list[str]:
    """Makes an approximate index, which takes ONNX Runtime and USearch."""
    return [
        "data",
        "index",
        str(passages),
        "--out",
        str(folder / "index"),
        "--dense",
        "approximate",
    ]


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_approximate_index_after_any_library(few: Path, library: str, tmp_path: Path) -> None:
    """USearch links what ONNX Runtime encodes; neither of them nor another library crashes.

    The one order that would crash is refused.
    """
    for name in library.split(","):
        pytest.importorskip(name.partition(".")[0])
    done = run(index_command(few, tmp_path), first=library)
    if library == "usearch.index":
        assert done.returncode == 2
        assert "import onnxruntime, or load a model, before usearch" in done.stderr
    else:
        assert done.returncode == 0, f"{done.returncode}\n{done.stderr}"
        assert "3 passages indexed" in done.stdout


def test_an_approximate_index_before_every_library(few: Path, tmp_path: Path) -> None:
    """What is imported later, all of it into one process, does not crash either."""
    done = run(index_command(few, tmp_path), later=",".join(LIBRARIES))
    assert done.returncode == 0, f"{done.returncode}\n{done.stderr}"
    assert "3 passages indexed" in done.stdout
