"""`--metadata-features`: what passages say of themselves weighs as much as the labels teach."""

from __future__ import annotations

import copy
import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import call, flags, refused
from known_lists import known_lists, unlabelled, write_lines
from server import serving

from rerank.assessment.fitted_maps import NO_FILTER
from rerank.assessment.metadata_features import QUERY_ENTITIES, number
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.predictions import FILTERED
from rerank.batch.job import rescore
from rerank.batch.table import assess_table
from rerank.client import Client
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.data.records import passage_row, read_query
from rerank.data.words import words
from rerank.errors import InputError
from rerank.filters import Where
from rerank.jobs.calibrate import calibrate
from rerank.jobs.recalibrate import recalibrate
from rerank.types import Passage

pytestmark = pytest.mark.usefixtures("untracked")
KEYS = "source_type,temperature"


def with_sources(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Passages that are right come from a regulator three times as often as others do."""
    rng = np.random.default_rng(7)
    rows = copy.deepcopy(rows)
    for passage in (p for row in rows for p in row["passages"]):
        regulator = rng.random() < (0.9 if passage["right"] else 0.3)
        passage["metadata"] = {"source_type": "regulatory" if regulator else "third_party"}
        passage["metadata"]["temperature"] = int(rng.integers(100))  # tells nothing
    return rows


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> CalibratedReranker:
    place = tmp_path_factory.mktemp("metadata")
    lists = write_lines(place / "lists.jsonl", with_sources(known_lists(150)))
    config = Config(folds=2, calibrator="logistic", metadata_features=KEYS)
    made = calibrate(LabelledSet.read(lists), place / "model", config, work=place / "work")
    return CalibratedReranker.load(made.folder)


def test_the_weights_are_fitted(model: CalibratedReranker) -> None:
    """What tells weighs much, what does not weighs little."""
    maps = model.maps["lists"]
    weights = dict(zip(maps.features.passage, maps.score.coef, strict=True))
    regulator = weights["metadata.source_type=regulatory"]
    assert regulator > 0.3
    assert regulator > 3 * abs(weights["metadata.temperature"])


def test_a_source_moves_the_confidence(model: CalibratedReranker) -> None:
    """Of the same list: up where the best passage is a regulator's; none costs nothing much."""
    row = unlabelled(known_lists(1, seed=5)[0])

    def confidence(said: dict[str, Any]) -> float:
        asked = copy.deepcopy(row)
        for passage in asked["passages"]:
            passage["metadata"] = {"source_type": "third_party"}
        best = max(asked["passages"], key=lambda p: p["scores"]["reranker"] or -np.inf)
        best["metadata"] = said
        return model.assess([read_query(asked)])[0].confidence

    low, none, high = (
        confidence({"source_type": "third_party"}),
        confidence({}),
        confidence({"source_type": "regulatory"}),
    )
    assert low < none < high


def test_who_is_asked_about_is_learned_without_an_option(tmp_path: Path) -> None:
    """Right turns are mostly of the speaker that a question names; turns may lack a speaker."""
    rng, rows = np.random.default_rng(7), copy.deepcopy(known_lists(150))
    for row in rows:
        row["query"] += " Ada"
        for p in row["passages"]:
            p["metadata"] = {"speaker": "Ada" if rng.random() < 0.3 + 0.6 * p["right"] else "Grace"}
    lists, config = (
        write_lines(tmp_path / "lists.jsonl", rows),
        Config(calibrator="logistic", folds=2),
    )
    made = calibrate(LabelledSet.read(lists), tmp_path / "model", config, work=tmp_path / "work")
    model = CalibratedReranker.load(made.folder)
    maps = model.maps["lists"]
    weights = dict(zip(maps.features.passage, maps.score.coef, strict=True))
    assert weights["metadata.asked_speaker=speaker"] > 0.3
    row = unlabelled(known_lists(1, seed=5)[0])
    best = max(row["passages"], key=lambda p: p["scores"]["reranker"] or -np.inf)
    found = []
    for speaker in ("Ada", "Grace"):
        best["metadata"] = {"speaker": speaker}
        found.append(model.assess([read_query({**row, "query": "Is it Ada or Grace"})])[0])
    del best["metadata"]
    found.append(model.assess([read_query(row)])[0])  # nobody speaks: it is answered
    assert found[0].confidence == found[1].confidence  # both are named
    assert 0 < found[2].confidence < 1


REVISED = "revised"
EVERY = Where.read({REVISED: {"gte": "2000"}})  # all documents fit it
QUESTION = "sort an array"


@pytest.fixture(scope="module")
def arguments(
    small: LabelledSet, config: Config, work: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[object]:
    """A command that calibrates on documents with dates, whose questions all have a filter."""
    corpus = {
        doc_id: replace(passage, metadata={REVISED: f"20{10 + i % 10}-01-01"})
        for i, (doc_id, passage) in enumerate(small.corpus.items())
    }
    queries = {i: replace(query, where=EVERY) for i, query in small.queries.items()}
    place = tmp_path_factory.mktemp("dated")
    replace(small, corpus=corpus, queries=queries, name="dated").write(place / "dated")
    out = ["--out", place / "model", "--work", work]
    return ["calibrate", place / "dated", *out, *flags(config)]


@pytest.fixture(scope="module")
def dated(arguments: list[object]) -> CalibratedReranker:
    """The model that this command makes."""
    assert call(*arguments, "--metadata-features", REVISED) == 0
    return CalibratedReranker.load(Path(str(arguments[3])))


def test_of_our_own_index(
    dated: CalibratedReranker, arguments: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command line, around the pooled maps; a passage that is brought has its own."""
    kept = json.loads((dated.folder / "calibrators.json").read_text())
    for mode in ("search", "rerank"):
        assert kept[mode]["passage_features"][-1] == "metadata.revised"
        assert len(kept[mode]["score"]["coef"]) == len(kept[mode]["passage_features"])
    found = dated.search(QUESTION).ranking
    assert found.features.shape[1] == len(kept["search"]["passage_features"])
    assert found.features[:, -1].tolist() == [number(p.metadata[REVISED]) for p in found.passages]
    capsys.readouterr()
    said = refused(capsys, *arguments, "--overwrite", "--metadata-features", "author")
    assert "no passage has any" in said


@pytest.fixture(scope="module")
def named(arguments: list[object], tmp_path_factory: pytest.TempPathFactory) -> CalibratedReranker:
    """A model of the same documents whose queries say their names: here, their last two words."""
    small = LabelledSet.read(Path(str(arguments[1])))
    queries = {
        i: replace(q, metadata={**q.metadata, QUERY_ENTITIES: q.text.split()[-2:]})
        for i, q in small.queries.items()
    }
    place = tmp_path_factory.mktemp("named")
    replace(small, queries=queries, name="named").write(place / "named")
    command = ["calibrate", place / "named", "--out", place / "model", *arguments[4:]]
    assert call(*command, "--metadata-features", QUERY_ENTITIES) == 0
    return CalibratedReranker.load(place / "model")


def test_the_names_in_a_query_arrive_every_way(
    named: CalibratedReranker,
    dated: CalibratedReranker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What Python answers, to the bit: a file, MLflow's table, a route, the command line.

    A query that does not say its names is refused every way; an empty list, or null, says none.
    """
    names = ["array", "no such name"]
    expected = named.search(QUESTION, metadata={QUERY_ENTITIES: names})
    none = named.search(QUESTION, metadata={QUERY_ENTITIES: []})
    shares = expected.ranking.features[:, -1]
    assert set(shares) == {0.0, 0.5}
    held = ["array" in words(p.full_text) for p in expected.ranking.passages]
    assert [share == 0.5 for share in shares] == held
    assert set(none.ranking.features[:, -1]) == {1.0}
    assert none.confidence != expected.confidence
    assert named.search(QUESTION, metadata={QUERY_ENTITIES: None}).confidence == none.confidence
    for wrong in ({}, {QUERY_ENTITIES: "array"}):
        with pytest.raises(InputError, match=QUERY_ENTITIES):
            named.search(QUESTION, metadata=wrong)

    said = {QUERY_ENTITIES: names}
    asked: list[dict[str, Any]] = [{"_id": "a", "query": QUESTION, "metadata": said}]
    asked += [{"_id": "b", "query": QUESTION}]
    rescore(named, write_lines(tmp_path / "asked.jsonl", asked), tmp_path / "out.jsonl")
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    assert json.loads(line) | {"query_id": ""} == expected.to_dict()
    assert QUERY_ENTITIES in (tmp_path / "out.jsonl.rejected.jsonl").read_text()

    column = pd.DataFrame({"query": [QUESTION] * 2, QUERY_ENTITIES: [names, None]})
    assert assess_table(named, column)["confidence"].tolist() == [
        expected.confidence,
        none.confidence,
    ]
    with pytest.raises(InputError, match=QUERY_ENTITIES):
        assess_table(named, {"query": [QUESTION]})

    with serving(named.folder) as started, httpx.Client(timeout=600) as client:
        body = {"query": QUESTION, "metadata": said}
        answer = client.post(f"{started.url}/v1/search", json=body).json()
        assert answer["confidence"] == expected.confidence
        bare = client.post(f"{started.url}/v1/search", json={"query": QUESTION})
        assert (bare.status_code, QUERY_ENTITIES in bare.json()["message"]) == (422, True)

    capsys.readouterr()
    assert call("search", named.folder, QUESTION, "--json", "--entities", ",".join(names)) == 0
    assert json.loads(capsys.readouterr().out)["confidence"] == expected.confidence
    assert call("search", named.folder, QUESTION, "--json", "--entities", ",") == 0
    assert json.loads(capsys.readouterr().out)["confidence"] == none.confidence
    assert QUERY_ENTITIES in refused(capsys, "search", named.folder, QUESTION)
    assert "--entities" in refused(capsys, "search", dated.folder, QUESTION, "--entities", "x")


def test_metadata_and_ids_arrive_every_way(dated: CalibratedReranker, tmp_path: Path) -> None:
    """What Python answers, to the bit: files, each route that takes documents, adapters, journal.

    Passages without any of the metadata are refused every way, and null says that there is none.
    """
    texts = [p.text for p in dated.search(QUESTION).first(4)]
    given = [
        Passage(f"id {i}", "", text, {REVISED: f"20{19 - i}-06-01"}) for i, text in enumerate(texts)
    ]
    expected = dated.rerank(QUESTION, given)
    none = dated.rerank(QUESTION, [replace(p, metadata={REVISED: None}) for p in given])
    assert expected.confidence != none.confidence
    with pytest.raises(InputError, match=REVISED):
        dated.rerank(QUESTION, texts)

    rows = [passage_row(p) for p in given]
    spelled = [{"id" if k == "_id" else k: v for k, v in row.items()} for row in rows]
    asked = [
        {"_id": "a", "query": QUESTION, "passages": rows},
        {"_id": "b", "query": QUESTION, "documents": spelled},
        {"_id": "c", "query": QUESTION, "passages": texts},
    ]
    lines = write_lines(tmp_path / "asked.jsonl", asked)
    pq.write_table(pa.Table.from_pylist(asked[:1]), tmp_path / "asked.parquet")
    for path, out in ((lines, "lines.jsonl"), (tmp_path / "asked.parquet", "parquet.jsonl")):
        rescore(dated, path, tmp_path / out)
        for line in (tmp_path / out).read_text().splitlines():
            found = json.loads(line)
            assert found | {"query_id": ""} == expected.to_dict()
    rejected = json.loads((tmp_path / "lines.jsonl.rejected.jsonl").read_text())
    assert (rejected["_id"], REVISED in rejected["reason"]) == ("c", True)

    rank_documents = pytest.importorskip("rerank.adapters").rank_documents
    documents = [(p.text, p.metadata) for p in given]
    ranked = rank_documents(dated, QUESTION, documents, count=4, min_relevance=0.0)
    assert [i for i, _ in ranked] == [p.row for p in expected.passages]
    assert [of["relevance_score"] for _, of in ranked] == list(expected.relevance)
    with pytest.raises(InputError, match=REVISED):
        rank_documents(dated, QUESTION, [(t, {}) for t in texts], count=4, min_relevance=0.0)

    logits = {p.row: p.logit for p in expected.passages}
    scores = [logits[i] for i in range(len(given))]
    journal = f"sqlite:///{tmp_path / 'journal.db'}"
    with serving(dated.folder, journal=journal) as started, httpx.Client(timeout=600) as client:
        reranker = client.get(f"{started.url}/v1/model").json()["fingerprints"]["reranker"]
        for path, more in {
            "/v1/rerank": {},
            "/v2/rerank": {},
            "/rerank": {},
            "/v1/assess": {"scores": scores, "reranker": reranker},
        }.items():
            for sent in (rows, spelled):
                body = {"query": QUESTION, "documents": sent, "return_documents": True, **more}
                answer = client.post(started.url + path, json=body).json()
                assert answer["confidence"] == expected.confidence
                assert [(r["index"], r["relevance_score"]) for r in answer["results"]] == [
                    (p.row, p.relevance) for p in expected.passages
                ]
                assert [r["document"]["id"] for r in answer["results"]] == [
                    p.doc_id for p in expected.passages
                ]
            bare = client.post(
                started.url + path, json={"query": QUESTION, "documents": texts, **more}
            )
            assert (bare.status_code, REVISED in bare.json()["message"]) == (422, True)
        of_tei = client.post(f"{started.url}/rerank", json={"query": QUESTION, "texts": texts})
        assert of_tei.status_code == 422
    with sqlite3.connect(tmp_path / "journal.db") as store:
        kept = [json.loads(asked) for (asked,) in store.execute("SELECT asked FROM rerank_journal")]
    assert [read_query({**row, "_id": "a"}).passages for row in kept] == [tuple(given)] * 8


def test_a_filter_that_the_labels_lack_is_told_every_way(
    dated: CalibratedReranker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each labelled question had a filter: a search without one says that these had."""
    assert EVERY
    where = EVERY.to_dict()
    assert dated.maps["search"].filters == {(REVISED,)}
    assert dated.maps["rerank"].filters == NO_FILTER
    brought = [Passage(t, "", t, {REVISED: "2019-06-01"}) for t in ("An array.", "A tree.")]
    found = [dated.search(QUESTION, where=where), dated.search(QUESTION)]
    answers = [*found, dated.rerank(QUESTION, brought)]
    lacking = FILTERED.format("no filter")
    assert [lacking in a.reasons for a in answers] == [False, True, False]
    told = [(a.confidence, list(a.reasons)) for a in found]
    assert told[0][0] == told[1][0]

    asked = [{"_id": "a", "query": QUESTION, "filter": where}, {"_id": "b", "query": QUESTION}]
    rescore(dated, write_lines(tmp_path / "asked.jsonl", asked), tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    with serving(dated.folder) as started, Client(started.url, timeout=600) as client:
        sent = [client.search(QUESTION, where=given).to_dict() for given in (where, None)]
    capsys.readouterr()
    for more in (["--where", json.dumps(where)], []):
        assert call("search", dated.folder, QUESTION, "--json", *more) == 0
    printed = list(map(json.loads, capsys.readouterr().out.splitlines()))
    for given in (lines, sent, printed):
        assert [(a["confidence"], a["reasons"]) for a in given] == told


def test_labels_without_a_filter_certify_questions_without(
    dated: CalibratedReranker, arguments: list[object], tmp_path: Path
) -> None:
    """Recalibrated on them, the model's certificate is about these, and no longer about others."""
    labelled = LabelledSet.read(Path(str(arguments[1])))
    queries = {i: replace(q, where=None, filtered_by=()) for i, q in labelled.queries.items()}
    plain = replace(labelled, queries=queries)
    made = recalibrate(dated, plain, tmp_path / "new", split="test", work=tmp_path / "work")
    assert CalibratedReranker.load(made.folder).maps["search"].filters == NO_FILTER
