"""Settings for the use of an assessment, each defined once: default, help, bounds.

It imports nothing heavy: the command line makes its options from these fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rerank.config import check_options, option, share
from rerank.data.checks import is_url
from rerank.errors import InputError

DEEPEST = 10  # largest k that sufficiency is known for


def _check_bands(sufficient: float, partial: float) -> None:
    if partial > sufficient:
        raise InputError(f"expected `partial` <= `sufficient`, got {partial} and {sufficient}")


@dataclass(frozen=True, slots=True)
class ContextGate:
    """When a context is enough to answer from."""

    k: int = option(5, "passages that are handed on", ge=1, le=DEEPEST)
    floor: float = share(0.2, "relevance from which a passage is usable")
    sufficient: float = share(0.7, "sufficiency from here is SUFFICIENT")
    partial: float = share(0.4, "and from here PARTIAL, below it INSUFFICIENT")

    def __post_init__(self) -> None:
        """Refuse values out of range, or out of order."""
        check_options(self)
        _check_bands(self.sufficient, self.partial)


@dataclass(frozen=True, slots=True)
class Strategy:
    """How many passages to return."""

    min_k: int = option(1, "passages that are handed on at least", ge=1, le=DEEPEST)
    max_k: int = option(8, "passages that are handed on at most", ge=1, le=DEEPEST)
    confidence_threshold: float = share(
        0.7, "no passage is added once P(one of them is right) reaches this"
    )
    similarity_floor: float = option(
        0.2,
        "if no passage has a cosine of at least this, none is handed on; -1: no floor",
        ge=-1,
        le=1,
    )
    least_gain: float = share(
        0.02, "where the threshold is not reached, the last passages that add less are left out"
    )

    def __post_init__(self) -> None:
        """Refuse values out of range, and a `min_k` above `max_k`."""
        check_options(self)
        if self.min_k > self.max_k:
            raise InputError(f"expected `min_k` <= `max_k`, got {self.min_k} and {self.max_k}")


@dataclass(frozen=True, slots=True)
class LanguageModelConfig:
    """Where a language model is, and how it is called."""

    llm: str = option("", "base URL of an OpenAI-compatible endpoint, such as http://host:8000/v1")
    llm_model: str = option("", "name of the model there")
    llm_timeout: float = option(60.0, "seconds for a whole answer", gt=0, le=3600)
    llm_retries: int = option(2, "times a request that failed is sent again", ge=0, le=10)
    llm_stream: bool = option(False, "take the answer as it is written")
    llm_max_tokens: int = option(512, "tokens of an answer at most", ge=1)

    def __post_init__(self) -> None:
        """Refuse values out of range, `llm` or `llm_model` alone, and a wrong URL."""
        check_options(self)
        if bool(self.llm) != bool(self.llm_model):
            raise InputError("a language model needs both `llm`, its URL, and `llm_model`")
        if self.llm and not is_url(self.llm):
            raise InputError(
                f"`llm` should be a URL, such as http://host:8000/v1, got {self.place!r:.200}"
            )

    @property
    def place(self) -> str:
        """The URL without a password or a key."""
        return re.sub(r"//[^/]*@", "//", self.llm).partition("?")[0]


@dataclass(frozen=True, slots=True)
class AnswerConfig:
    """When to answer, from how many sources, and with how much attribution."""

    min_score: float = share(0.2, "relevance from which a passage is a source")
    min_chunks: int = option(1, "sources without which there is no answer", ge=1, le=DEEPEST)
    sufficient: float = share(0.7, "P(a source has the answer) below which it is LOW CONFIDENCE")
    partial: float = share(0.4, "P(a source has the answer) below which there is no answer")
    policy: str = option("default", "names the bands of the levels", choices=("default", "legal"))
    coverage: float = share(0.9, "share of supported sentences below which it is asked again")
    support: float = share(0.5, "P(a source supports a sentence) from which it does")
    strategy: Strategy = field(default_factory=Strategy)
    language_model: LanguageModelConfig = field(default_factory=LanguageModelConfig)

    def __post_init__(self) -> None:
        """Refuse values out of range, or out of order."""
        check_options(self)
        _check_bands(self.sufficient, self.partial)
