"""Configurations: that of a calibrated model (logged, saved with it, compared at load), and that of
a training run of its cross-encoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import Stemmer

from rerank.errors import InputError
from rerank.types import Precision

CHOICES = {
    "rank_by": ("relevance", "logit", "fused"),
    "calibrator": ("auto", "temperature", "logistic", "beta", "isotonic", "venn-abers"),
    "precision": ("fp32", "bf16", "int8"),
    "dense": ("exact", "approximate"),
    "loss": ("listwise", "binary"),
}
LEAST = {  # the smallest value of each whole number that a run can use
    "encoder_max_length": 16,
    "max_length": 16,
    "pool": 10,  # the features ask who is among a stage's first ten
    "candidates": 1,
    "rerank_depth": 1,
    "rrf_k": 0,
    "sufficiency_k": 2,
    "folds": 2,
    "seed": 0,
}


TRAINING_LEAST = {
    "hard": 0,
    "depth": 1,
    "easy": 0,
    "max_length": 16,
    "batch": 1,
    "steps": 1,
    "frozen_layers": 0,
    "lora": 0,
    "validation": 0,
    "check_every": 1,
    "patience": 1,
    "seed": 0,
}


LARGEST = 2**31 - 1  # of any whole number


def _check_least(values: object, least: Mapping[str, int]) -> None:
    for name, smallest in least.items():
        value = getattr(values, name)
        if type(value) is not int or value < smallest:
            raise InputError(f"{name} should be a whole number from {smallest} up, got {value!r}")
        if value > LARGEST:
            raise InputError(f"{name} should be {LARGEST} at most, got {value}")


def _check_choices(values: object) -> None:
    for name, choices in CHOICES.items():
        if hasattr(values, name) and getattr(values, name) not in choices:
            raise InputError(f"{name} should be one of {choices}, got {getattr(values, name)!r}")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where the bands of confidence and sufficiency begin; probabilities in [0, 1]."""

    high: float = 0.9  # confidence from here is HIGH
    medium: float = 0.7  # MEDIUM; also the advisory threshold: below it an answer is advisory only
    low: float = 0.5  # LOW; below it VERY_LOW
    sufficient: float = 0.7  # sufficiency from here is SUFFICIENT
    partial: float = 0.4  # PARTIAL; below it INSUFFICIENT

    def __post_init__(self) -> None:
        """Refuse bands that are out of order or out of range."""
        if not 0 <= self.low <= self.medium <= self.high <= 1:
            raise InputError(f"expected 0 <= low <= medium <= high <= 1, got {self}")
        if not 0 <= self.partial <= self.sufficient <= 1:
            raise InputError(f"expected 0 <= partial <= sufficient <= 1, got {self}")


@dataclass(frozen=True, slots=True)
class Config:
    """What a ranking and its confidence depend on, besides the corpus and the labels."""

    encoder: str = "minilm"  # bi-encoder: bundled name, folder or hub id
    encoder_max_length: int = 128  # tokens of a passage that the bi-encoder reads
    reranker: str = "minilm-reranker"  # cross-encoder: bundled name, folder or hub id
    max_length: int = 192  # tokens of query and passage together that the cross-encoder reads
    # of the cross-encoder; int8 is faster, and bf16 where the processor has it; with own scores
    precision: Precision = "fp32"
    dense: str = "exact"  # search by cosine; or "approximate", from about a million passages up
    language: str = "english"  # Snowball stemmer of BM25, or "none"
    pool: int = 100  # passages each first stage brings back
    candidates: int = 50  # fused passages that are ordered by relevance
    rerank_depth: int = 10  # how many of them, likeliest first, the cross-encoder reads at most
    rrf_k: int = 60  # constant of reciprocal rank fusion
    rank_by: str = "relevance"  # or "logit" (raw cross-encoder order) or "fused"
    calibrator: str = "auto"  # or a name: how features' one logit becomes the confidence
    segment_by: str = ""  # metadata of a query, such as its language, whose kinds are corrected for
    sufficiency_k: int = 5  # the verdict is of P(one of the first k passages is right); 2 to 10
    folds: int = 5  # of the grouped cross-fitting
    seed: int = 0
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        """Refuse values that no run can use."""
        _check_least(self, LEAST)
        if self.sufficiency_k > 10:
            raise InputError(f"sufficiency_k should be 10 at most, got {self.sufficiency_k}")
        if self.language != "none" and self.language not in Stemmer.algorithms():
            known = ", ".join(sorted(Stemmer.algorithms()))
            raise InputError(f"no stemmer for {self.language!r}; expected none or one of {known}")
        for name in ("encoder", "reranker", "segment_by"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name} should be a name, got {getattr(self, name)!r}")
        _check_choices(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` gives an equal configuration back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> Config:
        """The configuration of `to_dict`.

        Raises:
            InputError: a field is unknown or has the wrong type.
        """
        known = {f.name: f for f in fields(cls)}
        strange = sorted(set(kept) - set(known))
        if strange:
            raise InputError(f"unknown configuration fields {strange}; expected {sorted(known)}")
        try:
            thresholds = Thresholds(**kept.get("thresholds", {}))
            return cls(**{**kept, "thresholds": thresholds})
        except (TypeError, AttributeError) as error:
            raise InputError(f"the configuration cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class FinetuneConfig:
    """Everything that a training run of the cross-encoder depends on, besides its data."""

    base: str = "minilm"  # body to start from, or a cross-encoder to train further
    encoder: str = "minilm"  # bi-encoder that mines hard negatives
    hard: int = 2  # passages from the top of the first stage, not right
    depth: int = 10  # how deep the hard ones are drawn from
    easy: int = 1  # passages drawn from the whole corpus
    loss: str = "listwise"  # or "binary"
    teacher: str = ""  # cross-encoder whose scores are learned from as well
    distil: float = 0.5  # weight of the teacher beside the labels, where there is one
    max_length: int = 160  # tokens of query and passage together, while training
    batch: int = 8  # queries a step
    steps: int = 600
    learning_rate: float = 1e-4
    warmup: float = 0.05  # share of the steps
    frozen_layers: int = 0  # lowest layers that stay those of the base; word embeddings always do
    lora: int = 0  # rank of low-rank updates to the layers; 0 trains them whole
    validation: int = 200  # queries held out to choose the best step; 0: keep the last
    check_every: int = 100  # steps between two checkpoints, each validated
    patience: int = 5  # checks in a row without a better nDCG@10 before training stops
    dropout: float = 0.0  # costs a third of a step on a CPU; a pass or two can do without
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse values that no run can use."""
        _check_least(self, TRAINING_LEAST)
        _check_choices(self)
        if self.hard + self.easy < 1:
            raise InputError("expected at least one wrong passage a query: hard or easy above 0")
        if not 0 < self.learning_rate < 1:
            raise InputError(f"learning_rate should be between 0 and 1, got {self.learning_rate}")
        for name in ("warmup", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} should be in [0, 1), got {getattr(self, name)}")
        if not 0 <= self.distil <= 1:
            raise InputError(f"distil should be in [0, 1], got {self.distil}")


@dataclass(frozen=True, slots=True)
class Gate:
    """What a model must show to become the champion."""

    most_smece: float = 0.15  # the upper end of smECE's 95 % interval; at 200 queries chance is 0.1
    least_certified: float = 0.05  # share of the queries that its certified threshold accepts
    margin: float = 0.05  # by which it may be worse than the present champion, at most

    def __post_init__(self) -> None:
        """Refuse shares out of range."""
        for name in ("most_smece", "least_certified", "margin"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} should be in [0, 1], got {getattr(self, name)}")
