"""The one configuration of a calibrated model: logged, saved with it, compared at load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rerank.types import InputError


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
    language: str = "english"  # Snowball stemmer of BM25, or "none"
    pool: int = 100  # passages each first stage brings back
    candidates: int = 50  # fused passages that are ordered by relevance
    rerank_depth: int = 10  # how many of them, best fused first, the cross-encoder reads
    rrf_k: int = 60  # constant of reciprocal rank fusion
    rank_by: str = "relevance"  # or "logit" (raw cross-encoder order) or "fused"
    calibrator: str = "auto"  # or "logistic" or "isotonic"
    sufficiency_k: int = 5  # sufficiency is P(one of the first k passages is right)
    folds: int = 5  # of the grouped cross-fitting
    seed: int = 0
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        """Refuse values that no run can use."""
        for name in ("encoder_max_length", "max_length", "pool", "candidates", "rerank_depth"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} should be at least 1, got {getattr(self, name)}")
        if self.rank_by not in ("relevance", "logit", "fused"):
            raise InputError(f"rank_by should be relevance, logit or fused, got {self.rank_by!r}")
        if self.calibrator not in ("auto", "logistic", "isotonic"):
            raise InputError(
                f"calibrator should be auto, logistic or isotonic, got {self.calibrator!r}"
            )
        if self.folds < 2 or self.sufficiency_k < 1:
            raise InputError("folds should be at least 2 and sufficiency_k at least 1")

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
        except TypeError as error:
            raise InputError(f"the configuration cannot be read: {error}") from None
