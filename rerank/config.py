"""Configurations: each option has its default, its help and its valid values in one place; the
command line, the server's settings and docs/options.md are made from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, Literal, cast

import Stemmer

from rerank.errors import InputError, check_one_of, nearest
from rerank.protocols import EmbedderChoice, ScorerChoice, is_model, name_of_model

LARGEST = 2**31 - 1  # of any whole number
Computed = Literal["fp32", "bf16", "int8"]  # precisions of a model's computation
Precision = Literal[Computed, "auto"]  # auto: measured before the model is opened
Graphs = Literal["fp32", "int8"]  # the precisions that are exported
ACTIONS = {  # what to do at each level of confidence, surest first
    "HIGH": "use directly and cite",
    "MEDIUM": "use with caution, verify",
    "LOW": "advisory only, verification required",
    "VERY_LOW": "do not use, flag for review",
}
LEVELS = tuple(ACTIONS)
ON_RERANKER_ERROR = ("error", "first-stage")
VERDICTS = ("SUFFICIENT", "PARTIAL", "INSUFFICIENT")


@dataclass(frozen=True, slots=True)
class Option:
    """The help of a field, and the values that it takes: bounds by the names of pydantic."""

    help: str = ""
    ge: float = -math.inf
    le: float = math.inf
    gt: float = -math.inf
    lt: float = math.inf
    choices: tuple[str, ...] = ()
    objects: bool = False  # an object or a function, too, in Python
    registered: bool = False  # Python can register more choices; the job refuses unknown ones
    metavar: str = ""  # what stands for the value in a usage

    def bounds(self) -> str:
        """The bounds in words; empty where there are none."""
        if math.isfinite(self.ge) and math.isfinite(self.le):
            return f"from {self.ge:g} to {self.le:g}"
        bounds = {"at least": self.ge, "above": self.gt, "at most": self.le, "below": self.lt}
        return " and ".join(f"{w} {bound:g}" for w, bound in bounds.items() if math.isfinite(bound))

    def values(self, kind: type) -> str:
        """The values that an option of this type takes, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        return ", ".join(filter(None, (NOUNS[kind], self.bounds())))

    def takes(self, value: Any, kind: type) -> bool:
        """Whether it takes a value; NaN is never taken."""
        if self.objects and is_model(value):
            return True
        if kind in (str, bool):
            free = not self.choices or self.registered
            return type(value) is kind and (free or value in self.choices)
        if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
            return False
        return self.ge <= value <= self.le and self.gt < value < self.lt


NOUNS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def option(default: Any, text: str, **values: Any) -> Any:
    """A field of a configuration with its default, its help, and the bounds of an `Option`."""
    return field(default=default, metadata={"option": Option(text, **values)})


def check_options(values: Any) -> None:
    """Refuse a value that its option does not take.

    For the name in backquotes the command line puts its flag.
    """
    for f in fields(values):
        value = getattr(values, f.name)
        if f.default is not MISSING:
            check_option(f.name, f.metadata["option"], type(f.default), value)
        elif not isinstance(value, within := cast(type, f.default_factory)):
            kind = within.__name__
            raise InputError(f"`{f.name}` should be a {kind}, such as {kind}(), got {value!r:.100}")


def check_option(name: str, option: Option, kind: type, value: Any) -> None:
    """Refuse a value that an option does not take."""
    if not option.takes(value, kind):
        own = ", an object or a function" if option.objects else ""
        expected = f"`{name}` should be {option.values(kind)}{own}"
        raise InputError(f"{expected}, got {value!r}{nearest(value, option.choices)}")
    if kind is int and value > LARGEST:
        raise InputError(f"`{name}` should be {LARGEST} at most, got {value}")


def share(default: float, text: str) -> Any:
    """A field from 0 to 1: `option` with these bounds."""
    return option(default, text, ge=0, le=1)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where the bands of confidence and sufficiency begin; probabilities in [0, 1].

    Every level, verdict and acceptance is decided here. A band begins at its threshold. Without
    calibration the level is LOW at most, the verdict PARTIAL at most, and nothing is accepted.
    """

    high: float = share(0.9, "confidence from here is HIGH")
    medium: float = share(0.7, "confidence from here is MEDIUM and accepted")
    low: float = share(0.5, "confidence from here is LOW, below it VERY_LOW")
    sufficient: float = share(0.7, "sufficiency from here is SUFFICIENT")
    partial: float = share(0.4, "sufficiency from here is PARTIAL, below it INSUFFICIENT")

    def __post_init__(self) -> None:
        check_options(self)
        for names in (("low", "medium", "high"), ("partial", "sufficient")):
            values = [getattr(self, name) for name in names]
            if values != sorted(values):
                order = " <= ".join(f"`{name}`" for name in names)
                raise InputError(f"expected {order}, got {', '.join(map(str, values))}")

    @property
    def advisory(self) -> float:
        """The confidence from which an answer is accepted: `medium`."""
        return self.medium

    def level(self, confidence: float, *, calibrated: bool = True) -> str:
        """HIGH, MEDIUM, LOW or VERY_LOW."""
        return _band(confidence, LEVELS, (self.high, self.medium, self.low), calibrated, 2)

    def verdict(self, sufficiency: float, *, calibrated: bool = True) -> str:
        """SUFFICIENT, PARTIAL or INSUFFICIENT: whether the passages hold an answer."""
        return _band(sufficiency, VERDICTS, (self.sufficient, self.partial), calibrated, 1)

    def accepts(self, confidence: float, *, calibrated: bool = True) -> bool:
        """Whether an answer is used without a check by a person."""
        return calibrated and confidence >= self.advisory


def _band(
    value: float, names: Sequence[str], starts: Sequence[float], calibrated: bool, highest: int
) -> str:
    """The first band that a value reaches; without calibration `highest` is the first one."""
    at = next((i for i, start in enumerate(starts) if value >= start), len(starts))
    return names[at if calibrated else max(at, highest)]


def hundredths(probability: float) -> int:
    """A probability as a person and `page.js` see it: rounded down, to reach no threshold above."""
    return math.floor(100 * probability + 1e-9)  # 100 * 0.58 is slightly below 58


def two_digits(probability: float) -> str:
    """A probability as 0.85: see `hundredths`."""
    return f"{hundredths(probability) / 100:.2f}"


@dataclass(frozen=True, slots=True)
class Config:
    """What a ranking and its confidence depend on, besides the corpus and the labels."""

    encoder: EmbedderChoice = option(
        "minilm",
        "bi-encoder: minilm, a folder, a hub id, or an address (openai:MODEL)",
        objects=True,
    )
    encoder_max_length: int = option(
        128, "tokens of a query, or of a window of a passage, that the bi-encoder reads", ge=16
    )
    encoder_windows: int = option(
        1, "most windows of a long passage that the bi-encoder reads; the nearest one counts", ge=1
    )
    encoder_precision: Graphs = option(
        "fp32",
        "precision of the bi-encoder; int8 indexes twice as fast; each has an index of its own",
        choices=("fp32", "int8"),
    )
    reranker: ScorerChoice = option(
        "minilm-reranker",
        "cross-encoder: minilm-reranker, minilm-reranker-small (2 x as fast), a folder, a hub id, "
        "or an address such as cohere:MODEL or http://HOST/rerank",
        objects=True,
    )
    max_length: int = option(
        192, "tokens of query and passage together that the cross-encoder reads", ge=16
    )
    reranker_windows: int = option(
        1, "most windows of a long passage that the cross-encoder scores; the best one counts", ge=1
    )
    instruction: str = option(
        "",
        "what counts as an answer, in a sentence, for a reranker that takes one (Qwen3-Reranker)",
    )
    precision: Precision = option(
        "int8",
        "precision of the cross-encoder; int8 is fastest on a CPU, fp32 is exact, bf16 is for GPUs "
        "and newer CPUs; each needs its own calibration; auto: the fastest in a five-second test "
        "on this machine",
        choices=("fp32", "bf16", "int8", "auto"),
    )
    dense: str = option(
        "exact",
        "search by cosine; approximate is for a million passages and more",
        choices=("exact", "approximate"),
    )
    language: str = option(
        "auto",
        "how texts become words: a Snowball stemmer, or none; auto: by the language of the "
        "passages, which chooses the encoder too, unless you name one",
    )
    pool: int = option(  # the features ask who is among a stage's first ten
        100, "passages that each first stage returns", ge=10
    )
    candidates: int = option(50, "fused passages to order by relevance", ge=1)
    rerank_depth: int = option(
        10, "most candidates that the cross-encoder scores, the likeliest first", ge=1
    )
    rrf_k: int = option(60, "constant of reciprocal rank fusion", ge=0)
    rank_by: str = option(
        "relevance",
        "order of the passages; logit: by the cross-encoder; dense: by cosine; auto: the simplest "
        "order that is as good, within one standard error",
        choices=("relevance", "logit", "fused", "dense", "auto"),
    )
    calibrator: str = option(
        "auto",
        "how the confidence is mapped; auto chooses by cross-validation",
        choices=("auto", "temperature", "logistic", "beta", "isotonic"),
        registered=True,
    )
    promise: str = option(
        "both",
        "what a certificate covers: new questions like the labelled ones, if these are a random "
        "sample; questions about new documents, each of which counts once; or both, each at 95%",
        choices=("questions", "documents", "both"),
    )
    segment_by: str = option(
        "",
        "metadata key of a query, such as its language: each value gets its own correction; "
        "instruction: the reranker reads it, too",
    )
    metadata_features: str = option(
        "",
        "comma-separated metadata keys of a passage, such as its age or source: each becomes a "
        "feature of its relevance, with a fitted weight; query_entities (names in the metadata of "
        "a query): the share of them that a passage holds",
    )
    sufficiency_k: int = option(
        5, "the verdict is about P(one of the first k passages is right)", ge=2, le=10
    )
    expected_unanswerable: float = option(
        0.0,
        "expected share of questions without an answer; if fewer than 20 labelled queries "
        "have none, unanswerable copies of others (answers removed) are added; 0: no copies",
        ge=0,
        le=0.9,
    )
    folds: int = option(5, "folds of the grouped cross-fitting", ge=2, le=50)
    seed: int = option(0, "seed of folds and draws", ge=0)
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        check_options(self)
        languages = ("auto", "none", *sorted(Stemmer.algorithms()))
        check_one_of("`language`", self.language, languages)

    @property
    def words_language(self) -> str:
        """The language of `rerank.data.words`: English where it was not looked for."""
        return "english" if self.language == "auto" else self.language

    @property
    def metadata_keys(self) -> tuple[str, ...]:
        """The keys that `metadata_features` names."""
        named = (key.strip() for key in self.metadata_features.split(","))
        return tuple(dict.fromkeys(key for key in named if key))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, which `from_dict` reads; of a model that is an object the name."""
        encoder, reranker = name_of_model(self.encoder), name_of_model(self.reranker)
        return asdict(replace(self, encoder=encoder, reranker=reranker))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """The configuration of `to_dict`.

        Raises:
            InputError: a field is unknown or has the wrong type.
        """
        known = {f.name for f in fields(cls)}
        if strange := sorted(set(values) - known):
            raise InputError(f"unknown configuration fields {strange}; expected {sorted(known)}")
        try:
            thresholds = Thresholds(**values.get("thresholds", {}))
            return cls(**{**values, "thresholds": thresholds})
        except (TypeError, AttributeError) as error:
            raise InputError(f"the configuration cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class PromotionGate:
    """What a model must show to become the champion."""

    most_smece: float = share(  # at 200 queries chance alone is 0.1
        0.15, "largest allowed upper end of the 95% interval of smECE"
    )
    least_certified: float = share(
        0.05, "smallest allowed share of queries that the certified threshold accepts"
    )
    margin: float = share(0.05, "largest allowed drop in accuracy from the best champion so far")
    brier_margin: float = share(
        0.02, "largest allowed rise of the Brier score from the best champion so far"
    )

    def __post_init__(self) -> None:
        check_options(self)
