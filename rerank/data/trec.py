"""TREC runs and qrels to labelled lists: a run is the output of one stage, with its scores.

A run has six columns, `query Q0 passage rank score tag`; rank and tag are ignored. Qrels have four,
`query 0 passage grade`, or the three of BEIR. Grades of 0 and below are wrong.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rerank.data.beir import QRELS_HEADER, UNJUDGED, read_corpus
from rerank.data.lines import Problems, holds_records, lines, records
from rerank.data.lists import labelled_list
from rerank.data.records import MAX_PASSAGES, MAX_STAGES, finite_number, read_query
from rerank.errors import InputError, check_one_of
from rerank.types import Passage

Run = dict[str, dict[str, float]]  # query id -> passage id -> score


def import_trec(
    runs: Mapping[str, Path],
    qrels: Path,
    *,
    queries: Path | None = None,
    corpus: Path | None = None,
    depth: int,
    unjudged: str = "refuse",
) -> Iterator[dict[str, Any]]:
    """Yield each query's line for `rerank.data.lists`: its id, passages, scores and labels.

    `runs` are the stages by name, in their order, the reranker last; of each, the `depth` passages
    with the highest scores are taken. A passage that a run does not return has no score from it. A
    query with qrels but in no run gets an empty list. A query without qrels is an error, left out,
    or counted as unanswerable, as `unjudged` says. `queries` and `corpus` provide the texts: JSONL
    files as in BEIR or, for queries, lines of id, tab and text. Without `queries` the id is used as
    the text.

    Raises:
        InputError: bad lines, which are listed; an unjudged query; a query or a passage without its
            text; or a list that could not be read again, such as one that is too long.
    """
    if len(runs) > MAX_STAGES:
        raise InputError(f"got {len(runs)} runs, at most {MAX_STAGES} are taken")
    check_one_of("unjudged", unjudged, UNJUDGED)
    problems = Problems()
    read = {name: _run(path, problems) for name, path in runs.items()}
    grades = _qrels(qrels, problems)
    problems.raise_if_any("the runs and qrels")
    names = None if queries is None else _queries(queries)
    texts = None if corpus is None else read_corpus(corpus)
    ids = list(dict.fromkeys([*grades, *(i for run in read.values() for i in run)]))
    unjudged_ids = [i for i in ids if i not in grades]
    if unjudged_ids and unjudged == UNJUDGED[0]:
        raise InputError(
            f"{qrels} judges nothing for {len(unjudged_ids)} of the {len(ids)} queries, such as "
            f"{unjudged_ids[0]!r:.80}; say what they are: --unjudged leave-out, or unanswerable"
        )
    for query_id in ids:
        if query_id in grades or unjudged != "leave-out":
            row = {
                "_id": query_id,
                "query": query_id if names is None else _look_up(names, query_id, "queries"),
                "passages": _passages(query_id, read, texts, depth),
                "relevant": {d: g for d, g in grades.get(query_id, {}).items() if g > 0},
            }
            try:
                labelled_list(row)
            except InputError as error:
                raise InputError(f"query {query_id!r:.80}: {error}") from None
            yield row


def _passages(
    query_id: str, runs: Mapping[str, Run], texts: Mapping[str, Passage] | None, depth: int
) -> list[dict[str, Any]]:
    """The passages of a query, the best of the last run first, each with its scores."""
    by_passage: dict[str, dict[str, float | None]] = {}
    for name in reversed(list(runs)):
        scores = runs[name].get(query_id, {})
        for doc_id in heapq.nsmallest(depth, scores, key=lambda d: (-scores[d], d)):
            by_passage.setdefault(doc_id, dict.fromkeys(runs))[name] = scores[doc_id]
    if len(by_passage) > MAX_PASSAGES:
        raise InputError(
            f"query {query_id!r:.80}: the runs bring {len(by_passage)} passages, at most "
            f"{MAX_PASSAGES} are taken; lower --depth"
        )
    rows = []
    for doc_id, by_stage in by_passage.items():
        passage = None if texts is None else _look_up(texts, doc_id, "corpus")
        texts_of = {} if passage is None else {"title": passage.title, "text": passage.text}
        rows.append({"_id": doc_id, **texts_of, "scores": by_stage})
    return rows


def _look_up(table: Mapping[str, Any], key: str, option: str) -> Any:
    if key not in table:
        raise InputError(f"{key!r:.80} is not in --{option}; expected all that the runs name")
    return table[key]


def _run(path: Path, problems: Problems) -> Run:
    run: Run = {}
    columns = ("query Q0 passage rank score tag", {6: (0, 2, 4)})
    for where, query_id, doc_id, score in _judged(path, problems, "score", *columns):
        if doc_id in run.setdefault(query_id, {}):
            problems.add(where, f"query {query_id!r} has the passage {doc_id!r} twice")
        run[query_id][doc_id] = score
    return run


def _qrels(path: Path, problems: Problems) -> Run:
    grades: Run = {}
    columns = ("query 0 passage grade", {3: (0, 1, 2), 4: (0, 2, 3)})
    for where, query_id, doc_id, grade in _judged(path, problems, "grade", *columns):
        if grades.setdefault(query_id, {}).setdefault(doc_id, grade) != grade:
            problems.add(where, f"{query_id!r} and {doc_id!r} have another grade above")
    return grades


def _judged(
    path: Path,
    problems: Problems,
    what: str,
    columns: str,
    places: Mapping[int, tuple[int, int, int]],
) -> Iterator[tuple[str, str, str, float]]:
    """(file and number, query id, passage id, number) of each line, by the count of its cells."""
    for where, line in lines(path):
        cells = line.split()
        if tuple(cells) == QRELS_HEADER:
            continue
        if len(cells) not in places:
            problems.add(where, f"expected '{columns}', got {len(cells)} columns")
            continue
        query_id, doc_id, text = (cells[i] for i in places[len(cells)])
        number = finite_number(text)
        if number is None:
            problems.add(where, f"the {what} should be a finite number, got {text!r}")
        else:
            yield where, query_id, doc_id, number


def _queries(path: Path) -> dict[str, str]:
    """The texts by id of a JSONL or TSV file of queries."""
    problems = Problems()
    read = partial(read_query, passages=False)
    if holds_records(path):
        given = ((w, q.query_id, q.text) for w, q in records(path, read, problems))
    else:
        cells = ((where, line.partition("\t")) for where, line in lines(path))
        given = ((where, query_id, text.strip()) for where, (query_id, _, text) in cells)
    texts: dict[str, str] = {}
    for where, query_id, text in given:
        if not text:
            problems.add(where, "expected an id, a tab and the query's text")
        elif query_id in texts:
            problems.add(where, f"id {query_id!r} appears twice")
        texts.setdefault(query_id, text)
    problems.raise_if_any(str(path))
    return texts
