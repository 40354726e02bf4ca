"""What the trainings depend on besides their data: each option with its default and its help."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rerank.config import check_options, option, share
from rerank.errors import InputError


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """What both trainings depend on, besides their data."""

    steps: int = option(600, "training steps", ge=1)
    warmup: float = option(0.05, "share of the steps in which the learning rate rises", ge=0, lt=1)
    frozen_layers: int = option(
        0, "lowest layers that are not trained; word embeddings never are", ge=0
    )
    check_every: int = option(100, "steps between checkpoints, at which validation runs", ge=1)
    average: int = option(
        1, "average the last N checkpoints; above 1 only without validation", ge=1
    )
    seed: int = option(0, "seed of draws and weights", ge=0)

    def __post_init__(self) -> None:
        check_options(self)
        checkpoints = math.ceil(self.steps / self.check_every)  # the last step is one, too
        if self.average > checkpoints:
            raise InputError(
                f"`average` is {self.average}, but a run of {self.steps} steps with `check_every` "
                f"{self.check_every} writes {checkpoints} checkpoint{'s' * (checkpoints > 1)}"
            )


@dataclass(frozen=True, slots=True)
class FinetuneConfig(TrainingConfig):
    """Everything that a training run of the cross-encoder depends on, besides its data."""

    base: str = option("minilm", "body to start from, or a cross-encoder to train further")
    encoder: str = option("minilm", "bi-encoder that mines hard negatives")
    hard: int = option(2, "wrong passages per query, from the top of the first stage", ge=0)
    depth: int = option(10, "passages of the first stage that they are drawn from", ge=1)
    easy: int = option(1, "wrong passages per query, from anywhere in the corpus", ge=0)
    withheld: float = option(
        0.0, "share of answerable queries shown without their right passage", ge=0, lt=1
    )
    altered: float = option(
        0.0, "share of queries altered so that their passage no longer answers them", ge=0, lt=1
    )
    temperature: float = option(
        0.0,
        "0: all examples are used; above 0: a set of n queries gives examples in proportion to "
        "n ** (1 / this)",
        ge=0,
    )
    teacher: str = option("", "cross-encoder to distil as well: a name, a folder, a hub id")
    distil: float = share(0.5, "weight of the teacher's scores against the labels")
    max_length: int = option(160, "tokens of query and passage together, while training", ge=16)
    batch: int = option(8, "queries per step", ge=1)
    learning_rate: float = option(1e-4, "peak learning rate", gt=0, lt=1)
    layers: int = option(
        0, "layers of the base that are kept, evenly spaced: a smaller, faster model; 0: all", ge=0
    )
    validation: int = option(
        200, "queries held out to choose the best step; 0 keeps the last", ge=0
    )
    patience: int = option(
        5, "checks in a row without a better nDCG@10 before training stops", ge=1
    )
    dropout: float = option(
        0.0, "dropout while training; costs a third of a step on a CPU", ge=0, lt=1
    )

    def __post_init__(self) -> None:
        TrainingConfig.__post_init__(self)
        if self.hard + self.easy < 1:
            raise InputError("expected a wrong passage per query: `hard` or `easy` above 0")
        if self.hard > self.depth:
            got = f"got {self.hard} of {self.depth}"
            raise InputError(
                f"`hard`, drawn from `depth` passages, should be `depth` at most: {got}"
            )
        if self.average > 1 and self.validation:
            best = "it keeps one checkpoint, the best"
            raise InputError(f"with `average` above 1 `validation` should be 0: {best}")


@dataclass(frozen=True, slots=True)
class EncoderConfig(TrainingConfig):
    """Everything that a training run of the bi-encoder depends on, besides its data."""

    base: str = option("minilm", "bi-encoder to start from")
    depth: int = option(30, "passages of the first stage that a wrong one is drawn from", ge=1)
    max_length: int = option(128, "tokens of a query or a passage, while training", ge=16)
    batch: int = option(64, "queries per step; each is compared with the passages of all", ge=2)
    learning_rate: float = option(5e-5, "peak learning rate", gt=0, lt=1)
    keep: float = option(0.5, "share of the base in the weights that are written", ge=0, lt=1)
