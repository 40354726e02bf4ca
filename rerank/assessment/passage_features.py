"""The features of one passage, from which its score is computed.

Each is a named function with one line of meaning, of the first stage's results for a query or of
the cross-encoder's scores. All are finite. No label is used.
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
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


def first_stage_features(
    query: str, passages: Sequence[Passage], stage: FirstStage, lexicon: Lexicon
) -> Floats:
    """The first-stage features of passages that all differ, shape (n, len(FIRST_STAGE)), finite."""
    language = lexicon.language
    query_words = tuple(words(query, language=language))
    view = View(
        stage,
        query_words,
        {w: max(lexicon.idf(w), 1e-6) for w in query_words},
        tuple(content_words(query, language=language)) or query_words,
        tuple(passage_words(p, language) for p in passages),
    )
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


def _idf_coverage(view: View, idf_found: Callable[[PassageWords], float]) -> Floats:
    return _share([idf_found(p) for p in view.passages], list(view.idf.values()))


def _found(held: Collection[str], idf: Mapping[str, float]) -> list[str]:
    """The words that are held, in the order of `idf`: sums depend on it."""
    both = idf.keys() & held
    return [word for word in idf if word in both] if both else []


def _idf_in(held: Collection[str], idf: Mapping[str, float]) -> float:
    return sum(idf[word] for word in _found(held, idf))


def _idf_in_best_sentence(passage: PassageWords, idf: Mapping[str, float]) -> float:
    """The largest total idf of words in one sentence of the text; 0 if none is in it."""
    total: dict[int, float] = {}
    for word in _found(passage.places, idf):
        for sentence in {passage.sentence_at[i] for i in passage.places[word]}:
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
    asked = view.idf.keys()
    found = [len((asked & p.places.keys()) | (asked & p.title.keys())) for p in view.passages]
    return _share(found, [1.0] * len(view.idf))


@first_stage
def idf_coverage(view: View) -> Floats:
    """Share of the query's idf found in the passage's text."""
    return _idf_coverage(view, lambda p: _idf_in(p.places, view.idf))


@first_stage
def sentence_coverage(view: View) -> Floats:
    """Share of the query's idf found in the best sentence of the text."""
    return _idf_coverage(view, lambda p: _idf_in_best_sentence(p, view.idf))


@first_stage
def content_lead(view: View) -> Floats:
    """Share of the idf of content words in the title and one sentence - the best of the others.

    Content words are the query's words without stop words; the sentence is the best of the text.
    """
    idf = {w: view.idf[w] for w in view.content}
    found = [
        _idf_in(p.title, idf)
        + _idf_in_best_sentence(p, {w: v for w, v in idf.items() if w not in p.title})
        for p in view.passages
    ]
    return lead(_share(found, list(idf.values())))


@first_stage
def title_coverage(view: View) -> Floats:
    """Share of the query's idf found in the title."""
    return _idf_coverage(view, lambda p: _idf_in(p.title, view.idf))


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

    def neighbours(passage: PassageWords) -> int:  # how many of the pairs are, in the text
        held = view.idf.keys() & passage.places.keys()
        places = {word: set(passage.places[word]) for word in held}
        found = 0
        for first in following.keys() & held:
            after = {place + 1 for place in places[first]}
            found += sum(not after.isdisjoint(places[second]) for second in following[first] & held)
        return found

    found = [neighbours(p) for p in view.passages]
    return _share(found, [1.0] * sum(map(len, following.values())))


@first_stage
def log_length(view: View) -> Floats:
    """log(1 + number of words of the passage)."""
    return np.log1p(np.array([len(p.sentence_at) for p in view.passages], dtype=np.float64))


# the columns' names, in order: a ChainMap goes through its last map first
PASSAGE_FEATURES: Mapping[str, Callable[..., Floats]] = ChainMap(FIRST_STAGE, CROSS_ENCODER)  # type: ignore[arg-type]
