"""What a miner leaves of a list, on lists made by hand."""

from __future__ import annotations

import pytest

from rerank.training.hard_negatives import keep_hardest
from rerank.training.mining import Example, without_withheld

RIGHT, MAYBE, NEAR, FAR = "right", "may answer too", "near", "far"


@pytest.mark.parametrize(
    ("logits", "judged", "keep", "expected"),
    [
        ((2.0, 3.0, 1.0, -4.0), 0, 1, (RIGHT, NEAR)),  # above the right one: it may answer
        ((2.0, 3.0, 1.0, -4.0), 1, 1, (RIGHT, MAYBE)),  # unless a person says that it does not
        ((2.0, 3.0, 1.0, -4.0), 0, 9, (RIGHT, NEAR, FAR)),
        ((0.0, 3.0, 1.0, 2.0), 0, 2, (RIGHT, NEAR)),  # all are above: the least of them stays
        ((2.0, -3.0, 1.0, -4.0), 1, 2, (RIGHT, MAYBE, NEAR)),  # what is judged stands first
        ((2.0, -5.0, 1.0, -4.0), 1, 1, (RIGHT, NEAR)),
    ],
)
def test_the_hardest_that_are_surely_wrong_are_kept(
    logits: tuple[float, ...], judged: int, keep: int, expected: tuple[str, ...]
) -> None:
    """The highest logits below the right one's; the right one stays first."""
    given = Example("q", (RIGHT, MAYBE, NEAR, FAR), (1, 0, 0, 0), logits, judged)
    found = keep_hardest(given, keep)
    assert found.passages == expected
    assert found.labels == (1,) + (0,) * (len(expected) - 1)
    assert found.teacher == ()
    assert found.judged == (judged if MAYBE in expected else 0)


def test_a_question_without_an_answer_keeps_one_more() -> None:
    """Its wrong passages are wrong however high they stand."""
    given = Example("q", (MAYBE, NEAR, FAR), (0, 0, 0), (3.0, 1.0, 2.0))
    assert keep_hardest(given, 1).passages == (MAYBE, FAR)
    assert keep_hardest(given, 1).labels == (0, 0)


def test_a_list_of_right_passages_alone_stays_as_it_is() -> None:
    """There is nothing to choose from."""
    given = Example("q", (RIGHT,), (1,), (1.0,))
    assert keep_hardest(given, 2) == Example("q", (RIGHT,), (1,))


def test_a_withheld_answer_bounds_its_list() -> None:
    """What stands above it may answer too; one more is kept, and then the answer goes."""
    given = Example(
        "q", (RIGHT, MAYBE, NEAR, FAR), (1, 0, 0, 0), (2.0, 3.0, 1.0, -4.0), withheld=True
    )
    found = without_withheld(keep_hardest(given, 1))
    assert (found.passages, found.labels) == ((NEAR, FAR), (0, 0))
    assert not found.withheld
