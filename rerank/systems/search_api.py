"""OpenSearch and Elasticsearch: `_search` and `_mapping` of an index, through their own clients.

Keyword search is `multi_match`, by BM25. The scores of vector search are no cosines, but rise with
them. `id = "_id"` uses the document's own id.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import quote

from rerank.assessment.sources.other_system import Hit
from rerank.errors import FilterError, InputError, RetrieverError, one_line, optional
from rerank.filters import Where
from rerank.retrieval.dense import Vectors
from rerank.systems.settings import KEY, RetrieverSettings, check_filtered
from rerank.types import Passage

OWN_ID = "_id"
WHOLE = "_search?allow_partial_search_results=false"  # no answer of only some shards
NOT_FOUND = 404
REFUSED = (401, 403)
CONSIDERED = 100  # minimum of nearest passages that each shard of Elasticsearch considers
Json = Mapping[str, Any]
HEADERS = {"accept": "application/json", "content-type": "application/json"}


class SearchIndex(ABC):
    """An index on a server; subclasses say how to send requests and how to search by vector."""

    dimension: str  # what a mapping calls the size of a vector

    def __init__(self, settings: RetrieverSettings, key: str) -> None:
        self.settings = settings
        self.key = key

    @abstractmethod
    def send(self, method: str, path: str, body: Json | None) -> Json:
        """The JSON of the answer, after one more try without a connection; a client's error has a
        `status_code` if the server sent one.
        """

    @abstractmethod
    def nearest(self, vector: list[float], count: int, allowed: Json) -> Json:
        """The body of a search for the nearest passages; `allowed` is {}, or has a `filter`."""

    def keyword(self, query: str, count: int, where: Where | None = None) -> Sequence[Hit]:
        """By the words of the query, in any of the keyword fields."""
        asked = {"multi_match": {"query": query, "fields": list(self.settings.keyword)}}
        filtered = {"bool": {"must": [asked], **self._allowed(where)}} if where else asked
        return self._hits({"query": filtered}, count)

    def vector(self, vector: Vectors, count: int, where: Where | None = None) -> Sequence[Hit]:
        """By k-NN."""
        there = self._fields[self.settings.vector].get(self.dimension)
        if isinstance(there, int):  # some mappings define it elsewhere
            self.settings.check_dimension(there, len(vector))
        return self._hits(self.nearest(vector.tolist(), count, self._allowed(where)), count)

    def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """By the id field, which should be a `keyword` or a number."""
        name = self.settings.id
        asked = {"ids": {"values": list(ids)}} if name == OWN_ID else {"terms": {name: list(ids)}}
        hits = self._hits({"query": {"constant_score": {"filter": asked}}}, len(ids))
        return [hit.passage for hit in hits]

    def _allowed(self, where: Where | None) -> dict[str, Any]:
        """The filter as the server has it; a field of text is asked by its keywords."""
        conditions = list[dict[str, Any]]()
        for condition in where.conditions if where else ():
            name = condition.key
            check_filtered(name, self._fields)
            if self._fields[name].get("type") == "text":
                inner = self._fields[name].get("fields", {}).items()
                exact = next((n for n, d in inner if d.get("type") == "keyword"), None)
                if exact is None:
                    raise FilterError(
                        f"filter: {name!r} is searched by its words; expected a field of type "
                        "keyword, or `fields` with one"
                    )
                name = f"{name}.{exact}"
            bounds, values = dict(condition.bounds), list(condition.values)
            conditions.append({"range": {name: bounds}} if bounds else {"terms": {name: values}})
        return {"filter": {"bool": {"filter": conditions}}} if conditions else {}

    def _hits(self, body: Json, count: int) -> list[Hit]:
        self._fields  # noqa: B018  # checks the index first
        names = self.settings.fields
        asked = {**body, "size": count, "_source": [n for n in names if n != OWN_ID]}
        answer = self._request("POST", WHOLE, asked)
        try:
            shards = answer.get("_shards", {})
            missing = "the server's own limit of time ended the search" * bool(
                answer.get("timed_out")
            )
            if failed := shards.get("failed", 0):
                missing = f"{failed} of {shards.get('total', '?')} shards failed"
            rows = [
                ({name: _value(hit, name) for name in names}, float(hit["_score"] or 0.0))
                for hit in answer["hits"]["hits"]
            ]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RetrieverError(f"{self.settings}: no answer to a search: {error!r}") from None
        if missing:
            raise RetrieverError(
                f"{self.settings}: it searched only a part of the index: {missing}; expected an "
                "answer of every shard, so try again, or look at the health of the index"
            )
        return self.settings.hits(rows)

    @cached_property
    def _fields(self) -> Mapping[str, Json]:
        """The fields of the index, nested ones with dots, after a check against the settings."""
        s = self.settings
        found: dict[str, Json] = {}
        answer = self._request("GET", "_mapping", None)
        try:
            for index in answer.values():
                found |= _flatten_fields(index["mappings"].get("properties", {}))
        except (KeyError, TypeError, AttributeError) as error:
            raise RetrieverError(f"{s}: no mapping of an index: {error!r}") from None
        named = [*s.fields, s.vector, *(name.partition("^")[0] for name in s.keyword)]
        s.check_fields([n for n in named if n != OWN_ID and "*" not in n], found)
        return found

    def _request(self, method: str, what: str, body: Json | None) -> Json:
        s = self.settings
        try:
            return self.send(method, f"/{quote(s.collection, safe=',*')}/{what}", body)
        except Exception as error:  # each client has its own class hierarchy
            status = getattr(error, "status_code", None)
            if status == NOT_FOUND:
                raise InputError(f"{s}: it has no such index") from None
            why = one_line(error)
            if status in REFUSED:
                why = f"status {status}; expected a valid key in the environment, as {KEY}"
            raise RetrieverError(f"{s}: no answer: {why}") from None


class ElasticsearchIndex(SearchIndex):
    """An index with text fields and a `dense_vector`; the key is an API key or USER:PASSWORD."""

    dimension = "dims"

    def __init__(self, settings: RetrieverSettings, key: str) -> None:
        super().__init__(settings, key)
        with optional():
            from elasticsearch import Elasticsearch

        user, colon, password = key.partition(":")
        login = {"basic_auth": (user, password)} if colon else {"api_key": key or None}
        limits = {"request_timeout": settings.timeout, "max_retries": 1}
        self._client = Elasticsearch(settings.url, **login, **limits)

    def send(self, method: str, path: str, body: Json | None) -> Json:
        """By the client."""
        answer: Json = self._client.perform_request(method, path, headers=HEADERS, body=body).body
        return answer

    def nearest(self, vector: list[float], count: int, allowed: Json) -> Json:
        """A `knn` search."""
        sizes = {"k": count, "num_candidates": max(CONSIDERED, 2 * count)}
        return {"knn": {"field": self.settings.vector, "query_vector": vector, **sizes, **allowed}}


class OpenSearchIndex(SearchIndex):
    """An index with text fields and a `knn_vector`; the key is USER:PASSWORD."""

    dimension = "dimension"

    def __init__(self, settings: RetrieverSettings, key: str) -> None:
        super().__init__(settings, key)
        with optional():
            from opensearchpy import OpenSearch

        user, colon, password = key.partition(":")
        if key and not colon:
            raise InputError(f"{KEY} should be USER:PASSWORD for OpenSearch")
        login = (user, password) if key else None
        limits = {"timeout": settings.timeout, "max_retries": 1}
        self._client = OpenSearch(settings.url, http_auth=login, **limits)

    def send(self, method: str, path: str, body: Json | None) -> Json:
        """By the client's transport."""
        answer: Json = self._client.transport.perform_request(method, path, body=body)
        return answer

    def nearest(self, vector: list[float], count: int, allowed: Json) -> Json:
        """A `knn` query."""
        asked = {"vector": vector, "k": count, **allowed}
        return {"query": {"knn": {self.settings.vector: asked}}}


def _flatten_fields(properties: Json, before: str = "") -> dict[str, Json]:
    """The fields of a mapping by their dotted names, including those of `fields`."""
    found: dict[str, Json] = {}
    for name, definition in properties.items():
        found[before + name] = definition
        for inner in ("properties", "fields"):
            found |= _flatten_fields(definition.get(inner, {}), f"{before}{name}.")
    return found


def _value(hit: Json, name: str) -> Any:
    """The value of a hit under a name, where dots reach into objects; None if it has none."""
    if name == OWN_ID:
        return hit[OWN_ID]
    value: Any = hit.get("_source", {})
    if name in value:
        return value[name]
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
