"""What nothing can be learned from is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.fitting.fit import check_both_outcomes
from rerank.fitting.plan import check_corpus
from rerank.jobs.calibrate import calibrate


@pytest.mark.parametrize(("right", "word"), [(1, "right for all"), (0, "wrong for all")])
def test_one_outcome_is_refused(right: int, word: str) -> None:
    """A confidence is learned from both."""
    with pytest.raises(InputError, match=f"made: the top passage is {word} of the 40 queries"):
        check_both_outcomes(np.full(40, right), "made")
    check_both_outcomes(np.arange(40) % 2, "made")


def test_one_passage_is_refused(small: LabelledSet) -> None:
    """Every query would get the same one."""
    (first, *_) = small.corpus
    with pytest.raises(InputError, match="its corpus has 1 passage"):
        check_corpus(replace(small, corpus={first: small.corpus[first]}))
    check_corpus(small)


def test_labels_that_are_all_wrong_leave_no_model(
    small: LabelledSet, config: Config, tmp_path: Path, run: Any
) -> None:
    """Nothing is written where nothing can be learned, and so nothing is registered."""
    out = tmp_path / "model"
    with pytest.raises(InputError, match="the top passage is wrong for all"):
        calibrate(replace(small, qrels={}), out, config, work=run.work)
    assert not out.exists()
