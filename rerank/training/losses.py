"""The losses of fine-tuning, on one query's list. It knows nothing of data sets or trainers.

A list is `logits` (n,) and `target` (n, 2): column 0 holds 1 for a right passage and 0 for a wrong
one, column 1 a teacher's logit, or NaN where there is no teacher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

ListLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

CPU_PAIRS = 8  # per batch on a CPU: padding costs there what a larger batch saves


def listwise_or_none(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """-log P(a right candidate), where P is the softmax over `logits` (n,) and a null logit 0.

    A listwise softmax (ListNet with one relevant passage, Cao et al. 2007) learns quickly but
    leaves the level of its logits free. The fixed null candidate, as in the no-answer score of
    SQuAD 2.0 readers (Devlin et al. 2019), sets it: a logit above 0 means "better than no answer",
    and a query without a right passage can be trained on too: the null is right. Several right
    passages share the probability.
    """
    with_none = torch.cat([logits.new_zeros(1), logits])
    right_logits = logits[right > 0] if bool((right > 0).any()) else with_none[:1]
    return torch.logsumexp(with_none, 0) - torch.logsumexp(right_logits, 0)


def binary(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Mean binary cross-entropy: each passage is judged by itself."""
    return functional.binary_cross_entropy_with_logits(logits, (right > 0).to(logits.dtype))


def distillation(logits: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """KL(softmax(teacher) || softmax(logits)) over the list (Hinton et al. 2015), and the null.

    The null candidate is that of `listwise_or_none`: what the teacher says of no passage being
    right is learned too. A teacher of one passage gives the binary divergence of two sigmoids.
    """
    null = logits.new_zeros(1)
    return functional.kl_div(
        functional.log_softmax(torch.cat([null, logits]), 0),
        functional.log_softmax(torch.cat([null, teacher.to(logits.dtype)]), 0),
        reduction="sum",
        log_target=True,
    )


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
        each = [
            self._one(list_logits, label) for list_logits, label in zip(parts, labels, strict=True)
        ]
        return torch.stack(each).mean()

    def _logits(self, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
        """One logit per pair, in their order; pairs of similar length share their padding."""
        device = self.model.device
        order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))
        size = CPU_PAIRS if device.type == "cpu" else len(pairs)
        logits = []
        for start in range(0, len(order), size):
            features = self.model.preprocess([pairs[i] for i in order[start : start + size]])
            there = {k: v.to(device) if torch.is_tensor(v) else v for k, v in features.items()}
            logits.append(self.model(there)["scores"].view(-1).float())
        place = torch.tensor(order, device=device).argsort()
        return torch.cat(logits)[place]

    def _one(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        target = target.to(logits.device)
        from_labels = self.loss(logits, target[:, 0])
        if bool(target[:, 1].isnan().any()):
            return from_labels
        return (1 - self.share) * from_labels + self.share * distillation(logits, target[:, 1])
