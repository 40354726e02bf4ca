"""Ten queries, and a model trained on them in two steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from finetuning import CHEAP, TEN, Trained

from rerank.data.labelled_set import LabelledSet
from rerank.training.finetune import finetune
from rerank.training.training_sets import TrainingSet


@contextmanager
def _least_lists(count: int) -> Iterator[None]:
    from rerank.training import trainer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "MIN_VALIDATION", count)
        yield


@pytest.fixture(scope="session")
def ten(small: LabelledSet) -> LabelledSet:
    """Ten queries of the small set and forty of its passages, the right ones among them."""
    ids = small.splits["train"][:TEN]
    right = {d for i in ids for d in small.relevant(i)}
    others = [d for d in small.corpus if d not in right][: 40 - len(right)]
    return LabelledSet(
        {d: small.corpus[d] for d in [*sorted(right), *others]},
        {i: small.queries[i] for i in ids},
        {i: small.qrels[i] for i in ids if i in small.qrels},
        {"train": ids},
        "ten",
    )


@pytest.fixture(scope="module")
def one_list_chooses() -> Iterator[None]:
    """A single validation list is enough to choose the best step by."""
    with _least_lists(1):
        yield


@pytest.fixture(scope="session")
def trained(run: Any, ten: LabelledSet, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Two training steps, the better of which is kept."""
    work = tmp_path_factory.mktemp("finetuned")
    with _least_lists(1):
        made = finetune([TrainingSet(ten)], work / "models" / "ten", CHEAP, work=work)
    return Trained(made.folder, made.report, work)
