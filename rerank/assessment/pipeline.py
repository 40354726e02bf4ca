"""Query to ranking: candidates, cross-encoder, evidence; and the order that people see.

Training, batch rescoring and search all go through here. It knows nothing of labels: the maps that
turn evidence into relevance, before the cross-encoder has read and after, are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from calibration.maps import CalibrationMap, LogisticMap
from rerank.assessment.passage_features import as_read, evidence_matrix, view
from rerank.config import Config
from rerank.errors import InputError
from rerank.inference.cross_encoder import CrossEncoder
from rerank.inference.model_files import ModelFiles, resolve
from rerank.inference.score_cache import ScoreCache
from rerank.progress import progress
from rerank.retrieval.dense import Encoder, cosines
from rerank.retrieval.given import given_candidates
from rerank.retrieval.index import Index
from rerank.types import Candidates, Floats, Given, Passage, Query, Ranking

CHUNK = 64  # queries between two checkpoints
LEAST_READ = 2  # passages, however unlikely the second: the lead of the first is a feature

Item = TypeVar("Item", Query, Given, Ranking)


@dataclass(frozen=True, slots=True)
class Reading:
    """Which candidates the cross-encoder reads: a fitted choice, by the evidence before it reads.

    They are read in the order of `prior`, a relevance map, as far down as their relevance is at
    least `floor` (in [0, 1]) times the best one's.
    """

    prior: LogisticMap
    floor: float = 0.0


class Pipeline:
    """An open index with its two models: what turns queries into rankings.

    `models` are the encoder's files and the reranker's, where the caller has resolved them already.
    """

    def __init__(
        self,
        index: Index,
        config: Config,
        *,
        cache: ScoreCache | None = None,
        models: tuple[ModelFiles, ModelFiles] | None = None,
    ) -> None:
        self.index = index
        self.config = config
        encoder, reranker = models or (resolve(config.encoder), resolve(config.reranker))
        self.encoder = Encoder(encoder, max_length=config.encoder_max_length)
        self.reranker = CrossEncoder(
            reranker,
            max_length=config.max_length,
            precision=config.precision,
            cache=cache,
        )
        kinds = ("exact", "approximate")
        found = (index.language, kinds[index.graph is not None])
        if found != (config.language, config.dense):
            raise InputError(
                f"{index.folder}: the index is of language {found[0]} and {found[1]} dense search, "
                f"the configuration says {config.language} and {config.dense}; build it again"
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
        self, queries: Sequence[Query], reading: Reading, *, label: str | None = None
    ) -> list[Ranking]:
        """A ranking a query, in their order, its passages in the order in which they were read.

        With `label`, a progress bar of that name.
        """

        def chunk(part: Sequence[Query]) -> list[Ranking]:
            likely = [order(r, reading.prior) for r in self.find(part)]
            return self.read(likely, reading.floor)

        return _in_chunks(queries, chunk, label)

    def find(self, queries: Sequence[Query], *, label: str | None = None) -> list[Ranking]:
        """The candidates of each query in fused order, none read: every logit and relevance 0."""
        return _in_chunks(queries, self._find_chunk, label)

    def rank_given(
        self, given: Sequence[Given], reading: Reading, *, label: str | None = None
    ) -> list[Ranking]:
        """`rank` over the passages that each query brings along; `rows` are their positions there.

        Of logits that come with them those are used which `reading` would have asked for.
        """

        def chunk(part: Sequence[Given]) -> list[Ranking]:
            likely = [order(r, reading.prior) for r in self.find_given(part)]
            unread = [r for g, r in zip(part, likely, strict=True) if g.logits is None]
            read = iter(self.read(unread, reading.floor))
            return [
                next(read) if g.logits is None else self._scored(r, g.logits, reading.floor)
                for g, r in zip(part, likely, strict=True)
            ]

        return _in_chunks(given, chunk, label)

    def find_given(self, given: Sequence[Given]) -> list[Ranking]:
        """`find` among the passages that each query brings along."""
        texts = dict.fromkeys(p.full_text for g in given for p in g.passages)
        asked = [g.query.text for g in given]
        vectors = self.encoder.encode([*asked, *texts])
        place = {text: i for i, text in enumerate(texts, len(asked))}
        found = []
        for g, vector in zip(given, vectors, strict=False):
            rows = np.array([place[p.full_text] for p in g.passages], dtype=np.int64)
            found.append(self._given(g.query, g.passages, cosines(vectors[rows], vector)))
        return found

    def as_given(self, ranking: Ranking, count: int) -> Ranking:
        """The ranking as it would be, unread, had its asker brought its first `count` passages."""
        return self._given(
            ranking.query, ranking.passages[:count], ranking.candidates.dense[:count]
        )

    def read(
        self, rankings: Sequence[Ranking], floor: float = 0.0, *, label: str | None = None
    ) -> list[Ranking]:
        """The rankings, in their own order, with the first passages of each read.

        These are the first `rerank_depth`, of which those beyond the second only as far as the
        relevance that `order` gave them is at least `floor` times the first one's.
        """
        return _in_chunks(rankings, lambda part: self._read_chunk(part, floor), label)

    def _find_chunk(self, queries: Sequence[Query]) -> list[Ranking]:
        vectors = self.encoder.encode([q.text for q in queries])
        return [self._find(q, v) for q, v in zip(queries, vectors, strict=True)]

    def _find(self, query: Query, vector: NDArray[np.float32]) -> Ranking:
        c, index = self.config, self.index
        found = index.candidates(query, vector, pool=c.pool, count=c.candidates, rrf_k=c.rrf_k)
        return self._unread(found, tuple(index.passage(row) for row in found.rows))

    def _given(self, query: Query, passages: tuple[Passage, ...], near: Floats) -> Ranking:
        index = self.index
        found = given_candidates(
            query,
            passages,
            near,
            weight=index.bm25.weight,
            language=index.language,
            rrf_k=self.config.rrf_k,
        )
        return self._unread(found, tuple(passages[row] for row in found.rows))

    def _unread(self, found: Candidates, passages: tuple[Passage, ...]) -> Ranking:
        index = self.index
        seen = view(found, passages, weight=index.bm25.weight, language=index.language)
        n = len(found)
        return Ranking(
            candidates=found,
            passages=passages,
            logits=np.zeros(n),
            read=np.zeros(n, dtype=np.bool_),
            truncated=np.zeros(n, dtype=np.bool_),
            evidence=evidence_matrix(seen),
            relevance=np.zeros(n),
        )

    def _scored(self, ranking: Ranking, logits: Floats, floor: float) -> Ranking:
        """The ranking with logits (n,) in the order in which its passages were given."""
        count = _likely(ranking.relevance[: self.config.rerank_depth], floor)
        pairs = [(ranking.query.text, p.full_text) for p in ranking.passages[:count]]
        return _with(
            ranking, logits[ranking.candidates.rows[:count]], self.reranker.truncates(pairs)
        )

    def _read_chunk(self, rankings: Sequence[Ranking], floor: float) -> list[Ranking]:
        depth = self.config.rerank_depth
        first = [r.passages[: _likely(r.relevance[:depth], floor)] for r in rankings]
        pairs = [
            (r.query.text, passage.full_text)
            for r, passages in zip(rankings, first, strict=True)
            for passage in passages
        ]
        logits, truncated = self.reranker.score(pairs)
        ends = np.cumsum([len(passages) for passages in first])[:-1]
        parts = zip(rankings, np.split(logits, ends), np.split(truncated, ends), strict=True)
        return [_with(*part) for part in parts]


def forget(ranking: Ranking, floor: float) -> Ranking:
    """What `Pipeline.read` with this floor would have given, of a ranking read with a lower one."""
    depth = _likely(ranking.relevance[: ranking.read.sum()], floor)
    return _with(ranking, ranking.logits[:depth], ranking.truncated[:depth])


def _likely(relevance: Floats, floor: float) -> int:
    """How many of the passages, likeliest first, are to be read."""
    likely = int((relevance >= floor * relevance.max(initial=0.0)).sum())
    return min(max(likely, LEAST_READ), len(relevance))


def _with(ranking: Ranking, logits: Floats, cut: NDArray[np.bool_]) -> Ranking:
    """The ranking with the scores of its first passages.

    What was not read gets the lowest logit read, and 0 where nothing was.
    """
    read = np.arange(len(ranking)) < len(logits)
    filled = np.full(len(ranking), logits.min() if len(logits) else 0.0)
    filled[: len(logits)] = logits
    truncated = np.zeros(len(ranking), dtype=np.bool_)
    truncated[: len(cut)] = cut
    rows = as_read(ranking.evidence, filled, read)
    return replace(ranking, logits=filled, read=read, truncated=truncated, evidence=rows)


def _in_chunks(
    items: Sequence[Item], step: Callable[[Sequence[Item]], list[Ranking]], label: str | None
) -> list[Ranking]:
    """`step` over all items, a chunk at a time; with `label`, a progress bar of that name."""
    found: list[Ranking] = []
    with progress(len(items), label, unit="query") as bar:
        for start in range(0, len(items), CHUNK):
            part = items[start : start + CHUNK]
            found += step(part)
            bar.update(len(part))
    return found


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
