"""The listwise loss of fine-tuning; knows nothing of data sets or trainers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


class ListwiseOrNoneLoss(nn.Module):
    """Softmax cross-entropy over a query's passages *and* a "none of them" whose logit is 0.

    A listwise softmax (ListNet with one relevant passage, Cao et al. 2007) learns quickly but
    leaves the level of its logits free. The fixed null candidate, as in the no-answer score of
    SQuAD 2.0 readers (Devlin et al. 2019), pins it: above 0 means "rather this than nothing",
    and a query without a right passage teaches as well.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, inputs: Sequence[Any], labels: Sequence[torch.Tensor], **_: Any
    ) -> torch.Tensor:
        """The mean loss of a batch.

        `inputs` is (queries, passage lists), as sentence-transformers' listwise collator gives
        them; `labels[i]` holds 1 for the right passages of query i, else 0.
        """
        queries, passage_lists = inputs
        pairs = [(q, p) for q, found in zip(queries, passage_lists, strict=True) for p in found]
        features = self.model.preprocess(pairs)
        features = {
            k: v.to(self.model.device) if torch.is_tensor(v) else v for k, v in features.items()
        }
        logits = self.model(features)["scores"].view(-1).float()
        parts = logits.split([len(found) for found in passage_lists])
        return torch.stack(
            [listwise_or_none(part, label) for part, label in zip(parts, labels, strict=True)]
        ).mean()


def listwise_or_none(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """-log P(a right candidate), where P is the softmax over `logits` (n,) and a null logit 0.

    With no right passage the null is right. Several right passages share the probability.
    """
    right = labels.to(logits.device) > 0
    every = torch.cat([logits.new_zeros(1), logits])
    wanted = logits[right] if bool(right.any()) else every[:1]
    return torch.logsumexp(every, 0) - torch.logsumexp(wanted, 0)
