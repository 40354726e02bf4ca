"""Labelled lists on disk: what any retriever or reranker returned for a query, and what is right.

One JSON object per line, as docs/your-models.md describes; TREC runs and qrels become such.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rerank.data.beir import QRELS_HEADER, UNJUDGED, LabelledFiles, read_corpus, without_itself
from rerank.data.checks import json_type
from rerank.data.lines import Problems, holds_records, lines, records
from rerank.data.records import (
    DOC_ID,
    MAX_PASSAGES,
    MAX_STAGES,
    PASSAGES,
    finite_number,
    read_id,
    read_number,
    read_query,
    read_right,
    read_text,
)
from rerank.errors import InputError, check_one_of
from rerank.types import ListKind, Passage, Query

SPLITS = ("train", "dev", "test")  # the first is the default


def read_lists(path: Path, problems: Problems | None = None) -> tuple[LabelledFiles, ListKind]:
    """The lists of a file, and their kind, as a labelled set whose queries come with them.

    Its corpus holds the passages of all lists, each from the first that has it. The stages are in
    the order of the first list. A list without passages fits any stages.
    """
    problems = problems or Problems()
    corpus: dict[str, Passage] = {}
    queries: dict[str, Query] = {}
    qrels: dict[str, dict[str, float]] = {}
    splits: dict[str, list[str]] = {}
    stages: tuple[str, ...] = ()
    relevant: dict[str, None] = {}
    for where, (query, grades, split) in records(path, labelled_list, problems):
        list_stages = tuple(query.scores or ())
        stages = stages or list_stages
        if query.query_id in queries:
            problems.add(where, f"id {query.query_id!r} appears twice")
            continue
        if query.passages and set(list_stages) != set(stages):
            why = f"its passages have the scores of {list(list_stages)}, those of the first list"
            expected = "expected the same, null where a stage did not bring a passage"
            problems.add(where, f"{why} have {list(stages)}; {expected}")
            continue
        for passage in query.passages or ():
            corpus.setdefault(passage.doc_id, passage)
        relevant |= dict.fromkeys(grades)
        passages, scores = query.passages or (), query.scores or {}
        own = next((p for p in passages if p.doc_id == query.query_id), None)
        found = without_itself(query, own, grades)
        rows = [i for i, p in enumerate(passages) if p.doc_id not in found.without]
        queries[query.query_id] = replace(
            found,
            passages=tuple(passages[i] for i in rows),
            scores={stage: values[rows] for stage, values in scores.items()} or None,
        )
        splits.setdefault(split, []).append(query.query_id)
        if grades:
            qrels[query.query_id] = grades
    problems.raise_if_any(str(path))
    for doc_id in relevant:  # after all lists, one of which may hold the passage with its title
        corpus.setdefault(doc_id, Passage(doc_id, "", ""))
    if not stages:
        raise InputError(f"{path}: holds no list with a passage")
    texts = all(p.text.strip() for query in queries.values() for p in query.passages or ())
    split_ids = {name: tuple(ids) for name, ids in splits.items()}
    return LabelledFiles(corpus, queries, qrels, split_ids), ListKind(stages, texts)


def labelled_list(row: Mapping[str, Any]) -> tuple[Query, dict[str, float], str]:
    """The query of a line, with its list; the grades above 0 by passage id; and the split."""
    query = read_query(row)
    if query.passages is None:
        raise InputError("'passages' is missing; expected the passages that came with the query")
    if query.passages and query.scores is None:
        raise InputError("its passages have no 'scores'; expected a number by stage, each")
    provided = next(row[name] for name in PASSAGES if row.get(name) is not None)
    for i, passage in enumerate(provided):
        if all(passage.get(key) is None for key in DOC_ID):
            raise InputError(f"passages[{i}] has no '_id'; labels and groups go by it")
    split = read_text(row, "split") if row.get("split") is not None else SPLITS[0]
    check_one_of("'split'", split, SPLITS)
    return query, _grades(row, query, provided), split


def _grades(
    row: Mapping[str, Any], query: Query, provided: list[Mapping[str, Any]]
) -> dict[str, float]:
    """Grades above 0 by passage id: from `relevant`, or from the passages' own labels."""
    own_grades = {
        p.doc_id: grade
        for p, label in zip(query.passages or (), provided, strict=True)
        if (grade := _own_grade(label, p.doc_id)) is not None
    }
    relevant = row.get("relevant")
    if (relevant is None) == (not own_grades):
        which = "both of these" if own_grades else "neither"
        raise InputError(
            "expected either 'relevant', the ids of what is right, none where nothing is, or "
            f"'right' or 'grade' of the passages; got {which}"
        )
    if relevant is None:
        grades = own_grades
        if len(grades) < len(provided) and not any(grades.values()):
            raise InputError(
                "some of its passages have no label and the others are wrong, so nothing says "
                "whether one is right; expected 'right' or 'grade' of each"
            )
    elif isinstance(relevant, (list, Mapping)):
        by_id = relevant if isinstance(relevant, Mapping) else None
        ids = [(i, read_id({"relevant": i}, "relevant")) for i in relevant]
        grades = {doc_id: 1.0 if by_id is None else _grade(by_id, i) for i, doc_id in ids}
    else:
        came = json_type(relevant)
        raise InputError(f"'relevant' should be a list of ids, or grades by id, got {came}")
    return {doc_id: grade for doc_id, grade in grades.items() if grade > 0}


def _own_grade(row: Mapping[str, Any], doc_id: str) -> float | None:
    right = read_right(row)
    if row.get("grade") is None:
        return None if right is None else float(right)
    grade = _grade(row, "grade")
    if right is not None and right != (grade > 0):
        raise InputError(
            f"passage {doc_id!r:.80} has 'right' {str(right).lower()} and 'grade' {grade:g}, which "
            "contradict each other; a grade above 0 is right"
        )
    return grade


def _grade(row: Mapping[str, Any], key: str) -> float:
    grade = read_number(row, key)
    if grade < 0:
        raise InputError(f"a grade should be 0 or more, got {grade:g}")
    return grade


Run = dict[str, dict[str, float]]  # query id -> passage id -> score
COLUMNS = {  # and where query, passage and number are, by the count of a line's cells
    "score": ("query Q0 passage rank score tag", {6: (0, 2, 4)}),
    "grade": ("query 0 passage grade", {3: (0, 1, 2), 4: (0, 2, 3)}),
}


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
    with the highest scores are taken. A query with qrels but in no run gets an empty list. One
    without qrels is an error, left out, or unanswerable, as `unjudged` says. `queries` and `corpus`
    provide the texts: as in BEIR or, for queries, lines of id, tab and text; without `queries` the
    id is the text.
    """
    if len(runs) > MAX_STAGES:
        raise InputError(f"got {len(runs)} runs, at most {MAX_STAGES} are taken")
    check_one_of("unjudged", unjudged, UNJUDGED)
    problems = Problems()
    read = {name: _numbers(path, problems, "score") for name, path in runs.items()}
    grades = _numbers(qrels, problems, "grade")
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


def _numbers(path: Path, problems: Problems, what: Literal["score", "grade"]) -> Run:
    """The scores of a run, or the grades of qrels; an equal grade may be there twice."""
    columns, places = COLUMNS[what]
    table: Run = {}
    for where, line in lines(path):
        cells = line.split()
        if tuple(cells) == QRELS_HEADER:
            continue
        if len(cells) not in places:
            problems.add(where, f"expected '{columns}', got {len(cells)} columns")
            continue
        query_id, doc_id, text = (cells[i] for i in places[len(cells)])
        number, known = finite_number(text), table.setdefault(query_id, {})
        if number is None:
            problems.add(where, f"the {what} should be a finite number, got {text!r}")
        elif doc_id in known and (what == "score" or known[doc_id] != number):
            problems.add(where, f"query {query_id!r} has the passage {doc_id!r} twice")
        else:
            known[doc_id] = number
    return table


def _queries(path: Path) -> dict[str, str]:
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
