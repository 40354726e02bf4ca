"""The interface to another search system: the best passages of each of its searches, with scores.

It gives less than our own index: no score for a passage that a search did not return, no weight of
a word. So its results are treated as a list with scores (`rerank.types.ListKind`), to which our
cross-encoder adds its own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from rerank.errors import InputError, nearest
from rerank.retrieval.dense import Vectors
from rerank.retrieval.fusion import reciprocal_rank_fusion, top
from rerank.retrieval.systems.settings import KEY, URL, VECTOR, RetrieverSettings
from rerank.types import LARGEST_SCORE, Passage, Query

ADAPTERS = {  # a system -> the module and the class of its adapter
    "elasticsearch": ("search_api", "ElasticsearchIndex"),
    "lancedb": ("lance", "LanceTable"),
    "opensearch": ("search_api", "OpenSearchIndex"),
    "qdrant": ("qdrant", "QdrantCollection"),
}
SHOWN = 20  # fields of a collection, in a message


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that a search returned; a higher score is better."""

    passage: Passage
    score: float


class SearchSystem(Protocol):
    """A collection of another system, connected at the first call. Safe to call from many threads.

    Every call raises a RetrieverError if the system does not answer, and an InputError if it lacks
    the collection or a field.
    """

    settings: RetrieverSettings

    def keyword(self, query: str, count: int) -> Sequence[Hit]:
        """The `count` best passages by the words of the query, best first."""

    def vector(self, vector: Vectors, count: int) -> Sequence[Hit]:
        """The `count` nearest passages to a unit vector (d,), nearest first."""

    def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """At most as many passages as ids, of these ids; see `passages_by_id`."""


def connect(settings: RetrieverSettings) -> SearchSystem:
    """The system; RERANK_RETRIEVER_URL, if set, replaces its address.

    Raises:
        MissingExtraError: its client is not installed.
    """
    settings = replace(settings, url=os.environ.get(URL) or settings.url)
    module, name = ADAPTERS[settings.system]
    adapter = getattr(import_module(f"rerank.retrieval.systems.{module}"), name)
    system: SearchSystem = adapter(settings, os.environ.get(KEY, ""))
    return system


def connect_of_model(kept: Any) -> SearchSystem:
    """The system that a model folder names.

    Whoever wrote the folder chose that address. So a key is sent only if the environment names the
    address too.

    Raises:
        InputError: the settings cannot be used, or a key would go to an address from the folder.
        MissingExtraError: its client is not installed.
    """
    settings = RetrieverSettings.from_dict(kept)
    if settings.remote and os.environ.get(KEY) and not os.environ.get(URL):
        raise InputError(
            f"{KEY} is set, and {settings.url} comes from the model folder: set {URL} to the "
            "server that the key is for"
        )
    return connect(settings)


def query_with_results(
    system: SearchSystem,
    query: Query,
    vector: Vectors,
    *,
    pool: int,
    count: int,
    rrf_k: int,
    without: Set[str] = frozenset(),
) -> Query:
    """The query with the `count` best fused passages of the `pool` best of each search.

    Their scores are stored by search, NaN if a search did not return the passage. Passages in
    `without` are ignored.
    """
    asked = pool + len(without)
    found: dict[str, Sequence[Hit]] = {}
    for stage in system.settings.stages:
        hits = (
            system.vector(vector, asked) if stage == VECTOR else system.keyword(query.text, asked)
        )
        once = {hit.passage.doc_id: hit for hit in reversed(hits)}  # the best hit of each id
        best = sorted(once.values(), key=lambda h: (-h.score, h.passage.doc_id))
        found[stage] = [h for h in best if h.passage.doc_id not in without][:pool]
    passages = {h.passage.doc_id: h.passage for hits in found.values() for h in hits}
    ids = sorted(passages)
    row = {doc_id: i for i, doc_id in enumerate(ids)}
    listed = [
        np.array([row[h.passage.doc_id] for h in hits], dtype=np.int64) for hits in found.values()
    ]
    rows, fused = reciprocal_rank_fusion(listed, k=rrf_k)
    kept = rows[top(fused, count)]
    scores = {}
    for stage, hits in found.items():
        of_stage = np.full(len(ids), np.nan)
        for hit in hits:
            of_stage[row[hit.passage.doc_id]] = hit.score
        scores[stage] = of_stage[kept]
    return replace(query, passages=tuple(passages[ids[i]] for i in kept), scores=scores)


def passages_by_id(system: SearchSystem, ids: Sequence[str]) -> dict[str, Passage]:
    """The passages with these ids that the system holds, by id; a few hundred ids per call.

    If documents share an id, they crowd others out of the answer, so missing ids are asked for
    again until nothing more comes.
    """
    found: dict[str, Passage] = {}
    missing = list(ids)
    while missing:
        answer = {p.doc_id: p for p in system.passages(missing)}
        found |= answer
        left = [i for i in missing if i not in answer]
        missing = left if len(left) < len(missing) else []
    return found


def hits_of(
    settings: RetrieverSettings, rows: Iterable[tuple[Mapping[str, Any], float]]
) -> list[Hit]:
    """The hits of documents with their scores; documents that are not a passage are left out."""
    read = ((passage_of(settings, document), score) for document, score in rows)
    return [Hit(p, float(score)) for p, score in read if p and abs(score) <= LARGEST_SCORE]


def passage_of(settings: RetrieverSettings, document: Mapping[str, Any]) -> Passage | None:
    """The passage of a document; None if it has no id or no text."""
    doc_id, text = _text(document.get(settings.id)), _text(document.get(settings.text))
    if not doc_id or not text.strip():
        return None
    metadata = {n: document[n] for n in settings.metadata if document.get(n) is not None}
    return Passage(doc_id, _text(document.get(settings.title)), text, metadata)


def check_known_fields(
    settings: RetrieverSettings, names: Iterable[str], there: Collection[str]
) -> None:
    """Refuse settings that name fields that the collection lacks; an empty name is ignored.

    Raises:
        InputError: naming one of them.
    """
    for name in names:
        if name and name not in there:
            raise InputError(
                f"{settings}: it has no field {name!r}{nearest(name, there)}; it has "
                f"{', '.join(sorted(there)[:SHOWN])}"
            )


def check_dimension(settings: RetrieverSettings, there: int, ours: int) -> None:
    """Refuse vectors whose size differs from the encoder's.

    Raises:
        InputError: saying both.
    """
    if there != ours:
        raise InputError(
            f"{settings}: the vectors of {settings.vector!r} have {there} numbers, those of the "
            f"encoder {ours}; name the encoder that made them (--encoder), or leave `vector` out"
        )


def _text(value: object) -> str:
    """Text, or a whole number as its digits; a list of texts, as in some systems, is joined."""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, value)))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""
