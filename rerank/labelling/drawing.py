"""Which questions to label: proposed from a corpus, and sampled by the model's confidence."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np

from calibration.label_selection import Quantity, choose_rows
from rerank.assessment.model import CalibratedReranker
from rerank.data.canonical import query_hash
from rerank.labelling.state import PROPOSED
from rerank.types import Assessment, Passage, Query

PREFIX = "proposed-"  # of its id, before the hash of its original text
ABOUT = "What does the documentation say about {}?"
MARKS = ("?", "？", "؟")
END = re.compile(r"[?.!](?=\s|$)|[？؟]")  # of a sentence; a sign such as `?` ends none
LONGEST = 300  # characters of a question, or of a heading that one is about
NUMBER = re.compile(
    r"^(?:(?:chapter|part|section)\s+\d+|\d+(?:\.\d+)+|\d+(?=[.:)]))[.:)]*\s+", re.I
)
WORDS = re.compile(r"[¿\"'“‘«(`]*[^\W_]")  # how a text begins, unless it is links or signs


def propose(passages: Iterable[Passage], count: int) -> list[Query]:
    """At most `count` questions, each once; those that the corpus itself asks come first.

    A question is a heading or a first sentence that asks one, else a question about the heading.
    Within each kind they are ordered by a hash, so that they come from all parts of the corpus.
    """
    questions: dict[str, tuple[bool, Query]] = {}
    for text, own in map(question_of, passages):
        name = query_hash(text)
        if text and name not in questions:
            questions[name] = own, Query(text, f"{PREFIX}{name}", {PROPOSED: True})
    order = sorted(
        questions, key=lambda n: (not questions[n][0], hashlib.sha256(n.encode()).hexdigest())
    )
    return [questions[name][1] for name in order[:count]]


def question_of(passage: Passage) -> tuple[str, bool]:
    """The question of a passage, or "", and whether the corpus itself asks it."""
    heading = str(passage.metadata.get("heading") or passage.title).split(" > ")[-1].strip()
    heading = NUMBER.sub("", heading)
    for text in (heading, _first_sentence(passage.text)):
        if text.endswith(MARKS) and len(text) <= LONGEST and WORDS.match(text):
            return text, True
    about = WORDS.match(heading) and len(heading) <= LONGEST
    return (ABOUT.format(heading), False) if about else ("", False)


def _first_sentence(text: str) -> str:
    """The text up to the first end of a sentence or line."""
    line = next(iter(text.strip().splitlines()), "")
    end = END.search(line)
    return line[: end.end() if end else len(line)].strip()


How = Quantity | Literal["even"]


@dataclass(frozen=True, slots=True)
class SampledQuery:
    """A query to label, the model's assessment and version, and how many queries it stands for."""

    query: Query
    answer: Assessment
    weight: float
    drawn_by: str


def fresh_queries(
    model: CalibratedReranker, queries: Iterable[Query], taken: Set[str] = frozenset()
) -> list[Query]:
    """The queries that the model was not fitted on and whose `query_hash` is not in `taken`."""
    known = model.fitted_on | taken
    return [query for query in queries if query_hash(query.text) not in known]


def sample(
    model: CalibratedReranker,
    queries: Sequence[Query],
    count: int,
    *,
    how: How,
    seed: int,
) -> list[SampledQuery]:
    """Sample `count` of the queries, in their order: uniformly, or stratified by confidence.

    Stratification is for the accuracy above the advisory threshold, or for the map: see
    `calibration.label_selection`.
    """
    answers = model.assess(queries, label="assessing")
    if how == "even":
        rows = np.sort(np.random.default_rng(seed).permutation(len(queries))[:count])
        weights = np.full(count, len(queries) / count)
    else:
        chosen = choose_rows(
            [answer.confidence for answer in answers],
            count,
            quantity=how,
            threshold=model.pipeline.config.thresholds.advisory,
            random_state=seed,
        )
        rows, weights = chosen.rows, chosen.weights
    return [
        SampledQuery(queries[row], answers[row], weight, model.version)
        for row, weight in zip(rows.tolist(), weights.tolist(), strict=True)
    ]
