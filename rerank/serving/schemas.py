"""What requests hold and answers tell. Fields that only hosted APIs know are passed over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, FailFast, Field, FiniteFloat, PositiveInt

from rerank.serving.model_source import Served
from rerank.types import Assessment, Passage

LARGEST = 1e6  # size of a logit; those of cross-encoders stay below a hundred
TEXTS = [
    "The median is the middle value of a sorted sample.",
    "numpy.nanmedian computes the median along an axis, ignoring NaNs.",
]


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(extra="ignore", json_schema_extra={"examples": [values]})


class Document(BaseModel):
    """A document as an object. What else it holds is passed over."""

    text: str
    title: str | None = None


Count = Annotated[PositiveInt, Field(strict=True)]
Metadata = Annotated[
    dict[str, Any] | None,
    Field(description="of the question: what the model corrects by, such as its language"),
]


class SearchRequest(BaseModel):
    """A question for the index."""

    model_config = _example(question="median along an axis while ignoring NaNs", top_n=3)
    question: str = Field(description="in plain words")
    metadata: Metadata = None
    top_n: Count = Field(10, description="passages to return, best first")
    return_documents: bool = Field(True, description="whether to return their titles and texts")


class Passages(BaseModel):
    """A query and documents: what the two doors for callers' own passages have in common."""

    query: str
    documents: Annotated[list[str | Document], FailFast()]
    metadata: Metadata = None
    top_n: Count | None = Field(None, description="results to return; all where left out")
    return_documents: bool | None = Field(None, description="whether to return their texts")
    rank_fields: list[str] | None = Field(None, description="text and title are what is read")


class RerankRequest(Passages):
    """As hosted rerank APIs take it; `model` and other fields of theirs may be there."""

    model_config = _example(query="median without NaNs", documents=TEXTS, top_n=2)


class AssessRequest(Passages):
    """A ranking that the caller has made with this model's cross-encoder."""

    model_config = _example(
        query="median without NaNs",
        documents=TEXTS,
        scores=[-3.2, 4.1],
        reranker="fingerprints.reranker of /v1/model",
    )
    scores: Annotated[
        list[Annotated[FiniteFloat, Field(ge=-LARGEST, le=LARGEST, strict=True)]], FailFast()
    ] = Field(description="raw logits, one a document, without a sigmoid")
    reranker: str = Field(description="fingerprint of the cross-encoder that gave the scores")


class Trust(BaseModel):
    """How far to trust an answer. Probabilities are calibrated."""

    id: str
    model: str = Field(description="which of the models that were served here has answered")
    confidence: float = Field(description="P(the first passage is right)")
    sufficiency: float = Field(description="P(one of the first few is right)")
    sufficiency_at: list[float] = Field(description="the same for the first 1 to 10")
    level: str = Field(description="HIGH, MEDIUM, LOW or VERY_LOW confidence")
    verdict: str = Field(description="SUFFICIENT, PARTIAL or INSUFFICIENT context")
    accepted: bool = Field(description="confidence reaches the advisory threshold")
    certified: bool = Field(
        description="accepted, and the confidence reaches the certified threshold"
    )
    reasons: list[str]


class Found(BaseModel):
    """A passage of the index."""

    doc_id: str
    relevance: float = Field(description="P(this passage is right)")
    logit: float | None = Field(description="of the cross-encoder, where it has read it")
    bm25: float
    dense: float
    title: str | None = None
    text: str | None = None


class SearchResponse(Trust):
    """What `search` found, best first."""

    ranking: list[Found]


class Result(BaseModel):
    """One of the documents of the request."""

    index: int = Field(description="its place in the request, from 0")
    relevance_score: float = Field(description="P(this document is right)")
    document: Document | None = None


class RerankResponse(Trust):
    """Best first, in the shape of hosted rerank APIs, and how far to trust it."""

    results: list[Result]
    meta: dict[str, Any] = Field(description="as Cohere's clients read it")
    usage: dict[str, int] = Field(description="as Jina's clients read it; nothing is billed")


class Problem(BaseModel):
    """Why there is no answer, in a sentence; `detail` is the same, for clients that look there."""

    message: str
    detail: str


def passages(documents: Sequence[str | Document]) -> tuple[Passage, ...]:
    """The documents as passages, named by their places."""
    return tuple(
        Passage(str(i), "", d) if isinstance(d, str) else Passage(str(i), d.title or "", d.text)
        for i, d in enumerate(documents)
    )


def searched(
    found: Assessment, served: Served, asked: SearchRequest, request_id: str
) -> SearchResponse:
    """The answer to a search."""
    told = found.to_dict(top=asked.top_n)
    ranking = [Found(**row) for row in told["ranking"]]
    if asked.return_documents:
        for row, passage in zip(ranking, found.ranking.passages, strict=False):
            row.title, row.text = passage.title, passage.text
    return SearchResponse(**_trust(found, served, request_id), ranking=ranking)


def reranked(found: Assessment, served: Served, asked: Passages, request_id: str) -> RerankResponse:
    """The answer to documents that came with the request, in the shape of hosted APIs."""
    ranking = found.ranking
    places = ranking.first_stage.rows.tolist()
    results = [
        Result(
            index=place,
            relevance_score=relevance,
            document=_document(asked.documents[place]) if asked.return_documents else None,
        )
        for place, relevance in zip(places, ranking.relevance.tolist(), strict=True)
    ]
    return RerankResponse(
        **_trust(found, served, request_id),
        results=results[: asked.top_n],
        meta={"api_version": {"version": "2"}, "billed_units": {"search_units": 0}},
        usage={"total_tokens": 0, "prompt_tokens": 0},
    )


def _document(given: str | Document) -> Document:
    return Document(text=given) if isinstance(given, str) else given


def _trust(found: Assessment, served: Served, request_id: str) -> dict[str, Any]:
    return {
        "id": request_id,
        "model": served.version,
        "confidence": found.confidence,
        "sufficiency": found.sufficiency,
        "sufficiency_at": list(found.sufficiency_at),
        "level": found.level,
        "verdict": found.verdict,
        "accepted": found.accepted,
        "certified": found.certified,
        "reasons": list(found.reasons),
    }


class Refusal(Exception):  # noqa: N818  # an answer, not an error of ours
    """An answer other than 200: the status, the sentence, and headers."""

    def __init__(
        self, status: int, sentence: str, *, reason: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.reason = reason
        self.headers = dict(headers or {})


def body(sentence: str) -> bytes:
    """The JSON of an error: `message`, as Cohere's clients read it, and `detail`, as Jina's do."""
    return json.dumps({"message": sentence, "detail": sentence}).encode()


def sentence_of(errors: Sequence[Mapping[str, Any]]) -> str:
    """What a validator found, as one sentence without any of the values given."""
    said = []
    for error in errors[:3]:
        if error["type"] == "json_invalid":
            return f"the body is no JSON: it breaks at character {error['loc'][-1]}"
        place = ".".join(str(part) for part in error["loc"] if part not in ("body", "str"))
        said.append(f"{place}: {error['msg']}" if place else str(error["msg"]))
    if len(errors) > 3:
        said.append(f"and {len(errors) - 3} more")
    return "; ".join(dict.fromkeys(said))
