"""Another search system finds the candidates; our cross-encoder is the last stage of the lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from rerank.assessment.metadata_features import Metadata
from rerank.assessment.model_folder import RETRIEVER, ModelFolder
from rerank.assessment.sources.lists import ScoredLists
from rerank.assessment.sources.source import PROBE, Selection, Source
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.retrieval.dense import Vectors
from rerank.retrieval.index import NoIndex
from rerank.retrieval.system import SearchSystem, passages_by_id, query_with_results
from rerank.rooms import offered
from rerank.types import Bools, Candidates, Floats, ListKind, Mode, Passage, Query, Scored

RERANKER = "reranker"  # the last stage
AT_ONCE = 200  # ids per request


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
    def open(
        cls, files: ModelFolder, config: Config, kind: ListKind, metadata: Metadata
    ) -> OtherSystem:
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
