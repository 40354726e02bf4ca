"""Query to ranking: candidates, cross-encoder, evidence; and the order that people see.

Training, batch rescoring and search all go through here. It knows nothing of labels: the maps that
turn evidence into relevance, before the cross-encoder has read and after, are handed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibration.maps import CalibrationMap
from rerank.config import Config
from rerank.evidence import evidence_matrix, view
from rerank.models import resolve
from rerank.progress import progress
from rerank.reranking.cross_encoder import CrossEncoder
from rerank.reranking.score_cache import ScoreCache
from rerank.retrieval.dense import Encoder
from rerank.retrieval.index import Index
from rerank.types import Candidates, Floats, InputError, Passage, Query, Ranking

CHUNK = 64  # queries between two checkpoints


class Pipeline:
    """An open index with its two models: what turns queries into rankings."""

    def __init__(self, index: Index, config: Config, *, cache: ScoreCache | None = None) -> None:
        self.index = index
        self.config = config
        self.encoder = Encoder(resolve(config.encoder), max_length=config.encoder_max_length)
        self.reranker = CrossEncoder(
            resolve(config.reranker), max_length=config.max_length, cache=cache
        )
        made_by = index.manifest["encoder"]
        expected = (self.encoder.files.fingerprint, self.encoder.max_length)
        if (made_by["fingerprint"], made_by["max_length"]) != expected:
            raise InputError(
                f"{index.folder}: the index was made by {made_by['name']} at "
                f"{made_by['max_length']} tokens (fingerprint {made_by['fingerprint'][:12]}), the "
                f"configuration says {self.encoder.files.name} at {self.encoder.max_length} tokens "
                f"(fingerprint {expected[0][:12]}); build the index again"
            )

    def rank(
        self,
        queries: Sequence[Query],
        prior: CalibrationMap | None = None,
        *,
        label: str | None = None,
    ) -> list[Ranking]:
        """Rankings in the order of `queries`, their passages in the order in which they were read.

        That is the order of `prior`, a relevance map of the evidence before any reading; without
        one, the fused order. Relevance is 0. With `label`, a progress bar of that name.
        """
        found: list[Ranking] = []
        with progress(len(queries), label, unit="query") as bar:
            for start in range(0, len(queries), CHUNK):
                part = self.find(queries[start : start + CHUNK])
                found += self.read([order(r, prior) for r in part] if prior else part)
                bar.update(len(part))
        return found

    def find(self, queries: Sequence[Query], *, label: str | None = None) -> list[Ranking]:
        """The candidates of each query in fused order, none read: every logit and relevance 0."""
        found: list[Ranking] = []
        with progress(len(queries), label, unit="query") as bar:
            for start in range(0, len(queries), CHUNK):
                part = queries[start : start + CHUNK]
                vectors = self.encoder.encode([q.text for q in part])
                found += [self._find(q, v) for q, v in zip(part, vectors, strict=True)]
                bar.update(len(part))
        return found

    def read(self, rankings: Sequence[Ranking], *, label: str | None = None) -> list[Ranking]:
        """The rankings, in their own order, with the first `rerank_depth` passages of each read."""
        found: list[Ranking] = []
        with progress(len(rankings), label, unit="query") as bar:
            for start in range(0, len(rankings), CHUNK):
                part = rankings[start : start + CHUNK]
                found += self._read_chunk(part)
                bar.update(len(part))
        return found

    def _find(self, query: Query, vector: NDArray[np.float32]) -> Ranking:
        c = self.config
        found = self.index.candidates(query, vector, pool=c.pool, count=c.candidates, rrf_k=c.rrf_k)
        passages = tuple(self.index.passage(row) for row in found.rows)
        return self._ranking(found, passages, np.empty(0), np.empty(0, dtype=np.bool_))

    def _read_chunk(self, rankings: Sequence[Ranking]) -> list[Ranking]:
        first = [r.passages[: self.config.rerank_depth] for r in rankings]
        pairs = [
            (r.query.text, passage.full_text)
            for r, passages in zip(rankings, first, strict=True)
            for passage in passages
        ]
        logits, truncated = self.reranker.score(pairs)
        ends = np.cumsum([len(passages) for passages in first])[:-1]
        return [
            self._ranking(r.candidates, r.passages, part, cut)
            for r, part, cut in zip(
                rankings, np.split(logits, ends), np.split(truncated, ends), strict=True
            )
        ]

    def _ranking(
        self,
        found: Candidates,
        passages: tuple[Passage, ...],
        logits: Floats,
        cut: NDArray[np.bool_],
    ) -> Ranking:
        """Put the scores of the first passages beside the candidates.

        What was not read gets the lowest logit read, and 0 where nothing was.
        """
        read = np.arange(len(found)) < len(logits)
        filled = np.full(len(found), logits.min() if len(logits) else 0.0)
        filled[: len(logits)] = logits
        truncated = np.zeros(len(found), dtype=np.bool_)
        truncated[: len(cut)] = cut
        seen = view(
            found,
            passages,
            filled,
            read,
            weight=self.index.bm25.weight,
            language=self.index.language,
        )
        return Ranking(
            candidates=found,
            passages=passages,
            logits=filled,
            read=read,
            truncated=truncated,
            evidence=evidence_matrix(seen),
            relevance=np.zeros(len(found)),
        )


def order(ranking: Ranking, relevance: CalibrationMap, *, rank_by: str = "relevance") -> Ranking:
    """The ranking with its passages judged by `relevance` and in the order of `rank_by`.

    `relevance` is Robertson's probability ranking principle (1977); `logit` is the raw
    cross-encoder order, `fused` the first stage's. Ties keep the fused order.
    """
    if not len(ranking):
        return ranking
    judged = replace(ranking, relevance=relevance.predict(ranking.evidence))
    keys = {
        "relevance": -judged.relevance,
        "logit": -np.where(judged.read, judged.logits, -np.inf),
        "fused": -judged.candidates.fused,
    }
    by_fused = np.argsort(-judged.candidates.fused, kind="stable")
    return judged.reorder(by_fused[np.argsort(keys[rank_by][by_fused], kind="stable")])
