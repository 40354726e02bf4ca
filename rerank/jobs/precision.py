"""What `precision` auto means: a few seconds of scoring on this machine choose."""

from __future__ import annotations

import importlib.util
import logging
import time
from dataclasses import replace

from rerank.config import Config, Precision
from rerank.errors import InputError
from rerank.inference.cross_encoder import open_reranker
from rerank.inference.given import Given
from rerank.inference.model_files import Model

SECONDS = 5.0  # of scoring, shared by the precisions
NEARLY = 0.9  # of the fastest one's pairs a second: a precision that rounds less is taken instead
LEAST_ROUNDED: tuple[Precision, ...] = ("fp32", "bf16", "int8")
QUERY = "how are the missing values of a table filled with the last known one"
SENTENCE = "Each column keeps its own last value, until another one is seen in a later row. "

logger = logging.getLogger(__name__)


def with_precision(config: Config, reranker: Model) -> Config:
    """The configuration with the precision that suits this machine, where it says auto; logged.

    It is the fastest, or one that rounds less and scores at least `NEARLY` as many pairs a second.
    bf16 takes part where torch is installed. A model's calibration keeps what was chosen.
    """
    if config.precision != "auto":
        return config
    if isinstance(reranker, Given):  # it has a precision of its own
        return replace(config, precision=Config().precision)
    rates = {}
    for precision in LEAST_ROUNDED:
        if precision != "bf16" or importlib.util.find_spec("torch"):
            try:
                rates[precision] = _pairs_a_second(replace(config, precision=precision), reranker)
            except InputError:  # not of this model
                continue
    if not rates:
        raise InputError(f"{reranker.name} scores in no precision here; name one (--precision)")
    chosen = next(p for p, rate in rates.items() if rate >= NEARLY * max(rates.values()))
    told = ", ".join(f"{p} {rate:.0f}" for p, rate in rates.items())
    logger.warning("precision %s: pairs a second on this machine: %s (--precision)", chosen, told)
    return replace(config, precision=chosen)


def _pairs_a_second(config: Config, reranker: Model) -> float:
    """Of a question and passages of 1 to 12 sentences, without a cache."""
    opened = open_reranker(
        reranker,
        max_length=config.max_length,
        windows=config.reranker_windows,
        instruction=config.instruction,
        precision=config.precision,
    )
    pairs = [(QUERY, SENTENCE * (1 + i % 12)) for i in range(24)]
    opened.score(pairs)  # the network is loaded, and exported where it is new
    rounds, begun = 0, time.perf_counter()
    while (seconds := time.perf_counter() - begun) < SECONDS / len(LEAST_ROUNDED):
        opened.score(pairs)
        rounds += 1
    return rounds * len(pairs) / seconds
