"""The tables that users add to, put back as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from calibration.score_fitting import SCORE_FITS
from rerank.assessment.passage_features import CROSS_ENCODER, FIRST_STAGE
from rerank.assessment.ranking_features import GROUPS, RANKING_FEATURES

REGISTRIES: tuple[dict[str, Any], ...] = (
    *(CROSS_ENCODER, FIRST_STAGE, GROUPS, RANKING_FEATURES),
    SCORE_FITS,
)


@contextmanager
def restored() -> Iterator[None]:
    """What is added within is gone afterwards."""
    before = [deepcopy(registry) for registry in REGISTRIES]
    try:
        yield
    finally:
        for registry, kept in zip(REGISTRIES, before, strict=True):
            registry.clear()
            registry.update(kept)
