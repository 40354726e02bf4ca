"""Which questions to label, drawn with weights, and what their labels show, as a labelled set.

A passage is right, with grade 2, if all who judged it say so. One that answers partly is listed in
the metadata `partly`, and is right with grade 1 if the caller wants that. Wrong ones are listed in
`judged_wrong`, and those on which people disagree in `disputed`; the lower judgement counts.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np

from calibration import label_selection
from calibration.metrics.intervals import Agreement, cohens_kappa
from calibration.thresholds import ABOUT, certify
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.predictions import CALIBRATED_FROM
from rerank.data.beir import LabelledFiles
from rerank.data.checks import query_hash, to_json
from rerank.data.feedback import question_key
from rerank.data.grouping import grouped
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import ACCEPTED_FROM, CHOSEN, DRAWN_BY, JUDGED, WEIGHT
from rerank.data.records import JUDGED_WRONG, query_row
from rerank.errors import FolderError, InputError
from rerank.labelling.judgements import PROPOSED, Question, chosen_without_weights, differ, weights
from rerank.storage.files import write_file
from rerank.types import Assessment, Floats, Passage, Query

PREFIX = "proposed-"  # of its id, before the hash of its original text
ASK_ABOUT = "What does the documentation say about {}?"
MARKS = ("?", "？", "؟")
END = re.compile(r"[?.!](?=\s|$)|[？؟]")  # of a sentence; a sign such as `?` ends none
LONGEST = 300  # characters of a question, or of a heading that one is about
NUMBER = re.compile(
    r"^(?:(?:chapter|part|section)\s+\d+|\d+(?:\.\d+)+|\d+(?=[.:)]))[.:)]*\s+", re.I
)
WORDS = re.compile(r"[¿\"'“‘«(`]*[^\W_]")  # how a text begins, unless it is links or signs
SPLIT = "test"
PARTLY, DISPUTED = "partly", "disputed"  # metadata of a query: ids of passages
VERDICT_SHOWN = "verdict_shown"  # metadata: true if a judge's verdict was shown to who labelled it


def propose(passages: Iterable[Passage], count: int) -> list[Query]:
    """At most `count` questions, each once; those that the corpus itself asks come first.

    Within each kind they are ordered by a hash, so that they come from all parts of the corpus.
    """
    found: dict[str, tuple[str, bool]] = {}
    for text, own in map(question_of, passages):
        if text:
            found.setdefault(query_hash(text), (text, own))
    order = sorted(found, key=lambda n: (not found[n][1], hashlib.sha256(n.encode()).hexdigest()))
    return [Query(found[n][0], f"{PREFIX}{n}", {PROPOSED: True}) for n in order[:count]]


def question_of(passage: Passage) -> tuple[str, bool]:
    """The heading or first sentence if it asks, else a question about the heading; whether it asks.

    "" if there is none.
    """
    heading = str(passage.metadata.get("heading") or passage.title).split(" > ")[-1].strip()
    heading = NUMBER.sub("", heading)
    line = next(iter(passage.text.strip().splitlines()), "")
    end = END.search(line)
    for text in (heading, line[: end.end() if end else len(line)].strip()):
        if text.endswith(MARKS) and len(text) <= LONGEST and WORDS.match(text):
            return text, True
    about = WORDS.match(heading) and len(heading) <= LONGEST
    return (ASK_ABOUT.format(heading), False) if about else ("", False)


How = label_selection.Quantity | Literal["even", "accepted"]
# of questions and answers: the name of a judge, and 1, 0 or NaN for each, (n,)
Verdicts = Callable[[Sequence[Query], Sequence[Assessment]], tuple[str, Floats]]


def fresh_queries(
    model: CalibratedReranker, queries: Iterable[Query], taken: Set[str] = frozenset()
) -> list[Query]:
    """The queries that the model was not fitted on and whose `query_hash` is not `taken`."""
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
    """Sample `count` of the queries, in their order: with assessment, and how many it stands for.

    `even` is uniform; `accuracy` and `map` are stratified by confidence, for the accuracy above the
    advisory threshold or for the map (`calibration.label_selection`); `accepted` is uniform among
    those that the model accepts, or all of them, if they are fewer. With the `verdicts` of a judge
    the sample is stratified by these. Metadata say of which population and strata it is.
    """
    if verdicts and how not in ("accepted", "accuracy"):
        raise InputError(f"--draw {how}: not with a judge; expected accepted or accuracy")
    answers = model.assess(queries, label="assessing")
    threshold = model.pipeline.config.thresholds.advisory
    if how == "accepted":
        kept = [q for q, answer in zip(queries, answers, strict=True) if answer.accepted]
        if not kept:
            raise InputError(
                f"{model.folder} accepts none of the {len(answers)} questions: there is nothing to "
                "certify; calibrate with labels drawn evenly (--draw even)"
            )
        drawn = {ACCEPTED_FROM: threshold, "population": len(kept), DRAWN_BY: model.version}
        queries, count = [_with(query, drawn) for query in kept], min(count, len(kept))
        answers = [answer for answer in answers if answer.accepted]
        how = "accepted" if verdicts else "even"
    if verdicts:
        by, says = verdicts(queries, answers)
        strata = label_selection.judged_strata(
            [answer.confidence for answer in answers], says, threshold
        )
        chosen = label_selection.choose_judged(strata, count, random_state=seed)
        of = np.bincount(strata, minlength=2 * label_selection.ACCEPTED_STRATA).tolist()
        queries = list(queries)
        for row in chosen.rows.tolist():
            yes = None if np.isnan(says[row]) else bool(says[row])
            said = {"by": by, "yes": yes, "stratum": int(strata[row]), "of": of}
            queries[row] = _with(queries[row], {JUDGED: said})
    elif how == "even":
        rows = np.sort(np.random.default_rng(seed).permutation(len(queries))[:count])
        return [(queries[row], answers[row], len(queries) / count) for row in rows.tolist()]
    else:
        quantity: label_selection.Quantity = "map" if how == "map" else "accuracy"
        p = [answer.confidence for answer in answers]
        chosen = label_selection.choose_rows(
            p, count, quantity=quantity, threshold=threshold, random_state=seed
        )
    weighted = zip(chosen.rows.tolist(), chosen.weights.tolist(), strict=True)
    return [(queries[row], answers[row], weight) for row, weight in weighted]


def _with(query: Query, metadata: dict[str, Any]) -> Query:
    return replace(query, metadata={**query.metadata, **metadata})


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
    counts once. `how` and `verdicts` are as in `sample`. Each line is a query with
    `metadata.weight`, its confidence and its top passage: add `right` to it, true or false, and it
    is a label for `recalibrate`. Those of `accepted` have no weights, and are in random order.
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
    drawn = sample(model, fresh, count, how=how, seed=seed, verdicts=verdicts)
    if how == "accepted":  # so that the first ones alone are a random sample, too
        random.Random(seed).shuffle(drawn)
    for query, answer, weight in drawn:
        of_draw = {WEIGHT: weight, DRAWN_BY: model.version} if how != "accepted" else {}
        top, row = answer.top, query_row(query)
        row["metadata"] = {**query.metadata, **of_draw}
        shown = {"doc_id": top.doc_id, "title": top.title, "text": top.text} if top else None
        rows.append({**row, "confidence": answer.confidence, "top": shown})
    write_file(out, (to_json(row) + "\n" for row in rows))
    return len(rows)


def labels_of(questions: Sequence[Question], *, partly_right: bool) -> LabelledFiles:
    """The queries that a person is done with, and their qrels, in one split, without a corpus.

    Their metadata have `weight` and `drawn_by` if they are a sample with different weights, and
    `chosen` if they were drawn by confidence and are no sample, because some are proposed.
    """
    weight = weights(questions)
    weighted, chosen = differ(weight), chosen_without_weights(questions)
    queries: dict[str, Query] = {}
    qrels: dict[str, dict[str, float]] = {}
    for question, stands_for in zip(questions, weight, strict=True):
        if not question.done or question.proposed:
            continue
        sampled = {WEIGHT: stands_for, DRAWN_BY: question.drawn_by}
        judged = question.judged
        listed = {
            JUDGED_WRONG: [d for d, grades in judged.items() if grades[0] == "wrong"],
            PARTLY: [d for d, grades in judged.items() if grades[0] == "partly"],
            DISPUTED: [d for d, grades in judged.items() if grades[0] != grades[-1]],
            VERDICT_SHOWN: question.verdict_shown,
        }
        metadata: dict[str, Any] = dict(question.metadata)
        metadata |= sampled if weighted else {CHOSEN: True} if chosen else {}
        metadata |= {key: ids for key, ids in listed.items() if ids}
        queries[question.query_id] = Query(question.text, question.query_id, metadata)
        if right := question.right(partly_right=partly_right):
            qrels[question.query_id] = right
    return LabelledFiles({}, queries, qrels, {SPLIT: tuple(queries)})


def groups_of(
    questions: Sequence[Question], find: Callable[[str], Passage | None], *, partly_right: bool
) -> tuple[dict[str, str], str]:
    """The group of each query of `labels_of`, by id, and what a certificate by these is about."""
    made = labels_of(questions, partly_right=partly_right)
    named = sorted({doc_id for grades in made.qrels.values() for doc_id in grades})
    passages = {doc_id: passage for doc_id in named if (passage := find(doc_id))}
    qrels = {i: {d: g for d, g in of.items() if d in passages} for i, of in made.qrels.items()}
    ids = list(made.queries)
    labelled = grouped(LabelledSet(passages, made.queries, qrels, made.splits), ids)
    assert labelled.grouping is not None
    return {i: labelled.group(i) for i in ids}, labelled.grouping.about


EVERY = 10  # labels between two reports
NOT_EVEN = (
    "These questions were drawn with different chances, so their labels certify nothing; for a "
    "certificate draw evenly, from one file or the same share of each: --draw even."
)
ANOTHER_MODEL = (
    "The top passages and their confidence are of another model, or of an earlier version of this "
    "one: `rerank calibrate` measures these labels."
)


def progress_sentences(
    questions: Sequence[Question],
    groups: Mapping[str, str],
    *,
    about: str = ABOUT,
    calibrated: bool,
    version: str = "",
    target: float,
    partly_right: bool,
) -> list[str]:
    """How often the model's top passages are right so far, and how many more labels are needed.

    groups: of labelled questions by id (`groups_of`); one without is a group of its own. about: the
    questions that a certificate by these groups is about. target: the share of right answers among
    accepted ones that it should guarantee. version: the model's; of questions that are known to be
    drawn by another one, no confidence is told.
    """
    weight, chosen = weights(questions), chosen_without_weights(questions)
    if not any(weight):  # some were proposed: each stands for itself
        weight = [1.0] * len(questions)
    pairs = [pair for pair in zip(questions, weight, strict=True) if pair[0].done]
    done = [question for question, _ in pairs]
    if not done:
        return []
    right = [question.right(partly_right=partly_right) for question in done]
    y = np.array([q.top in found for q, found in zip(done, right, strict=True)], dtype=np.int64)
    p, w = np.array([q.confidence for q in done]), np.array([stands_for for _, stands_for in pairs])
    number = np.array([groups.get(q.query_id, q.query_id) for q in done])
    found = label_selection.weighted_mean(y, w, number)
    interval = "" if np.isnan(found.low) else f" (95% interval {found.low:.0%} to {found.high:.0%})"
    sentence = f"{len(done)} labelled: the top passage is right for {found.mean:.0%}{interval}"
    if chosen:
        sentence += " of these, which were drawn by confidence and stand for no others"
    if calibrated:
        even = not chosen and not differ(weight)
        if {q.drawn_by for q in done} - {version}:
            return [f"{sentence}.", ANOTHER_MODEL, *([] if even else [NOT_EVEN])]
        mean = float((w * p).sum() / w.sum())
        certificate = certify(y, p, groups=number, target=target, floor=target, about=about)
        return [
            f"{sentence}; the model's confidence is {mean:.0%} on average.",
            certificate.brief if even else NOT_EVEN,
        ]
    if len(y) < CALIBRATED_FROM:
        missing = CALIBRATED_FROM - len(y)
        then = f"{missing} more are needed to calibrate, some of them with no answer."
    elif all(y) or not any(y):
        what = "right" if all(y) else "wrong"
        then = f"All top passages are {what}: a calibration needs labels of both kinds."
    elif all(right):
        then = "Enough to calibrate, but no question is without an answer: nothing is certified."
    else:
        then = "Enough to calibrate; with more labels the confidence becomes surer."
    return [f"{sentence}.", then]


def agreements(
    questions: Sequence[Question], of: str | None = None
) -> dict[tuple[str, str], Agreement]:
    """Cohen's kappa of each pair of people (of those with `of`) over what both judged."""
    agreements = {}
    for pair in combinations(sorted({name for q in questions for name in q.people}), 2):
        both: list[tuple[str, str, str]] = []
        for question in questions:
            a, b = (question.person(name).grades for name in pair)
            both += [(a[d], b[d], question.query_id) for d in a if d in b]
        if both and of in (None, *pair):
            agreements[pair] = cohens_kappa(*zip(*both, strict=True))
    return agreements


def agreement_sentence(names: tuple[str, str], found: Agreement) -> str:
    """An agreement in words."""
    first, second = names
    same = f"{first} and {second} agree on {found.same:.0%} of {found.n} passages"
    sentence = f"{same}; Cohen's kappa "
    if np.isnan(found.kappa):
        return f"{sentence}is not defined: every passage has the same label."
    if np.isnan(found.low):
        return f"{sentence}{found.kappa:.2f}, its interval is not known."
    return f"{sentence}{found.kappa:.2f} (95% interval {found.low:.2f} to {found.high:.2f})."
