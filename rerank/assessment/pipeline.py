"""From queries to scored candidates: the first stage of a source, then the cross-encoder."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

import numpy as np

from calibration.maps import LogisticMap
from rerank.assessment.ranking import prior_score
from rerank.assessment.sources.source import Selection, Source
from rerank.config import Config
from rerank.errors import InputError, RetrieverError
from rerank.inference.cross_encoder import Pair, Reranker, open_reranker
from rerank.inference.given import Given
from rerank.inference.model_files import ModelPair, find_model
from rerank.inference.remote.client import LimitError
from rerank.inference.score_cache import ScoreCache
from rerank.process import in_threads
from rerank.progress import in_chunks
from rerank.retrieval.dense import Encoder, Vectors, cosines
from rerank.retrieval.index import SearchableIndex
from rerank.types import INSTRUCTION, Bools, Candidates, Floats, Passage, Query, Scored

logger = logging.getLogger(__name__)

CHUNK = 64  # queries between two checkpoints
NO_MODELS = (
    "this model holds no index and no networks: it was calibrated on lists that come with their "
    "scores; calibrate a labelled set for this"
)

# options of models on this machine
ENCODER_OPTIONS = ("encoder_max_length", "encoder_windows", "encoder_precision")
RERANKER_OPTIONS = ("max_length", "reranker_windows", "instruction", "precision")

Observe = Callable[[str, float], None]  # called with a stage, and the seconds that it took


@dataclass(frozen=True, slots=True)
class Models:
    """The two models of a pipeline."""

    encoder: Encoder
    reranker: Reranker

    @classmethod
    def open(
        cls, config: Config, files: ModelPair | None = None, cache: ScoreCache | None = None
    ) -> Models:
        """The models that `config` names; `files` are theirs, if already looked up."""
        encoder, reranker = files or (
            find_model(config.encoder, "encoder"),
            find_model(config.reranker, "reranker"),
        )
        for model, names in ((encoder, ENCODER_OPTIONS), (reranker, RERANKER_OPTIONS)):
            for name in names:
                changed = getattr(config, name) != getattr(Config(), name)
                if isinstance(model, Given) and changed and name != INSTRUCTION:
                    raise InputError(
                        f"`{name}` has no effect on {model.name!r}, which {model.place}: leave it "
                        "out"
                    )
        return cls(
            Encoder.from_config(encoder, config),
            open_reranker(
                reranker,
                max_length=config.max_length,
                windows=config.reranker_windows,
                instruction=config.instruction,
                precision=config.precision,
                cache=cache,
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


class Pipeline:
    """Turns queries into scored candidates: the passages of its source, scored by its models.

    `models` is None if scores come with the queries. `observe` is called with the seconds of each
    call of a model: `encode`, `score`.
    """

    def __init__(self, source: Source, models: Models | None) -> None:
        self.source = source
        self.config = source.config
        self.models = models
        self.observe: Observe | None = None
        self.first_stage_on_error = False  # it answers where the reranker does not
        self.away = False  # the reranker did not answer before, and is not asked again
        if models is not None:
            source.refuse_mismatch(models.encoder)

    @property
    def index(self) -> SearchableIndex:
        """The index of the source; without passages if it searches none."""
        return self.source.index

    @property
    def encoder(self) -> Encoder:
        """The bi-encoder; raises InputError without models."""
        return self._models().encoder

    @property
    def reranker(self) -> Reranker:
        """The model that scores pairs; raises InputError without models."""
        return self._models().reranker

    @property
    def model_files(self) -> ModelPair:
        """What the two models were opened from; raises InputError without models."""
        return self.encoder.model, self.reranker.model

    def texts_of(self, query: Query) -> list[str]:
        """What the bi-encoder reads for a query: its text, and each window of its passages."""
        passages = self.source.embedded(query)
        if passages is None:
            return []
        windows = self.encoder.windows_of(passages) if passages else []
        return [query.text, *(text for of_passage in windows for text in of_passage)]

    def candidates(self, query: Query, vectors: Mapping[str, Vectors]) -> Candidates:
        """The candidates of a query, best fused first; `vectors` are those of `texts_of`."""
        passages = self.source.embedded(query)
        if passages is None:
            return self.source.candidates(query, None, np.zeros(0))
        vector = vectors[query.text]
        near = [
            cosines(np.stack([vectors[text] for text in of_passage]), vector).max()
            for of_passage in (self.encoder.windows_of(passages) if passages else ())
        ]
        return self.source.candidates(query, vector, np.array(near, dtype=np.float64))

    def best_of_stages(self, text: str, count: int) -> tuple[Passage, ...]:
        """The `count` best passages of each first stage, as `Source.best_of_stages`."""
        return self.source.best_of_stages(text, self.encode([text])[0], count)

    def run(
        self, queries: Sequence[Query], policy: ReadPolicy, *, label: str | None = None
    ) -> list[Scored]:
        """The scored candidates of each query, in their order; `label` names a progress bar."""
        return in_chunks(
            queries,
            lambda chunk: self.score_by(self.retrieve(chunk), policy),
            size=CHUNK,
            label=label,
            unit="query",
        )

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

    def retrieve_without(
        self, queries: Sequence[Query], removed: Sequence[Set[str]]
    ) -> list[Candidates]:
        """The candidates as if the passages `removed[i]` (ids) were not in the corpus."""
        vectors = self.encode([query.text for query in queries])
        return [
            self.source.search(query, vector, without | query.without)
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

        `prior_scores[i]` (n,) are those of the passages of `candidates[i]`; `Source.select` says
        which are scored. Logits that came with a query are used instead of our own scores.
        """

        def score_chunk(chunk: Sequence[tuple[Candidates, Floats]]) -> list[Scored]:
            selections = [self.source.select(c, p, cutoff) for c, p in chunk]
            if self.first_stage_on_error:
                threads = self.reranker.scorer.traits.threads
                return in_threads(self.score_alone, selections, threads)
            asked = [self.instruction_of(c.query) for c, _ in chunk]
            found: dict[int, Scored] = {}
            for instruction in dict.fromkeys(asked):
                rows = [row for row, own in enumerate(asked) if own == instruction]
                some = self._score_together([selections[row] for row in rows], instruction)
                found |= zip(rows, some, strict=True)
            return [found[row] for row in range(len(chunk))]

        both = list(zip(candidates, prior_scores, strict=True))
        return in_chunks(both, score_chunk, size=CHUNK, label=label, unit="query")

    def _score_together(self, selections: Sequence[Selection], instruction: str) -> list[Scored]:
        pairs = [s.pairs_to_score for s in selections]
        counts = list(map(len, pairs))
        scores = self.score_pairs(list(chain.from_iterable(pairs)), counts, instruction)
        by_query = (np.split(values, np.cumsum(counts)[:-1]) for values in scores)
        return [self.with_scores(*of_query) for of_query in zip(selections, *by_query, strict=True)]

    def score_alone(self, selection: Selection) -> Scored:
        """The candidates of one query with their scores, in one call of the cross-encoder.

        None has a score if it fails and `first_stage_on_error`; a used-up budget stays an error.
        """
        instruction = self.instruction_of(selection.candidates.query)
        try:
            if not self.away:
                return self._score_together([selection], instruction)[0]
        except RetrieverError as error:
            if not self.first_stage_on_error or isinstance(error, LimitError):
                raise
            logger.warning("the reranker failed, so the first stage answers: %s", error)
        none = np.zeros(0)
        prior = selection.prior_scores
        return Scored(selection.candidates, prior, none, none.astype(np.bool_), failed=True)

    def instruction_of(self, query: Query) -> str:
        """The instruction that the cross-encoder reads for a query; "" for its usual one."""
        return query.instruction if self.config.segment_by == INSTRUCTION and self.models else ""

    def with_scores(self, selection: Selection, logits: Floats, truncated: Bools) -> Scored:
        """The candidates with the scores of `selection.pairs_to_score`."""
        known = selection.candidates.query.logits
        if known is not None:
            logits = known[selection.candidates.first_stage.rows[: selection.count]]
            truncated = self.reranker.truncates(selection.pairs)
        return self.source.with_scores(selection, logits, truncated)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """The vectors of texts, at least one, as the index has them."""
        with self._timed("encode"):
            return self.encoder.encode(texts)

    def score_pairs(
        self, pairs: Sequence[Pair], lists: Sequence[int] = (), instruction: str = ""
    ) -> tuple[Floats, Bools]:
        """Logits of pairs, shape (n,), and whether each was truncated; `lists` as `Reranker`."""
        if not pairs:
            return np.zeros(0), np.zeros(0, dtype=np.bool_)
        with self._timed("score"):
            return self.reranker.with_instruction(instruction).score(pairs, lists)

    def _models(self) -> Models:
        if self.models is None:
            raise InputError(NO_MODELS)
        return self.models

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            if self.observe is not None:
                self.observe(stage, time.perf_counter() - start)
