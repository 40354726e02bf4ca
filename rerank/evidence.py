"""What speaks for one passage: a row of numbers from which `relevance` is computed.

Each is a named function with one line of meaning: of one query's candidates, or of what the
cross-encoder made of them. Values are finite whatever comes in. Nothing here knows of labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from rerank.text import remembered, sentence_words, words
from rerank.types import Candidates, Floats, Passage

REMEMBERED = 2**22  # characters of passages whose words are kept, at about 50 bytes each


@dataclass(frozen=True, slots=True)
class PassageWords:
    """The words of a passage as the coverage features need them."""

    body: frozenset[str]
    title: frozenset[str]
    sentences: tuple[frozenset[str], ...]
    bigrams: frozenset[tuple[str, str]]
    length: int


@dataclass(frozen=True, slots=True)
class View:
    """One query's candidates as the first stage knows them. Arrays have shape (n,)."""

    candidates: Candidates
    query_words: tuple[str, ...]
    idf: dict[str, float]  # of each query word, > 0
    passages: tuple[PassageWords, ...]


Read = NDArray[np.bool_]
READING: dict[str, Callable[[Floats, Read], Floats]] = {}  # of the logits, and which were given
FIRST_STAGE: dict[str, Callable[[View], Floats]] = {}


def reading(function: Callable[[Floats, Read], Floats]) -> Callable[[Floats, Read], Floats]:
    """Enter a function of what was read into its table, under its own name."""
    READING[function.__name__] = function
    return function


def evidence(function: Callable[[View], Floats]) -> Callable[[View], Floats]:
    """Enter a function of the first stage into its table, under its own name."""
    FIRST_STAGE[function.__name__] = function
    return function


@remembered(REMEMBERED)
def passage_words(title: str, text: str, language: str) -> PassageWords:
    """The passage's words; kept, because a passage is a candidate of many queries."""
    said = sentence_words(text, language=language)
    body = list(chain.from_iterable(said))
    return PassageWords(
        frozenset(body),
        frozenset(words(title, language=language)),
        tuple(frozenset(sentence) for sentence in said),
        frozenset(pairwise(body)),
        len(body),
    )


def view(
    candidates: Candidates,
    passages: Sequence[Passage],
    *,
    weight: Callable[[str], float],
    language: str,
) -> View:
    """Gather what the functions need; `weight` gives a word's idf."""
    query_words = tuple(words(candidates.query.text, language=language))
    return View(
        candidates,
        query_words,
        {w: max(weight(w), 1e-6) for w in query_words},
        tuple(passage_words(p.title, p.text, language) for p in passages),
    )


def evidence_matrix(seen: View) -> Floats:
    """All evidence before any reading, shape (n, len(EVIDENCE)), columns in its order; finite."""
    n = len(seen.passages)
    columns = [function(seen) for function in FIRST_STAGE.values()]
    unread = np.empty((n, len(READING)))
    return as_read(np.column_stack([unread, *columns]), np.zeros(n), np.zeros(n, dtype=np.bool_))


def as_read(rows: Floats, logits: Floats, read: Read) -> Floats:
    """The evidence `rows` with what reading adds to it: logits (n,), and where they were given."""
    columns = [function(logits, read) for function in READING.values()]
    return np.column_stack([*columns, rows[:, len(READING) :]])


def _covered(seen: View, parts_of: Callable[[PassageWords], Sequence[frozenset[str]]]) -> Floats:
    """Share of the query's idf found in the one of each passage's parts that has most of it."""
    total = sum(seen.idf.values())
    if total <= 0:
        return np.zeros(len(seen.passages))
    found = [
        max(sum(seen.idf[w] for w in seen.idf if w in part) for part in parts_of(p))
        for p in seen.passages
    ]
    return np.array(found, dtype=np.float64) / total


@reading
def logit(logits: Floats, read: Read) -> Floats:
    """The cross-encoder's raw output."""
    return logits


@reading
def logit_below_best(logits: Floats, read: Read) -> Floats:
    """Logit - max logit of this query; 0 for the best."""
    return np.asarray(logits - logits.max(initial=-np.inf))


@reading
def unread(logits: Floats, read: Read) -> Floats:
    """1 where the cross-encoder did not read the passage."""
    return (~read).astype(np.float64)


@evidence
def cosine(seen: View) -> Floats:
    """Cosine of query and passage."""
    return seen.candidates.dense


@evidence
def cosine_below_best(seen: View) -> Floats:
    """Cosine - max cosine of this query."""
    return np.asarray(seen.candidates.dense - seen.candidates.dense.max(initial=-1.0))


@evidence
def bm25_of_best(seen: View) -> Floats:
    """BM25 score / max BM25 score of this query; 0 where nothing matches."""
    best = seen.candidates.bm25.max(initial=0.0)
    return seen.candidates.bm25 / best if best > 0 else np.zeros(len(seen.candidates))


@evidence
def bm25_a_word(seen: View) -> Floats:
    """BM25 score / number of query words."""
    return seen.candidates.bm25 / max(1, len(seen.query_words))


@evidence
def bm25_log_rank(seen: View) -> Floats:
    """Log of the rank in BM25."""
    return np.log(seen.candidates.bm25_rank.astype(np.float64))


@evidence
def dense_log_rank(seen: View) -> Floats:
    """Log of the rank by cosine."""
    return np.log(seen.candidates.dense_rank.astype(np.float64))


@evidence
def fused_log_rank(seen: View) -> Floats:
    """Log of the rank after fusion."""
    order = np.argsort(np.argsort(-seen.candidates.fused, kind="stable"), kind="stable")
    return np.log1p(order.astype(np.float64))


@evidence
def term_coverage(seen: View) -> Floats:
    """Share of the query's distinct words that stand in the passage or its title."""
    wanted = set(seen.query_words)
    found = [len(wanted & (p.body | p.title)) for p in seen.passages]
    return np.array(found, dtype=np.float64) / max(1, len(wanted))


@evidence
def idf_coverage(seen: View) -> Floats:
    """Share of the query's idf that stands in the passage's text."""
    return _covered(seen, lambda p: (p.body,))


@evidence
def sentence_coverage(seen: View) -> Floats:
    """Share of the query's idf that stands in one sentence of the text, the best for it."""
    return _covered(seen, lambda p: p.sentences)


@evidence
def title_coverage(seen: View) -> Floats:
    """Share of the query's idf that stands in the title."""
    return _covered(seen, lambda p: (p.title,))


@evidence
def bigram_coverage(seen: View) -> Floats:
    """Share of the query's neighbouring word pairs that stand so in the passage."""
    wanted = set(pairwise(seen.query_words))
    found = [len(wanted & p.bigrams) for p in seen.passages]
    return np.array(found, dtype=np.float64) / max(1, len(wanted))


@evidence
def log_length(seen: View) -> Floats:
    """log(1 + number of words of the passage)."""
    return np.log1p(np.array([p.length for p in seen.passages], dtype=np.float64))


EVIDENCE = (*READING, *FIRST_STAGE)  # the columns' names, in order
