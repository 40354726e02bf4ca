"""What the server answers: the numbers of the model that it serves, whoever asks beside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from calibration.monitoring.drift import alarm
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.ranking_features import ranking_features
from rerank.types import Assessment, Given, Passage, Query

WINDOW = 10


@pytest.fixture(scope="module")
def model(run: Any) -> CalibratedReranker:
    """The served model, in this process."""
    return CalibratedReranker.load(run.folder)


@pytest.fixture(scope="module")
def client(run: Any, serving: Callable[..., Any]) -> Iterator[httpx.Client]:
    """A client of a running server."""
    with (
        serving(run.folder, drift_window=WINDOW) as started,
        httpx.Client(base_url=started.url, timeout=60) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def questions(small: Any) -> list[str]:
    """A dozen real questions."""
    return [q.text for q in list(small.queries.values())[:12]]


@pytest.fixture(scope="module")
def brought(texts: list[str]) -> tuple[Passage, ...]:
    """A few passages as a caller brings them."""
    return tuple(Passage(str(i), "", text) for i, text in enumerate(texts[:6]))


def trust(found: Assessment) -> dict[str, Any]:
    """The part of an assessment that every answer holds."""
    kept = found.to_dict()
    return {k: v for k, v in kept.items() if k not in ("query_id", "ranking")}


def told(answer: dict[str, Any], found: Assessment) -> bool:
    """Whether the answer's trust is that of the assessment, to the bit."""
    expected = trust(found)
    return {k: answer[k] for k in expected} == expected


def sample(client: httpx.Client, name: str, **labels: str) -> float:
    """A sample of `/metrics`."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    return next(
        s.value for f in families for s in f.samples if (s.name, s.labels) == (name, labels)
    )


def test_many_at_once_get_what_one_alone_gets(
    client: httpx.Client,
    model: CalibratedReranker,
    questions: list[str],
    brought: tuple[Passage, ...],
) -> None:
    """Searches and reranks that come together answer as single calls in one thread do, exactly."""
    documents = [p.text for p in brought]
    searched = {q: model.search(q) for q in questions}
    reranked = {q: model.rerank(q, brought) for q in questions}

    def ask(q: str) -> tuple[Any, Any]:
        search = client.post("/v1/search", json={"question": q, "top_n": 50})
        rerank = client.post("/v1/rerank", json={"query": q, "documents": documents})
        return search.json(), rerank.json()

    with ThreadPoolExecutor(len(questions)) as pool:
        answers = list(pool.map(ask, questions))
    for q, (search, rerank) in zip(questions, answers, strict=True):
        found = searched[q]
        assert told(search, found)
        rows = [
            {k: v for k, v in r.items() if k not in ("title", "text")} for r in search["ranking"]
        ]
        assert rows == found.to_dict()["ranking"]
        assert [r["text"] for r in search["ranking"]] == [p.text for p in found.ranking.passages]
        given = reranked[q]
        assert told(rerank, given)
        assert [r["index"] for r in rerank["results"]] == given.ranking.candidates.rows.tolist()
        scores = [r["relevance_score"] for r in rerank["results"]]
        assert scores == given.ranking.relevance.tolist()


def test_requests_that_wait_are_ranked_together(client: httpx.Client) -> None:
    """After many at once, fewer batches than requests were ranked."""
    requests = sample(client, "rerank_batch_requests_sum")
    assert 0 < sample(client, "rerank_batch_requests_count") < requests


def test_documents_of_every_shape(client: httpx.Client, model: CalibratedReranker) -> None:
    """Strings and objects mean the same; top_n cuts; documents come back where asked for."""
    asked = {
        "query": "median of a sample",
        "documents": ["a book", {"text": "the middle value", "title": "median", "id": 7}],
        "top_n": 1,
        "return_documents": True,
        "model": "rerank-v3.5",
        "max_tokens_per_doc": 4096,
        "priority": 3,
    }
    answer = client.post("/v2/rerank", json=asked).json()
    found = model.rerank(
        "median of a sample",
        [Passage("0", "", "a book"), Passage("1", "median", "the middle value")],
    )
    assert told(answer, found)
    assert answer["results"] == [
        {
            "index": 1,
            "relevance_score": found.ranking.relevance[0],
            "document": {"text": "the middle value", "title": "median"},
        }
    ]
    plain = client.post("/v1/rerank", json={**asked, "return_documents": False, "top_n": 99})
    assert [set(r) for r in plain.json()["results"]] == [{"index", "relevance_score"}] * 2


def test_no_document_has_no_confidence(client: httpx.Client) -> None:
    """An empty list is an answer: nothing, and confidence 0."""
    answer = client.post("/v1/rerank", json={"query": "median", "documents": []}).json()
    assert (answer["results"], answer["confidence"], answer["level"]) == ([], 0.0, "VERY_LOW")


def test_assess_takes_the_callers_scores(
    client: httpx.Client, model: CalibratedReranker, brought: tuple[Passage, ...]
) -> None:
    """Scores of the served reranker are assessed as they come; of another one, or none, refused."""
    scores = np.linspace(-4.0, 3.0, len(brought))
    found = model.assess_given([Given(Query("q", "fill gaps"), brought, scores)])[0]
    asked = {
        "query": "fill gaps",
        "documents": [p.text for p in brought],
        "scores": scores.tolist(),
        "reranker": client.get("/v1/model").json()["fingerprints"]["reranker"],
    }
    answer = client.post("/v1/assess", json=asked)
    assert told(answer.json(), found)
    assert [r["index"] for r in answer.json()["results"]] == found.ranking.candidates.rows.tolist()
    other = client.post("/v1/assess", json={**asked, "reranker": "another"})
    assert (other.status_code, "another" in other.json()["message"]) == (409, True)
    for score in (1e7, -1e7):
        huge = client.post("/v1/assess", json={**asked, "scores": [score] * len(brought)})
        assert (huge.status_code, "scores.0" in huge.json()["message"]) == (422, True)
    fewer = client.post("/v1/assess", json={**asked, "scores": [1.0]})
    assert (fewer.status_code, "expected one a document" in fewer.json()["message"]) == (422, True)


def test_model_says_what_it_is(client: httpx.Client, run: Any, model: CalibratedReranker) -> None:
    """`/v1/model` gives the manifest's fingerprints and the measured reliability."""
    said = client.get("/v1/model").json()
    assert said["fingerprints"] == model.manifest["fingerprints"]
    assert said["reliability"] == json.loads((run.folder / "reliability.json").read_text())
    assert str(run.folder) not in json.dumps(said)


def test_examples_of_the_api_work(client: httpx.Client) -> None:
    """The OpenAPI document has an example for each POST, and the server answers it."""
    api = client.get("/openapi.json").json()
    posts = [path for path, verbs in api["paths"].items() if "post" in verbs]
    assert sorted(posts) == ["/v1/assess", "/v1/rerank", "/v1/search"]
    for path in posts:
        content = api["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        name = content["schema"]["$ref"].rsplit("/", 1)[1]
        example = api["components"]["schemas"][name]["examples"][0]
        if "reranker" in example:
            example["reranker"] = client.get("/v1/model").json()["fingerprints"]["reranker"]
        assert client.post(path, json=example).status_code == 200


def test_metrics_count(client: httpx.Client, questions: list[str]) -> None:
    """An answer is counted by route, level and confidence, and its stages are timed."""
    route = {"route": "/v1/search", "status": "200"}
    level = client.post("/v1/search", json={"question": questions[0]}).json()["level"]
    before = sample(client, "rerank_requests_total", **route)
    levels = sample(client, "rerank_levels_total", door="search", level=level)
    confidences = sample(client, "rerank_confidence_count", door="search")
    client.post("/v1/search", json={"question": questions[0]})
    assert sample(client, "rerank_requests_total", **route) == before + 1
    assert sample(client, "rerank_levels_total", door="search", level=level) == levels + 1
    assert sample(client, "rerank_confidence_count", door="search") == confidences + 1
    for stage in ("queue", "encode", "read", "answer"):
        assert sample(client, "rerank_stage_seconds_count", stage=stage) > 0
    assert client.get("/healthz").text == "ok\n"
    assert client.get("/readyz").text == "ready\n"


def test_drift_alarm(
    run: Any,
    serving: Callable[..., Any],
    model: CalibratedReranker,
    questions: list[str],
) -> None:
    """A whole window of searches is judged as the drift alarm judges their features."""
    strange = [f"xyzzy {q[:5]} qqq {i}" for i, q in enumerate(questions)][:WINDOW]
    found = [model.search(q).ranking for q in strange]
    expected = alarm(model.sketch, ranking_features(found), level=0.5)
    with (
        serving(run.folder, drift_window=WINDOW, drift_level=0.5) as started,
        httpx.Client(base_url=started.url, timeout=60) as client,
    ):
        assert sample(client, "rerank_drift_p_value") == 1
        for q in strange:
            client.post("/v1/search", json={"question": q})
        client.post("/v1/rerank", json={"query": "after the window", "documents": ["a"]})
        assert sample(client, "rerank_drift_p_value") == pytest.approx(expected.p_value)
        assert sample(client, "rerank_drift_alarm") == expected.fired == 1
        assert sample(client, "rerank_drift_windows_total", alarm="yes") == 1
