"""Learn-then-Test: of several settings, from safe to risky, the last whose mean loss is controlled.

Losses and groups in, an index out. It knows nothing of what a setting does.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from calibration.arrays import Groups, as_floats, check_share
from calibration.group_tests import mean_upper_bound


def fixed_sequence(losses: ArrayLike, groups: Groups = None, *, risk: float = 0.05) -> int:
    """Return the last setting whose mean loss is at most `risk`, with 95% confidence; -1: none.

    losses (n, m) in [0, 1]: of each row by each setting, from the safest to the riskiest, such as
    an answer lost because fewer passages are passed on. Learn-then-Test by fixed sequence testing
    (Angelopoulos et al. 2021): each setting is tested at the full 5%, until one fails. So a false
    promise is made with at most that probability, if `mean_upper_bound` is a valid bound: proved
    for losses of two values in groups of one row, otherwise a conjecture. The tests are about the
    rows of new groups (n,). The losses need not rise; if they do, stopping loses nothing.

    Raises:
        ValueError: as `mean_lower_bound`; losses that are not a table, or `risk` outside (0, 1).
    """
    table = as_floats(losses)
    if table.ndim != 2:
        raise ValueError(f"losses should be (n, m), got {table.shape}")
    risk = check_share("risk", risk)
    last = -1
    for j, column in enumerate(table.T):
        if mean_upper_bound(column, groups) > risk:
            break
        last = j
    return last
