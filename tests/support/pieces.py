"""The steps of one query, driven as a server drives them."""

from __future__ import annotations

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.steps import Piece, Speed, run_piece, steps
from rerank.types import Assessment, Query

SPEED = Speed(1.0, 2.0)  # seconds a token: so slow that nothing else counts


def driven(
    model: CalibratedReranker, query: Query, max_seconds: float = 10**6, speed: Speed = SPEED
) -> tuple[Assessment, list[Piece]]:
    """What the steps of a query come to, and their pieces."""
    pieces: list[Piece] = []
    walk = steps(model, query, speed, max_seconds=max_seconds, scoring_seconds=100)
    found = None
    while True:
        try:
            pieces.append(walk.send(found))
        except StopIteration as end:
            return end.value, pieces
        found = run_piece(pieces[-1].model, pieces[-1].stage, pieces[-1].items)
