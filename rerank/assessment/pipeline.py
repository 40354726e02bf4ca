"""From queries to scored candidates: the first stage, then the cross-encoder.

Training, batch rescoring and search all use it. It knows nothing of labels: the map that tells
which candidates are worth scoring is passed in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from calibration.maps import CalibrationMap, LogisticMap
from rerank.assessment.metadata_features import MetadataFeature, metadata_features
from rerank.assessment.passage_features import first_stage_features, passage_features
from rerank.config import Config
from rerank.inference.cross_encoder import CrossEncoder, Pair
from rerank.inference.model_files import ModelFiles, resolve
from rerank.inference.score_cache import ScoreCache
from rerank.progress import progress
from rerank.retrieval.caller_passages import rank_passages
from rerank.retrieval.dense import Encoder, Vectors, cosines
from rerank.retrieval.fusion import fused_without
from rerank.retrieval.retriever import Retriever
from rerank.types import Bools, Candidates, FirstStage, Floats, Passage, Query, Ranking, Scored

CHUNK = 64  # queries between two checkpoints
LEAST_SCORED = 2  # passages, however unlikely the second: the lead of the first is a feature

Item = TypeVar("Item")
Made = TypeVar("Made")
Observe = Callable[[str, float], None]  # called with a stage, and the seconds that it took


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
    """Candidates, likeliest first; the first `count` are to be scored.

    `known`: their scores came with the query.
    """

    candidates: Candidates
    prior: Floats
    count: int
    known: bool

    @property
    def pairs(self) -> list[Pair]:
        """The query with each of the first passages."""
        c = self.candidates
        return [(c.query.text, p.full_text) for p in c.passages[: self.count]]

    @property
    def pairs_to_score(self) -> list[Pair]:
        """The same; none if the scores are known."""
        return [] if self.known else self.pairs


class Pipeline:
    """A retriever with the two models, which turns queries into scored candidates.

    `models` are the files of the encoder and of the reranker, if the caller has resolved them
    already. `observe`, if set, is called with the seconds of each call of a model: `encode`,
    `score`. `metadata` are additional features of the passages' metadata. `has_models`: whether it
    has the two models. `remote_search`: whether another system finds the candidates; any thread
    may wait for it.
    """

    has_models = True
    remote_search = False

    def __init__(
        self,
        index: Retriever,
        config: Config,
        *,
        cache: ScoreCache | None = None,
        models: tuple[ModelFiles, ModelFiles] | None = None,
        metadata: tuple[MetadataFeature, ...] = (),
    ) -> None:
        self.index = index
        self.config = config
        self.metadata = metadata
        encoder, reranker = models or (resolve(config.encoder), resolve(config.reranker))
        self.encoder = Encoder(encoder, max_length=config.encoder_max_length)
        self.reranker = CrossEncoder(
            reranker,
            max_length=config.max_length,
            precision=config.precision,
            cache=cache,
        )
        index.refuse_mismatch(config, self.encoder)
        self.observe: Observe | None = None

    def run(
        self, queries: Sequence[Query], policy: ReadPolicy, *, label: str | None = None
    ) -> list[Scored]:
        """The scored candidates of each query, in their order; `label` names a progress bar."""

        def chunk(part: Sequence[Query]) -> list[Scored]:
            found = self.retrieve(part)
            prior = [prior_score(c, policy.prior) for c in found]
            return self.score(found, prior, cutoff=policy.cutoff)

        return _in_chunks(queries, chunk, label)

    def retrieve(self, queries: Sequence[Query], *, label: str | None = None) -> list[Candidates]:
        """The candidates of each query: of the index, or the passages that came with the query."""
        return _in_chunks(queries, self._retrieve, label)

    def retrieve_without(
        self, queries: Sequence[Query], gone: Sequence[Set[str]]
    ) -> list[Candidates]:
        """The candidates that the index would give if these passages, by id, were not in it.

        Only the word statistics are those of the whole index.
        """
        c, index = self.config, self.index
        vectors = self.encode([query.text for query in queries])
        found = []
        for query, vector, ids in zip(queries, vectors, gone, strict=True):
            pool = c.pool + len(ids)
            stage = index.search(query.text, vector, pool=pool, count=2 * pool, rrf_k=c.rrf_k)
            away = np.array(
                [index.passage(row).doc_id in ids for row in stage.rows], dtype=np.bool_
            )
            stage = fused_without(stage, away, pool=c.pool, count=c.candidates, rrf_k=c.rrf_k)
            passages = tuple(index.passage(row) for row in stage.rows)
            found.append(self._candidates(query, passages, stage))
        return found

    def best_of_stages(self, text: str, count: int) -> tuple[Passage, ...]:
        """The `count` best passages of each first stage, each passage once, best fused first."""
        (vector,), index = self.encode([text]), self.index
        stage = index.search(text, vector, pool=count, count=2 * count, rrf_k=self.config.rrf_k)
        return tuple(index.passage(row) for row in stage.rows)

    def as_from_caller(self, candidates: Candidates, count: int) -> Candidates:
        """The candidates as if the caller had provided the first `count` of them."""
        return self._from_caller(
            candidates.query,
            candidates.passages[:count],
            candidates.first_stage.dense[:count],
        )

    def score(
        self,
        candidates: Sequence[Candidates],
        prior: Sequence[Floats],
        *,
        cutoff: float = 0.0,
        label: str | None = None,
    ) -> list[Scored]:
        """The candidates, likeliest first, with the cross-encoder's scores of the first ones.

        `prior[i]` (n,) is the first-stage score of the passages of `candidates[i]`. At most the
        first `rerank_depth` are scored; beyond the second, only those whose prior score is at least
        `cutoff` times the first one's. Logits that came with a query are used instead of our own
        scores.
        """

        def chunk(part: Sequence[tuple[Candidates, Floats]]) -> list[Scored]:
            return self._score([self.select(c, p, cutoff) for c, p in part])

        return _in_chunks(list(zip(candidates, prior, strict=True)), chunk, label)

    def _retrieve(self, queries: Sequence[Query]) -> list[Candidates]:
        texts = list(dict.fromkeys(text for query in queries for text in texts_of(query)))
        vectors = dict(zip(texts, self.encode(texts), strict=True))
        return [self.candidates(query, vectors) for query in queries]

    def encode(self, texts: Sequence[str]) -> Vectors:
        """The vectors of texts, at least one, as the index has them."""
        with self._timed("encode"):
            return self.encoder.encode(texts)

    def candidates(self, query: Query, vectors: Mapping[str, Vectors]) -> Candidates:
        """The candidates of a query, given the vectors of its `texts_of`."""
        vector = vectors[query.text]
        if query.passages is None:
            return self._searched(query, vector)
        provided = [vectors[p.full_text] for p in query.passages]
        near = cosines(np.stack(provided), vector) if provided else np.zeros(0)
        return self._from_caller(query, query.passages, near)

    def _searched(self, query: Query, vector: Vectors) -> Candidates:
        c, index = self.config, self.index
        stage = index.search(query.text, vector, pool=c.pool, count=c.candidates, rrf_k=c.rrf_k)
        return self._candidates(query, tuple(index.passage(row) for row in stage.rows), stage)

    def _from_caller(self, query: Query, passages: Sequence[Passage], near: Floats) -> Candidates:
        index = self.index
        stage = rank_passages(
            query.text,
            passages,
            near,
            weight=index.weight,
            language=index.language,
            rrf_k=self.config.rrf_k,
        )
        return self._candidates(query, tuple(passages[row] for row in stage.rows), stage)

    def _candidates(
        self, query: Query, passages: tuple[Passage, ...], stage: FirstStage
    ) -> Candidates:
        index = self.index
        features = first_stage_features(
            query.text, passages, stage, weight=index.weight, language=index.language
        )
        return Candidates(query, passages, stage, self._with_metadata(features, passages))

    def _with_metadata(self, features: Floats, passages: Sequence[Passage]) -> Floats:
        """The features (n, d) of the passages, and those of their metadata."""
        if not self.metadata:
            return features
        return np.hstack([features, metadata_features(self.metadata, passages)])

    def _score(self, selection: Sequence[Selection]) -> list[Scored]:
        pairs = [pair for c in selection for pair in c.pairs_to_score]
        logits, truncated = self.score_pairs(pairs)
        start, found = 0, []
        for c in selection:
            rows = slice(start, start + len(c.pairs_to_score))
            found.append(self.with_scores(c, logits[rows], truncated[rows]))
            start = rows.stop
        return found

    def score_pairs(self, pairs: Sequence[Pair]) -> tuple[Floats, Bools]:
        """Logits of pairs, shape (n,), and whether each pair was truncated."""
        with self._timed("score"):
            return self.reranker.score(pairs)

    def select(self, candidates: Candidates, prior: Floats, cutoff: float) -> Selection:
        """The candidates, likeliest first, and which of them `score` would score."""
        candidates, prior = _by_prior(candidates, prior)
        count = _count(prior[: self.config.rerank_depth], cutoff)
        return Selection(candidates, prior, count, candidates.query.logits is not None)

    def with_scores(self, selection: Selection, logits: Floats, truncated: Bools) -> Scored:
        """The candidates with the scores of `selection.pairs_to_score`."""
        candidates = selection.candidates
        known = candidates.query.logits
        if known is not None:
            logits = known[candidates.first_stage.rows[: selection.count]]
            truncated = self.reranker.truncates(selection.pairs)
        return Scored(candidates, selection.prior, logits, truncated)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Tell the observer how long the block takes."""
        start = time.perf_counter()
        try:
            yield
        finally:
            if self.observe is not None:
                self.observe(stage, time.perf_counter() - start)


def texts_of(query: Query) -> list[str]:
    """The texts of a query that the bi-encoder reads: itself, then the passages that it brings.

    Empty, if scores come with these.
    """
    if query.scores is not None:
        return []
    return [query.text, *(p.full_text for p in query.passages or ())]


def unscored_features(candidates: Candidates) -> Floats:
    """The passage features (n, d) before the cross-encoder; its own are the same in every row."""
    n = len(candidates)
    return passage_features(candidates.features, np.zeros(n), np.zeros(n, dtype=np.bool_))


def scored_features(scored: Scored) -> Floats:
    """The passage features (n, d) with the cross-encoder's scores."""
    return passage_features(scored.candidates.features, *_filled(scored))


def prior_score(candidates: Candidates, prior: CalibrationMap) -> Floats:
    """The score of the candidates (n,) in [0, 1] by a map fitted on `unscored_features`."""
    return prior.predict(unscored_features(candidates)) if len(candidates) else np.zeros(0)


def limit_scored(scored: Scored, cutoff: float) -> Scored:
    """What `Pipeline.score` would give with this cutoff, for candidates scored with a lower one."""
    count = _count(scored.prior[: len(scored.logits)], cutoff)
    return Scored(scored.candidates, scored.prior, scored.logits[:count], scored.truncated[:count])


def rank(scored: Scored, score: CalibrationMap, *, rank_by: str = "relevance") -> Ranking:
    """The candidates with the scores of the map `score`, in the order of `rank_by`.

    `relevance` is the order by score, Robertson's probability ranking principle (1977); `logit` is
    the raw cross-encoder order, `fused` the first stage's. Ties keep the fused order.
    """
    n = len(scored)
    logits, mask = _filled(scored)
    truncated = np.zeros(n, dtype=np.bool_)
    truncated[mask] = scored.truncated
    features = passage_features(scored.candidates.features, logits, mask)
    scores = score.predict(features) if n else np.zeros(0)
    fused = scored.candidates.first_stage.fused
    keys = {
        "relevance": -scores,
        "logit": -np.where(mask, logits, -np.inf),
        "fused": -fused,
    }
    by_fused = np.argsort(-fused, kind="stable")
    order = by_fused[np.argsort(keys[rank_by][by_fused], kind="stable")]
    return Ranking(scored.candidates, logits, mask, truncated, features, scores).take(order)


def _filled(scored: Scored) -> tuple[Floats, Bools]:
    """The logits (n,), the lowest one for missing ones (0 without any), and which are given."""
    n, m = len(scored), len(scored.logits)
    logits = np.full(n, scored.logits.min() if m else 0.0)
    logits[:m] = scored.logits
    return logits, np.arange(n) < m


def _by_prior(candidates: Candidates, prior: Floats) -> tuple[Candidates, Floats]:
    """The candidates and their prior score, likeliest first; ties keep the fused order."""
    by_fused = np.argsort(-candidates.first_stage.fused, kind="stable")
    order = by_fused[np.argsort(-prior[by_fused], kind="stable")]
    return candidates.take(order), prior[order]


def _count(prior: Floats, cutoff: float) -> int:
    """How many of the passages, likeliest first, are to be scored."""
    likely = int((prior >= cutoff * prior.max(initial=0.0)).sum())
    return min(max(likely, LEAST_SCORED), len(prior))


def _in_chunks(
    items: Sequence[Item], step: Callable[[Sequence[Item]], list[Made]], label: str | None
) -> list[Made]:
    """`step` over all items, a chunk at a time; with `label`, a progress bar of that name."""
    found: list[Made] = []
    with progress(len(items), label, unit="query") as bar:
        for start in range(0, len(items), CHUNK):
            part = items[start : start + CHUNK]
            found += step(part)
            bar.update(len(part))
    return found
