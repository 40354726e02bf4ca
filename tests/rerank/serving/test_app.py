"""What each route answers: the numbers of the model, whatever else is asked at the same time."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from coherence import check_coherent
from server import serving

from rerank.assessment.model import CalibratedReranker
from rerank.types import Assessment, Passage, Query


@pytest.fixture(scope="module")
def brought(texts: list[str]) -> tuple[Passage, ...]:
    """A few passages as a caller brings them."""
    return tuple(Passage(str(i), "", text) for i, text in enumerate(texts[:6]))


def same(answer: dict[str, Any], found: Assessment) -> bool:
    """Whether the answer's numbers are those of the assessment, to the bit."""
    expected = found.to_dict(top=0)
    return all(answer[k] == v for k, v in expected.items() if k not in ("query_id", "ranking"))


def pairs(answer: dict[str, Any]) -> list[tuple[int, float]]:
    """Places in the request and probabilities, best first."""
    return [(r["index"], r["relevance_score"]) for r in answer["results"]]


def ranked(found: Assessment) -> list[tuple[int, float]]:
    """The same of an assessment."""
    return [(p.row, p.relevance) for p in found.passages]


def test_many_at_once_get_what_one_alone_gets(
    client: httpx.Client,
    model: CalibratedReranker,
    queries: list[str],
    brought: tuple[Passage, ...],
) -> None:
    """Searches and reranks that come together answer as single calls in one thread do, exactly."""
    documents = [p.text for p in brought]
    expected = {q: (model.search(q), model.rerank(q, brought)) for q in queries}

    def ask(q: str) -> tuple[Any, Any]:
        search = client.post("/v1/search", json={"query": q, "top_n": 50})
        rerank = client.post("/v1/rerank", json={"query": q, "documents": documents})
        return search.json(), rerank.json()

    with ThreadPoolExecutor(len(queries)) as pool:
        answers = list(pool.map(ask, queries))
    for q, (search, rerank) in zip(queries, answers, strict=True):
        found, given = expected[q]
        assert same(search, found)
        rows = [
            {**p.to_dict(), "title": p.title, "text": p.text, "metadata": dict(p.metadata)}
            for p in found.passages
        ]
        assert search["ranking"] == rows
        assert same(rerank, given)
        assert pairs(rerank) == ranked(given)
        assert pairs(rerank)[0][1] == rerank["confidence"]
        check_coherent(search)


def test_documents_of_every_shape(client: httpx.Client, model: CalibratedReranker) -> None:
    """Strings and objects mean the same; top_n cuts; documents come back where asked for."""
    asked = {
        "query": "median of a sample",
        "documents": ["a book", {"text": "the middle value", "title": "median", "id": 7}],
        "top_n": 1,
        "return_documents": True,
    }
    answer = client.post("/v2/rerank", json=asked).json()
    found = model.rerank(
        "median of a sample",
        [Passage("0", "", "a book"), Passage("1", "median", "the middle value")],
    )
    assert same(answer, found)
    assert answer["results"] == [
        {
            "index": 1,
            "relevance_score": found.confidence,
            "document": {"text": "the middle value", "title": "median", "id": 7},
        }
    ]
    plain = client.post("/v1/rerank", json={**asked, "return_documents": False, "top_n": 99})
    assert [set(r) for r in plain.json()["results"]] == [{"index", "relevance_score"}] * 2


def test_no_document_has_no_confidence(client: httpx.Client) -> None:
    """An empty list is an answer: nothing, and confidence 0."""
    answer = client.post("/v1/rerank", json={"query": "median", "documents": []}).json()
    assert (answer["results"], answer["confidence"], answer["level"]) == ([], 0.0, "VERY_LOW")


def test_an_instruction_that_no_model_reads(client: httpx.Client, brought: Any) -> None:
    """Clients of rerank APIs send one unasked, and get the same answer; a search is refused."""
    asked = {"query": "median of a sample", "documents": [p.text for p in brought]}
    told = {"instruction": "find answers"}
    plain, with_it = (client.post("/v1/rerank", json=one).json() for one in (asked, asked | told))
    assert with_it["results"] == plain["results"]
    refused = client.post("/v1/search", json={"query": asked["query"], **told})
    assert refused.status_code == 422
    assert "--segment-by instruction" in refused.text


def test_top_k_is_top_n(client: httpx.Client, queries: list[str]) -> None:
    """Both names cut the list, on /v1/search and on /v1/rerank."""
    for path, asked in {
        "/v1/search": {"query": queries[0]},
        "/v1/rerank": {"query": queries[0], "documents": ["a", "b", "c"]},
    }.items():
        by_n, by_k = (client.post(path, json={**asked, name: 2}) for name in ("top_n", "top_k"))
        rows = "ranking" if path == "/v1/search" else "results"
        assert by_k.json()[rows] == by_n.json()[rows]
        assert len(by_k.json()[rows]) == 2


def test_assess_takes_the_callers_scores(
    client: httpx.Client, model: CalibratedReranker, brought: tuple[Passage, ...]
) -> None:
    """Scores of the served reranker are assessed as they come; of another one, or none, refused."""
    scores = np.linspace(-4.0, 3.0, len(brought))
    found = model.assess([Query("fill gaps", passages=brought, logits=scores)])[0]
    asked = {
        "query": "fill gaps",
        "documents": [p.text for p in brought],
        "scores": scores.tolist(),
        "reranker": client.get("/v1/model").json()["fingerprints"]["reranker"],
    }
    answer = client.post("/v1/assess", json=asked)
    assert same(answer.json(), found)
    assert pairs(answer.json()) == ranked(found)
    other = client.post("/v1/assess", json={**asked, "reranker": "another"})
    assert (other.status_code, "another" in other.json()["message"]) == (409, True)


def test_model_says_what_it_is(client: httpx.Client, run: Any, model: CalibratedReranker) -> None:
    """`/v1/model` gives the manifest's fingerprints and the measured reliability, and no path."""
    found = client.get("/v1/model").json()
    assert found["fingerprints"] == model.manifest["fingerprints"]
    measured = json.loads((run.folder / "reliability.json").read_text())
    assert measured.pop("curves")  # at /v1/reliability
    assert found["reliability"] == measured
    assert str(run.folder) not in json.dumps(found)


def test_health(client: httpx.Client) -> None:
    """A server that runs is healthy and ready."""
    assert client.get("/healthz").text == "ok\n"
    assert client.get("/readyz").text == "ready\n"


def test_examples_of_the_api_work(client: httpx.Client) -> None:
    """The OpenAPI document has an example for each POST, and the server answers it."""
    api = client.get("/openapi.json").json()
    posts = [path for path, verbs in api["paths"].items() if "post" in verbs]
    ours = ["answer", "ask", "assess", "explain", "rerank", "retrieve", "search", "systemone"]
    assert sorted(posts) == [f"/v1/{name}" for name in ours]
    for path in posts:
        content = api["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        name = content["schema"]["$ref"].rsplit("/", 1)[1]
        example = api["components"]["schemas"][name]["examples"][0]
        assert {"query", "state"} & set(example)
        if "reranker" in example:
            example["reranker"] = client.get("/v1/model").json()["fingerprints"]["reranker"]
        assert client.post(path, json=example).status_code == 200


def test_pages_of_named_origins_may_ask_and_no_other(run: Any) -> None:
    """Preflight, answer and refusal say so to these; without the option nothing does."""
    ours, strange = "https://app.example.org", "https://evil.example"
    with (
        serving(run.folder, allow_origin=ours) as started,
        httpx.Client(base_url=started.url, timeout=600) as browser,
    ):
        asked = {"access-control-request-method": "POST"}
        for origin, allowed in ((ours, ours), (strange, None)):
            headers = {"origin": origin, **asked}
            preflight = browser.options("/v1/search", headers=headers)
            refusal = browser.post("/v1/search", json={}, headers={"origin": origin})
            found = browser.get("/v1/model", headers={"origin": origin})
            for answer in (preflight, refusal, found):
                assert answer.headers.get("access-control-allow-origin") == allowed
            assert (preflight.status_code == 200) == (allowed is not None)
            assert (refusal.status_code, found.status_code) == (422, 200)


def test_answers_are_typed_in_the_schema(client: httpx.Client) -> None:
    """Of each route about answers and the model; levels, verdicts and stop reasons are enums."""
    schema = client.get("/openapi.json").json()
    for path, route in schema["paths"].items():
        for of_method in route.values():
            if path.startswith(("/v1/journal", "/v1/feedback", "/v1/label")):
                continue
            content = of_method["responses"]["200"]["content"]
            assert all(of_kind["schema"] for of_kind in content.values()), path
    models = schema["components"]["schemas"]
    for model, field, count in (
        ("SearchResponse", "level", 4),
        ("SearchResponse", "verdict", 3),
        ("RetrieveResponse", "stop_reason", 6),
    ):
        assert len(models[model]["properties"][field]["enum"]) == count
