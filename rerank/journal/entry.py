"""One assessed question as stored in the journal: plain values, with its texts or their hashes.

It knows nothing of databases.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rerank.advice.places import place_of
from rerank.data.checks import query_hash
from rerank.data.records import query_row
from rerank.protocols import GivenAnswer
from rerank.types import Assessment, Query, RankedPassage

KEPT = 10  # passages in an entry, best first
ACCEPTED, ADVISORY = "accepted", "advisory only"  # decisions on a retrieval
ANSWERED, UNSURE, REFUSED = "answered", "answered with low confidence", "refused"  # on an answer


@dataclass(frozen=True, slots=True)
class Entry:
    """One assessed question: a row of the journal. Texts that are left out are None."""

    entry_id: str  # sorts by time; not shown to clients
    answer_id: str  # of the request; feedback uses it
    time: float  # when it was answered: seconds since 1970
    mode: str
    question: str | None
    question_hash: str  # see `rerank.data.checks.query_hash`
    asked: str | None  # the whole query as JSON, with its metadata and any passages it brought
    passages: str  # JSON: the best `KEPT`, with their scores
    top_doc_id: str | None  # None if no passage was found
    top_document: str | None
    confidence: float
    sufficiency: float
    level: str
    verdict: str
    accepted: bool
    threshold: float  # confidence from which it would have been accepted
    decision: str
    answer: str | None
    answer_hash: str | None
    attribution: float | None  # share of the answer's sentences that sources support
    model: str  # the version of the model
    latency: float  # seconds
    features: bytes | None  # of the ranking, float64; None if no passage was found

    def row(self) -> dict[str, Any]:
        """The values by column."""
        return asdict(self)

    @property
    def size(self) -> int:
        """Characters of its texts."""
        return sum(map(len, filter(None, (self.question, self.asked, self.passages, self.answer))))


def entry_of(
    assessment: Assessment,
    *,
    answer_id: str,
    model: str,
    latency: float,
    answer: GivenAnswer | None = None,
    without_text: bool = False,
) -> Entry:
    """The entry of an assessment made just now, and of the answer based on it."""
    query, best = assessment.ranking.query, assessment.first(KEPT)
    now = time.time()
    top = best[0] if best else None
    text = None if answer is None else _storable_text(answer.answer)
    return Entry(
        entry_id=f"{int(now * 1e9):016x}{secrets.token_hex(4)}",
        answer_id=answer_id,
        time=now,
        mode=assessment.mode,
        question=None if without_text else _storable_text(query.text),
        question_hash=query_hash(query.text),
        asked=None if without_text else json.dumps(_query_row(query), default=str),
        passages=json.dumps(_scores(best)),
        top_doc_id=_storable_text(top.doc_id) if top else None,
        top_document=_storable_text(place_of(top).document) if top and not without_text else None,
        confidence=assessment.confidence,
        sufficiency=assessment.sufficiency,
        level=assessment.level,
        verdict=assessment.verdict,
        accepted=assessment.accepted,
        threshold=assessment.thresholds.advisory,
        decision=_decision(assessment, answer),
        answer=None if without_text else text,
        answer_hash=None if text is None else query_hash(text),
        attribution=None if answer is None else answer.attribution_coverage,
        model=model,
        latency=latency,
        features=assessment.features.astype("<f8").tobytes() if top else None,
    )


def _decision(assessment: Assessment, answer: GivenAnswer | None) -> str:
    if answer is None:
        return ACCEPTED if assessment.accepted else ADVISORY
    if answer.refused:
        return REFUSED
    return UNSURE if answer.low_confidence else ANSWERED


def _query_row(query: Query) -> dict[str, Any]:
    """The query in the format of a labels file: see `rerank.data.records.read_query`."""
    row = query_row(query)
    kept = ("metadata", "passages", "filter")
    return {"query": query.text} | {name: row[name] for name in kept if name in row}


def _scores(passages: Sequence[RankedPassage]) -> list[dict[str, Any]]:
    return [passage.to_dict() for passage in passages]


def _storable_text(text: str) -> str:
    """The text in a form that every database accepts: without NUL and without lone surrogates."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
