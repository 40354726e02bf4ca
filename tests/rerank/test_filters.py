"""Filters: what a condition is, and that every way into our own index gives what it allows."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call
from server import Serving, serving

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.sources.own_index import OwnIndex
from rerank.batch.job import rescore
from rerank.data.records import query_row, read_query
from rerank.data.words import words
from rerank.errors import FilterError, InputError
from rerank.filters import Where
from rerank.retrieval.dense import cosines
from rerank.retrieval.fusion import reciprocal_rank_fusion, top
from rerank.retrieval.index import Index, build_index
from rerank.types import Passage, Query

pytestmark = pytest.mark.usefixtures("untracked")
Run = Any  # the session's run, see conftest
ASKED = "median along an axis while ignoring NaNs"
FILTERS: list[dict[str, Any]] = [
    {"library": "numpy"},
    {"library": ["pandas", "scipy"], "length": {"gte": 5, "lt": 300}},
    {"length": {"gt": 1e6}},
    {"tags": "even"},
    {"odd": True, "library": "pandas"},
]


@pytest.fixture(scope="module")
def model(run: Run, tmp_path_factory: pytest.TempPathFactory) -> CalibratedReranker:
    """The session's model, over an index of the same passages with metadata."""
    made = CalibratedReranker.load(run.folder)
    folder = tmp_path_factory.mktemp("filters") / "index"
    encoder = made.pipeline.encoder
    build_index(map(described, enumerate(made.source.passages())), folder, encoder)
    source = OwnIndex(Index(folder), made.pipeline.config)
    return CalibratedReranker(made.files, made.maps, Pipeline(source, made.pipeline.models))


def described(numbered: tuple[int, Passage]) -> Passage:
    row, passage = numbered
    known = {"library": passage.doc_id.split(".")[0], "length": len(passage.text)}
    tags = {"tags": ["even", "all"] if row % 2 == 0 else ["all"], "odd": bool(row % 2)}
    return replace(passage, metadata={**known, **tags} if row else {})


@pytest.mark.parametrize("given", FILTERS)
def test_a_search_is_that_of_the_passages_that_fit(
    model: CalibratedReranker, given: dict[str, Any]
) -> None:
    """Both lists, and their fusion, are those of brute force over the fitting rows alone."""
    where = Where.read(given)
    assert where
    index: Any = model.source.index
    config, text = model.pipeline.config, ASKED
    vector = model.pipeline.encode([text])[0]
    rows = np.array([i for i in range(len(index)) if where.holds(index.passage(i).metadata)])
    lexical = index.bm25.scores(words(text, language=index.language))[rows.astype(int)]
    near = cosines(index.vectors.array[rows.astype(int)], vector)
    pool = config.pool
    lists = [top(lexical, pool)[: (lexical > 0).sum()], top(near, pool)]
    found, fused = reciprocal_rank_fusion(lists, k=config.rrf_k)
    best = rows[found[top(fused, config.candidates)]] if len(rows) else rows
    source: Any = model.source
    candidates = source.search(Query(text, where=where), vector)
    assert candidates.first_stage.rows.tolist() == best.tolist()
    ids = {p.doc_id for p in model.search(text, where=given).passages}
    assert ids == {index.passage(i).doc_id for i in best.tolist()}


def test_a_record_has_the_filter(model: CalibratedReranker) -> None:
    """A query of a file, as written and as JSON in a cell, finds what Python finds."""
    query = read_query({"_id": "q", "query": ASKED, "filter": json.dumps(FILTERS[1])})
    assert read_query(query_row(query)) == query
    expected = model.search(ASKED, where=FILTERS[1])
    assert model.assess([query])[0].confidence == expected.confidence
    assert expected.confidence != model.search(ASKED).confidence


@pytest.fixture(scope="module")
def served(run: Run) -> Iterator[Serving]:
    with serving(run.folder) as started:
        yield started


def test_unknown_metadata_is_the_clients_fault(
    served: Serving, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The session's passages have none: 422 over HTTP, a rejected row of a file, exit code 2."""
    body = json.dumps({"query": ASKED, "filter": {"colour": "red"}}).encode()
    sent = urllib.request.Request(
        f"{served.url}/v1/search", body, {"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(sent, timeout=600)
    assert refused.value.code == 422
    assert "colour" in refused.value.read().decode()
    queries = tmp_path / "queries.jsonl"
    queries.write_text(json.dumps({"_id": "q", "query": ASKED, "filter": {"colour": "red"}}))
    done = rescore(CalibratedReranker.load(run.folder), queries, tmp_path / "out.jsonl")
    assert (done.answered, done.rejected) == (0, 1)
    assert call("search", run.folder, ASKED, "--where", '{"colour": "red"}') == 2
    assert "colour" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("{", "no JSON"),
        (["a"], "should be an object"),
        ({"": 1}, "name of metadata"),
        ({"a": None}, "expected texts"),
        ({"a": []}, "expected texts"),
        ({"a": float("nan")}, "expected texts"),
        ({"a": {"gt": 1, "lte": "b"}}, "expected bounds"),
        ({"a": {}}, "expected bounds"),
        ({"a": {"gt": True}}, "expected bounds"),
        ({"a": 10**400}, "expected texts"),
        ({"a": {"gt": -(10**400)}}, "expected bounds"),
        ('{"a": 1, "a": 2}', "twice"),
        ({"a": {"get": 1}}, "did you mean 'gt"),
    ],
)
def test_what_is_no_filter(given: Any, sentence: str) -> None:
    """Refused with what came, before anything is searched."""
    with pytest.raises(FilterError, match=sentence):
        Query("a question", where=given)


def test_a_filter_is_for_a_search() -> None:
    """Whoever brings the passages leaves out those that it excludes; what it found keeps its keys,
    as a certificate is about them.
    """
    asked = Query("a question", where=Where.read({"b": 2, "a": 1}))
    assert replace(asked, passages=(), where=None).filtered_by == ("a", "b")
    with pytest.raises(InputError, match="for a search"):
        Query("a question", passages=(Passage("a", "", "text"),), where=Where.read({"a": 1}))


@pytest.mark.parametrize(
    ("given", "value", "holds"),
    [
        (1, True, False),
        (True, 1, False),
        (1, 1.0, True),
        ("1", 1, False),
        ({"gte": "2024-01-01", "lt": "2025"}, "2024-06-30", True),
        ({"gte": 1}, "2", False),
        (["a", 2], ["b", 2], True),
        ("a", None, False),
        ("a", {"a": 1}, False),
        ({"gte": 1}, 10**400, False),
    ],
)
def test_a_condition(given: Any, value: Any, holds: bool) -> None:
    """Kinds of values are never mixed, and one of several values suffices."""
    where = Where.read({"key": given})
    assert where
    assert where.holds({"key": value}) is holds
    assert Where.read(where.to_dict()) == where
