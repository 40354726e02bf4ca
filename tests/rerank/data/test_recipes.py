"""The bundled set: what its recipe promises of every passage, query and split."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rerank.data import recipes as recipe
from rerank.data.beir import CORPUS, read_queries, write_corpus
from rerank.data.labelled_set import LabelledSet
from rerank.data.recipes import (
    MIN_WORDS,
    PYDATA,
    SPLITS,
    UNANSWERABLE,
    DocumentedObject,
    build,
    build_documentation,
    documented_objects,
    manifest,
)
from rerank.errors import InputError
from rerank.types import Passage

MADE = {"name": "documentation", "counts": {}, "digest": ""}
DATASETS = Path(__file__).parents[3] / "datasets"


def squashed(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def test_it_is_of_the_size_that_is_promised(pydata: LabelledSet) -> None:
    """Thousands of passages and more than a thousand queries, in three splits."""
    assert len(pydata.corpus) > 4000
    assert len(pydata.queries) > 1200
    assert set(pydata.splits) == set(SPLITS)
    assert sorted(i for ids in pydata.splits.values() for i in ids) == sorted(pydata.queries)


def test_shares_of_splits_and_unanswerable_queries(pydata: LabelledSet) -> None:
    """The splits have their shares of the queries, and about 18% are unanswerable, in each."""
    for split, share in SPLITS.items():
        ids = pydata.splits[split]
        assert len(ids) / len(pydata.queries) == pytest.approx(share, abs=0.05)
        gone = sum(not pydata.relevant(i) for i in ids) / len(ids)
        assert gone == pytest.approx(UNANSWERABLE, abs=0.05)


def test_no_described_object_stands_in_two_splits(pydata: LabelledSet) -> None:
    """Queries that describe the same object are on one side of every split."""
    home: dict[str, str] = {}
    for split, ids in pydata.splits.items():
        for i in ids:
            for name in {pydata.group(i), *pydata.relevant(i)}:
                assert home.setdefault(name, split) == split


def test_right_passages_are_there_and_those_of_unanswerable_queries_are_not(
    pydata: LabelledSet,
) -> None:
    """Every judged passage is in the corpus, and no object that was taken out is."""
    for query in pydata.queries.values():
        right = pydata.relevant(query.query_id)
        assert right <= pydata.corpus.keys()
        assert bool(right) == query.metadata["answerable"]
        if not right:
            assert query.metadata["group"] not in pydata.corpus


def test_no_query_is_given_away_by_its_own_passage(pydata: LabelledSet) -> None:
    """The words of a query do not stand, in a row, in the docstring it describes."""
    for query in pydata.queries.values():
        assert len(re.findall(r"\w+", query.text)) >= MIN_WORDS
        described = [pydata.corpus[d] for d in pydata.relevant(query.query_id)]
        if described:
            assert not all(squashed(query.text) in squashed(p.text) for p in described)
        for passage in described:
            assert "See Also\n---" not in passage.text


def test_passages_are_the_librarys_own_docstrings(pydata: LabelledSet) -> None:
    """NumPy's docstrings as inspect gives them, less "See Also" and "Examples"."""
    dropped = r"(See Also|Examples)\n-+\n.*?(?=\n[A-Z][A-Za-z ]+\n-+\n|\Z)"
    names = [d for d in pydata.corpus if re.fullmatch(r"numpy\.[a-z]+", d)][:40]
    assert len(names) == 40
    for name in names:
        whole = inspect.getdoc(getattr(np, name.removeprefix("numpy.")))
        assert whole is not None
        expected = re.sub(dropped, "", whole, flags=re.DOTALL)
        # in any order, because the recipe sorts printed sets, such as {'heapsort', 'quicksort'}
        assert Counter(squashed(pydata.corpus[name].text).split()) == Counter(
            squashed(expected).split()
        ), name


def test_building_is_quiet(built: tuple[LabelledSet, tuple[str, ...]]) -> None:
    """Deprecated names of the libraries that are looked at do not warn the user."""
    assert built[1] == ()


def test_this_machine_builds_the_set_of_the_manifest(pydata: LabelledSet) -> None:
    """With the package versions of the committed manifest the set is the same to the byte."""
    known = json.loads((DATASETS / "pydata" / "manifest.json").read_text())
    made = manifest(pydata)
    if known["packages"] != made["packages"]:
        pytest.skip(f"the manifest is of {known['packages']}")
    assert made == known


def test_building_says_whether_the_set_is_the_known_one(
    pydata: LabelledSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time it is new; then same packages: right or wrong digest; else other versions."""
    monkeypatch.setattr(recipe, "build_pydata", lambda: pydata)
    path = tmp_path / "manifest.json"
    assert build("pydata", tmp_path)["matches"] == "new"
    assert build("pydata", tmp_path)["matches"] == "same"
    known = json.loads(path.read_text())
    path.write_text(json.dumps(known | {"digest": "0" * 64}))
    assert build("pydata", tmp_path)["matches"] == "differs"
    older = dict.fromkeys(known["packages"], "1.0")
    path.write_text(json.dumps(known | {"packages": older}))
    assert build("pydata", tmp_path)["matches"] == "other versions"
    assert LabelledSet.read(tmp_path).digest() == pydata.digest()


@pytest.fixture(scope="session")
def passages() -> tuple[Passage, ...]:
    """Every docstring of the four libraries, as the recipes see them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(map(recipe._passage, documented_objects(PYDATA).values()))


@pytest.fixture
def questions(passages: tuple[Passage, ...], tmp_path: Path) -> Path:
    """A folder with the committed questions and the corpus that they are asked of."""
    home = DATASETS / "pydata_questions"
    folder = tmp_path / "pydata_questions"
    folder.mkdir()
    for name in ("queries.jsonl", "manifest.json", "qrels", "splits"):
        copy: Any = shutil.copytree if (home / name).is_dir() else shutil.copyfile
        copy(home / name, folder / name)
    write_corpus(passages, folder)
    return folder


def test_questions_in_plain_words(pydata: LabelledSet, questions: Path) -> None:
    """A thousand questions, a fifth unanswerable, every judged object a documented one."""
    found = LabelledSet.read(questions)
    answerable = sum(bool(found.relevant(i)) for i in found.queries)
    assert len(found.queries) >= 1000
    assert len(found.queries) - answerable >= 200
    assert all(
        bool(found.relevant(i)) == q.metadata["answerable"] for i, q in found.queries.items()
    )
    assert not {squashed(q.text) for q in found.queries.values()} & {
        squashed(q.text) for q in pydata.queries.values()
    }
    known = json.loads((questions / "manifest.json").read_text())
    if known["packages"] == manifest(found)["packages"]:
        assert manifest(found) == known


def test_building_leaves_the_committed_questions_as_they_are(questions: Path) -> None:
    """They are written as they lie in the repository, so that a build in place changes nothing."""
    LabelledSet.read(questions).write(questions)
    home = DATASETS / "pydata_questions"
    for path in (home / "queries.jsonl", *home.glob("qrels/*"), *home.glob("splits/*")):
        assert (questions / path.relative_to(home)).read_bytes() == path.read_bytes()


def test_no_object_is_asked_about_in_both_splits_of_the_questions(questions: Path) -> None:
    """Nor a method in one and its class in the other, nor the same unanswerable thing in both."""
    found = LabelledSet.read(questions)
    assert set(found.splits) == {"train", "test"}
    assert sorted(i for ids in found.splits.values() for i in ids) == sorted(found.queries)
    home: dict[str, str] = {}
    for split, ids in found.splits.items():
        assert len(ids) / len(found.queries) == pytest.approx(0.5, abs=0.02)
        gone = sum(not found.relevant(i) for i in ids) / len(ids)
        assert gone == pytest.approx(0.2, abs=0.03)
        for i in ids:
            for name in {found.group(i), *found.relevant(i)}:
                assert home.setdefault(name, split) == split
    for name, split in home.items():
        assert home.get(name.rpartition(".")[0], split) == split


def test_questions_about_objects_that_other_versions_lack(
    questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A label without its passage goes, and with the last one its question; the rest stays."""
    whole = LabelledSet.read(questions)
    one = next(i for i, right in whole.qrels.items() if len(right) == 1)
    two = next(i for i, right in whole.qrels.items() if len(right) == 2)
    gone = {*whole.relevant(one), min(whole.relevant(two))}
    objects = {
        name: DocumentedObject(name, "", p.text, ())
        for name, p in whole.corpus.items()
        if name not in gone
    }
    monkeypatch.setattr(recipe, "documented_objects", lambda _: objects)
    made = build("pydata_questions", questions)
    found = LabelledSet.read(questions)
    assert made["counts"]["passages"] == len(whole.corpus) - len(gone)
    assert one not in found.queries
    assert found.relevant(two) == whole.relevant(two) - gone
    assert {i for i in found.queries if not found.relevant(i)} == {
        i for i in whole.queries if not whole.relevant(i)
    }


def test_questions_about_rules_have_their_pages(tmp_path: Path) -> None:
    """Every right rule is one that Ruff has; no rule is asked about in both splits."""
    home = DATASETS / "ruff_questions"
    folder = tmp_path / "ruff_questions"
    shutil.copytree(home, folder)
    (folder / CORPUS).unlink(missing_ok=True)
    known = json.loads((home / "manifest.json").read_text())
    made = build("ruff_questions", folder)
    assert made["matches"] == (
        "same" if made["packages"] == known["packages"] else "other versions"
    )
    found = LabelledSet.read(folder)
    assert all(
        bool(found.relevant(i)) == q.metadata["answerable"] for i, q in found.queries.items()
    )
    right = [{d for i in found.splits[s] for d in found.relevant(i)} for s in ("train", "test")]
    assert right[0].isdisjoint(right[1])
    text = found.corpus["bare-except"].text
    assert "What it does" in text
    assert "## References" not in text
    assert "https://" not in text


def test_questions_to_train_on_ask_for_nothing_of_the_others(tmp_path: Path) -> None:
    """They are about other libraries, each in words of its own; not even an error changes them."""
    home = DATASETS / "documentation_questions"
    shutil.copytree(home, tmp_path / "set")
    with pytest.raises(InputError, match=r"was built from \['arviz', .*give another folder"):
        build("documentation_questions", tmp_path / "set", ["matplotlib"])
    for path in (home / "queries.jsonl", *home.glob("qrels/*"), *home.glob("splits/*")):
        assert (tmp_path / "set" / path.relative_to(home)).read_bytes() == path.read_bytes()
    found = read_queries(home / "queries.jsonl")
    asked = {squashed(q.text) for q in found}
    assert len(asked) == len(found) >= 4500
    tested = read_queries(DATASETS / "pydata_questions" / "queries.jsonl")
    assert asked.isdisjoint(squashed(q.text) for q in tested)
    rows = [row.split("\t") for row in (home / "qrels/train.tsv").read_text().splitlines()[1:]]
    assert {query_id for query_id, _, _ in rows} == {q.query_id for q in found}
    assert {doc_id.split(".")[0] for _, doc_id, _ in rows}.isdisjoint(PYDATA)


def test_any_numpydoc_library_gives_a_set_to_train_on() -> None:
    """Matplotlib's: summaries that do not stand in what is left of their docstrings; all train."""
    found = build_documentation(["matplotlib"])
    assert len(found.corpus) > 300
    assert len(found.queries) > 300
    assert found.splits == {"train": tuple(sorted(found.queries))}
    gone = sum(not found.relevant(i) for i in found.queries) / len(found.queries)
    assert gone == pytest.approx(UNANSWERABLE, abs=0.05)
    for query in found.queries.values():
        for doc_id in found.relevant(query.query_id):
            assert squashed(query.text) not in squashed(found.corpus[doc_id].text)
    texts = {q.text for q in found.queries.values()}
    assert "Close a figure window, and unregister it from pyplot" in texts


def test_libraries_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    """None, not installed, a part of one, without docstrings, those of pydata, and any for it."""
    for libraries, complaint in {
        (): "name them",
        ("",): "such as numpy",
        ("no_such_library",): "cannot import 'no_such_library'",
        ("matplotlib.pyplot",): "not a library; .* such as matplotlib",
        ("colorsys",): "colorsys: no docstring there describes another",
        ("matplotlib", "scipy"): "scipy: what describes these are the queries of pydata",
    }.items():
        with pytest.raises(InputError, match=complaint):
            build("documentation", tmp_path, libraries)
    with pytest.raises(InputError, match="pydata is built from numpy, scipy, pandas, sklearn"):
        build("pydata", tmp_path, ["matplotlib"])
    assert not list(tmp_path.iterdir())


def test_documentation_of_other_libraries_does_not_replace_a_set(
    pydata: LabelledSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder keeps the set that it was built for; a library without a package is no reason."""
    monkeypatch.setattr(recipe, "build_documentation", lambda _: pydata)
    monkeypatch.setattr(recipe, "manifest", lambda _, names: MADE | {"packages": {names[0]: "1"}})
    monkeypatch.setattr(recipe, "_packages", list)
    assert build("documentation", tmp_path, ["one"])["matches"] == "new"
    with pytest.raises(InputError, match=r"was built from \['one'\]"):
        build("documentation", tmp_path, ["other"])
    monkeypatch.undo()
    assert manifest(pydata, ["statistics"])["packages"] == {}


def test_all_that_describes_an_object_counts() -> None:
    """A text that is one object's summary and another's description is right for both."""
    ways = {"fill gaps": {"a.fill"}}, {"fill gaps": {"b.fill"}, "cut": {"a.cut"}}
    both = recipe._labelled({}, {"train": 1.0}, "two", *ways)
    right = {query.text: both.qrels.get(i) for i, query in both.queries.items()}
    assert right == {"fill gaps": {"a.fill": 1.0, "b.fill": 1.0}, "cut": {"a.cut": 1.0}}
    namesakes = {"fill gaps": {"a.fill"}}, {"fill gaps": {"a.interp"}}
    assert not recipe._labelled({}, {"train": 1.0}, "two", *namesakes).queries


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    """The error names the sets that can be built."""
    with pytest.raises(
        InputError, match="pydata, pydata_questions, ruff_questions, documentation or "
    ):
        build("nothing", tmp_path)


def test_questions_without_their_folder_are_refused(tmp_path: Path) -> None:
    """The questions are ours and are not built: their files must be there."""
    with pytest.raises(InputError, match=r"queries\.jsonl: no such file"):
        build("pydata_questions", tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "pydata"}'])
def test_a_damaged_manifest_is_told(tmp_path: Path, text: str) -> None:
    """Its file is named, and nothing is built over it."""
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=r"manifest\.json: is not a manifest of a built set"):
        build("pydata", tmp_path)
