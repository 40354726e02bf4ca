"""Batch rescoring: every query once, in the order of the file, in the shape of the contract."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rerank.assessor import CalibratedReranker
from rerank.batch import rescore
from rerank.config import Config
from rerank.labelled_set import LabelledSet
from rerank.types import InputError, Query
from rerank.workspace import score_cache

Run = Any  # the session's run, see conftest
FIELDS = {  # "Prediction" in the design: the fields of a line, with their types
    "query_id": str,
    "confidence": float,
    "sufficiency": float,
    "sufficiency_at": list,
    "level": str,
    "verdict": str,
    "accepted": bool,
    "certified": bool,
    "reasons": list,
    "ranking": list,
}
PASSAGE_FIELDS = ["doc_id", "logit", "relevance", "bm25", "dense"]


@pytest.fixture(scope="module")
def model(run: Run) -> CalibratedReranker:
    return CalibratedReranker.load(run.folder, cache=score_cache(run.work))


@pytest.fixture(scope="module")
def some(small: LabelledSet) -> list[Query]:
    """Ten real queries, in an order that no sort gives."""
    queries = list(small.queries.values())[:10]
    return [*queries[5:], *queries[4::-1]]


def query_file(path: Path, queries: Sequence[Query]) -> Path:
    rows = [{"_id": q.query_id, "text": q.text} for q in queries]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def rescored(model: CalibratedReranker, folder: Path, queries: Sequence[Query]) -> list[Any]:
    out = folder / "predictions.jsonl"
    assert rescore(model, query_file(folder / "queries.jsonl", queries), out) == len(queries)
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.fixture(scope="module")
def predictions(
    model: CalibratedReranker, some: list[Query], tmp_path_factory: pytest.TempPathFactory
) -> list[Any]:
    return rescored(model, tmp_path_factory.mktemp("rescored"), some)


def test_predictions_keep_the_order_of_the_input(predictions: list[Any], some: list[Query]) -> None:
    """A line for each query, the query's own `_id`, in the order of the file."""
    assert [p["query_id"] for p in predictions] == [q.query_id for q in some]


def test_every_line_has_exactly_the_fields_of_the_contract(
    predictions: list[Any], run: Run, small: LabelledSet
) -> None:
    """Names, order and types of a prediction, and of each passage in it, are the contract's."""
    for prediction in predictions:
        assert {k: type(v) for k, v in prediction.items()} == FIELDS
        assert list(prediction) == list(FIELDS)
        assert all(isinstance(reason, str) for reason in prediction["reasons"])
        assert prediction["level"] in ("HIGH", "MEDIUM", "LOW", "VERY_LOW")
        assert prediction["verdict"] in ("SUFFICIENT", "PARTIAL", "INSUFFICIENT")
        for passage in prediction["ranking"]:
            assert list(passage) == PASSAGE_FIELDS
            assert passage["doc_id"] in small.corpus
            assert passage["logit"] is None or math.isfinite(passage["logit"])
            assert all(math.isfinite(passage[name]) for name in PASSAGE_FIELDS[2:])


def test_only_passages_that_were_read_have_a_logit(predictions: list[Any], config: Config) -> None:
    """At least two logits, at most as many as may be read; the others are null."""
    for prediction in predictions:
        logits = [p["logit"] for p in prediction["ranking"]]
        assert len(logits) == 10
        assert 2 <= sum(value is not None for value in logits) <= config.rerank_depth


def test_passages_are_best_first_and_once(predictions: list[Any]) -> None:
    """A ranking is sorted by relevance and names no passage twice."""
    for prediction in predictions:
        relevance = [p["relevance"] for p in prediction["ranking"]]
        assert relevance == sorted(relevance, reverse=True)
        ids = [p["doc_id"] for p in prediction["ranking"]]
        assert len(set(ids)) == len(ids)


def test_the_order_of_queries_does_not_matter(
    model: CalibratedReranker, predictions: list[Any], some: list[Query], tmp_path: Path
) -> None:
    """Each query's prediction is the same in a shorter file in another order."""
    by_id = {p["query_id"]: p for p in predictions}
    chosen = [some[7], some[0], some[3]]
    assert rescored(model, tmp_path, chosen) == [by_id[q.query_id] for q in chosen]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{\n", ":1: not JSON"),
        ('{"_id": "a", "text": ""}\n', ":1: 'text' is empty"),
        ('{"_id": "a", "text": "x"}\n{"_id": "a", "text": "y"}\n', ":2: id 'a' stands twice"),
        ("", "holds no query"),
    ],
)
def test_bad_queries_are_refused_and_nothing_is_written(
    model: CalibratedReranker, tmp_path: Path, content: str, complaint: str
) -> None:
    """A bad line in the input is named, and there is no half of an output."""
    queries, out = tmp_path / "queries.jsonl", tmp_path / "out.jsonl"
    queries.write_text(content)
    with pytest.raises(InputError) as caught:
        rescore(model, queries, out)
    assert complaint in str(caught.value)
    assert not out.exists()


@pytest.mark.parametrize("out", ["nowhere/out.jsonl", "."])
def test_an_output_that_cannot_be_written_is_refused_first(
    model: CalibratedReranker, some: list[Query], tmp_path: Path, out: str
) -> None:
    """A folder that is not there, or a folder in the file's place, is told before the work."""
    with pytest.raises(InputError, match="expected a file name in a folder that exists"):
        rescore(model, query_file(tmp_path / "queries.jsonl", some), tmp_path / out)


def test_the_queries_are_not_overwritten(
    model: CalibratedReranker, some: list[Query], tmp_path: Path
) -> None:
    """Predictions in the place of the queries would destroy the input."""
    queries = query_file(tmp_path / "queries.jsonl", some)
    before = queries.read_bytes()
    with pytest.raises(InputError, match="would replace the queries"):
        rescore(model, queries, tmp_path / "." / "queries.jsonl")
    assert queries.read_bytes() == before


def test_an_older_file_is_replaced_only_when_complete(
    model: CalibratedReranker,
    some: list[Query],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped in the middle, the older predictions stand as they were, alone."""
    queries, out = query_file(tmp_path / "queries.jsonl", some), tmp_path / "out.jsonl"
    out.write_text("older")

    def stop(*_: Any, **__: Any) -> Callable[..., Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "assess", stop)
    with pytest.raises(KeyboardInterrupt):
        rescore(model, queries, out)
    assert out.read_text() == "older"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "queries.jsonl"]


def test_any_characters_come_through(model: CalibratedReranker, tmp_path: Path) -> None:
    """Ids and text in any script are given back as they came, one JSON object a line."""
    odd = [Query("ö/\u20281", "naïve Größe"), Query("二", "何ですか \u2028 \u0085 ?")]
    out = tmp_path / "out.jsonl"
    rescore(model, query_file(tmp_path / "queries.jsonl", odd), out)
    found = [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n") if line]
    assert [p["query_id"] for p in found] == [q.query_id for q in odd]
