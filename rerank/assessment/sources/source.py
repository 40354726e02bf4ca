"""What every kind of model is asked: which modes it has, and which passages a query has there.

    query -> embedded -> candidates -> Candidates -> select -> Selection -> with_scores -> Scored

A source holds no networks; `rerank.assessment.pipeline` runs them between these steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rerank.assessment.metadata_features import QUERY_ENTITIES, Metadata, metadata_features
from rerank.assessment.passage_features import first_stage_features
from rerank.assessment.ranking import by_prior, count_to_score
from rerank.config import Config
from rerank.data.duplicates import distinct, highest_of_equal, ranks_without_equal, with_text
from rerank.data.labelled_set import LabelledSet
from rerank.data.words import Lexicon, passage_words, words
from rerank.errors import InputError
from rerank.inference.cross_encoder import Pair
from rerank.retrieval.bm25 import score_texts
from rerank.retrieval.corpus import Corpus
from rerank.retrieval.dense import Encoder, Vectors
from rerank.retrieval.fusion import ranks, reciprocal_rank_fusion, top
from rerank.retrieval.index import SearchableIndex
from rerank.types import (
    MODES,
    OWN_STAGES,
    Bools,
    Candidates,
    FirstStage,
    Floats,
    Ints,
    ListKind,
    Mode,
    Passage,
    Query,
    Scored,
)

PROBE = "does the model work"
PROBE_TEXTS = ("It works.", "No.")


@dataclass(frozen=True, slots=True)
class Selection:
    """Candidates, likeliest first; the first `count` are scored, or have `known` scores."""

    candidates: Candidates
    prior_scores: Floats  # (n,)
    count: int
    known: bool  # their scores came with the query

    @property
    def pairs(self) -> list[Pair]:
        """The query with the text of each of these passages."""
        query = self.candidates.query.text
        return [(query, passage.full_text) for passage in self.candidates.passages[: self.count]]

    @property
    def pairs_to_score(self) -> list[Pair]:
        """The same; none if the scores are known."""
        return [] if self.known else self.pairs


class Source(ABC):
    """Where a model's passages come from; `index` has the words' idf, and perhaps a corpus."""

    modes: ClassVar[tuple[Mode, ...]] = MODES  # of such a model; the first is the main one
    elsewhere: ClassVar[bool] = False  # another system finds the passages; no corpus is needed here
    scores_passages: ClassVar[bool] = True  # by the networks; False: the scores come with the lists
    cutoff: ClassVar[float | None] = None  # of what is scored; None: it is fitted
    takes_corpus: ClassVar[bool] = False  # another one can be put in place of its own, or of none
    searches = False  # whether it finds passages for a query
    kind: ListKind = OWN_STAGES
    folder: Path | None = None  # of its index
    corpus: Corpus | None = None  # of its index

    def __init__(self, index: SearchableIndex, config: Config, metadata: Metadata = ()) -> None:
        self.index = index
        self.config = config
        self.metadata = metadata

    @classmethod
    def mode_of(cls, query: Query) -> Mode:
        """The mode in which such a model answers a query; perhaps one that it does not have."""
        return query.mode

    @classmethod
    @abstractmethod
    def refusal(cls, kind: ListKind) -> str:
        """Why such a model does not have a mode, and what to do."""

    @classmethod
    def comparison_key(cls, manifest: Mapping[str, Any], kind: ListKind) -> object:
        """What a model ranks: equal for two models that can be compared."""
        return "corpus", manifest["corpus_digest"]

    def refuse_mismatch(self, encoder: Encoder) -> None:  # noqa: B027  # most take every encoder
        """Refuse an encoder that the index was not made with, saying what differs."""

    def check(self, query: Query) -> None:  # noqa: B027  # most take every query
        """Refuse a query that the source has no passages for."""

    def held(self, labelled: LabelledSet) -> tuple[LabelledSet, tuple[str, ...]]:
        """The set with the part of its corpus that the source holds, and notes on the rest."""
        return labelled, ()

    def probes(self) -> list[Query]:
        """A simple query for each mode in which a working model can answer one."""
        search = [Query(PROBE, metadata=self.said)] if self.searches else []
        return [*search, self.plain_query(PROBE, PROBE_TEXTS)]

    @property
    def said(self) -> dict[str, None]:
        """The metadata of a query that says that it has none of what the model uses."""
        return {f.key: None for f in self.metadata if f.key == QUERY_ENTITIES}

    def plain_query(self, asked: str, texts: Sequence[str]) -> Query:
        """A query with texts as passages, all of which say that they have no metadata."""
        said = dict.fromkeys(feature.key for feature in self.metadata)
        passages = tuple(Passage(str(i), "", text, said) for i, text in enumerate(texts))
        return Query(asked, metadata=self.said, passages=passages)

    def passages(self) -> Iterator[Passage]:
        """All passages of the index, in the order of their rows."""
        return map(self.index.passage, range(len(self.index)))

    def embedded(self, query: Query) -> Sequence[Passage] | None:
        """The passages to embed beside the query; None: not even the query is."""
        provided = query.passages or ()
        return [provided[i] for i in with_text(provided)]

    @abstractmethod
    def candidates(self, query: Query, vector: Vectors | None, near: Floats) -> Candidates:
        """The passages that came with a query, else those of `search`; best fused first.

        `vector` is that of the query, and `near` (n,) are the cosines of the passages `embedded`.
        """

    def search(self, query: Query, vector: Vectors, without: Set[str] = frozenset()) -> Candidates:
        """The candidates that are found with a query and its vector, best fused first.

        Passages in `without`, by id, are left out as if they were not in the corpus.
        """
        raise InputError(self.refusal(self.kind))

    def best_of_stages(self, text: str, vector: Vectors, count: int) -> tuple[Passage, ...]:
        """The `count` best passages of each first stage, best fused first."""
        raise InputError(self.refusal(self.kind))

    def scores_are_known(self, query: Query) -> bool:
        """Whether the scores of the query's passages came with it: none is scored here."""
        return query.logits is not None

    def select(self, candidates: Candidates, prior_scores: Floats, cutoff: float) -> Selection:
        """The candidates, likeliest first, and how many of them are scored.

        At most the first `rerank_depth`; beyond the second, only those whose prior score is at
        least `cutoff` times the first one's. A passage that equals another is not scored.
        """
        candidates, prior_scores, different = by_prior(candidates, prior_scores)
        count = count_to_score(prior_scores[: min(self.config.rerank_depth, different)], cutoff)
        return Selection(candidates, prior_scores, count, self.scores_are_known(candidates.query))

    def with_scores(self, selection: Selection, logits: Floats, truncated: Bools) -> Scored:
        """The candidates with the scores (m,) of those that are scored."""
        return Scored(selection.candidates, selection.prior_scores, logits, truncated)

    def of_caller(self, query: Query, near: Floats) -> Candidates:
        """The passages of the query that hold any text, ranked as the index ranks its own."""
        provided = query.passages or ()
        rows = with_text(provided)
        if query.logits is not None:
            _, group = distinct(provided)
            query = replace(query, logits=highest_of_equal(query.logits, group))
        made = self._rank_provided(query, [provided[i] for i in rows], near)
        stage = replace(made.first_stage, rows=rows[made.first_stage.rows])
        return replace(made, first_stage=stage)

    def as_from_caller(self, candidates: Candidates, count: int) -> Candidates:
        """The candidates as if the caller had provided the first `count` of them."""
        near = candidates.first_stage.dense[:count]
        query = replace(candidates.query, where=None, filtered_by=())
        return self._rank_provided(query, candidates.passages[:count], near)

    def _rank_provided(self, query: Query, passages: Sequence[Passage], near: Floats) -> Candidates:
        stage = rank_passages(query.text, passages, near, self.index, rrf_k=self.config.rrf_k)
        return self.ranked_candidates(query, tuple(passages[row] for row in stage.rows), stage)

    def ranked_candidates(
        self, query: Query, passages: Sequence[Passage], stage: FirstStage
    ) -> Candidates:
        """The passages that both first stages have ranked, with the features of the model."""
        first, group = distinct(passages)
        stage = replace(
            stage,
            bm25_rank=ranks_without_equal(stage.bm25_rank, first, group),
            dense_rank=ranks_without_equal(stage.dense_rank, first, group),
        )
        features = first_stage_features(
            query.text, [passages[i] for i in first], stage.take(first), self.index
        )[group]
        features = self.with_metadata(query, features, passages)
        return Candidates(query, tuple(passages), stage, features)

    def with_metadata(self, query: Query, features: Floats, passages: Sequence[Passage]) -> Floats:
        """The features (n, d) of the passages, and those of their metadata and the query's."""
        if not self.metadata:
            return features
        own = metadata_features(self.metadata, passages, query, self.index.language)
        return np.hstack([features, own])


def rank_passages(
    query: str, passages: Sequence[Passage], cosines: Floats, lexicon: Lexicon, *, rrf_k: int
) -> FirstStage:
    """What the stages say of the passages, best fused first; `rows` are positions in `passages`.

    `cosines` (n,) are those of query and passage. Ties are broken by the text, so the order of the
    input does not matter. Equal passages are ranked as one; each of them has its numbers.
    """
    first, group = distinct(passages)
    different = [passages[i] for i in first]
    asked = words(query, language=lexicon.language)
    different_words = frozenset(asked)
    found = [passage_words(p, lexicon.language) for p in different]
    counts: dict[str, Ints] = {}
    for place, passage in enumerate(found):
        for word, count in passage.counts(different_words).items():
            counts.setdefault(word, np.zeros(len(found), dtype=np.int64))[place] = count
    lexical = score_texts(asked, counts, np.array([f.length for f in found]), lexicon.idf)
    stage = _rank([p.full_text for p in different], lexical, cosines[first], rrf_k=rrf_k)
    members = [np.flatnonzero(group == g) for g in stage.rows]
    ranked = stage.take(np.repeat(np.arange(len(members)), [len(rows) for rows in members]))
    return replace(ranked, rows=np.concatenate([stage.rows[:0], *members]))


def _rank(texts: Sequence[str], lexical: Floats, cosines: Floats, *, rrf_k: int) -> FirstStage:
    """What the stages say of texts that all differ, given their scores (n,) by both."""
    n = len(texts)
    by_text = np.array(sorted(range(n), key=lambda i: texts[i]), dtype=np.int64)
    matching = by_text[lexical[by_text] > 0]
    lists = [matching[top(lexical[matching], n)], by_text[top(cosines[by_text], n)]]
    rows, scores = reciprocal_rank_fusion(lists, k=rrf_k)
    place = np.argsort(by_text)  # of each passage in the order of their texts
    best = np.lexsort((place[rows], -scores))
    rows = rows[best]
    bm25_rank, dense_rank = (ranks(found, rows, missing=n + 1) for found in lists)
    return FirstStage(rows, lexical[rows], cosines[rows], bm25_rank, dense_rank, scores[best])
