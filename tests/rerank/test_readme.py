"""README.md and docs: commands and Python run, in order, on a small set; names and links exist."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from known_lists import known_lists, write_lines
from registries import restored

import rerank
from rerank import LabelledSet
from rerank.cli import main
from rerank.data.beir import read_queries

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
RUN = ("console", "python")
SHOWN = ("sh", "text", "py", "toml")  # `sh` and `py` need a server, a cluster or more data
MAY_SAY_NO = {"drift", "promote"}  # their exit code 1 is an answer


def commands(code: str) -> list[str]:
    """The commands of a `console` block."""
    return [line[2:] for line in code.replace("\\\n", " ").splitlines() if line.startswith("$ ")]


@pytest.fixture(scope="module")
def place(small: LabelledSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as after `make demo`, on a small set: a model, in MLflow too, and some files."""
    folder = tmp_path_factory.mktemp("readme")
    splits = {"train": small.splits["train"][:40], "test": small.splits["test"][:12]}
    kept = {i for ids in splits.values() for i in ids}
    queries = {i: q for i, q in small.queries.items() if i in kept}
    qrels = {i: q for i, q in small.qrels.items() if i in kept}
    right = {d for grades in qrels.values() for d in grades}
    more = [d for d in small.corpus if d not in right][:60]
    corpus = {d: p for d, p in small.corpus.items() if d in right.union(more)}
    cut = replace(small, corpus=corpus, queries=queries, qrels=qrels, splits=splits)
    cut.write(folder / "datasets" / "pydata")
    (folder / "queries.jsonl").write_text('{"_id": "1", "query": "sort an array"}\n')
    asked = [{"_id": str(i), "query": f"how to sort {i} arrays"} for i in range(60)]
    (folder / "asked.jsonl").write_text("\n".join(map(json.dumps, asked)))
    (folder / "documents").mkdir()
    (folder / "documents" / "pump.md").write_text("# Pump\n\nOpen the valve.\n\n## Start\n\nGo.\n")
    labels = [{"query": f"sort array number {i}", "right": i % 2 == 0} for i in range(12)]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    write_lines(folder / "lists.jsonl", known_lists(30))
    said = [{"query_id": i, "confidence": 0.5, "ranking": []} for i in splits["test"]]
    write_lines(folder / "theirs.jsonl", said)
    before = Path.cwd()
    os.chdir(folder)
    try:
        made = rerank.calibrate(LabelledSet.read("datasets/pydata"), "work/model", max_queries=500)
    finally:
        os.chdir(before)
    assert made.run is not None
    _make_champion(f"sqlite:///{folder}/work/mlflow.db", made.run.model_name)
    return folder


def _make_champion(store: str, name: str) -> None:
    from mlflow import MlflowClient

    MlflowClient(store, store).set_registered_model_alias(name, "champion", "1")


@pytest.fixture
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder is the current one, and what a page registers is gone afterwards."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}/work/mlflow.db")
    with restored():
        yield


@pytest.mark.usefixtures("_there")
@pytest.mark.parametrize(
    "page", [name for name, text in PAGES.items() if any(b[0] in RUN for b in BLOCK.findall(text))]
)
def test_what_a_page_shows_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every `rerank` command and every block of Python, in the page's order."""
    names: dict[str, object] = {"__name__": "__main__"}
    for language, code in BLOCK.findall(PAGES[page]):
        if language == "python":
            exec(compile(code, page, "exec"), names)
        for command in commands(code) if language == "console" else ():
            program, *arguments = shlex.split(command)
            if program != "rerank":
                continue
            code_of_exit = main(arguments)
            printed = capsys.readouterr()
            allowed = (0, 1) if set(arguments[:2]) & MAY_SAY_NO else (0,)
            assert code_of_exit in allowed, f"{command}\n{printed.out}\n{printed.err}"
            assert printed.out, command


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_exists(page: str) -> None:
    """Languages of blocks are those that this test knows, `make` has the targets, links lead on."""
    text = PAGES[page]
    assert {language for language, _ in BLOCK.findall(text)} <= {*RUN, *SHOWN}
    makefiles = (ROOT / "Makefile", ROOT / "models" / "recipes.mk")
    makefile = "".join(part.read_text(encoding="utf-8") for part in makefiles)
    targets = set(re.findall(r"^([a-z]+):.*## ", makefile, flags=re.MULTILINE))
    named = set(re.findall(r"(?:^\$ |^|`)make ([a-z]+)", text, flags=re.MULTILINE))
    assert named <= targets | {"test"}
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_what_the_demo_shows_is_what_its_labels_say() -> None:
    """One measured question accepted and right, one doubted and wrong, one without answer."""
    (shown,) = (code for _, code in BLOCK.findall(PAGES["README.md"]) if "Top passage: " in code)
    home = ROOT / "datasets" / "ruff_questions"
    ids = {q.text: q.query_id for q in read_queries(home / "queries.jsonl")}
    rows = (row.split("\t") for row in (home / "qrels/test.tsv").read_text().splitlines()[1:])
    right = {(query_id, doc_id) for query_id, doc_id, _ in rows}
    measured = (home / "splits/test.txt").read_text().split()
    asked = re.findall(
        r"^(\S.*)\n  confidence [\d.]+  \w+, (\w+).*\n  1. [\d.]+  (\S+)", shown, re.M
    )
    assert [advice for _, advice, _ in asked] == ["accepted", "advisory", "advisory"]
    first, second, third = (ids[text] for text, _, _ in asked)
    assert {first, second, third} <= set(measured)
    assert (first, asked[0][2]) in right
    assert (second, asked[1][2]) not in right
    assert {second} <= {i for i, _ in right}
    assert third not in {i for i, _ in right}
    accepted, queries = map(int, re.findall(r"(\d+) of (\d+) measured", shown)[0])
    assert queries == len(measured)
    assert accepted >= queries / 3


def test_the_tree_names_every_package() -> None:
    """The README's tree has each package of `calibration` and `rerank`, and no other folder."""
    (tree,) = (code for _, code in BLOCK.findall(PAGES["README.md"]) if "calibration/ " in code)
    named: list[str] = []
    top = ""
    for indent, names in re.findall(r"^( *)((?:\w+/ )+)", tree, flags=re.MULTILINE):
        for name in names.replace("/", "").split():
            top = top if indent else name
            named.append(f"{top}/{name}" if indent else name)
    packages = {
        str(p.parent.relative_to(ROOT))
        for package in ("calibration", "rerank")
        for p in (*ROOT.glob(f"{package}/__init__.py"), *ROOT.glob(f"{package}/*/__init__.py"))
    }
    assert set(named) == packages | {"datasets", "models", "tests"}
    assert all((ROOT / name).is_dir() for name in named)
