"""The carriers that every other file passes on: passages, queries, candidates, rankings.

They hold values and say what they mean; they know nothing of files, models or statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Precision = Literal["fp32", "bf16", "int8"]  # in which a model computes


class InputError(ValueError):
    """What the user gave cannot be used; the message says what came, what was expected, what to do.

    The command line prints it and exits with code 2.
    """


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrievable text. `title` may be empty, `text` may not."""

    doc_id: str
    title: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def full_text(self) -> str:
        """Title and text as the models read them: `"title. text"`, or the text alone."""
        return f"{self.title}. {self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Query:
    """One question, with its metadata as it came."""

    query_id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def named(self, key: str) -> str:
        """What the metadata says under `key`, as a name: 1 and 1.0 are one.

        What is blank, or missing as tables have it (None, NaN), is no name: "".
        """
        return named(self.metadata, key)


def named(metadata: Mapping[str, Any], key: str) -> str:
    """What a query's metadata says under `key`: see `Query.named`."""
    value = metadata.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = "" if value is None else str(value).strip()
    return "" if name.lower() == "nan" else name


@dataclass(frozen=True, slots=True)
class Given:
    """A query with the passages that its asker brings along, in any order.

    `logits` (n,), where there are some, are what the model's own cross-encoder gives the passages:
    then it does not read them again.

    Raises:
        InputError: not one finite logit a passage.
    """

    query: Query
    passages: tuple[Passage, ...]
    logits: Floats | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse logits that are not those of the passages."""
        if self.logits is None:
            return
        if self.logits.shape != (len(self.passages),) or not np.isfinite(self.logits).all():
            raise InputError(
                f"expected one finite logit a passage, {len(self.passages)} in all, got "
                f"{np.array2string(self.logits, threshold=5)}"
            )


@dataclass(frozen=True, slots=True)
class Candidates:
    """What the first stage brought back for one query, best fused first; arrays of shape (n,).

    Both stages score every passage of the corpus exactly, so a passage that only one of them
    found keeps its true score in the other; its *rank* there is one worse than the last found.
    """

    query: Query
    rows: Ints  # positions in the index, or among the passages that the asker brought
    bm25: Floats  # BM25Okapi score, >= 0 in practice
    dense: Floats  # cosine similarity, in [-1, 1]
    bm25_rank: Ints  # 1 is best; one more than there are in the list where BM25 did not find it
    dense_rank: Ints  # likewise for the dense stage
    fused: Floats  # reciprocal rank fusion, > 0

    def __len__(self) -> int:
        """Count of candidates."""
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Ranking:
    """The candidates of one query in an order, with what the stages and the cross-encoder say.

    Arrays have shape (n,) and share one order. A passage that the cross-encoder has not read has
    `read` False, and carries the lowest logit that was read.
    """

    candidates: Candidates
    passages: tuple[Passage, ...]
    logits: Floats
    read: NDArray[np.bool_]
    truncated: NDArray[np.bool_]  # the cross-encoder did not see the end of this passage
    evidence: Floats  # (n, len(rerank.evidence.EVIDENCE))
    relevance: Floats  # P(this passage is right) by the map that judged last; zeros before any

    def __len__(self) -> int:
        """Count of passages."""
        return len(self.passages)

    @property
    def query(self) -> Query:
        """The query that was asked."""
        return self.candidates.query

    @property
    def doc_ids(self) -> tuple[str, ...]:
        """Passage ids, best first."""
        return tuple(passage.doc_id for passage in self.passages)

    def reorder(self, order: Ints) -> Ranking:
        """The same ranking with its passages in `order` (a permutation of 0..n-1)."""
        c = self.candidates
        return replace(
            self,
            candidates=replace(
                c,
                rows=c.rows[order],
                bm25=c.bm25[order],
                dense=c.dense[order],
                bm25_rank=c.bm25_rank[order],
                dense_rank=c.dense_rank[order],
                fused=c.fused[order],
            ),
            passages=tuple(self.passages[i] for i in order),
            logits=self.logits[order],
            read=self.read[order],
            truncated=self.truncated[order],
            evidence=self.evidence[order],
            relevance=self.relevance[order],
        )


@dataclass(frozen=True, slots=True)
class Assessment:
    """A ranking and how far to trust it. Probabilities are calibrated and lie in [0, 1]."""

    ranking: Ranking
    confidence: float  # P(the top passage is right)
    sufficiency: float  # P(one of the first `sufficiency_k` is right), >= confidence
    sufficiency_at: tuple[float, ...]  # the same for k = 1 to 10; never falls
    level: str  # HIGH, MEDIUM, LOW, VERY_LOW
    verdict: str  # SUFFICIENT, PARTIAL, INSUFFICIENT
    accepted: bool  # confidence >= the advisory threshold
    certified: bool  # accepted, and at the certified threshold where there is one
    reasons: tuple[str, ...]  # what moved the confidence, in words

    def to_dict(self, *, top: int | None = None) -> dict[str, Any]:
        """The prediction as one JSON object; `top` keeps only the first passages."""
        ranking, c = self.ranking, self.ranking.candidates
        keep: Sequence[int] = range(len(ranking))[:top]
        return {
            "query_id": ranking.query.query_id,
            "confidence": self.confidence,
            "sufficiency": self.sufficiency,
            "sufficiency_at": list(self.sufficiency_at),
            "level": self.level,
            "verdict": self.verdict,
            "accepted": self.accepted,
            "certified": self.certified,
            "reasons": list(self.reasons),
            "ranking": [
                {
                    "doc_id": ranking.passages[i].doc_id,
                    "logit": float(ranking.logits[i]) if ranking.read[i] else None,
                    "relevance": float(ranking.relevance[i]),
                    "bm25": float(c.bm25[i]),
                    "dense": float(c.dense[i]),
                }
                for i in keep
            ],
        }
