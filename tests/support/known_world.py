"""A world of features whose true probability is known."""

from __future__ import annotations

import numpy as np
from scipy.special import expit


def world(n: int, seed: int = 0, width: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X (n, width), labels y (n,) and the true probability (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, width))
    truth = expit(X @ np.linspace(1.2, -0.4, width) + 0.3)
    return X, (rng.random(n) < truth).astype(int), truth
