"""The schemas of requests with a query, and what is refused in them; bodies are read strictly."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    FiniteFloat,
    ModelWrapValidatorHandler,
    PositiveInt,
    PrivateAttr,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException
from typing_extensions import TypeAliasType

from rerank.data.checks import as_text, to_json
from rerank.data.records import LONGEST_ID, check_length, read_metadata, read_passage
from rerank.errors import InputError, nearest
from rerank.filters import Where
from rerank.serving.refusals import SHAPES, SHOWN, Refusal
from rerank.serving.settings import Settings
from rerank.storage.files import InfiniteNumberError, RepeatedKeyError, loads
from rerank.types import INSTRUCTION, Passage, Query


class StrictRoute(APIRoute):
    """A route whose body may hold no key twice, and its address no unknown parameter."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, which gets a `BodyRequest`."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            known = [parameter.alias for parameter in self.dependant.query_params]
            for name in request.query_params:
                if name not in known:
                    cut, whole = name[:SHOWN], f"; this route has {', '.join(known) or 'none'}"
                    ending = nearest(cut.lower(), known) or whole
                    why = f"unknown parameter {cut!a} in the address{ending}"
                    raise Refusal(422, why, "input")
            return await handle(BodyRequest(request.scope, request.receive))

        return strict


class BodyRequest(Request):
    """A request whose `json` refuses with 422 a repeated key, NaN and infinities."""

    async def json(self) -> Any:
        """The value of the body."""
        try:
            return loads(await self.body())
        except RepeatedKeyError as error:
            key = ascii(error.key[:SHOWN])
            message = f"the body has the key {key} twice in one object; give it once"
            raise HTTPException(422, message) from None
        except InfiniteNumberError as error:
            raise HTTPException(422, f"the body has {error}; give a number or null") from None


_IGNORED = {
    "the server answers with the one model that it holds": "model model_uid model_name replica lora"
    " provider custom_llm_provider drop_params fallbacks mock_response",
    "one part of a document is scored, up to the model's max_length": "max_chunks_per_doc"
    " max_chunk_per_doc overlap overlap_tokens",
    "the model's max_length is part of its calibration": "max_tokens_per_doc max_doc_length"
    " max_query_length max_length truncate_prompt_tokens add_special_tokens",
    "of a document longer than max_length, only a part is read": "truncate truncation"
    " truncation_direction truncation_side",
    "an answer has probabilities, and neither raw scores nor embeddings": "raw_scores activation"
    " use_activation softmax normalize normalized return_embeddings encoding_format embedding_type",
    "the model was calibrated without it": "chat_template chat_template_kwargs kwargs"
    " additional_data mm_processor_kwargs",
    "`usage` is always in the answer, and `return_documents` asks for the texts": "return_len"
    " return_input return_usage",
    "requests are ordered by deadline and remaining work": "priority service_tier latency stream"
    " timeout request_timeout max_retries num_retries batch_size",
    "the server does not store the user": "user user_id end_user tags request_id litellm_call_id"
    " litellm_trace_id litellm_metadata litellm_params proxy_server_request",
    "the client's address and headers say it": "api_key api_base base_url api_version api_type"
    " extra_headers extra_body extra_query",
}
HOSTED = {name: why for why, names in _IGNORED.items() for name in names.split()}
"""Fields that known clients send, whatever their values, and that change nothing here; and why.

Clients of Cohere, Jina, Voyage, vLLM, Xinference, Infinity, TEI, SiliconFlow, LiteLLM, RAGFlow and
Dify. A field that would change which documents come back, such as a score threshold, is not here.
"""

LARGEST = 1e6  # largest absolute logit; those of cross-encoders stay below a hundred
TEXTS = [
    "The median is the middle value of a sorted sample.",
    "numpy.nanmedian computes the median along an axis, ignoring NaNs.",
]


def configured(*, example: dict[str, Any], **extra: Any) -> ConfigDict:
    """The configuration of a request whose unknown fields are checked by `KnownFields`."""
    return ConfigDict(extra="ignore", json_schema_extra={"examples": [example], **extra})


TOP_N = AliasChoices("top_n", "top_k")
LARGEST_METADATA = 65_536  # characters of a query's metadata as JSON: cache and journal keep it
Count = Annotated[PositiveInt, Field(strict=True)]
Metadata = Annotated[
    dict[str, Any] | None,
    Field(description="of the query; the model may use one key of it, such as the language"),
]


class KnownFields(BaseModel):
    """A request whose unknown fields are refused, so that typos are noticed."""

    ignored: ClassVar[Mapping[str, str]] = {}
    sent_unasked: ClassVar[bool] = False  # by known clients: an instruction that no model reads

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, given: Any) -> Any:
        """Refuse unknown fields, and two names of one field with different values."""
        if not isinstance(given, dict):
            return given
        fields = {}  # the accepted names of each, its own first
        for name, field in cls.model_fields.items():
            alias = field.validation_alias
            names = alias.choices if isinstance(alias, AliasChoices) else [name]
            fields[name] = [str(one) for one in names]
        known = [name for names in fields.values() for name in names]
        for name in given:
            if name not in known and name not in cls.ignored:
                cut = name[:SHOWN]
                ending = nearest(cut.lower(), known) or f"; the fields are {', '.join(fields)}"
                raise PydanticCustomError("unknown_field", f"unknown field {cut!a}{ending}")
        kept = dict(given)
        for names in fields.values():
            present = [name for name in names if given.get(name) is not None]
            if any(given[name] != given[present[0]] for name in present[1:]):
                why = f"{' and '.join(present)} mean the same and differ; give one of them"
                raise PydanticCustomError("ambiguous_field", why)
            for name in set(names).difference(present[:1] or names[:1]):
                kept.pop(name, None)
        return kept


class QueryRequest(KnownFields):
    """The fields of every request with a query."""

    query: str = Field(description="the question, in plain words")
    metadata: Metadata = None
    instruction: str | None = Field(
        None,
        validation_alias=AliasChoices("instruction", "instruct"),
        description="what counts as an answer, if the model was calibrated with --segment-by "
        "instruction; the metadata of this name is the same",
    )

    def to_query(self, settings: Settings) -> Query:
        """The query of the request; an InputError if a text is empty, too long or no Unicode."""
        text = as_text("query", self.query, max_length=settings.max_query)
        metadata = read_metadata({"metadata": self.metadata})
        if self.instruction:
            asked = as_text(INSTRUCTION, self.instruction, max_length=LONGEST_ID)
            metadata = {**metadata, INSTRUCTION: asked}
        length, most = len(to_json(metadata)), LARGEST_METADATA
        if length > most:
            raise InputError(f"metadata has {length} characters, at most {most} are taken")
        return Query(text, metadata=metadata)


class IndexRequest(QueryRequest):
    """A query for the index, or for a part of it."""

    filter: dict[str, Any] | None = Field(
        None,
        description="metadata that a passage must have: a value, a list of which one must fit, or "
        "an object of bounds, gt, gte, lt and lte",
        examples=[{"language": "en", "source": ["manual", "faq"], "year": {"gte": 2020}}],
    )

    def to_query(self, settings: Settings) -> Query:
        """The query of the request."""
        return replace(super().to_query(settings), where=Where.read(self.filter))


class SearchRequest(IndexRequest):
    """A query for the index."""

    model_config = configured(example={"query": "median along an axis while ignoring NaNs"})

    query: str = Field(
        description="the question, in plain words",
        validation_alias=AliasChoices("query", "question"),  # its name in version 0.1
    )
    top_n: Count = Field(
        10, validation_alias=TOP_N, description="passages to return, best first; top_k is the same"
    )
    return_documents: bool = Field(True, description="whether to return their titles and texts")


class Document(BaseModel):
    """A document as an object. Other fields are ignored."""

    text: str
    title: str | None = None
    id: Any = Field(
        default=None,
        validation_alias=AliasChoices("id", "_id", "doc_id"),
        description="text or a whole number; its position from 0 where left out",
        json_schema_extra={"anyOf": [{"type": "string"}, {"type": "integer"}]},
    )
    metadata: dict[str, Any] | None = Field(
        default=None,
        description="the model may have been fitted on keys of it: see --metadata-features",
    )

    def to_passage(self, position: int, *, max_length: int) -> Passage:
        """The passage, read as one of a file is; an InputError if a field is wrong or too long."""
        name, title = f"documents.{position}", self.title or ""
        whole = Passage("", title, self.text).full_text
        as_text(name, whole, max_length=max_length, empty=True)  # an empty one is last
        row = {"text": self.text, "title": title, "_id": self.id, "metadata": self.metadata}
        try:
            return read_passage(row, default_id=str(position), empty=True)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None


class DocumentsRequest(QueryRequest):
    """A query with the documents to rank."""

    documents: Annotated[list[str | Document], FailFast()]
    top_n: Count | None = Field(
        None,
        validation_alias=TOP_N,
        description="results to return; all where left out; top_k is the same",
    )
    return_documents: bool | None = Field(None, description="whether to return their texts")
    rank_fields: list[str] | None = Field(
        None, description="text and title, if given: both are always read"
    )

    def to_query(self, settings: Settings) -> Query:
        """The query with its documents as passages."""
        query, documents = super().to_query(settings), [*map(as_document, self.documents)]
        read = {"text", *("title" for document in documents if document.title)}
        if self.rank_fields and not read <= set(self.rank_fields) <= {"text", "title"}:
            raise InputError(
                "rank_fields: the text and the title of a document are read, if it has one, and no "
                'other field; expected ["text", "title"], or leave it out'
            )
        count, most, longest = len(documents), settings.max_documents, settings.max_document
        if count > most:
            raise InputError(f"there are {count} documents, at most {most} are taken")
        passages = [d.to_passage(i, max_length=longest) for i, d in enumerate(documents)]
        check_length("documents", passages)
        return replace(query, passages=tuple(passages))


def as_document(document: str | Document) -> Document:
    """A document as an object."""
    return Document(text=document) if isinstance(document, str) else document


class RerankRequest(DocumentsRequest):
    """A request as hosted rerank APIs take it; fields that only those use are ignored."""

    ignored = HOSTED
    sent_unasked = True
    model_config = configured(
        example={"query": "median without NaNs", "documents": TEXTS, "top_n": 2},
        **{"x-ignored-fields": HOSTED},
    )
    documents: Annotated[list[str | Document], FailFast()] = Field(
        validation_alias=AliasChoices("documents", "texts")
    )
    return_documents: bool | None = Field(
        None,
        validation_alias=AliasChoices("return_documents", "return_text"),
        description="whether to return their texts",
    )
    _bare: bool = PrivateAttr(False)

    @model_validator(mode="wrap")
    @classmethod
    def _dialect(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        made = handler(given)
        made._bare = isinstance(given, dict) and "texts" in given
        return made

    @property
    def bare(self) -> bool:
        """Whether the client reads a bare list of scores, as those of TEI do."""
        return self._bare


Score = Annotated[FiniteFloat, Field(strict=True)]
Logit = Annotated[Score, Field(ge=-LARGEST, le=LARGEST)]
Logits = TypeAliasType("Logits", Annotated[list[Logit], FailFast()])
StageScores = TypeAliasType("StageScores", Annotated[list[Score | None], FailFast()])
Scores = Annotated[
    Annotated[Logits, Tag(SHAPES[0])] | Annotated[dict[str, StageScores], Tag(SHAPES[1])],
    Discriminator(lambda given: SHAPES[isinstance(given, dict)]),
]


class AssessRequest(DocumentsRequest):
    """A query with documents that this model's cross-encoder, or your own stages, have scored."""

    model_config = configured(
        example={
            "query": "median without NaNs",
            "documents": TEXTS,
            "scores": [-3.2, 4.1],
            "reranker": "fingerprints.reranker of /v1/model",
        }
    )
    documents: Annotated[list[str | Document], FailFast()] = Field(
        default_factory=list,
        description="may be left out where a model of lists was calibrated without texts",
    )
    scores: Scores = Field(
        description="raw logits, one per document, without a sigmoid; or, of a model of lists, "
        "such a list by stage, null where a stage did not bring the document"
    )
    reranker: str | None = Field(
        None,
        description="fingerprint of the cross-encoder that gave the logits; not with scores by "
        "stage",
    )

    @model_validator(mode="after")
    def _one_score_a_document(self) -> Self:
        by_stage = isinstance(self.scores, dict)
        lists = list(self.scores.values()) if isinstance(self.scores, dict) else [self.scores]
        if not lists:
            raise PydanticCustomError("scores", "scores: expected a list by stage, got none")
        documents = len(self.documents or lists[0]) if by_stage else len(self.documents)
        for given in map(len, lists):
            if given != documents:
                why = f"scores: expected one per document, {documents}, got {given}"
                raise PydanticCustomError("scores", why)
        if by_stage == (self.reranker is not None):
            missing = "reranker is missing; it names the cross-encoder that gave the logits"
            extra = "reranker names what gave logits; leave it out with scores by stage"
            raise PydanticCustomError("reranker", extra if by_stage else missing)
        return self

    def to_query(self, settings: Settings) -> Query:
        """The query with its documents and their scores."""
        if isinstance(self.scores, list):
            logits = np.array(self.scores, dtype=np.float64)
            return replace(super().to_query(settings), logits=logits)
        count, most = max(map(len, self.scores.values())), settings.max_documents
        if self.documents:
            query = super().to_query(settings)
        elif count > most:
            raise InputError(f"there are {count} scores, at most {most} documents are taken")
        else:
            passages = tuple(Passage(str(i), "", "") for i in range(count))
            query = replace(QueryRequest.to_query(self, settings), passages=passages)
        # null becomes NaN
        scores = {name: np.array(s, dtype=np.float64) for name, s in self.scores.items()}
        return replace(query, scores=scores)
