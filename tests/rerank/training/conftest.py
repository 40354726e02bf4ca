"""Ten queries, and a model trained on them in two steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from finetuning import CHEAP, LAST, TEN, Trained, write_body

from rerank.data.labelled_set import LabelledSet
from rerank.training.finetune import finetune
from rerank.training.mining import TrainingSet
from rerank.training.settings import FinetuneConfig


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
def body(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a small body to start from."""
    folder = tmp_path_factory.mktemp("body")
    write_body(folder)
    return str(folder)


@pytest.fixture(scope="session")
def cheap(body: str) -> FinetuneConfig:
    """Two steps from the small body, each validated."""
    return replace(CHEAP, base=body)


@pytest.fixture(scope="session")
def last(body: str) -> FinetuneConfig:
    """Two steps from the small body, and one checkpoint at their end."""
    return replace(LAST, base=body)


@pytest.fixture(scope="session")
def trained(
    cheap: FinetuneConfig, ten: LabelledSet, tmp_path_factory: pytest.TempPathFactory
) -> Trained:
    """Two training steps, the better of which is kept."""
    work = tmp_path_factory.mktemp("finetuned")
    with _least_lists(1):
        made = finetune([TrainingSet(ten)], work / "models" / "ten", cheap, work=work)
    return Trained(made.folder, made.report, work)
