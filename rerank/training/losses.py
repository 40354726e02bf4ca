"""The losses of fine-tuning, on lists of one query each. It knows nothing of data sets or trainers.

A list is `logits` (n,) and `target` (n, 2): column 0 holds 1 for a right passage and 0 for a wrong
one, column 1 a teacher's logit, or NaN where there is no teacher. The losses take lists of one
length, (..., n), and give one number per list. Shorter lists are filled up with the logit `ABSENT`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

ListLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

CPU_PAIRS = 8  # per batch on a CPU: padding costs there what a larger batch saves
GPU_PAIRS = 256
ABSENT = -1e4  # the logit of no passage: its probability is 0 in fp32, and its gradient too


def listwise_or_none(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """-log P(a right candidate), where P is the softmax over `logits` (..., n) and a null logit 0.

    A listwise softmax (ListNet with one relevant passage, Cao et al. 2007) learns quickly but
    leaves the level of its logits free. The fixed null candidate, as in the no-answer score of
    SQuAD 2.0 readers (Devlin et al. 2019), sets it: a logit above 0 means "better than no answer",
    and a query without a right passage can be trained on too: the null is right. Several right
    passages share the probability.
    """
    every = _with_none(logits)
    is_right = right > 0
    chosen = torch.cat([~is_right.any(-1, keepdim=True), is_right], -1)
    return torch.logsumexp(every, -1) - torch.logsumexp(every.masked_fill(~chosen, ABSENT), -1)


def binary(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Mean binary cross-entropy: each passage is judged by itself."""
    there = logits > ABSENT
    each = functional.binary_cross_entropy_with_logits(
        logits, (right > 0).to(logits.dtype), reduction="none"
    )
    return (each * there).sum(-1) / there.sum(-1)


def distillation(logits: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """KL(softmax(teacher) || softmax(logits)) over each list (Hinton et al. 2015), and the null.

    The null candidate is that of `listwise_or_none`: what the teacher says of no passage being
    right is learned too. A teacher of one passage gives the binary divergence of two sigmoids.
    """
    ours, theirs = (functional.log_softmax(_with_none(x), -1) for x in (logits, teacher))
    return functional.kl_div(ours, theirs, reduction="none", log_target=True).sum(-1)


def _with_none(logits: torch.Tensor) -> torch.Tensor:
    return torch.cat([logits.new_zeros(*logits.shape[:-1], 1), logits], -1)


LOSSES: dict[str, ListLoss] = {"listwise": listwise_or_none, "binary": binary}


class ListsLoss(nn.Module):
    """The mean over a batch's lists of (1 - share) x label loss + share x distillation.

    `share` applies only to lists with a teacher.
    """

    def __init__(self, model: Any, *, loss: str = "listwise", share: float = 0.5) -> None:
        super().__init__()
        self.model = model
        self.loss = LOSSES[loss]
        self.share = share

    def forward(
        self, inputs: Sequence[Any], labels: Sequence[torch.Tensor], **_: Any
    ) -> torch.Tensor:
        """The batch's loss; `inputs` is (queries, passage lists), `labels` a target per query."""
        queries, passage_lists = inputs
        pairs = [(q, p) for q, texts in zip(queries, passage_lists, strict=True) for p in texts]
        parts = torch.split(self._logits(pairs), [len(texts) for texts in passage_lists])
        logits = pad_sequence(list(parts), batch_first=True, padding_value=ABSENT)
        target = pad_sequence(list(labels), batch_first=True).to(logits)
        from_labels = self.loss(logits, target[..., 0])
        untaught = target[..., 1].isnan().any(-1)
        teacher = target[..., 1].nan_to_num().masked_fill(logits <= ABSENT, ABSENT)
        both = (1 - self.share) * from_labels + self.share * distillation(logits, teacher)
        return torch.where(untaught, from_labels, both).mean()

    def _logits(self, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
        """One logit per pair, in their order; pairs of similar length share their padding."""
        device = self.model.device
        order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))
        size = CPU_PAIRS if device.type == "cpu" else GPU_PAIRS
        logits = []
        for start in range(0, len(order), size):
            features = self.model.preprocess([pairs[i] for i in order[start : start + size]])
            there = {k: _to(device, v) if torch.is_tensor(v) else v for k, v in features.items()}
            logits.append(self.model(there)["scores"].view(-1).float())
        return torch.cat(logits)[_to(device, torch.tensor(order).argsort())]


def _to(device: torch.device, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor on the device; to a GPU it is copied while the one before is read."""
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
