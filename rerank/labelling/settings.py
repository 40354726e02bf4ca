"""What people are asked to label: each option with its default and its help."""

from __future__ import annotations

from dataclasses import dataclass

from rerank.config import check_options, option


@dataclass(frozen=True, slots=True)
class LabelConfig:
    """Which questions people are asked to label, and how many passages of each they see."""

    count: int = option(50, "questions to label; more may be asked for later", ge=1)
    draw: str = option(
        "auto",
        "which questions: evenly, as `calibrate` needs them, or those that tell most of a model's "
        "accuracy or of its map, with weights; auto: even before the first calibration and as "
        "long as all earlier draws of the set are even, else accuracy",
        choices=("auto", "even", "accuracy", "map"),
    )
    depth: int = option(5, "best passages of each stage that are shown, merged", ge=1, le=100)
    shared: int = option(
        5, "every Nth question is for all annotators, the others for one; 1: all", ge=1
    )
    partly_right: bool = option(False, "count passages that answer partly as right, with grade 1")
    seed: int = option(0, "seed of the draw", ge=0)

    def __post_init__(self) -> None:
        """Refuse values that no run can use."""
        check_options(self)
