"""Labels that arrive after calibration: feedback on answers, a JSON object per line of a file.

A folder of a labelled set holds the same and more. Of labels of one question the last one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rerank.data.checks import json_type, query_hash
from rerank.data.grouping import groupings
from rerank.data.labelled_set import LabelledSet, asked_about
from rerank.data.labels import Labels, drawn_at_random, weights_of
from rerank.data.lines import read_records
from rerank.data.records import read_id, read_query, read_right
from rerank.errors import InputError
from rerank.filters import Where
from rerank.types import Assessment, Passage, Query, Ranking

MOVED = "the model now puts another passage first"
LATER = "a later one is about the same question"


@dataclass(frozen=True, slots=True)
class Feedback:
    """A query and its feedback: `right`, or else the ids of the right passages.

    If the query has passages, `right` is about the top passage of that list. `top` is its id, "" if
    there was no passage, None if it is not known.
    """

    query: Query
    group: str
    right: bool | None
    relevant: frozenset[str]
    chosen: bool = False  # by whoever judged it, not drawn at random
    top: str | None = None


def search_labels(feedback: Sequence[Feedback]) -> list[Feedback]:
    """The labels given to answers of a search: they are about its own top passages."""
    return [f for f in feedback if f.query.mode == "search"]


def still_first(
    feedback: Sequence[Feedback], assess: Callable[[Sequence[Query]], Sequence[Assessment]]
) -> list[bool]:
    """Whether each label applies: the passage that it judged is first now, or it names none.

    `assess`, that of the model, is called with the queries whose labels name a passage.
    """
    named = [i for i, f in enumerate(feedback) if f.right is not None and f.top is not None]
    applies = [True] * len(feedback)
    found = assess([feedback[i].query for i in named]) if named else []
    for i, answer in zip(named, found, strict=True):
        applies[i] = feedback[i].top == (answer.top.doc_id if answer.top else "")
    return applies


def without_moved(
    feedback: Sequence[Feedback], assess: Callable[[Sequence[Query]], Sequence[Assessment]]
) -> tuple[list[Feedback], list[str]]:
    """The labels that still apply (see `still_first`), and a note on those that are left out.

    If a label of a random sample is dropped, the rest is no random sample: it is marked `chosen`.
    """
    rows = list(zip(feedback, still_first(feedback, assess), strict=True))
    kept, moved = [f for f, yes in rows if yes], [f for f, yes in rows if not yes]
    if not moved:
        return kept, []
    left_out = f"left out: {len(moved)} labels, because {MOVED}."
    if not kept:
        raise InputError(f"no label can be used, {left_out}")
    sampled = not all(f.chosen for f in moved)
    return [replace(f, chosen=f.chosen or sampled) for f in kept], [left_out]


def newest_of_each(feedback: Sequence[Feedback]) -> list[Feedback]:
    """The last label of each question, in their order: copies are not independent labels.

    A question is the text, whatever its case and spaces, with its filter, and the passages that
    came with it, if any, in any order. The labels should be those of `without_moved`.
    """
    last = {question_key(f.query): i for i, f in enumerate(feedback)}
    return [feedback[i] for i in sorted(last.values())]


def question_key(query: Query) -> tuple[str, str, frozenset[str], Where | None]:
    """Equal for queries that are the same question: see `newest_of_each`."""
    passages = frozenset(p.full_text or p.doc_id for p in query.passages or ())
    return query.mode, query_hash(query.text), passages, query.where


def group_labels(labels: Sequence[Feedback], passages: Iterable[Passage]) -> tuple[list[str], str]:
    """The group of each label, (n,), and the questions that a certificate by these groups is about.

    The largest of `rerank.data.grouping.groupings`, by the `passages` that the labels name;
    otherwise the labels' own groups. The ids in a caller's list have no meaning outside that list.
    """
    rows = {str(i): f for i, f in enumerate(labels)}
    right = {i: f.relevant for i, f in rows.items() if f.query.passages is None}
    named = {d for i, ids in right.items() for d in (*ids, asked_about(rows[i].query))}
    corpus = {p.doc_id: p for p in passages if p.doc_id in named}
    known = {i: dict.fromkeys(sorted(ids & corpus.keys()), 1.0) for i, ids in right.items()}
    qrels = {i: grades for i, grades in known.items() if grades}
    queries = {i: replace(f.query, query_id=i) for i, f in rows.items()}
    labelled = LabelledSet(corpus, queries, qrels, {"labels": tuple(rows)})
    grouping = next(groupings(labelled, list(rows)))
    if not grouping.of and grouping.name != "metadata.group":
        return [f.group for f in labels], grouping.about
    regrouped = replace(labelled, grouping=grouping)
    return [regrouped.group(i) for i in rows], grouping.about


def feedback_of(labelled: LabelledSet, split: str) -> list[Feedback]:
    """The labels that the qrels give to a split's queries, in its order."""
    queries = labelled.select(labelled.split(split))
    for query in queries.items:
        weights_of([query])  # some may have none
    rows = zip(queries.items, queries.groups.tolist(), queries.grades, strict=True)
    return [
        Feedback(query, group, None, frozenset(grades), not drawn_at_random([query]))
        for query, group, grades in rows
    ]


def hit_labels(feedback: Sequence[Feedback], rankings: Sequence[Ranking]) -> Labels:
    """1 where the top passage is right, shape (n,)."""
    rows = zip(feedback, rankings, strict=True)
    right = (f.relevant & {*r.doc_ids[:1]} if f.right is None else f.right for f, r in rows)
    return np.array(list(map(bool, right)), dtype=np.int64)


def read_feedback(path: Path) -> list[Feedback]:
    """The labels of a file, in its order; see `feedback_from`."""
    return read_records(path, feedback_from, "label")


def feedback_from(row: Mapping[str, Any]) -> Feedback:
    """The label of one record: its `query`, `right` or `relevant`, `chosen` and `top`.

    With `passages` it is about the caller's list, otherwise about a search. `top` has the `doc_id`
    of the passage that `right` is about, or is null if there was none.
    """
    query = replace(read_query({**row, "_id": "label"}), query_id="")
    weights_of([query])
    right, relevant = read_right(row), row.get("relevant")
    chosen = row.get("chosen", False)
    if not isinstance(chosen, bool):
        raise InputError(f"'chosen' should be true or false, got {chosen!r:.80}")
    if (right is None) == (relevant is None):
        raise InputError(
            'expected one of "right": true or false, of the top passage, and "relevant": [IDS], '
            f"for the whole line; got {sorted(row)}"
        )
    if relevant is not None and not isinstance(relevant, list):
        raise InputError(f"'relevant' should be a list of passage ids, got {json_type(relevant)}")
    ids = [read_id({"relevant": i}, "relevant") for i in relevant or ()]
    if query.passages is not None and query.scores is None:
        unknown = sorted(set(ids) - {passage.doc_id for passage in query.passages})
        if unknown:
            raise InputError(f"'relevant' names {unknown[0]!r:.80}, which is not in 'passages'")
    chosen = chosen or not drawn_at_random([query])
    top, judged = row.get("top"), "" if "top" in row else None
    if isinstance(top, Mapping):
        judged = read_id({"top.doc_id": top.get("doc_id")}, "top.doc_id")
    elif top is not None:
        raise InputError(f"'top' should be an object with a 'doc_id', or null, got {top!r:.80}")
    group = " ".join(query.text.lower().split())
    return Feedback(query, group, right, frozenset(ids), chosen, judged)


def check_known_passages(feedback: Sequence[Feedback], passages: Iterable[Passage]) -> None:
    """Refuse labels that name passages which are not among these."""
    named = {i for f in search_labels(feedback) for i in f.relevant}
    unknown = sorted(named - {p.doc_id for p in passages}) if named else ()
    if unknown:
        raise InputError(
            f"{len(unknown)} of the {len(named)} passages that the labels name are not in the "
            f"index, such as {unknown[0]!r:.80}; expected the ids of its corpus"
        )
