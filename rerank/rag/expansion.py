"""RM3 query expansion: words of the best passages that the query lacks. Text in, words out.

Lavrenko & Croft (SIGIR 2001) for the model; Abdul-Jaleel et al. (TREC 2004) for its mixture with
the query; the filter of frequent words is Anserini's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rerank.data.words import Lexicon, words
from rerank.types import Floats, Passage

FREQUENT = math.log(9)  # the idf of a word that occurs in a tenth of all passages


def expansion_words(
    query: str,
    passages: Sequence[Passage],
    relevance: Floats,
    lexicon: Lexicon,
    *,
    max_words: int = 10,
) -> list[str]:
    """The likeliest words of the relevance model that the query lacks, best first.

    `relevance` (n,) weighs the passages. There are at most `max_words`, and no more than the query
    has words, so that it keeps at least half of the weight. Words in more than a tenth of the
    passages are left out.
    """
    asked = words(query, language=lexicon.language)
    model: Counter[str] = Counter()
    spelled: dict[str, str] = {}  # the first spelling of each stem
    for passage, relevant in zip(passages, relevance.tolist(), strict=True):
        written = words(passage.full_text, language="none")
        stems = words(passage.full_text, language=lexicon.language)
        for word, stem in zip(written, stems, strict=True):
            spelled.setdefault(stem, word)
            model[stem] += relevant / len(stems)
    for stem in list(model):
        if stem in asked or lexicon.idf(stem) < FREQUENT:
            del model[stem]
    return [spelled[stem] for stem, _ in model.most_common(min(max_words, len(asked)))]
