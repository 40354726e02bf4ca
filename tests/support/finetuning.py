"""Settings of very short trainings, and the result of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rerank.training.settings import FinetuneConfig

TEN = 10
CHEAP = FinetuneConfig(steps=2, batch=2, max_length=48, warmup=0.0, check_every=1, validation=2)
LAST = replace(CHEAP, check_every=2, validation=0)  # one checkpoint, at the end


@dataclass(frozen=True)
class Trained:
    """A finished job: its model folder, its report, and the working folder."""

    folder: Path
    report: Mapping[str, Any]
    work: Path


def weights(folder: Path) -> dict[str, np.ndarray]:
    """The tensors of a model folder."""
    from safetensors.numpy import load_file

    return dict(load_file(folder / "model.safetensors"))
