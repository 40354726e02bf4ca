"""Assess one query in steps, with a stop before each piece of work for a model.

The numbers are those of `CalibratedReranker.assess`, to the bit. The caller that drives the steps
may let other queries pass between two pieces, run the pieces of several queries in one call, or
stop for good. It knows nothing of queues and clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from rerank.assessment.model import CalibratedReranker, refuse_empty
from rerank.assessment.pipeline import prior_score, texts_of
from rerank.config import Config
from rerank.inference.cross_encoder import Pair
from rerank.types import Assessment, Candidates, Query

Stage = Literal["encode", "search", "score"]
BYTES = 4  # of UTF-8 per token, about
MARKS = 3  # special tokens of a sequence, at most
BESIDES = 128  # tokens that cost as much as the work on a piece outside the models


@dataclass(frozen=True, slots=True)
class Piece:
    """Texts for the bi-encoder (`encode`), or pairs for the cross-encoder (`score`).

    Or one call that waits for another search system (`search`), which costs this machine little. A
    piece costs as much as `tokens` tokens; the pieces after it cost about `left`.
    """

    stage: Stage
    items: Sequence[str] | Sequence[Pair] | Sequence[Callable[[], Candidates]]
    tokens: int
    left: int


Steps = Generator[Piece, Any, Assessment]


def steps(model: CalibratedReranker, query: Query, *, most: int, scoring: int) -> Steps:
    """The pieces of one query, of at most about `most` tokens each, and then its assessment.

    Send back at least what `run_piece` gives for the items of each piece. `scoring` is the expected
    number of tokens to score, used until the candidates are known.

    Raises:
        InputError: the query or a passage is empty, or not text.
    """
    refuse_empty(query)
    mode = model.mode_of(query)
    pipeline, maps = model.pipeline, model.maps[mode]
    texts = list(dict.fromkeys(texts_of(query)))
    sizes = [tokens_of(text, most=pipeline.config.encoder_max_length) for text in texts]
    vectors: dict[str, Any] = {}
    for piece in _pieces("encode", texts, sizes, most=most, after=scoring):
        vectors |= yield piece
    if pipeline.waits and query.passages is None:
        find = partial(pipeline.candidates, query, vectors)
        candidates = (yield Piece("search", [find], BESIDES, scoring))[find]
    else:
        candidates = pipeline.candidates(query, vectors)
    prior = prior_score(candidates, maps.policy.prior)
    chosen = pipeline.choose(candidates, prior, maps.policy.cutoff)
    pairs = chosen.pairs_to_score
    sizes = [tokens_of(*pair, most=pipeline.config.max_length) for pair in pairs]
    found: dict[Pair, tuple[float, bool]] = {}
    for piece in _pieces("score", pairs, sizes, most=most, after=0):
        found |= yield piece
    logits = np.array([found[pair][0] for pair in pairs], dtype=np.float64)
    truncated = np.array([found[pair][1] for pair in pairs], dtype=np.bool_)
    scored = pipeline.scored(chosen, logits, truncated)
    return model.conclude([scored], mode)[0]


def run_piece(model: CalibratedReranker, stage: Stage, items: Sequence[Any]) -> dict[Any, Any]:
    """The model's result for each item of some pieces of one stage; all items are different."""
    if stage == "search":
        return {find: find() for find in items}
    if stage == "encode":
        return dict(zip(items, model.pipeline.encode(items), strict=True))
    return dict(zip(items, zip(*model.pipeline.score_pairs(items), strict=True), strict=True))


def tokens_of(*texts: str, most: int) -> int:
    """The approximate number of tokens that a model reads of a text or a pair, at most `most`."""
    size = sum(len(t) if t.isascii() else len(t.encode("utf-8", "replace")) for t in texts)
    return min(size // BYTES + MARKS, most)


def expected_tokens(query: Query, config: Config, *, searched: int) -> tuple[int, int]:
    """The approximate tokens that a query costs for each model, the bi-encoder first.

    A search is expected to score `searched` tokens. Passages that come with the query are taken to
    be of average size.
    """
    texts = texts_of(query)
    if query.scores is not None:
        return BESIDES, 0
    encoding = BESIDES + sum(tokens_of(text, most=config.encoder_max_length) for text in texts)
    if query.passages is None:
        return encoding, searched
    if query.logits is not None or not query.passages:
        return encoding, 0
    sizes = [tokens_of(query.text, p.full_text, most=config.max_length) for p in query.passages]
    scored = sum(sizes) * min(config.rerank_depth, len(sizes)) // len(sizes)
    return encoding, BESIDES + scored


def _pieces(
    stage: Stage, items: Sequence[Any], sizes: Sequence[int], *, most: int, after: int
) -> Iterator[Piece]:
    """Neighbouring items with at most `most` tokens in all; a larger item goes alone."""
    left = sum(sizes) + after
    start, held = 0, 0
    for end, size in enumerate([*sizes, most + 1]):
        if end > start and held + size > most:
            left -= held
            yield Piece(stage, items[start:end], held + BESIDES, left)
            start, held = end, 0
        held += size
