"""Exact binomial bounds: what a finite sample says of the true share, at least or at most.

Counts in, bounds out. It knows nothing of scores or of where the counts come from.
"""

from __future__ import annotations


def lower_bound(hits: int, n: int, *, level: float = 0.95) -> float:
    """Return the one-sided Clopper-Pearson lower bound of a share, from `hits` of `n`.

    The true share is above it in at least `level` of all samples, whatever the share is (Clopper
    and Pearson 1934). No hit gives 0.0, and so does n = 0.

    Raises:
        ValueError: hits not within 0..n, or level not within (0, 1).
    """
    _check(hits, n, level)
    if hits == 0:
        return 0.0
    from scipy.special import betaincinv

    return float(betaincinv(hits, n - hits + 1, 1 - level))


def upper_bound(hits: int, n: int, *, level: float = 0.95) -> float:
    """Return the one-sided Clopper-Pearson upper bound of a share; hits = n gives 1.0, also at 0.

    Raises:
        ValueError: hits not within 0..n, or level not within (0, 1).
    """
    return 1.0 - lower_bound(n - hits, n, level=level)


def _check(hits: int, n: int, level: float) -> None:
    if not 0 <= hits <= n:
        raise ValueError(f"hits must lie between 0 and n, got {hits} of {n}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
