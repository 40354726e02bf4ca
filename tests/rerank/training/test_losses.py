"""The losses of fine-tuning, against torch, numpy and hand-made numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

LOGITS = st.lists(st.floats(-20, 20), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(logits=LOGITS, data=st.data())
def test_with_one_right_passage_it_is_torchs_cross_entropy(
    logits: list[float], data: st.DataObject
) -> None:
    """The loss is cross_entropy over the passages and a candidate "none" with logit 0."""
    import torch

    from rerank.training.trainer import listwise_or_none

    right = data.draw(st.one_of(st.none(), st.integers(0, len(logits) - 1)))
    labels = torch.tensor([1.0 if i == right else 0.0 for i in range(len(logits))])
    every = torch.tensor([0.0, *logits], dtype=torch.float64)
    target = torch.tensor(0 if right is None else right + 1)
    expected = torch.nn.functional.cross_entropy(every, target)
    found = listwise_or_none(torch.tensor(logits, dtype=torch.float64), labels)
    assert float(found) == pytest.approx(float(expected), abs=1e-9)


def test_several_right_passages_share_the_probability() -> None:
    """Of logits 0, log 2, log 5 and the null, two right ones hold 3 of 9 parts, by hand."""
    import torch

    from rerank.training.trainer import listwise_or_none

    logits = torch.log(torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64))
    found = listwise_or_none(logits, torch.tensor([1.0, 1.0, 0.0]))
    assert float(found) == pytest.approx(np.log(9 / 3), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(logits=LOGITS, data=st.data())
def test_distillation_is_the_divergence_of_two_softmaxes(
    logits: list[float], data: st.DataObject
) -> None:
    """It equals scipy's relative entropy over the passages and a candidate "none" with logit 0."""
    import torch
    from scipy.special import softmax
    from scipy.stats import entropy

    from rerank.training.trainer import distillation

    teacher = data.draw(
        st.lists(st.floats(-20, 20), min_size=len(logits), max_size=len(logits)).map(np.array)
    )
    student = torch.tensor(logits, dtype=torch.float64)
    found = float(distillation(student, torch.from_numpy(teacher)))
    p, q = softmax([0.0, *teacher]), softmax([0.0, *logits])
    assert found == pytest.approx(entropy(p, q), abs=1e-8)


def test_pairs_read_by_length_keep_their_places() -> None:
    """Whatever their lengths, each pair's logit lands with its own list and label."""
    import torch

    from rerank.training.trainer import ListsLoss, listwise_or_none

    class ByLength(torch.nn.Module):
        """Gives a pair the number of its passage's letters as its logit."""

        device = torch.device("cpu")

        def preprocess(self, pairs: list[tuple[str, str]]) -> dict[str, torch.Tensor]:
            return {"letters": torch.tensor([float(len(p)) for _, p in pairs])}

        def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {"scores": features["letters"]}

    lists = [["aaaa", "a", "aaaaaa"], ["aa", "aaaaa"], ["aaa", "aaaaaaa", "", "a"]]
    right = [[0, 1, 0], [1, 0], [0, 0, 0, 1]]
    targets = [torch.tensor([[y, float("nan")] for y in labels]) for labels in right]
    found = ListsLoss(ByLength())((["q", "another q", "q"], lists), targets)
    expected = [
        listwise_or_none(torch.tensor([float(len(p)) for p in found]), torch.tensor(labels))
        for found, labels in zip(lists, right, strict=True)
    ]
    assert float(found) == pytest.approx(float(torch.stack(expected).mean()), abs=1e-6)


def test_lists_of_different_lengths_do_not_touch_each_other() -> None:
    """Filling up the shorter lists changes neither the loss nor the gradient."""
    import torch

    from rerank.training.trainer import ListsLoss, distillation, listwise_or_none

    class Given(torch.nn.Module):
        """Gives the pairs, which all have one length, the next of its logits."""

        device = torch.device("cpu")

        def __init__(self, logits: torch.Tensor) -> None:
            super().__init__()
            self.logits = logits

        def preprocess(self, pairs: list[tuple[str, str]]) -> dict[str, torch.Tensor]:
            return {"place": torch.tensor([int(p) for _, p in pairs])}

        def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {"scores": self.logits[features["place"]]}

    logits = torch.tensor([0.5, -1.0, 2.0, 30.0, -30.0, 0.0], requires_grad=True)
    targets = [
        torch.tensor([[1.0, 2.0], [0.0, -2.0], [0.0, 0.5]]),
        torch.tensor([[0.0, float("nan")]]),
        torch.tensor([[0.0, 4.0], [1.0, -1.0]]),
    ]
    texts = [["0", "1", "2"], ["3"], ["4", "5"]]
    found = ListsLoss(Given(logits), share=0.25)((["q"] * 3, texts), targets)
    (gradient,) = torch.autograd.grad(found, logits)
    alone = []
    for part, target in zip(torch.split(logits, [3, 1, 2]), targets, strict=True):
        one = listwise_or_none(part, target[:, 0])
        taught = not bool(target[:, 1].isnan().any())
        alone.append(0.75 * one + 0.25 * distillation(part, target[:, 1]) if taught else one)
    expected = torch.stack(alone).mean()
    assert float(found) == pytest.approx(float(expected), rel=1e-6)
    (by_hand,) = torch.autograd.grad(expected, logits)
    np.testing.assert_allclose(gradient, by_hand, atol=1e-6)
