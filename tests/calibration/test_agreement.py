"""Cohen's kappa: scikit-learn's number, and an interval that holds the true one often enough."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from calibration.metrics.intervals import cohens_kappa

LABELS = ("right", "partly", "wrong")


@pytest.mark.parametrize("seed", range(5))
def test_kappa_is_that_of_scikit_learn(seed: int) -> None:
    """With three labels, one of which only one of the two may use."""
    rng = np.random.default_rng(seed)
    first = rng.choice(LABELS, 40, p=(0.5, 0.3, 0.2)).tolist()
    second = [a if rng.random() < 0.6 else rng.choice(LABELS[:2]) for a in first]
    found = cohens_kappa(first, second)
    assert found.kappa == pytest.approx(cohen_kappa_score(first, second))
    assert found.same == np.mean([a == b for a, b in zip(first, second, strict=True)])
    assert found.low < found.kappa < found.high


def test_the_standard_error_is_that_of_two_labels_by_hand() -> None:
    """20, 5, 10, 15 of 50 (Fleiss, Cohen and Everitt 1969)."""
    first = ["y"] * 25 + ["n"] * 25
    second = ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15
    found = cohens_kappa(first, second)
    assert found.kappa == pytest.approx(0.4)
    p = np.array([[20, 5], [10, 15]]) / 50
    rows, columns, k = p.sum(1), p.sum(0), 0.4
    chance = rows @ columns
    within = sum(p[i, i] * (1 - (rows[i] + columns[i]) * (1 - k)) ** 2 for i in range(2))
    across = (1 - k) ** 2 * sum(
        p[i, j] * (columns[i] + rows[j]) ** 2 for i in range(2) for j in range(2) if i != j
    )
    variance = (within + across - (k - chance * (1 - k)) ** 2) / (50 * (1 - chance) ** 2)
    student = 2.009575  # scipy.stats.t.ppf(0.975, 49)
    room = student * np.sqrt(variance * 50 / 49)
    assert (found.high - found.low) / 2 == pytest.approx(room, rel=1e-5)


def test_the_interval_holds_where_items_come_in_groups() -> None:
    """Two people who agree or not on whole questions: 95% intervals hold in at least 90%."""

    def drawn(groups: int, seed: int) -> tuple[list[int], list[int], list[int]]:
        rng = np.random.default_rng(seed)
        a = rng.integers(0, 2, (groups, 5))
        agree = rng.random((groups, 1)) < 0.6
        b = np.where(agree, a, rng.integers(0, 2, (groups, 5)))
        number = np.repeat(np.arange(groups), 5)
        return a.ravel().tolist(), b.ravel().tolist(), number.tolist()

    held = [
        found.low <= 0.6 <= found.high
        for found in (cohens_kappa(*drawn(40, seed)) for seed in range(300))
    ]
    assert np.mean(held) >= 0.9
    first, second, groups = drawn(40, 0)
    alone, together = cohens_kappa(first, second), cohens_kappa(first, second, groups)
    assert together.high - together.low > alone.high - alone.low


def test_what_cannot_be_known_is_not_told() -> None:
    """One label everywhere has no kappa; full agreement has one, and no interval."""
    assert np.isnan(cohens_kappa(["a", "a"], ["a", "a"]).kappa)
    same = cohens_kappa(["a", "b"], ["a", "b"])
    assert same.kappa == 1
    assert np.isnan(same.low)
    with pytest.raises(ValueError, match="as many labels"):
        cohens_kappa(["a"], [])
