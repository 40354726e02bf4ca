"""Assess one query in steps, with a stop before each piece of work for a model.

The numbers are those of `CalibratedReranker.assess`, to the bit. Who drives the steps may let other
queries pass, run the pieces of several queries in one call, or stop for good.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.predictions import joined
from rerank.assessment.ranking import prior_score
from rerank.data.words import READ, PassageWords, kept, read_words, words
from rerank.inference.cross_encoder import Pair
from rerank.inference.given import Given
from rerank.types import Assessment, Passage, Query

Stage = Literal["encode", "search", "words", "score"]
BYTES_PER_TOKEN = 4  # of UTF-8, about
SPECIAL_TOKENS = 3  # of a sequence, at most
ENCODE_OVERHEAD_S = 0.001  # seconds of work outside the models, on a piece of texts, about
SCORE_OVERHEAD_S = 0.01  # the same on a piece of pairs: candidates, features, maps
SAMPLE = "The median of a sample is the value that half of its members do not exceed. " * 4
WORDS_S = 1e-6  # seconds to read the words of a character of a passage, about
TIMED_ITEMS = 8  # texts, or pairs, to measure the speed with


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds per token of a model's networks, on this machine; 0 without networks."""

    encode: float
    score: float
    second: Speed | None = None  # of the second one of two models


@dataclass(frozen=True, slots=True)
class Piece:
    """Texts for the bi-encoder (`encode`), or pairs for the cross-encoder (`score`).

    Or one call that waits for another machine (`search`), which costs this one little; or calls
    that read the words of long passages (`words`), which stay in a cache. All for `model`. A piece
    takes about `seconds`, and the pieces after it about `left`, at the speed given.
    """

    model: CalibratedReranker
    stage: Stage
    items: Sequence[str] | Sequence[Pair] | Sequence[Callable[[], Any]]
    seconds: float
    left: float


Steps = Generator[Piece, Any, Assessment]


def steps(
    model: CalibratedReranker,
    query: Query,
    speed: Speed,
    *,
    max_seconds: float,
    scoring_seconds: float,
) -> Steps:
    """The pieces of one query, of about `max_seconds` each at most, and then its assessment.

    Send back at least what `run_piece` gives for the items of each piece. `scoring_seconds` is the
    expected time to score, used until the candidates are known. Nobody knows before the first one's
    answer whether the second one of two models will be asked, so its pieces are counted from then.
    """
    pipeline, policy = model.pipeline, model.maps[model.check(query)].policy
    split = partial(_split_by_seconds, model, max_seconds=max_seconds)
    texts = list(dict.fromkeys(pipeline.texts_of(query)))
    length = pipeline.config.encoder_max_length
    sizes = [speed.encode * tokens_of(text, max_tokens=length) for text in texts]
    vectors: dict[str, Any] = {}
    encode_waits, score_waits = _waits(pipeline)
    if encode_waits and texts:
        encode = partial(run_piece, model, "encode", texts)
        piece = Piece(model, "search", [encode], ENCODE_OVERHEAD_S, scoring_seconds)
        vectors = (yield piece)[encode]
    else:
        for piece in split("encode", texts, sizes, after=scoring_seconds):
            vectors |= yield piece
    found: dict[tuple[str, str], PassageWords] = {}
    sizes = [_words_seconds(p) for p in query.passages or ()]
    if sum(sizes) > max_seconds:
        language = pipeline.index.language
        asked = frozenset(words(query.text, language=language))

        def words_asked(p: Passage) -> PassageWords:  # its other words are left to the cache
            return read_words(p.title, p.text, language).only(asked)

        reads: dict[Any, Passage] = {partial(words_asked, p): p for p in query.passages or ()}
        for piece in split("words", list(reads), sizes, after=scoring_seconds):
            read: dict[Any, PassageWords] = yield piece
            found |= {(p.title, p.text): read[call] for call, p in reads.items() if call in read}
    if pipeline.source.elsewhere and query.passages is None:
        find = partial(pipeline.candidates, query, vectors)
        piece = Piece(model, "search", [find], ENCODE_OVERHEAD_S, scoring_seconds)
        candidates = (yield piece)[find]
    else:
        with kept(found):
            candidates = pipeline.candidates(query, vectors)
    prior_scores = prior_score(candidates, policy.prior)
    selection = pipeline.source.select(candidates, prior_scores, policy.cutoff)
    pairs = selection.pairs_to_score
    most = pipeline.config.reranker_windows * pipeline.config.max_length
    sizes = [speed.score * tokens_of(*pair, max_tokens=most) for pair in pairs]
    results: dict[Any, Any] = {}
    if pairs and (
        score_waits or pipeline.reranker.listwise or pipeline.instruction_of(query)
    ):  # in one call, never with others
        score = partial(pipeline.score_alone, selection)
        stage: Stage = "search" if score_waits else "score"
        scored = (yield Piece(model, stage, [score], sum(sizes) + SCORE_OVERHEAD_S, 0))[score]
    else:
        for piece in split("score", pairs, sizes, after=0):
            results |= yield piece
        logits = np.array([results[pair][0] for pair in pairs], dtype=np.float64)
        truncated = np.array([results[pair][1] for pair in pairs], dtype=np.bool_)
        scored = pipeline.with_scores(selection, logits, truncated)
    answer = model.assess_scored([scored], [query])[0]
    if model.second is None:
        return answer
    if not model.second.asks(answer):
        return joined(answer, None)
    speed, how = speed.second or speed, {"max_seconds": max_seconds}
    second = steps(model.second.model, query, speed, **how, scoring_seconds=scoring_seconds)
    return joined(answer, (yield from second))


def run_piece(model: CalibratedReranker, stage: Stage, items: Sequence[Any]) -> dict[Any, Any]:
    """The model's result for each item of some of its pieces of one stage; all items differ."""
    if stage in ("search", "words") or (stage == "score" and callable(items[0])):
        return {call: call() for call in items}
    if stage == "encode":
        return dict(zip(items, model.pipeline.encode(items), strict=True))
    return dict(zip(items, zip(*model.pipeline.score_pairs(items), strict=True), strict=True))


def tokens_of(*texts: str, max_tokens: int) -> int:
    """About how many tokens a model reads of a text or a pair, `max_tokens` at most."""
    beginnings = (text[: BYTES_PER_TOKEN * max_tokens] for text in texts)
    size = sum(len(b.encode("utf-8", "replace")) for b in beginnings)
    return min(size // BYTES_PER_TOKEN + SPECIAL_TOKENS, max_tokens)


def expected_seconds(
    query: Query, pipeline: Pipeline, speed: Speed, *, scoring_seconds: float
) -> tuple[float, float]:
    """About how long a query takes with each model, the bi-encoder first, at the speed given.

    A search is expected to score for `scoring_seconds`; passages that come with a query are taken
    to be of average size.
    """
    config = pipeline.config
    length = config.encoder_max_length
    passages = () if pipeline.source.elsewhere else query.passages or ()
    most = config.encoder_windows * length
    sizes = [tokens_of(p.title, p.text, max_tokens=most) for p in passages]
    sizes.append(tokens_of(query.text, max_tokens=length))
    reading = sum(map(_words_seconds, query.passages or ()))
    encoding = ENCODE_OVERHEAD_S + speed.encode * sum(sizes) + reading
    if query.passages is None:
        return encoding, scoring_seconds
    if pipeline.source.scores_are_known(query) or not query.passages:
        return encoding, SCORE_OVERHEAD_S
    most = config.reranker_windows * config.max_length
    sizes = [tokens_of(query.text, p.title, p.text, max_tokens=most) for p in query.passages]
    scored = sum(sizes) * min(config.rerank_depth, len(sizes)) / len(sizes)
    return encoding, SCORE_OVERHEAD_S + speed.score * scored


def measured_speed(model: CalibratedReranker) -> Speed:
    """The speed of a model's networks on this machine: the faster of two measurements each."""
    pipeline = model.pipeline
    if pipeline.models is None:
        return Speed(0.0, 0.0)
    encoding, scoring = [], []
    encode_waits, score_waits = _waits(pipeline)
    for turn in range(2):  # with other texts, so that nothing comes from a cache
        texts = [f"{turn} {i} {SAMPLE}" for i in range(TIMED_ITEMS)]
        pairs = list(zip(texts, texts[::-1], strict=True))
        tokens = sum(tokens_of(t, max_tokens=pipeline.config.encoder_max_length) for t in texts)
        encoding.append(0.0 if encode_waits else _timed(model, "encode", texts) / tokens)
        tokens = sum(tokens_of(*pair, max_tokens=pipeline.config.max_length) for pair in pairs)
        scoring.append(0.0 if score_waits else _timed(model, "score", pairs) / tokens)
    second = measured_speed(model.second.model) if model.second else None
    return Speed(min(encoding), min(scoring), second)


def _waits(pipeline: Pipeline) -> tuple[bool, bool]:
    """Whether the encoder and the reranker are on another machine, which is waited for."""
    if pipeline.models is None:
        return False, False
    encoder, reranker = pipeline.model_files
    return (
        isinstance(encoder, Given) and encoder.model.traits.waits,
        isinstance(reranker, Given) and reranker.model.traits.waits,
    )


def _words_seconds(passage: Passage) -> float:
    return WORDS_S * (min(len(passage.title), READ) + min(len(passage.text), READ))


def _timed(model: CalibratedReranker, stage: Stage, items: Sequence[Any]) -> float:
    start = time.perf_counter()
    run_piece(model, stage, items)
    return time.perf_counter() - start


def _split_by_seconds(
    model: CalibratedReranker,
    stage: Stage,
    items: Sequence[Any],
    sizes: Sequence[float],
    *,
    max_seconds: float,
    after: float,
) -> Iterator[Piece]:
    """Neighbouring items with at most `max_seconds` seconds in all; a larger item goes alone."""
    besides = SCORE_OVERHEAD_S if stage == "score" else ENCODE_OVERHEAD_S
    start, held = 0, 0.0
    for end, size in enumerate([*sizes, math.inf]):
        if end > start and held + size > max_seconds:
            yield Piece(model, stage, items[start:end], held + besides, sum(sizes[end:]) + after)
            start, held = end, 0.0
        held += size
