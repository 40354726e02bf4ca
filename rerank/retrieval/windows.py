"""Parts of a passage that is longer than a model reads: windows of its tokens, at whole words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rerank.inference.tokenizer import Tokenizer
from rerank.types import Ints, Passage

MIN_ROOM = 32  # tokens; with fewer beside the title, only the beginning is read


def windows(passages: Sequence[Passage], tokenizer: Tokenizer, max_windows: int) -> list[list[str]]:
    """The texts, `max_windows` at most, that together are a passage, for each passage.

    Each is the title and a part of the text, as long as the tokenizer reads; the parts follow one
    another. A passage that is read whole is one text.
    """
    if max_windows == 1 or not passages:
        return [[p.full_text] for p in passages]
    most = (max_windows + 2) * tokenizer.max_length  # what follows moves no window
    spans = tokenizer.spans([p.text for p in passages], most=most)
    return [
        _windows(
            passage, of_tokens, tokenizer.room(passage.title and f"{passage.title}."), max_windows
        )
        for passage, of_tokens in zip(passages, spans, strict=True)
    ]


def window_starts(spans: Ints, room: int, step: int) -> Ints:
    """Tokens at which a window of `room` tokens may start: the first, then about every `step`.

    `spans` (n, 2), n > room, are the characters of each token. Each start begins a word, if one
    begins near it: not every language has spaces. The last one leaves at most `room` tokens, up to
    the end of the text.
    """
    after_space = np.flatnonzero(np.r_[True, spans[1:, 0] > spans[:-1, 1]])
    wanted = np.r_[np.arange(0, len(spans) - room, step), len(spans) - room]
    nearest = np.minimum(np.searchsorted(after_space, wanted), len(after_space) - 1)
    later = after_space[nearest] - wanted
    return np.unique(wanted + np.where((later >= 0) & (later <= room // 4), later, 0))


def _windows(passage: Passage, spans: Ints, room: int, max_windows: int) -> list[str]:
    if len(spans) <= room or room < MIN_ROOM:
        return [passage.full_text]
    texts = []
    for start in window_starts(spans, room, room)[:max_windows].tolist():
        first, last = spans[start, 0], spans[min(start + room, len(spans)) - 1, 1]
        part = Passage(passage.doc_id, passage.title, passage.text[first:last])
        texts.append(part.full_text)
    return texts
