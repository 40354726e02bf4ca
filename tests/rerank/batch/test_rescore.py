"""Batch rescoring: every query once, in the order of the file, in the shape of the contract."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from coherence import check_coherent

from rerank.assessment.model import CalibratedReranker
from rerank.batch import rows
from rerank.batch.job import rescore, score_chunk
from rerank.batch.rows import QueryRow
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.inference.score_cache import ScoreCache
from rerank.storage.folder import Workspace
from rerank.types import Passage, Query

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
    "context_certified": bool,
    "calibrated": bool,
    "reasons": list,
    "ranking": list,
}
PASSAGE_FIELDS = ["doc_id", "logit", "relevance", "bm25", "dense"]


@pytest.fixture(scope="module")
def model(run: Run) -> CalibratedReranker:
    return CalibratedReranker.load(run.folder, cache=ScoreCache(Workspace(run.work).scores))


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
    done = rescore(model, query_file(folder / "queries.jsonl", queries), out)
    assert (done.answered, done.rejected, done.resumed) == (len(queries), 0, 0)
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
    """A ranking is sorted by relevance, which is the confidence at first, and names none twice."""
    for prediction in predictions:
        check_coherent(prediction)
        ids = [p["doc_id"] for p in prediction["ranking"]]
        assert len(set(ids)) == len(ids)


def test_the_order_of_queries_does_not_matter(
    model: CalibratedReranker, predictions: list[Any], some: list[Query], tmp_path: Path
) -> None:
    """Each query's prediction is the same in a shorter file in another order."""
    by_id = {p["query_id"]: p for p in predictions}
    chosen = [some[7], some[0], some[3]]
    assert rescored(model, tmp_path, chosen) == [by_id[q.query_id] for q in chosen]


def test_own_passages_are_assessed_as_rerank_does(
    model: CalibratedReranker, small: LabelledSet, predictions: list[Any], tmp_path: Path
) -> None:
    """A query with passages gives what `rerank` gives, among queries for the index, in order."""
    own = list(small.corpus.values())[:5]
    asked = [*small.queries.values()][:2]
    rows = [{"_id": q.query_id, "text": q.text} for q in asked]
    given = [{"doc_id": p.doc_id, "title": p.title, "text": p.text} for p in own]
    rows.insert(1, {"_id": "own", "text": asked[0].text, "documents": given})
    rows.append({"_id": "none", "text": asked[0].text, "passages": []})
    queries, out = tmp_path / "queries.jsonl", tmp_path / "out.jsonl"
    queries.write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert rescore(model, queries, out).answered == 4
    found = [json.loads(line) for line in out.read_text().splitlines()]
    by_id = {p["query_id"]: p for p in predictions}
    assert [found[0], found[2]] == [by_id[q.query_id] for q in asked]
    alone = model.rerank(asked[0].text, own).to_dict()
    assert found[1]["confidence"] == pytest.approx(alone["confidence"], abs=1e-9)
    assert [p["doc_id"] for p in found[1]["ranking"]] == [p["doc_id"] for p in alone["ranking"]]
    assert (found[3]["query_id"], found[3]["confidence"], found[3]["ranking"]) == ("none", 0.0, [])


def test_bad_rows_go_to_a_side_file(
    model: CalibratedReranker, predictions: list[Any], some: list[Query], tmp_path: Path
) -> None:
    """What cannot be scored is told by line, id and reason; the rest is as if it were alone."""
    queries, out = query_file(tmp_path / "queries.jsonl", some), tmp_path / "out.jsonl"
    lines = queries.read_bytes().splitlines()
    bad = [b"{", b'{"_id": "x", "text": " "}', lines[0].replace(b'"text"', b'"words"')]
    queries.write_bytes(b"\n".join([bad[0], *lines[:4], bad[1], *lines[4:], bad[2]]))
    done = rescore(model, queries, out)
    assert (done.answered, done.rejected) == (10, 3)
    assert [json.loads(line) for line in out.read_text().splitlines()] == predictions
    told = [json.loads(line) for line in done.side.read_text().splitlines()]
    assert [(row["line"], row.get("_id")) for row in told] == [
        (1, None),
        (6, "x"),
        (13, some[0].query_id),
    ]
    assert [row["reason"][:12] for row in told] == ["not JSON (Ex", "'text' is em", "'query' is m"]


def test_strict_stops_at_the_first_bad_row(
    model: CalibratedReranker, some: list[Query], tmp_path: Path
) -> None:
    """It is named, nothing is scored, and nothing is left."""
    queries, out = query_file(tmp_path / "queries.jsonl", some), tmp_path / "out.jsonl"
    queries.write_text(queries.read_text() + "[]\n{}\n")
    with pytest.raises(InputError, match=r"queries.jsonl:11: expected a JSON object, got a list"):
        rescore(model, queries, out, strict=True)
    assert [p.name for p in tmp_path.iterdir()] == ["queries.jsonl"]
    scored = {"_id": "s", "query": "x", "passages": [{"_id": "a", "text": "t", "scores": {"b": 1}}]}
    query_file(queries, some)
    queries.write_text(queries.read_text() + json.dumps(scored) + "\n")
    with pytest.raises(InputError, match=r"queries.jsonl:11: this model scores passages itself"):
        rescore(model, queries, out, strict=True)
    assert [p.name for p in tmp_path.iterdir()] == ["queries.jsonl"]


def test_a_row_that_fails_where_none_may_is_named(
    model: CalibratedReranker, some: list[Query], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its line, and without the class of the error."""
    assess, broken = model.assess, some[3].text

    def failing(queries: Sequence[Query]) -> Any:
        if any(q.text == broken for q in queries):
            raise InputError("it is broken")
        return assess(queries)

    monkeypatch.setattr(model, "assess", failing)
    queries, out = query_file(tmp_path / "queries.jsonl", some), tmp_path / "out.jsonl"
    with pytest.raises(InputError, match=r"queries.jsonl:4: cannot be scored \(it is broken\)$"):
        rescore(model, queries, out, strict=True)


def test_actors_are_of_ray(model: CalibratedReranker, some: list[Query], tmp_path: Path) -> None:
    """They would be ignored."""
    queries = query_file(tmp_path / "queries.jsonl", some)
    with pytest.raises(InputError, match="give --engine ray, too"):
        rescore(model, queries, tmp_path / "out.jsonl", actors=2)


def test_an_id_may_stand_twice(
    model: CalibratedReranker, some: list[Query], tmp_path: Path
) -> None:
    """A night's file asks the same again; each row gets its line."""
    found = rescored(model, tmp_path, [some[0], some[0]])
    assert [p["query_id"] for p in found] == [some[0].query_id] * 2


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_no_query_is_refused(model: CalibratedReranker, tmp_path: Path, content: str) -> None:
    """An empty input is a fault further up; nothing is written."""
    (tmp_path / "queries.jsonl").write_text(content)
    with pytest.raises(InputError, match="holds no query"):
        rescore(model, tmp_path / "queries.jsonl", tmp_path / "out.jsonl")
    assert [p.name for p in tmp_path.iterdir()] == ["queries.jsonl"]


def test_parquet_in_and_out_say_the_same(
    model: CalibratedReranker, predictions: list[Any], some: list[Query], tmp_path: Path
) -> None:
    """From either form of input, either form of output holds the same predictions."""
    table = pa.table({"_id": [q.query_id for q in some], "text": [q.text for q in some]})
    pq.write_table(table, tmp_path / "queries.parquet")
    rescore(model, tmp_path / "queries.parquet", tmp_path / "a.jsonl")
    rescore(model, query_file(tmp_path / "q.jsonl", some), tmp_path / "b.parquet")
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == predictions
    assert pq.read_table(tmp_path / "b.parquet").to_pylist() == predictions


def test_a_row_that_the_model_fails_on_is_rejected_alone(
    model: CalibratedReranker,
    some: list[Query],
    predictions: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One question that breaks the scoring does not stop the others; a broken model stops all."""
    assess, broken = model.assess, some[3].text

    def failing(queries: Sequence[Query]) -> Any:
        if any(broken in (q.text, "all") for q in queries):
            raise ZeroDivisionError("of this text")
        return assess(queries)

    monkeypatch.setattr(model, "assess", failing)
    queries, out = query_file(tmp_path / "queries.jsonl", some), tmp_path / "out.jsonl"
    done = rescore(model, queries, out)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [p["query_id"] for p in found] == [q.query_id for q in some if q != some[3]]
    assert found == [p for p in predictions if p["query_id"] != some[3].query_id]
    told = json.loads(done.side.read_text())
    assert (told["line"], told["_id"]) == (4, some[3].query_id)
    assert "ZeroDivisionError: of this text" in told["reason"]
    broken = "all"
    with pytest.raises(ZeroDivisionError):
        rescore(model, queries, tmp_path / "other.jsonl")


def test_a_search_is_rejected_alone_if_there_is_nothing_to_search() -> None:
    """The bundled models have no index, but answer the row that brings its passages."""
    bundled = CalibratedReranker.load("default")
    own = Query("x", "b", passages=(Passage("1", "", "x is a letter"),))
    found = score_chunk(bundled, [QueryRow(1, Query("x", "a")), QueryRow(2, own)])
    assert (found.answered, found.rejected) == (1, 1)
    assert "has no index to search" in json.loads(found.rejections)["reason"]


@pytest.mark.parametrize(
    ("out", "complaint"),
    [("nowhere/out.jsonl", "there is no folder .*nowhere; make it"), (".", "is a folder, or no")],
)
def test_an_output_that_cannot_be_written_is_refused_first(
    model: CalibratedReranker, some: list[Query], tmp_path: Path, out: str, complaint: str
) -> None:
    """A folder that is not there, or a folder in the file's place, is told before the work."""
    with pytest.raises(InputError, match=complaint):
        rescore(model, query_file(tmp_path / "queries.jsonl", some), tmp_path / out)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_only_predictions_are_replaced(
    model: CalibratedReranker, some: list[Query], tmp_path: Path, ending: str
) -> None:
    """A corpus or labels in the place of the output stay as they are; predictions are replaced."""
    queries, out = query_file(tmp_path / "queries.jsonl", some[:2]), tmp_path / f"out.{ending}"
    mine = b'{"_id": "d1", "text": "a passage"}\n'
    out.write_bytes(mine)
    with pytest.raises(InputError, match="holds no predictions"):
        rescore(model, queries, out)
    assert out.read_bytes() == mine
    out.unlink()
    side = out.with_name(f"{out.name}.rejected.jsonl")
    side.write_bytes(mine)
    with pytest.raises(InputError, match="holds no rejected rows"):
        rescore(model, queries, out)
    assert side.read_bytes() == mine
    side.write_text('{"line": 1, "reason": "bad"}\n')
    for _ in range(2):
        assert rescore(model, queries, out).answered == 2


def test_the_queries_are_not_overwritten(
    model: CalibratedReranker, some: list[Query], tmp_path: Path
) -> None:
    """Predictions in the place of the queries would destroy the input."""
    queries = query_file(tmp_path / "queries.jsonl", some)
    before = queries.read_bytes()
    with pytest.raises(InputError, match="would replace the queries"):
        rescore(model, queries, tmp_path / "." / "queries.jsonl")
    assert queries.read_bytes() == before


def test_a_file_in_the_place_of_the_side_file_is_not_overwritten(
    model: CalibratedReranker, some: list[Query], tmp_path: Path
) -> None:
    """Neither the queries, under the side file's name or a link to it."""
    queries = query_file(tmp_path / "out.jsonl.rejected.jsonl", some)
    with pytest.raises(InputError, match="would replace the queries"):
        rescore(model, queries, tmp_path / "out.jsonl")
    (tmp_path / "linked.jsonl").hardlink_to(queries)
    with pytest.raises(InputError, match="would replace the queries"):
        rescore(model, queries, tmp_path / "linked.jsonl")


def test_the_models_folder_stays_as_it_is(
    model: CalibratedReranker, some: list[Query], tmp_path: Path
) -> None:
    """A file in it would make it one that loading refuses."""
    queries = query_file(tmp_path / "queries.jsonl", some)
    with pytest.raises(InputError, match="lies in the model's folder"):
        rescore(model, queries, model.folder / "out.jsonl")


def stopping(model: CalibratedReranker, monkeypatch: pytest.MonkeyPatch, after: int) -> list[int]:
    """Let the model be stopped, as by Ctrl-C, after some chunks; the list grows by each."""
    assess, done = model.assess, list[int]()

    def assessing(queries: Sequence[Query]) -> Any:
        if len(done) == after:
            raise KeyboardInterrupt
        done.append(len(queries))
        return assess(queries)

    monkeypatch.setattr(model, "assess", assessing)
    return done


def test_an_interrupted_run_goes_on(
    model: CalibratedReranker,
    some: list[Query],
    predictions: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until it is complete the older file stands; then no chunk was scored twice."""
    monkeypatch.setattr(rows, "CHUNK_ROWS", 4)
    queries, out = query_file(tmp_path / "queries.jsonl", some), tmp_path / "out.jsonl"
    older = json.dumps(predictions[0]) + "\n"
    out.write_text(older)
    with monkeypatch.context() as patch:
        stopping(model, patch, 2)
        with pytest.raises(KeyboardInterrupt):
            rescore(model, queries, out)
    assert out.read_text() == older
    with monkeypatch.context() as patch:
        scored = stopping(model, patch, 99)
        assert rescore(model, queries, out).resumed == 8
    assert scored == [2]
    assert [json.loads(line) for line in out.read_text().splitlines()] == predictions
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "queries.jsonl"]


def test_another_input_is_not_mixed_in(
    model: CalibratedReranker, some: list[Query], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an input that changed between two runs nothing is kept, and that is told."""
    monkeypatch.setattr(rows, "CHUNK_ROWS", 4)
    queries, out = query_file(tmp_path / "queries.jsonl", some), tmp_path / "out.jsonl"
    with monkeypatch.context() as patch:
        stopping(model, patch, 1)
        with pytest.raises(KeyboardInterrupt):
            rescore(model, queries, out)
    query_file(queries, some[::-1])
    with pytest.raises(InputError, match="another input"):
        rescore(model, queries, out)
    assert rescore(model, queries, out, restart=True).resumed == 0
    first = json.loads(out.read_text().splitlines()[0])
    assert first["query_id"] == some[-1].query_id


def test_an_input_that_changes_meanwhile_is_refused(
    model: CalibratedReranker, some: list[Query], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of one file and half of another would be nobody's predictions."""
    queries, out = query_file(tmp_path / "queries.jsonl", some), tmp_path / "out.jsonl"
    assess = model.assess

    def writing(asked: Sequence[Query]) -> Any:
        query_file(queries, some[:3])
        return assess(asked)

    monkeypatch.setattr(model, "assess", writing)
    with pytest.raises(InputError, match="was changed while it was read"):
        rescore(model, queries, out)
    assert not out.exists()


def test_any_characters_come_through(model: CalibratedReranker, tmp_path: Path) -> None:
    """Ids and text in any script are given back as they came, one JSON object per line."""
    odd = [Query("naïve Größe", "ö/\u20281"), Query("何ですか \u2028 \u0085 ?", "二")]
    out = tmp_path / "out.jsonl"
    rescore(model, query_file(tmp_path / "queries.jsonl", odd), out)
    found = [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n") if line]
    assert [p["query_id"] for p in found] == [q.query_id for q in odd]
