"""The features of one passage, from which its score is computed.

Each is a named function with one line of meaning, of the first stage's results for a query or of
the cross-encoder's scores. All are finite. No label is used.
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rerank.data.words import Lexicon, PassageWords, content_words, passage_words, words
from rerank.types import Bools, FirstStage, Floats, Passage


@dataclass(frozen=True, slots=True)
class View:
    """The n candidates of one query, as the first-stage features need them."""

    first_stage: FirstStage
    query_words: tuple[str, ...]
    idf: dict[str, float]  # of each query word, > 0
    content: tuple[str, ...]  # query words without stop words, or all if none are left
    passages: tuple[PassageWords, ...]
    # the query's words in each title, and in each text with their sentences; in the query's order,
    # as sums depend on it
    in_title: tuple[list[str], ...]
    in_text: tuple[dict[str, set[int]], ...]


CROSS_ENCODER: dict[str, Callable[[Floats, Bools], Floats]] = {}  # of logits, and which exist
FIRST_STAGE: dict[str, Callable[[View], Floats]] = {}


def cross_encoder(function: Callable[[Floats, Bools], Floats]) -> Callable[[Floats, Bools], Floats]:
    """Register a feature of the cross-encoder's scores in its table, under its own name."""
    CROSS_ENCODER[function.__name__] = function
    return function


def first_stage(function: Callable[[View], Floats]) -> Callable[[View], Floats]:
    """Register a feature of the first stage in its table, under its own name."""
    FIRST_STAGE[function.__name__] = function
    return function


def view_of(
    query: str,
    passages: Sequence[Passage],
    stage: FirstStage,
    idf: Callable[[str], float],
    *,
    language: str,
) -> View:
    """What the first-stage features read of a query and its candidates, which all differ."""
    query_words = tuple(words(query, language=language))
    order = {word: i for i, word in enumerate(dict.fromkeys(query_words))}
    read = tuple(passage_words(p, language) for p in passages)

    def asked(found: Mapping[str, object]) -> list[str]:
        return sorted(order.keys() & found.keys(), key=order.__getitem__)

    return View(
        stage,
        query_words,
        {word: max(idf(word), 1e-6) for word in order},
        tuple(content_words(query, language=language)) or query_words,
        read,
        tuple(asked(p.title) for p in read),
        tuple({w: {p.sentence_at[i] for i in p.places[w]} for w in asked(p.places)} for p in read),
    )


def first_stage_features(
    query: str, passages: Sequence[Passage], stage: FirstStage, lexicon: Lexicon
) -> Floats:
    """The first-stage features of passages that all differ, shape (n, len(FIRST_STAGE)), finite."""
    view = view_of(query, passages, stage, lexicon.idf, language=lexicon.language)
    return np.column_stack([function(view) for function in FIRST_STAGE.values()])


def cross_encoder_features(logits: Floats, scored: Bools) -> Floats:
    """The cross-encoder's features, shape (n, len(CROSS_ENCODER)), finite.

    `logits` (n,) are its scores, `scored` (n,) whether it scored a passage.
    """
    return np.column_stack([function(logits, scored) for function in CROSS_ENCODER.values()])


def lead(values: Floats) -> Floats:
    """Each value - the highest of the others, shape (n,); 0 if there is no other."""
    if len(values) < 2:
        return np.zeros(len(values))
    second, best = np.partition(values, -2)[-2:]
    return np.asarray(values - np.where(values == best, second, best))


def _share(found: Sequence[float], weights: Sequence[float]) -> Floats:
    """The share of the total weight that is found: in [0, 1), 0 if there are no parts.

    One more part of mean weight, never found, is added (Laplace's rule for one outcome): so a query
    of one word, which many passages hold, is never fully covered.
    """
    total = sum(weights)
    shares = np.asarray(found, dtype=np.float64)
    return shares / (total * (1 + 1 / len(weights))) if total > 0 else np.zeros(len(shares))


def _idf_coverage(view: View, idf_found: Sequence[float]) -> Floats:
    return _share(idf_found, list(view.idf.values()))


def _idf_in_best_sentence(sentences: Mapping[str, set[int]], idf: Mapping[str, float]) -> float:
    """The largest total idf of words in one sentence of the text; 0 if none is in it."""
    total: dict[int, float] = {}
    for word, in_sentences in sentences.items():
        for sentence in in_sentences:
            total[sentence] = total.get(sentence, 0.0) + idf[word]
    return max(total.values(), default=0.0)


@cross_encoder
def logit(logits: Floats, scored: Bools) -> Floats:
    """The cross-encoder's raw output."""
    return logits


@cross_encoder
def logit_lead(logits: Floats, scored: Bools) -> Floats:
    """Logit - the highest logit of the other passages; 0 where there is no other."""
    return lead(logits)


@cross_encoder
def unscored(logits: Floats, scored: Bools) -> Floats:
    """1 where the cross-encoder did not score the passage."""
    return (~scored).astype(np.float64)


@first_stage
def cosine(view: View) -> Floats:
    """Cosine of query and passage."""
    return view.first_stage.dense


@first_stage
def cosine_lead(view: View) -> Floats:
    """Cosine - the highest cosine of the other passages; 0 where there is no other."""
    return lead(view.first_stage.dense)


@first_stage
def bm25_of_best(view: View) -> Floats:
    """BM25 score / max BM25 score of this query; 0 where nothing matches."""
    best = view.first_stage.bm25.max(initial=0.0)
    return view.first_stage.bm25 / best if best > 0 else np.zeros(len(view.first_stage))


@first_stage
def bm25_a_word(view: View) -> Floats:
    """BM25 score / number of query words."""
    return view.first_stage.bm25 / max(1, len(view.query_words))


@first_stage
def bm25_log_rank(view: View) -> Floats:
    """Log of the rank in BM25."""
    return np.log(view.first_stage.bm25_rank.astype(np.float64))


@first_stage
def dense_log_rank(view: View) -> Floats:
    """Log of the rank by cosine."""
    return np.log(view.first_stage.dense_rank.astype(np.float64))


@first_stage
def fused_log_rank(view: View) -> Floats:
    """Log of the rank after fusion."""
    order = np.argsort(np.argsort(-view.first_stage.fused, kind="stable"), kind="stable")
    return np.log1p(order.astype(np.float64))


@first_stage
def term_coverage(view: View) -> Floats:
    """Share of the query's distinct words found in the passage or its title."""
    found = [
        len(text.keys() | title) for text, title in zip(view.in_text, view.in_title, strict=True)
    ]
    return _share(found, [1.0] * len(view.idf))


@first_stage
def idf_coverage(view: View) -> Floats:
    """Share of the query's idf found in the passage's text."""
    return _idf_coverage(view, [sum(view.idf[w] for w in held) for held in view.in_text])


@first_stage
def sentence_coverage(view: View) -> Floats:
    """Share of the query's idf found in the best sentence of the text."""
    return _idf_coverage(view, [_idf_in_best_sentence(text, view.idf) for text in view.in_text])


@first_stage
def content_lead(view: View) -> Floats:
    """Share of the idf of content words in the title and one sentence - the best of the others.

    Content words are the query's words without stop words; the sentence is the best of the text.
    """
    idf = {w: view.idf[w] for w in view.content}
    found = [
        sum(idf[w] for w in title if w in idf)
        + _idf_in_best_sentence({w: text[w] for w in text if w in idf and w not in title}, idf)
        for text, title in zip(view.in_text, view.in_title, strict=True)
    ]
    return lead(_share(found, list(idf.values())))


@first_stage
def title_coverage(view: View) -> Floats:
    """Share of the query's idf found in the title."""
    return _idf_coverage(view, [sum(view.idf[w] for w in held) for held in view.in_title])


@first_stage
def bigram_coverage(view: View) -> Floats:
    """Share of the query's neighbouring word pairs that are neighbours in the passage.

    A query without a pair of different words has its term coverage instead: that is neither for
    nor against the passage.
    """
    following: dict[str, set[str]] = defaultdict(set)
    for first, second in pairwise(view.query_words):
        if first != second:
            following[first].add(second)
    if not following:
        return term_coverage(view)

    def neighbours(text: PassageWords, held: Iterable[str]) -> int:  # how many of the pairs are
        places = {word: set(text.places[word]) for word in held}
        found = 0
        for first in following.keys() & places.keys():
            after = {place + 1 for place in places[first]}
            both = following[first] & places.keys()
            found += sum(not after.isdisjoint(places[second]) for second in both)
        return found

    found = [neighbours(p, held) for p, held in zip(view.passages, view.in_text, strict=True)]
    return _share(found, [1.0] * sum(map(len, following.values())))


@first_stage
def log_length(view: View) -> Floats:
    """log(1 + number of words of the passage)."""
    return np.log1p(np.array([len(p.sentence_at) for p in view.passages], dtype=np.float64))


# the columns' names, in order: a ChainMap goes through its last map first
PASSAGE_FEATURES: Mapping[str, Callable[..., Floats]] = ChainMap(FIRST_STAGE, CROSS_ENCODER)  # type: ignore[arg-type]
