"""What a request may hold: known fields, by any of their names, within the limits."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rerank.data.records import LONGEST_PASSAGES
from rerank.errors import InputError
from rerank.serving.refusals import sentence_of
from rerank.serving.requests import (
    HOSTED,
    AssessRequest,
    QueryRequest,
    RerankRequest,
    SearchRequest,
)
from rerank.serving.settings import Settings

SEARCH = {"query": "median"}
RERANK = {"query": "median", "documents": ["a", "b"]}
ASSESS = {**RERANK, "scores": [1.0, 2.0], "reranker": "fingerprint"}


def refusal(kind: type[QueryRequest], asked: dict[str, Any]) -> str:
    """The sentence with which a request is refused."""
    with pytest.raises(ValidationError) as refused:
        kind.model_validate(asked)
    return sentence_of(refused.value.errors())


@pytest.mark.parametrize(
    ("kind", "asked", "nearest"),
    [
        (SearchRequest, {**SEARCH, "topn": 3}, "top_n"),
        (SearchRequest, {**SEARCH, "Top_N": 3}, "top_n"),
        (SearchRequest, {**SEARCH, "meta_data": {}}, "metadata"),
        (RerankRequest, {**RERANK, "document": []}, "documents"),
        (RerankRequest, {**RERANK, "qurey": "a"}, "query"),
        (RerankRequest, {**RERANK, "topn": 3}, "top_n"),
        (RerankRequest, {**RERANK, "return_document": True}, "return_documents"),
        (AssessRequest, {**ASSESS, "score": [1.0, 2.0]}, "scores"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest(
    kind: type[QueryRequest], asked: dict[str, Any], nearest: str
) -> None:
    """A typing error is named, and so is the field that was meant."""
    name = next(name for name in asked if name not in {*SEARCH, *RERANK, *ASSESS})
    assert refusal(kind, asked) == f"unknown field {name!r}; did you mean {nearest!r}?"


def test_a_field_like_no_other_is_refused_with_all() -> None:
    """Where no field is near, all are named; a hostile name is cut and written in ASCII."""
    sentence = refusal(SearchRequest, {**SEARCH, "\ud800" * 100_000: 1})
    fields = "query, metadata, instruction, filter, top_n, return_documents"
    assert sentence.endswith(f"; the fields are {fields}")
    assert len(sentence) < 500
    assert sentence.isascii()


def test_fields_of_hosted_apis_change_nothing() -> None:
    """Each field that is listed is read over by rerank, and its reason is in the API's document."""
    plain = RerankRequest.model_validate(RERANK)
    for name in HOSTED:
        for value in (1, "true", None, {"a": [1]}):
            assert RerankRequest.model_validate({**RERANK, name: value}) == plain
        assert name in refusal(SearchRequest, {**SEARCH, name: 1})
    assert RerankRequest.model_json_schema()["x-ignored-fields"] == HOSTED


CLIENTS: dict[str, dict[str, Any]] = {
    "Xinference, by its own client": {
        "max_chunks_per_doc": None,
        "return_len": None,
        "kwargs": "{}",
    },
    "Xinference, by RAGFlow": {"return_documents": "true", "return_len": "true"},
    "SiliconFlow, by RAGFlow": {"return_documents": False, "overlap_tokens": 80},
    "Cohere": {"max_chunks_per_doc": 10, "rank_fields": ["text"], "priority": 0},
    "Jina": {"max_doc_length": 1024, "return_embeddings": False, "truncation": True},
    "Voyage": {"top_k": 1, "truncation": True},
    "vLLM": {"truncate_prompt_tokens": -1, "additional_data": None, "mm_processor_kwargs": None},
    "Infinity": {"raw_scores": False, "return_documents": False},
    "LiteLLM": {"custom_llm_provider": "cohere", "metadata": {}, "litellm_call_id": "1"},
    "Dify": {"user": "abc", "return_documents": True},
}


@pytest.mark.parametrize("client", CLIENTS)
def test_what_known_clients_send_is_taken(client: str) -> None:
    """As their own code sends it."""
    sent = {"model": "bge-reranker", **RERANK, **CLIENTS[client]}
    assert RerankRequest.model_validate(sent).documents == ["a", "b"]


def test_a_field_that_would_change_the_answer_is_not_passed_over() -> None:
    """A threshold of scores, and texts under the name of another API."""
    for name in ("score_threshold", "passages"):
        assert f"unknown field {name!r}" in refusal(RerankRequest, {**RERANK, name: 1})


@pytest.mark.parametrize(
    ("metadata", "why"),
    [({"a": "\ud800"}, "lone surrogate"), ({"a": "x" * 70_000}, "at most 65536 are taken")],
)
def test_metadata_that_cannot_be_kept_is_refused(metadata: dict[str, Any], why: str) -> None:
    """The cache and the journal keep it, and the journal's readers read it as text."""
    request = SearchRequest.model_validate({**SEARCH, "metadata": metadata})
    with pytest.raises(InputError, match=why):
        request.to_query(Settings())


@pytest.mark.parametrize(("body", "came"), [([], "a list"), (None, "null"), ("x", "text")])
def test_a_body_that_is_no_object_is_named(body: Any, came: str) -> None:
    """In our words, with the type that came."""
    assert refusal(SearchRequest, body) == (
        f"the body should be a JSON object, got {came}; its fields are at /openapi.json"
    )


@pytest.mark.parametrize(("kind", "asked"), [(SearchRequest, SEARCH), (RerankRequest, RERANK)])
def test_top_k_is_another_name_of_top_n(kind: Any, asked: dict[str, Any]) -> None:
    """Either is taken, and both where they agree; refused are two that differ, and bad values."""
    for given in ({"top_k": 3}, {"top_n": 3, "top_k": 3}, {"top_n": None, "top_k": 3}):
        assert kind.model_validate({**asked, **given}).top_n == 3
    assert "top_n and top_k mean the same and differ" in refusal(
        kind, {**asked, "top_n": 2, "top_k": 3}
    )
    assert refusal(kind, {**asked, "top_k": -1}) == "top_k should be above 0, got -1"


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"query": 5}, "query should be text, got a whole number"),
        ({"metadata": []}, "metadata should be an object, got a list"),
        ({"top_n": "3"}, "top_n should be a whole number, got text"),
        ({"documents": "a"}, "documents should be a list, got text"),
        ({"return_documents": {}}, "return_documents should be true or false, got an object"),
        ({"top_n": 0}, "top_n should be above 0, got 0"),
    ],
)
def test_a_value_of_another_type_is_named(asked: dict[str, Any], sentence: str) -> None:
    """With what is expected and the type that came, in the same words everywhere."""
    assert refusal(RerankRequest, {**RERANK, **asked}) == sentence


def test_what_is_missing_or_out_of_range_is_named() -> None:
    """With what is expected and the number that came."""
    assert refusal(SearchRequest, {"top_n": 1}).startswith("query is missing; all fields are at")
    scores = refusal(AssessRequest, {**ASSESS, "scores": [1e7, 1.0]})
    assert scores == "scores.0 should be 1e+06 or less, got 10000000.0"
    infinite = refusal(AssessRequest, {**ASSESS, "scores": [float("inf"), 1.0]})
    assert infinite == "scores.0 should be a finite number, got inf"


def test_question_is_still_read() -> None:
    """The name of `query` in version 0.1 is read by search, and no schema tells of it."""
    assert SearchRequest.model_validate({"question": "median"}).query == "median"
    assert "differ" in refusal(SearchRequest, {"question": "median", "query": "mean"})
    assert "'question'" in refusal(RerankRequest, {"question": "median", "documents": []})
    assert "question" not in SearchRequest.model_json_schema()["properties"]


def test_scores_are_of_the_documents() -> None:
    """One a document, finite and of a size that logits have."""
    assert "expected one per document, 2, got 1" in refusal(
        AssessRequest, {**ASSESS, "scores": [1]}
    )
    for score in (1e7, -1e7, float("nan"), float("inf")):
        assert "scores.0" in refusal(AssessRequest, {**ASSESS, "scores": [score, 1.0]})


def test_scores_by_stage_need_no_document() -> None:
    """A list by stage, null where one did not bring the document; then no reranker is named."""
    asked = {"query": "q", "scores": {"bm25": [2, None], "mine": [0.5, -1.0]}}
    query = AssessRequest.model_validate(asked).to_query(Settings())
    assert query.mode == "lists"
    assert [p.doc_id for p in query.passages or ()] == ["0", "1"]
    assert [query.scores_of(i) for i in (0, 1)] == [
        {"bm25": 2.0, "mine": 0.5},
        {"bm25": None, "mine": -1.0},
    ]
    sentence = refusal(AssessRequest, {**asked, "reranker": "fingerprint"})
    assert sentence == "reranker names what gave logits; leave it out with scores by stage"
    told = AssessRequest.model_validate({**asked, "documents": ["a", "b"]}).to_query(Settings())
    assert [p.text for p in told.passages or ()] == ["a", "b"]
    with pytest.raises(InputError, match="2 scores, at most 1"):
        AssessRequest.model_validate(asked).to_query(Settings(max_documents=1))
    for wrong, words in (
        ({"bm25": [2.0, 1.0], "mine": [0.5]}, "expected one per document, 2, got 1"),
        ({"bm25": [float("nan"), 1.0]}, "scores.bm25.0"),
        ({}, "expected a list by stage"),
        ([1.0, 2.0], "reranker is missing; it names"),
    ):
        documents = ["a", "b"] if isinstance(wrong, list) else []
        assert words in refusal(
            AssessRequest, {"query": "q", "documents": documents, "scores": wrong}
        )


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"query": " \n"}, "'query' is empty"),
        ({"query": "x" * 11}, "'query' has 11 characters, at most 10"),
        ({"query": "\ud800"}, "'query' "),
        ({"documents": ["a"] * 4}, "4 documents, at most 3"),
        ({"documents": ["a", {"text": "x" * 18, "title": "y"}]}, "'documents.1' has 21 characters"),
        ({"rank_fields": ["text", "title", "body"]}, "are read, if it has one, and no other field"),
        ({"rank_fields": ["title"]}, "or leave it out"),
        ({"documents": [{"text": "a", "title": "b"}], "rank_fields": ["text"]}, "the title"),
    ],
)
def test_limits(asked: dict[str, Any], words: str) -> None:
    """A text that is empty or too long, and too many of them, are refused by name."""
    settings = Settings(max_query=10, max_documents=3, max_document=20)
    with pytest.raises(InputError, match=words):
        RerankRequest.model_validate({**RERANK, **asked}).to_query(settings)


def test_a_query_holds_what_was_sent() -> None:
    """Documents become passages by their places; a search has none; scores become logits."""
    asked = {"query": "q", "metadata": {"language": "fr"}, "documents": ["a", {"text": "b"}]}
    query = RerankRequest.model_validate(asked).to_query(Settings())
    assert (query.text, query.metadata, query.mode) == ("q", {"language": "fr"}, "rerank")
    for read in (["title", "text"], ["text"], []):
        same = {**asked, "rank_fields": read}
        assert RerankRequest.model_validate(same).to_query(Settings()).passages == query.passages
    assert [(p.doc_id, p.title, p.text) for p in query.passages or ()] == [
        ("0", "", "a"),
        ("1", "", "b"),
    ]
    assert SearchRequest.model_validate(SEARCH).to_query(Settings()).mode == "search"
    scored = AssessRequest.model_validate(ASSESS).to_query(Settings())
    assert scored.logits is not None
    assert scored.logits.tolist() == [1.0, 2.0]


def test_the_documents_of_a_request_are_bounded_together() -> None:
    """However they are divided; with a title and with scores, too."""
    half = "x" * (LONGEST_PASSAGES // 16)
    fitting = {"query": "a", "documents": [half] * 16}
    assert len(RerankRequest.model_validate(fitting).to_query(Settings()).passages or ()) == 16
    for more in ([*[half] * 16, "x"], [{"title": "x", "text": half}, *[half] * 15]):
        asked = {"query": "a", "documents": more}
        scores = {"scores": [0.0] * len(more), "reranker": "a"}
        with pytest.raises(InputError, match=f"at most {LONGEST_PASSAGES} are taken"):
            RerankRequest.model_validate(asked).to_query(Settings())
        with pytest.raises(InputError, match=f"at most {LONGEST_PASSAGES} are taken"):
            AssessRequest.model_validate({**asked, **scores}).to_query(Settings())


def test_texts_are_documents() -> None:
    """As clients of TEI name them; both at once are refused where they differ."""
    made = RerankRequest.model_validate({"query": "a", "texts": ["b"], "return_text": True})
    assert (made.documents, made.return_documents, made.bare) == (["b"], True, True)
    assert not RerankRequest.model_validate(RERANK).bare
    assert "documents and texts" in refusal(RerankRequest, {**RERANK, "texts": ["c"]})
