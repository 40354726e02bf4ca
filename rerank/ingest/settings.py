"""How a folder of documents becomes passages: each option with its default and its help."""

from __future__ import annotations

from dataclasses import dataclass

from rerank.config import check_options, option


@dataclass(frozen=True, slots=True)
class IngestConfig:
    """How a folder of documents becomes passages."""

    passage_tokens: int = option(
        120,
        "tokens of a passage with its title at most, about; the bi-encoder reads 128",
        ge=48,
        le=480,
    )
    largest: int = option(64, "MiB of a file at most; a larger one is skipped", ge=1, le=2048)
    seconds: float = option(
        60.0,
        "seconds that reading one file may take; else it is skipped",
        gt=0,
        le=86_400,
    )

    def __post_init__(self) -> None:
        """Refuse values that no run can use."""
        check_options(self)
