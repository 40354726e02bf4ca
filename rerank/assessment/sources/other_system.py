"""Another search system finds the candidates; our cross-encoder is the last stage of the lists.

Its results are a list with scores (`rerank.types.ListKind`): a system gives no score of what a
search did not return, and no weight of a word. `SearchSystem` is the interface to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from rerank.assessment.metadata_features import Metadata
from rerank.assessment.model_folder import RETRIEVER, ModelFolder
from rerank.assessment.sources.lists import ScoredLists
from rerank.assessment.sources.source import PROBE, Selection, Source
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.filters import Where
from rerank.retrieval.dense import Vectors
from rerank.retrieval.fusion import reciprocal_rank_fusion, top
from rerank.retrieval.index import NoIndex
from rerank.rooms import offered
from rerank.types import Bools, Candidates, Floats, ListKind, Mode, Passage, Query, Scored

RERANKER = "reranker"  # the last stage
AT_ONCE = 200  # ids per request
KEYWORD, VECTOR = "keyword", "vector"  # the searches that a system may have


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that a search returned; a higher score is better."""

    passage: Passage
    score: float


class Collection(Protocol):
    """Which collection of which system, and its fields; its text names it in messages."""

    id: str  # the field of the ids
    vector: str  # the field of vector search; "": none

    @property
    def stages(self) -> tuple[str, ...]:
        """The searches to run, in this order."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, for the manifest of a model."""


class SearchSystem(Protocol):
    """A collection of another system, connected at the first call. Safe to call from many threads.

    Every call raises a RetrieverError if the system does not answer, and an InputError if it lacks
    the collection or a field.
    """

    @property
    def settings(self) -> Collection:
        """What it was opened with."""

    def keyword(self, query: str, count: int, where: Where | None = None) -> Sequence[Hit]:
        """The `count` best passages by the words of the query, best first, of those that fit
        `where`, whose keys are fields of the collection: filtered before ranking.
        """

    def vector(self, vector: Vectors, count: int, where: Where | None = None) -> Sequence[Hit]:
        """The `count` nearest passages to a unit vector (d,), nearest first; `where` likewise."""

    def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """At most as many passages as ids, of these ids; see `passages_by_id`."""


class OtherSystem(Source):
    """A search system with a collection of its own.

    A list that comes with a score of our reranker is used as it is; one without any is scored.
    """

    modes = ("search",)
    elsewhere = True
    cutoff = 0.0
    searches = True

    def __init__(self, system: SearchSystem, config: Config, metadata: Metadata = ()) -> None:
        super().__init__(NoIndex(config.words_language), config, metadata)
        self.system = system
        self.kind = ListKind((*system.settings.stages, RERANKER), texts=True)
        self._lists = ScoredLists(self.kind, config, metadata)

    @classmethod
    def open(cls, files: ModelFolder, config: Config, kind: ListKind, metadata: Metadata) -> Self:
        """The search system that a model folder names; its stages must match the maps."""
        try:
            system = offered("the search system of a model")(files.manifest.get(RETRIEVER))
            source = cls(system, config, metadata)
        except InputError as error:
            raise InputError(f"{files.path}: its {RETRIEVER}: {error}") from None
        if source.kind != kind:
            raise InputError(
                f"{files.path}: its {RETRIEVER} has the stages {', '.join(source.kind.stages)}, "
                f"its maps are of {', '.join(kind.stages)}; calibrate again"
            )
        return source

    @classmethod
    def mode_of(cls, query: Query) -> Mode:
        """Lists with the scores of its stages, and empty ones, are results of its search."""
        return "rerank" if query.mode == "rerank" and query.passages else "search"

    @classmethod
    def refusal(cls, kind: ListKind) -> str:
        """It takes no passages without scores."""
        return (
            "this model finds its passages in another search system: give it queries alone, or one "
            f"by one with passages that have the scores of {', '.join(kind.stages)}"
        )

    @classmethod
    def comparison_key(cls, manifest: Mapping[str, Any], kind: ListKind) -> object:
        """The system, its collection and its fields."""
        return RETRIEVER, manifest[RETRIEVER]

    def held(self, labelled: LabelledSet) -> tuple[LabelledSet, tuple[str, ...]]:
        """The set with the labelled passages as the system holds them, and notes."""
        return with_held_passages(labelled, self.system)

    def probes(self) -> list[Query]:
        """A search."""
        return [Query(PROBE, metadata=self.said)]

    def check(self, query: Query) -> None:
        """Refuse a list that came with other scores than those of the system and our reranker."""
        self._lists.check(query)

    def embedded(self, query: Query) -> Sequence[Passage] | None:
        """The query alone, if the system is searched."""
        return () if query.passages is None else None

    def candidates(self, query: Query, vector: Vectors | None, near: Floats) -> Candidates:
        """The list that came with the query and its scores, else what the system returns."""
        if vector is None:
            return self._lists.candidates(query)
        return self.search(query, vector, query.without)

    def search(self, query: Query, vector: Vectors, without: Set[str] = frozenset()) -> Candidates:
        """The candidates that the system returns, none of which the cross-encoder has scored."""
        c = self.config
        sizes = {"pool": c.pool, "count": c.candidates, "rrf_k": c.rrf_k}
        with_results = query_with_results(self.system, query, vector, **sizes, without=without)
        unscored = np.full(len(with_results.passages or ()), np.nan)
        scores = {**(with_results.scores or {}), RERANKER: unscored}
        return self._lists.candidates(replace(with_results, scores=scores))

    def best_of_stages(self, text: str, vector: Vectors, count: int) -> tuple[Passage, ...]:
        """The `count` best passages of each search of the system."""
        most = count * len(self.system.settings.stages)
        sizes: Any = {"pool": count, "count": most, "rrf_k": self.config.rrf_k}
        return query_with_results(self.system, Query(text), vector, **sizes).passages or ()

    def scores_are_known(self, query: Query) -> bool:
        """Whether a passage came with a score of our reranker."""
        last = (query.scores or {}).get(RERANKER)
        return last is not None and not np.isnan(last).all()

    def select(self, candidates: Candidates, prior_scores: Floats, cutoff: float) -> Selection:
        """The likeliest candidates, to be scored; all of a list whose scores are known."""
        known = self.scores_are_known(candidates.query)
        select = self._lists.select if known else super().select
        return select(candidates, prior_scores, cutoff)

    def with_scores(self, selection: Selection, logits: Floats, truncated: Bools) -> Scored:
        """The candidates as a list whose last stage is the cross-encoder."""
        if selection.known:
            return self._lists.with_scores(selection, logits, truncated)
        candidates, rows = selection.candidates, selection.candidates.first_stage.rows
        last = np.full(len(candidates.query.passages or ()), np.nan)
        last[rows[: len(logits)]] = logits
        query = candidates.query
        query = replace(query, scores={**(query.scores or {}), RERANKER: last})
        ranked = self._lists.candidates(query)
        place = {row: i for i, row in enumerate(ranked.first_stage.rows.tolist())}
        order = np.array([place[row] for row in rows.tolist()], dtype=np.int64)
        return Scored(ranked.take(order), selection.prior_scores, logits, truncated)


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
    given = (asked, query.where) if query.where else (asked,)
    found: dict[str, Sequence[Hit]] = {}
    for stage in system.settings.stages:
        vectors = stage == VECTOR
        hits = system.vector(vector, *given) if vectors else system.keyword(query.text, *given)
        once = {hit.passage.doc_id: hit for hit in reversed(hits)}  # the best hit of each id
        best = sorted(once.values(), key=lambda h: (-h.score, h.passage.doc_id))
        found[stage] = [h for h in best if h.passage.doc_id not in without][:pool]
    passages = {h.passage.doc_id: h.passage for hits in found.values() for h in hits}
    ids = sorted(passages)
    row = {doc_id: i for i, doc_id in enumerate(ids)}
    lists = {
        stage: np.array([row[h.passage.doc_id] for h in hits], dtype=np.int64)
        for stage, hits in found.items()
    }
    rows, fused = reciprocal_rank_fusion([*lists.values()], k=rrf_k)
    kept = rows[top(fused, count)]
    scores = {}
    for stage, hits in found.items():
        of_stage = np.full(len(ids), np.nan)
        of_stage[lists[stage]] = [hit.score for hit in hits]
        scores[stage] = of_stage[kept]
    kept_passages = tuple(passages[ids[i]] for i in kept)
    return replace(query, passages=kept_passages, scores=scores, where=None)


def passages_by_id(system: SearchSystem, ids: Sequence[str]) -> dict[str, Passage]:
    """The passages with these ids that the system holds, by id; a few hundred ids per call. Those
    of one id crowd out others, so missing ones are asked for until none comes.
    """
    found: dict[str, Passage] = {}
    missing = list(ids)
    while missing and (answer := system.passages(missing)):
        found |= {p.doc_id: p for p in answer}
        left = [i for i in missing if i not in found]
        missing = left if len(left) < len(missing) else []
    return found


def with_held_passages(
    labelled: LabelledSet, system: SearchSystem
) -> tuple[LabelledSet, tuple[str, ...]]:
    """The set whose corpus is the labelled passages as the collection holds them, and notes.

    A passage that the collection lacks has an empty text.
    """
    named = sorted({doc_id for grades in labelled.qrels.values() for doc_id in grades})
    held: dict[str, Passage] = {}
    for start in range(0, len(named), AT_ONCE):
        held |= passages_by_id(system, named[start : start + AT_ONCE])
    labelled = replace(labelled, corpus={**{i: Passage(i, "", "") for i in named}, **held})
    missing = [doc_id for doc_id in named if doc_id not in held]
    if not missing:
        return labelled, ()
    field = f"the field {system.settings.id!r} of {system.settings}"
    if not held:
        raise InputError(
            f"none of the {len(named)} passages that the labels name is in {field}; expected the "
            f"same ids there as in qrels/, such as {named[0]!r:.80}"
        )
    lost = sum(bool(grades) and not held.keys() & grades for grades in labelled.qrels.values())
    note = (
        f"{len(missing)} of the {len(named)} passages that the labels name are not in {field}, "
        f"such as {missing[0]!r:.80}"
    )
    if lost:
        queries = "1 query has" if lost == 1 else f"{lost} queries have"
        note += f"; {queries} no other right passage, and so no right answer can be found"
    return labelled, (note,)
