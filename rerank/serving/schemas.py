"""What requests hold and answers tell. Fields that only hosted APIs know are passed over."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, FailFast, Field, FiniteFloat, PositiveInt

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
