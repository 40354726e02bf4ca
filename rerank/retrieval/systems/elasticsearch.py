"""Elasticsearch: an index, through its own client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rerank.errors import optional
from rerank.retrieval.systems.search_api import SearchIndex
from rerank.retrieval.systems.settings import RetrieverSettings

with optional():
    from elasticsearch import Elasticsearch

CONSIDERED = 100  # minimum of nearest passages that each shard considers
JSON = {"accept": "application/json", "content-type": "application/json"}


class ElasticsearchIndex(SearchIndex):
    """An index with text fields and a `dense_vector`; the key is an API key or USER:PASSWORD."""

    dimension = "dims"

    def __init__(self, settings: RetrieverSettings, key: str) -> None:
        super().__init__(settings, key)
        user, colon, password = key.partition(":")
        self._client = Elasticsearch(
            settings.url,
            basic_auth=(user, password) if colon else None,
            api_key=None if colon else key or None,
            request_timeout=settings.timeout,
            max_retries=1,
        )

    def send(self, method: str, path: str, body: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """By the client, which retries once if it gets no connection."""
        answer = self._client.perform_request(method, path, headers=JSON, body=body)
        found: Mapping[str, Any] = answer.body
        return found

    def nearest(self, vector: list[float], count: int) -> Mapping[str, Any]:
        """A `knn` search."""
        considered = max(CONSIDERED, 2 * count)
        return {
            "knn": {
                "field": self.settings.vector,
                "query_vector": vector,
                "k": count,
                "num_candidates": considered,
            }
        }
