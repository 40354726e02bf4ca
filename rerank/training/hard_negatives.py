"""Choose hard negatives: the wrong passages with the highest logits of a cross-encoder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rerank.training.mining import Example


def keep_hardest(example: Example, keep: int) -> Example:
    """The list with its right passages and the `keep` wrong ones with the highest logits.

    One more wrong passage is kept if the list has no right one, or withholds it. The logits are
    `example.teacher`; the new list has none. A wrong passage with a higher logit than some right
    one may be an answer, so it is left out, unless a person judged it (the denoised negatives of
    RocketQA, Qu et al. 2021). If no wrong passage is left, the one with the lowest logit stays.
    """
    logits, labels = np.array(example.teacher), np.array(example.labels)
    right, wrong = np.flatnonzero(labels), np.flatnonzero(labels == 0)
    judged = wrong[: example.judged]
    sure = wrong[logits[wrong] <= logits[right].min()] if len(right) else wrong
    usable = np.union1d(judged, sure)
    if not len(usable):
        usable = wrong[[int(np.argmin(logits[wrong]))]] if len(wrong) else wrong
    best = usable[np.argsort(-logits[usable], kind="stable")][
        : keep + (example.withheld or not len(right))
    ]
    first = [i for i in judged if i in best]
    chosen = [*right, *first, *(i for i in best if i not in first)]
    return replace(
        example,
        passages=tuple(example.passages[i] for i in chosen),
        labels=tuple(int(labels[i]) for i in chosen),
        teacher=(),
        judged=len(first),
    )
