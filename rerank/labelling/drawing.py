"""Which questions to label: proposed from a corpus, or drawn by confidence with weights."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from calibration.label_selection import (
    ACCEPTED_STRATA,
    Quantity,
    choose_judged,
    choose_rows,
    judged_strata,
)
from rerank.assessment.model import CalibratedReranker
from rerank.data.checks import query_hash, to_json
from rerank.data.feedback import question_key
from rerank.data.labels import ACCEPTED_FROM, DRAWN_BY, JUDGED, WEIGHT
from rerank.data.records import query_row
from rerank.errors import FolderError, InputError
from rerank.labelling.state import PROPOSED
from rerank.storage.files import write_file
from rerank.types import Assessment, Floats, Passage, Query

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
    found: dict[str, tuple[str, bool]] = {}
    for text, own in map(question_of, passages):
        if text:
            found.setdefault(query_hash(text), (text, own))
    order = sorted(found, key=lambda n: (not found[n][1], hashlib.sha256(n.encode()).hexdigest()))
    return [Query(found[n][0], f"{PREFIX}{n}", {PROPOSED: True}) for n in order[:count]]


def question_of(passage: Passage) -> tuple[str, bool]:
    """The question of a passage, or "", and whether the corpus itself asks it."""
    heading = str(passage.metadata.get("heading") or passage.title).split(" > ")[-1].strip()
    heading = NUMBER.sub("", heading)
    line = next(iter(passage.text.strip().splitlines()), "")
    end = END.search(line)
    for text in (heading, line[: end.end() if end else len(line)].strip()):
        if text.endswith(MARKS) and len(text) <= LONGEST and WORDS.match(text):
            return text, True
    about = WORDS.match(heading) and len(heading) <= LONGEST
    return (ABOUT.format(heading), False) if about else ("", False)


How = Quantity | Literal["even", "accepted"]
# of questions and answers: the name of a judge, and 1, 0 or NaN for each, (n,)
Verdicts = Callable[[Sequence[Query], Sequence[Assessment]], tuple[str, Floats]]


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
    verdicts: Verdicts | None = None,
) -> list[tuple[Query, Assessment, float]]:
    """Sample `count` of the queries, in their order: uniformly, or stratified by confidence.

    Each comes with its assessment, and with the number of queries that it stands for.

    Stratification is for the accuracy above the advisory threshold, or for the map: see
    `calibration.label_selection`. `accepted` is uniform among those that the model accepts, or all
    of them, if they are fewer; their metadata say from which confidence up, of how many, and by
    which model.

    With the `verdicts` of a judge on all of them, or on the accepted ones, the sample is stratified
    by these (`calibration.label_selection.choose_judged`), and the metadata say of which strata.
    """
    if verdicts and how not in ("accepted", "accuracy"):
        raise InputError(f"--draw {how}: not with a judge; expected accepted or accuracy")
    answers = model.assess(queries, label="assessing")
    threshold = model.pipeline.config.thresholds.advisory
    if how == "accepted":
        kept = [pair for pair in zip(queries, answers, strict=True) if pair[1].accepted]
        if not kept:
            raise InputError(
                f"{model.folder} accepts none of the {len(answers)} questions: there is nothing to "
                "certify; calibrate with labels drawn evenly (--draw even)"
            )
        drawn = {ACCEPTED_FROM: threshold, "population": len(kept), DRAWN_BY: model.version}
        queries = [replace(q, metadata={**q.metadata, **drawn}) for q, _ in kept]
        answers, count = [answer for _, answer in kept], min(count, len(kept))
        how = "accepted" if verdicts else "even"
    if verdicts:
        by, says = verdicts(queries, answers)
        strata = judged_strata([answer.confidence for answer in answers], says, threshold)
        chosen = choose_judged(strata, count, random_state=seed)
        rows, weights = chosen.rows, chosen.weights
        of = np.bincount(strata, minlength=2 * ACCEPTED_STRATA).tolist()
        queries = list(queries)
        for row in rows.tolist():
            said = {"by": by, "yes": None if np.isnan(says[row]) else bool(says[row])}
            judged = {**said, "stratum": int(strata[row]), "of": of}
            queries[row] = replace(queries[row], metadata={**queries[row].metadata, JUDGED: judged})
    elif how == "even":
        rows = np.sort(np.random.default_rng(seed).permutation(len(queries))[:count])
        weights = np.full(count, len(queries) / count)
    else:
        quantity: Quantity = "map" if how == "map" else "accuracy"
        p = [answer.confidence for answer in answers]
        chosen = choose_rows(p, count, quantity=quantity, threshold=threshold, random_state=seed)
        rows, weights = chosen.rows, chosen.weights
    return [
        (queries[row], answers[row], weight)
        for row, weight in zip(rows.tolist(), weights.tolist(), strict=True)
    ]


def label_next(
    model: CalibratedReranker,
    queries: Sequence[Query],
    count: int,
    out: str | Path,
    *,
    how: How = "accuracy",
    seed: int = 0,
    overwrite: bool = False,
    verdicts: Verdicts | None = None,
) -> int:
    """Write a sample of `count` queries to `out`, each with the passage to judge; return how many.

    Queries that the model was fitted on are left out, and a question that was asked several times
    counts once. The sample is stratified by confidence (see
    `calibration.label_selection`), to estimate the accuracy above the advisory threshold or to fit
    the map. Each line is a query with `metadata.weight`, its confidence and its top passage: add
    `right` to it, true or false, and it is a label for `recalibrate`. `accepted` has no weights: it
    is a random sample, in random order, of what the model accepts. `verdicts`: as in `sample`.
    """
    if Path(out).exists() and not overwrite:
        raise FolderError(
            f"{out} exists, and labels in it would be lost; give another --out, or --overwrite"
        )
    fresh = list({question_key(query): query for query in fresh_queries(model, queries)}.values())
    if count > len(fresh):
        raise InputError(
            f"expected at least {count} different queries that the model was not fitted on, "
            f"got {len(fresh)}; give more queries, or a lower --count"
        )
    rows = []
    drawn_queries = sample(model, fresh, count, how=how, seed=seed, verdicts=verdicts)
    if how == "accepted":  # so that the first ones alone are a random sample, too
        random.Random(seed).shuffle(drawn_queries)
    for query, answer, weight in drawn_queries:
        top, row = answer.top, query_row(query)
        drawn = {WEIGHT: weight, DRAWN_BY: model.version} if how != "accepted" else {}
        row["metadata"] = {**row.get("metadata", {}), **drawn}
        shown = {"doc_id": top.doc_id, "title": top.title, "text": top.text} if top else None
        rows.append({**row, "confidence": answer.confidence, "top": shown})
    write_file(out, (to_json(row) + "\n" for row in rows))
    return len(rows)
