"""What the cross-encoder reads of a passage that is too long for it: the part about the question.

A cross-encoder reads a fixed number of tokens, and an answer often stands behind them. So of a long
passage it reads the title and the window of the text with most of the question's words, in the
first `READ` characters. This takes no more tokens than the beginning would. To choose parts of a
document cheaply before an expensive model reads them is the idea of Hofstätter et al. (2021,
"Intra-Document Cascading"); here the words alone choose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rerank.data.words import READ, Lexicon, content_words, word_places, words
from rerank.inference.tokenizer import Tokenizer
from rerank.retrieval.windows import MIN_ROOM, window, window_starts
from rerank.types import Floats, Ints, Passage

STEP = 16  # tokens, about, from one window to the next
REPEATED = 0.02  # of a word's weight, for each time it stands in a window


def excerpts(
    query: str, passages: Sequence[Passage], tokenizer: Tokenizer, lexicon: Lexicon
) -> list[str]:
    """What a model with this tokenizer reads of each passage, beside the query.

    Stop words do not count, unless the query has no other words.
    """
    language = lexicon.language
    about = content_words(query, language=language) or words(query, language=language)
    weights = {word: lexicon.idf(word) for word in about}
    rooms = [tokenizer.room(query, p.title and f"{p.title}.") for p in passages]
    spans = tokenizer.spans([p.text[:READ] for p in passages])
    return [
        excerpt(passage, of_tokens, room, weights, language=language)
        for passage, of_tokens, room in zip(passages, spans, rooms, strict=True)
    ]


def excerpt(
    passage: Passage, spans: Ints, room: int, weights: Mapping[str, float], *, language: str
) -> str:
    """Title and window of a passage whose text has more than `room` tokens; else its full text.

    `spans` (n, 2) are the characters at which each token of the text begins and ends, `weights` the
    query's words with their weight. The first of equal windows is taken; so a text without any of
    the words is read from its beginning.
    """
    if len(spans) <= room or room < MIN_ROOM:
        return passage.full_text
    at = word_places(passage.text[:READ], weights, language=language)
    places = [np.searchsorted(spans[:, 0], characters) for characters in at.values()]
    starts = window_starts(spans, room, STEP)
    start = best_window(places, np.array([weights[word] for word in at]), starts, room)
    return window(passage, spans, start, room)


def best_window(places: Sequence[Ints], weights: Floats, starts: Ints, room: int) -> int:
    """The start of the window with the highest total weight of words, the first of equal ones.

    `places[i]` are the tokens, in order, at which word i stands; its weight counts once for a
    window that holds it, and `REPEATED` times more for each time it does.
    """
    total = np.zeros(len(starts))
    for at, weight in zip(places, weights, strict=True):
        count = np.searchsorted(at, starts + room) - np.searchsorted(at, starts)
        total += weight * ((count > 0) + REPEATED * count)
    return int(starts[np.argmax(total)])
