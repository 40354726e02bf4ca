"""From queries to scored candidates: the first stage, then the cross-encoder.

Training, batch rescoring and search all use it. It knows nothing of labels: the map that tells
which candidates are worth scoring is passed in.

    query -> candidates -> Candidates -> select -> Selection -> with_scores -> Scored

`IndexPipeline` searches our own index, `RetrieverPipeline` another search system, and
`ListPipeline` takes lists that come with their scores.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from calibration.maps import LogisticMap
from rerank.assessment.metadata_features import MetadataFeature, metadata_features
from rerank.assessment.passage_features import first_stage_features
from rerank.assessment.ranking import by_prior, count_to_score, prior_score
from rerank.config import Config
from rerank.data.equal_passages import distinct, ranks_without_equal
from rerank.errors import InputError
from rerank.inference.cross_encoder import CrossEncoder, Pair
from rerank.inference.model_files import ModelPair, resolve
from rerank.inference.score_cache import ScoreCache
from rerank.progress import in_chunks
from rerank.retrieval.dense import Encoder, Vectors
from rerank.retrieval.excerpts import excerpts
from rerank.retrieval.searchable_index import SearchableIndex
from rerank.types import Bools, Candidates, FirstStage, Floats, Passage, Query, Scored

CHUNK = 64  # queries between two checkpoints
NO_MODELS = (
    "this model holds no index and no networks: it was calibrated on lists that come with their "
    "scores; calibrate a labelled set for this"
)

Observe = Callable[[str, float], None]  # called with a stage, and the seconds that it took


@dataclass(frozen=True, slots=True)
class Models:
    """The two models of a pipeline."""

    encoder: Encoder
    reranker: CrossEncoder

    @classmethod
    def open(
        cls,
        config: Config,
        files: ModelPair | None = None,
        cache: ScoreCache | None = None,
    ) -> Models:
        """The models that `config` names; `files` are theirs, if already looked up."""
        encoder, reranker = files or (resolve(config.encoder), resolve(config.reranker))
        return cls(
            Encoder.from_config(encoder, config),
            CrossEncoder(
                reranker, max_length=config.max_length, precision=config.precision, cache=cache
            ),
        )


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """Which candidates the cross-encoder scores: a fitted choice, by the first stage alone.

    They are scored in the order of `prior`, a passage map, as long as their prior score is at least
    `cutoff` (in [0, 1]) times the best one's.
    """

    prior: LogisticMap
    cutoff: float = 0.0


@dataclass(frozen=True, slots=True)
class Selection:
    """Candidates, likeliest first; the first `count` are scored, or have known scores.

    `texts` is what the cross-encoder reads of these passages, `partly` (count,) whether a text is
    only a part of its passage.
    """

    candidates: Candidates
    prior_scores: Floats  # (n,)
    count: int
    texts: Sequence[str]
    partly: Bools
    known: bool  # their scores came with the query

    @property
    def pairs(self) -> list[Pair]:
        """The query with each text."""
        return [(self.candidates.query.text, text) for text in self.texts]

    @property
    def pairs_to_score(self) -> list[Pair]:
        """The same; none if the scores are known."""
        return [] if self.known else self.pairs


class Pipeline(ABC):
    """Turns queries into scored candidates; a subclass says where the candidates come from.

    `index` has the words' idf and, if there is a corpus, its passages. `models` is None if
    scores come with the queries. `metadata` are additional features of the passages' metadata.
    `observe`, if set, is called with the seconds of each call of a model: `encode`, `score`.
    `remote_search`: whether another system finds the candidates; any thread may wait for it.
    """

    remote_search = False

    def __init__(
        self,
        index: SearchableIndex,
        config: Config,
        models: Models | None,
        metadata: tuple[MetadataFeature, ...] = (),
    ) -> None:
        self.index = index
        self.config = config
        self.models = models
        self.metadata = metadata
        self.observe: Observe | None = None

    @property
    def encoder(self) -> Encoder:
        """The bi-encoder.

        Raises:
            InputError: the pipeline has no models.
        """
        return self._models().encoder

    @property
    def reranker(self) -> CrossEncoder:
        """The cross-encoder.

        Raises:
            InputError: the pipeline has no models.
        """
        return self._models().reranker

    @property
    def model_files(self) -> ModelPair:
        """The files of the two models.

        Raises:
            InputError: the pipeline has no models.
        """
        return self.encoder.files, self.reranker.files

    def check(self, query: Query) -> None:  # noqa: B027  # most pipelines take every query
        """Refuse a query whose passages came with scores that the pipeline cannot use.

        Raises:
            InputError: the message says what came, and what is expected.
        """

    @abstractmethod
    def texts_of(self, query: Query) -> list[str]:
        """The texts that the bi-encoder reads for a query and the passages it brings."""

    @abstractmethod
    def candidates(self, query: Query, vectors: Mapping[str, Vectors]) -> Candidates:
        """The passages that came with a query, else those of `search`; best fused first.

        `vectors` are those of `texts_of`, by text.
        """

    def search(self, query: Query, vector: Vectors, without: Set[str] = frozenset()) -> Candidates:
        """The candidates that are found with a query and its vector, best fused first.

        Passages in `without`, by id, are not among them, as if they were not in the corpus; only
        the word statistics are those of the whole corpus.

        Raises:
            InputError: there is nothing to search.
        """
        raise InputError(NO_MODELS)

    def best_of_stages(self, text: str, count: int) -> tuple[Passage, ...]:
        """The `count` best passages of each first stage, each passage once, best fused first.

        Raises:
            InputError: there is nothing to search.
        """
        raise InputError(NO_MODELS)

    def run(
        self, queries: Sequence[Query], policy: ReadPolicy, *, label: str | None = None
    ) -> list[Scored]:
        """The scored candidates of each query, in their order; `label` names a progress bar."""

        def run_chunk(chunk: Sequence[Query]) -> list[Scored]:
            return self.score_by(self.retrieve(chunk), policy)

        return in_chunks(queries, run_chunk, size=CHUNK, label=label, unit="query")

    def score_by(
        self, candidates: Sequence[Candidates], policy: ReadPolicy, *, label: str | None = None
    ) -> list[Scored]:
        """The candidates, scored as the policy says: the likeliest ones, down to its cutoff."""
        prior_scores = [prior_score(c, policy.prior) for c in candidates]
        return self.score(candidates, prior_scores, cutoff=policy.cutoff, label=label)

    def retrieve(self, queries: Sequence[Query], *, label: str | None = None) -> list[Candidates]:
        """The candidates of each query, in their order; `label` names a progress bar."""

        def retrieve_chunk(chunk: Sequence[Query]) -> list[Candidates]:
            texts = list(dict.fromkeys(text for query in chunk for text in self.texts_of(query)))
            vectors = dict(zip(texts, self.encode(texts), strict=True)) if texts else {}
            return [self.candidates(query, vectors) for query in chunk]

        return in_chunks(queries, retrieve_chunk, size=CHUNK, label=label, unit="query")

    def scores_are_known(self, query: Query) -> bool:
        """Whether the scores of the query's passages came with it: none is scored here."""
        return query.logits is not None

    def retrieve_without(
        self, queries: Sequence[Query], removed: Sequence[Set[str]]
    ) -> list[Candidates]:
        """The candidates of each query by `search`.

        They are found as if the passages `removed[i]` (ids) were not in the corpus.
        """
        vectors = self.encode([query.text for query in queries])
        return [
            self.search(query, vector, without | query.without)
            for query, vector, without in zip(queries, vectors, removed, strict=True)
        ]

    def score(
        self,
        candidates: Sequence[Candidates],
        prior_scores: Sequence[Floats],
        *,
        cutoff: float = 0.0,
        label: str | None = None,
    ) -> list[Scored]:
        """The candidates, likeliest first, with the cross-encoder's scores of the first ones.

        `prior_scores[i]` (n,) are those of the passages of `candidates[i]`. At most the first
        `rerank_depth` are scored; beyond the second, only those whose prior score is at least
        `cutoff` times the first one's. A passage that equals another is not scored. Logits that
        came with a query are used instead of our own scores.
        """

        def score_chunk(chunk: Sequence[tuple[Candidates, Floats]]) -> list[Scored]:
            selections = [self.select(c, p, cutoff) for c, p in chunk]
            logits, truncated = self.score_pairs([p for s in selections for p in s.pairs_to_score])
            ends = np.cumsum([len(s.pairs_to_score) for s in selections])[:-1]
            by_query = zip(
                selections, np.split(logits, ends), np.split(truncated, ends), strict=True
            )
            return [self.with_scores(*scores) for scores in by_query]

        pairs = list(zip(candidates, prior_scores, strict=True))
        return in_chunks(pairs, score_chunk, size=CHUNK, label=label, unit="query")

    def select(self, candidates: Candidates, prior_scores: Floats, cutoff: float) -> Selection:
        """The candidates, likeliest first, and which of them `score` would score."""
        candidates, prior_scores, different = by_prior(candidates, prior_scores)
        count = count_to_score(prior_scores[: min(self.config.rerank_depth, different)], cutoff)
        texts = self._texts_to_read(candidates.query.text, candidates.passages[:count])
        chosen = zip(candidates.passages[:count], texts, strict=True)
        partly = np.array([text != passage.full_text for passage, text in chosen], dtype=np.bool_)
        known = self.scores_are_known(candidates.query)
        return Selection(candidates, prior_scores, count, texts, partly, known)

    def with_scores(self, selection: Selection, logits: Floats, truncated: Bools) -> Scored:
        """The candidates with the scores of `selection.pairs_to_score`."""
        candidates = selection.candidates
        known = candidates.query.logits
        if known is not None:
            logits = known[candidates.first_stage.rows[: selection.count]]
            truncated = self.reranker.truncates(selection.pairs)
        return Scored(candidates, selection.prior_scores, logits, truncated | selection.partly)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """The vectors of texts, at least one, as the index has them."""
        with self._timed("encode"):
            return self.encoder.encode(texts)

    def score_pairs(self, pairs: Sequence[Pair]) -> tuple[Floats, Bools]:
        """Logits of pairs, shape (n,), and whether each pair was truncated."""
        if not pairs:
            return np.zeros(0), np.zeros(0, dtype=np.bool_)
        with self._timed("score"):
            return self.reranker.score(pairs)

    def _texts_to_read(self, query: str, passages: Sequence[Passage]) -> list[str]:
        """What the cross-encoder reads of each passage: the excerpt of one that is too long."""
        if self.config.long_passages == "beginning" or not passages:
            return [p.full_text for p in passages]
        return excerpts(query, passages, self.reranker.tokenizer(), self.index)

    def ranked_candidates(
        self, query: Query, passages: Sequence[Passage], stage: FirstStage
    ) -> Candidates:
        """The passages that both first stages have ranked, with the features of the model.

        Equal passages have the same ranks and features; only those of metadata may differ.
        """
        first, group = distinct(passages)
        stage = replace(
            stage,
            bm25_rank=ranks_without_equal(stage.bm25_rank, first, group),
            dense_rank=ranks_without_equal(stage.dense_rank, first, group),
        )
        features = first_stage_features(
            query.text, [passages[i] for i in first], stage.take(first), self.index
        )[group]
        return Candidates(query, tuple(passages), stage, self.with_metadata(features, passages))

    def with_metadata(self, features: Floats, passages: Sequence[Passage]) -> Floats:
        """The features (n, d) of the passages, and those of their metadata."""
        if not self.metadata:
            return features
        return np.hstack([features, metadata_features(self.metadata, passages)])

    def _models(self) -> Models:
        if self.models is None:
            raise InputError(NO_MODELS)
        return self.models

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Tell the observer how long the block takes."""
        start = time.perf_counter()
        try:
            yield
        finally:
            if self.observe is not None:
                self.observe(stage, time.perf_counter() - start)
