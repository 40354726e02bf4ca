"""OpenSearch: an index, through its own client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rerank.errors import InputError, optional
from rerank.retrieval.systems.search_api import SearchIndex
from rerank.retrieval.systems.settings import KEY, RetrieverSettings

with optional():
    from opensearchpy import OpenSearch


class OpenSearchIndex(SearchIndex):
    """An index with text fields and a `knn_vector`; the key is USER:PASSWORD."""

    dimension = "dimension"

    def __init__(self, settings: RetrieverSettings, key: str) -> None:
        super().__init__(settings, key)
        user, colon, password = key.partition(":")
        if key and not colon:
            raise InputError(f"{KEY} should be USER:PASSWORD for OpenSearch")
        self._client = OpenSearch(
            settings.url,
            http_auth=(user, password) if key else None,
            timeout=settings.timeout,
            max_retries=1,
        )

    def send(self, method: str, path: str, body: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """By the client's transport, which retries once if it gets no connection."""
        found: Mapping[str, Any] = self._client.transport.perform_request(method, path, body=body)
        return found

    def nearest(self, vector: list[float], count: int) -> Mapping[str, Any]:
        """A `knn` query."""
        return {"query": {"knn": {self.settings.vector: {"vector": vector, "k": count}}}}
