"""Qdrant: a collection on a server or in a folder, with a sparse BM25 vector and a dense one.

The sparse vector is that of FastEmbed's `Qdrant/bm25`, with the modifier IDF: each word of a query
has weight 1.
"""

from __future__ import annotations

import atexit
import logging
import re
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import Stemmer

from rerank.assessment.sources.other_system import Hit
from rerank.errors import FilterError, InputError, RetrieverError, optional
from rerank.filters import Condition, Value, Where
from rerank.retrieval.dense import Vectors
from rerank.systems.settings import RetrieverSettings
from rerank.types import Passage

with optional():
    import mmh3
    from qdrant_client import QdrantClient, models
    from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

logger = logging.getLogger(__name__)

UNNAMED = "default"  # the name in settings of a collection's single unnamed vector
HIGHER_IS_BETTER = ("Cosine", "Dot")
SEEN = 20  # points read to learn which fields there are
NOT_FOUND = 404
NOT_WORDS = re.compile(r"[^\w]")
_opening = Lock()  # a second thread would find the folder locked


class QdrantCollection:
    """A collection whose points have the fields in their payload."""

    def __init__(self, settings: RetrieverSettings, key: str) -> None:
        self.settings = settings
        self._key = key
        if len(settings.keyword) > 1:
            raise InputError(f"{settings}: `keyword` should be one sparse vector's name")

    def keyword(self, query: str, count: int, where: Where | None = None) -> Sequence[Hit]:
        """By the sparse vector."""
        indices = bm25_indices(query, language=self.settings.language)
        if not indices:
            return []
        sparse = models.SparseVector(indices=indices, values=[1.0] * len(indices))
        return self._nearest(sparse, self.settings.keyword[0], count, where)

    def vector(self, vector: Vectors, count: int, where: Where | None = None) -> Sequence[Hit]:
        """By the dense vector."""
        name = self.settings.vector
        self.settings.check_dimension(self._dense[name].size, len(vector))
        return self._nearest(vector.tolist(), name, count, where)

    def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """By the id in the payload, which is text or a whole number."""
        self._dense  # noqa: B018  # checks the collection first
        numbers = [int(i) for i in ids if i.isdecimal()]
        kinds = [models.MatchAny(any=values) for values in (list(ids), numbers) if values]
        wanted = models.Filter(
            should=[models.FieldCondition(key=self.settings.id, match=match) for match in kinds]
        )
        fields = list(self.settings.fields)
        records, _ = self._call("scroll", scroll_filter=wanted, limit=len(ids), with_payload=fields)
        return [p for r in records if (p := self.settings.passage(r.payload or {}))]

    def _nearest(self, query: Any, name: str, count: int, where: Where | None) -> list[Hit]:
        self._dense  # noqa: B018  # checks the collection first
        must = [self._held(condition) for condition in where.conditions] if where else None
        found = self._call(
            "query_points",
            query=query,
            using=None if name == UNNAMED else name,
            query_filter=models.Filter(must=must) if must else None,
            limit=count,
            with_payload=list(self.settings.fields),
        )
        return self.settings.hits((p.payload or {}, p.score) for p in found.points)

    def _held(self, condition: Condition) -> Any:
        """The condition as Qdrant has it: ranges are of numbers, whole or not, or of dates."""

        def within(**bounds: Any) -> Any:
            return models.FieldCondition(key=condition.key, range=models.Range(**bounds))

        def equal(value: Value) -> Any:
            if isinstance(value, (bool, str)):
                match = models.MatchValue(value=value)
                return models.FieldCondition(key=condition.key, match=match)
            return within(gte=value, lte=value)

        if not condition.bounds:
            return models.Filter(should=list(map(equal, condition.values)))
        bounds: dict[str, Any] = dict(condition.bounds)
        if condition.kind == "number":
            return within(**bounds)
        try:
            dates = {name: datetime.fromisoformat(bound) for name, bound in bounds.items()}
        except ValueError:
            raise FilterError(
                f"filter {condition.key!r}: Qdrant has ranges of numbers and of dates of "
                f"ISO 8601, such as 2024-05-31; got {bounds!r:.80}"
            ) from None
        return models.FieldCondition(key=condition.key, range=models.DatetimeRange(**dates))

    @cached_property
    def _client(self) -> Any:
        s = self.settings
        if s.remote:
            return QdrantClient(
                url=s.url,
                api_key=self._key or None,
                timeout=max(1, round(s.timeout)),
                check_compatibility=False,
            )
        if not Path(s.url).is_dir():
            raise InputError(f"{s}: there is no such folder")
        try:
            with _opening:
                return open_folder(s.url)
        except RuntimeError as error:  # another process has it open
            raise RetrieverError(f"{s}: {error}") from None

    @cached_property
    def _dense(self) -> dict[str, Any]:
        """The dense vectors of the collection by name, after checking it against the settings."""
        s = self.settings
        params = self._call("get_collection").config.params
        dense = params.vectors or {}
        dense = dense if isinstance(dense, dict) else {UNNAMED: dense}
        s.check_fields([s.vector], dense)
        s.check_fields(s.keyword, params.sparse_vectors or {})
        if s.vector and dense[s.vector].distance not in HIGHER_IS_BETTER:
            raise InputError(
                f"{s}: the distance of {s.vector!r} is {dense[s.vector].distance}; expected "
                f"{' or '.join(HIGHER_IS_BETTER)}"
            )
        records, _ = self._call("scroll", limit=SEEN)
        if records:  # fields are not declared; a title and metadata may be rare
            there = {n for r in records for n in r.payload or {}}
            s.check_fields([s.id, s.text], there)
            for name in s.fields:
                if name not in there:
                    logger.warning("%s: none of %d points has a field %r", s, len(records), name)
        return dense

    def _call(self, method: str, **asked: Any) -> Any:
        try:
            return getattr(self._client, method)(self.settings.collection, **asked)
        except InputError:  # of ours, which names the collection already
            raise
        except ResponseHandlingException as error:
            raise RetrieverError(f"{self.settings}: no answer: {error}") from None
        except UnexpectedResponse as error:
            if error.status_code == NOT_FOUND:
                raise InputError(f"{self.settings}: it has no such collection") from None
            raise RetrieverError(f"{self.settings}: {error}") from None
        except ValueError as error:  # raised for a folder
            raise InputError(f"{self.settings}: {error}") from None


@lru_cache
def open_folder(folder: str) -> Any:
    """The client of a folder: one per process, because the folder is locked."""
    client = QdrantClient(path=folder)
    atexit.register(client.close)  # after the interpreter ends, it cannot be closed
    return client


def bm25_indices(text: str, *, language: str) -> list[int]:
    """A query's dimensions in `Qdrant/bm25`: hashes of stemmed words; stop words match nothing."""
    words = NOT_WORDS.sub(" ", text.lower()).split()
    stemmed = words if language == "none" else Stemmer.Stemmer(language).stemWords(words)
    return sorted({abs(mmh3.hash(word)) for word in stemmed})
