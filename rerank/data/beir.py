"""Labelled sets on disk, in the BEIR layout: read and check, write.

A folder holds `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv` and, optionally,
`splits/<split>.txt`: every query id of a split, so that a query without qrels (unanswerable) still
counts. Without these files such queries are an error, unless the caller says what they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rerank.data.canonical import to_json
from rerank.data.lines import Problems, lines, read_records, records
from rerank.data.records import passage_row, query_row, read_passage, read_query
from rerank.errors import InputError
from rerank.storage.files import write_file
from rerank.types import Passage, Query

CORPUS = "corpus.jsonl"
UNJUDGED = ("refuse", "leave-out", "unanswerable")  # how to treat a query without qrels
UNLABELLED = "unlabelled"  # the split of all such queries, if no labels are needed
QRELS_HEADER = ("query-id", "corpus-id", "score")


def _by_id(
    path: Path, make: Callable[[Mapping[str, Any]], Passage | Query], problems: Problems
) -> dict[str, Any]:
    """Passages or queries by id from a JSONL file; errors in a line go to `problems`."""
    rows: dict[str, Any] = {}
    for where, row in records(path, make, problems):
        key = row.doc_id if isinstance(row, Passage) else row.query_id
        if key in rows:
            problems.add(where, f"id {key!r} appears twice")
        rows[key] = row
    return rows


def _query(row: Mapping[str, Any]) -> Query:
    return read_query(row, passages=False)


def read_queries(path: Path, *, passages: bool = False) -> list[Query]:
    """Queries in file order, from a JSONL file of `_id`, `query` (or `text`), optional `metadata`.

    With `passages`, their passages are read too, if they have any. An id may occur twice, as in a
    log of one night's queries.

    Raises:
        InputError: listing every bad line with file and line number.
    """
    return read_records(path, partial(read_query, passages=passages), "query")


def _read_qrels(
    path: Path, corpus: Mapping[str, Any] | None, queries: Mapping[str, Any], problems: Problems
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Positive grades by query; and every judged query id, in file order, with its first place."""
    qrels: dict[str, dict[str, float]] = {}
    places: dict[str, str] = {}
    judged: dict[str, set[str]] = {}
    for where, line in lines(path):
        cells = tuple(c.strip() for c in line.split("\t"))
        if not places and _is_header(cells, queries):
            continue
        if len(cells) != 3:
            trec = len(line.split()) == 4  # query, 0, passage, grade
            hint = " (of TREC's qrels? `rerank dataset import-trec` reads these)" if trec else ""
            problems.add(where, f"expected 3 tab-separated cells, got {len(cells)}{hint}")
            continue
        query_id, doc_id, grade_text = cells
        if query_id not in queries:
            problems.add(where, f"query id {query_id!r} is not in queries.jsonl")
        if corpus is not None and doc_id not in corpus:
            problems.add(where, f"passage id {doc_id!r} is not in corpus.jsonl")
        places.setdefault(query_id, where)
        if doc_id in judged.setdefault(query_id, set()):
            problems.add(where, f"{query_id!r} and {doc_id!r} are judged twice")
        judged[query_id].add(doc_id)
        try:
            grade = float(grade_text)
        except ValueError:
            grade = math.nan
        if not math.isfinite(grade):
            problems.add(where, f"grade {grade_text!r} is not a number")
        elif grade > 0:
            qrels.setdefault(query_id, {})[doc_id] = grade
    return qrels, places


def _is_header(cells: tuple[str, ...], queries: Mapping[str, Any]) -> bool:
    """Whether these cells, the first ones, are names: BEIR's own, or other ones."""
    if cells == QRELS_HEADER:
        return True
    return len(cells) == 3 and cells[0] not in queries and cells[2].isalpha()


def _read_split(path: Path, queries: Mapping[str, Any], problems: Problems) -> dict[str, str]:
    """The query ids, in file order, each with its place."""
    places: dict[str, str] = {}
    for where, line in lines(path):
        query_id = line.strip()
        if query_id not in queries:
            problems.add(where, f"query id {query_id!r} is not in queries.jsonl")
        if query_id in places:
            problems.add(where, f"query id {query_id!r} appears twice")
        places.setdefault(query_id, where)
    return places


def read_corpus(path: Path) -> dict[str, Passage]:
    """Passages by id, in file order, from a `corpus.jsonl`.

    Raises:
        InputError: listing every bad line with file and line number.
    """
    problems = Problems()
    corpus = _by_id(path, read_passage, problems)
    problems.raise_if_any(str(path))
    if not corpus:
        raise InputError(f"{path}: holds no passage")
    return corpus


class LabelledFiles(NamedTuple):
    """The checked contents of a labelled set's files; see `rerank.data.labelled_set`."""

    corpus: Mapping[str, Passage]
    queries: Mapping[str, Query]
    qrels: Mapping[str, Mapping[str, float]]
    splits: Mapping[str, tuple[str, ...]]


def read_files(
    folder: Path, *, unjudged: str = "refuse", corpus_elsewhere: bool = False
) -> LabelledFiles:
    """Read and check the files of a labelled set.

    Without `splits/`, a query without qrels may be unanswerable or unjudged. `unjudged` says which:
    "unanswerable" adds it to the only split, "leave-out" adds it to no split, and "refuse" is an
    error. With `UNLABELLED` no qrels are needed, and such queries make up the split of this name.
    With `corpus_elsewhere`, `corpus.jsonl` is neither needed nor read: the corpus then holds only
    the ids that the qrels name.

    Raises:
        InputError: queries without a label that `unjudged` refuses, or for which there are several
            splits; a missing file, broken JSON, an id that exists nowhere, duplicate ids, empty
            text, a grade that is not a number, a query in two splits: all bad lines in one error,
            with file and line number.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected a BEIR folder with corpus.jsonl")
    problems = Problems()
    corpus: Mapping[str, Passage] | None = None
    if not corpus_elsewhere:
        corpus = _by_id(folder / CORPUS, read_passage, problems)
    queries = _by_id(folder / "queries.jsonl", _query, problems)
    for name, rows in ((CORPUS, corpus), ("queries.jsonl", queries)):
        if rows is not None and not rows:  # else every line of the qrels would be reported
            problems.raise_if_any(str(folder))
            raise InputError(f"{folder / name} is empty")
    need_qrels = unjudged != UNLABELLED
    qrels, splits = _read_splits(folder, corpus, queries, problems, need_qrels=need_qrels)
    problems.raise_if_any(str(folder))
    in_splits = {query_id for ids in splits.values() for query_id in ids}
    not_in_qrels = [query_id for query_id in queries if query_id not in in_splits]
    if not_in_qrels and not any(folder.glob("splits/*.txt")):
        splits |= _unjudged(folder, not_in_qrels, splits, unjudged)
    if corpus is None:
        named = sorted({doc_id for grades in qrels.values() for doc_id in grades})
        corpus = {doc_id: Passage(doc_id, "", "") for doc_id in named}
    if (need_qrels and not corpus) or not any(splits.values()):
        raise InputError(f"{folder}: needs at least one passage and one query in a split")
    return LabelledFiles(corpus, queries, qrels, splits)


def _read_splits(
    folder: Path,
    corpus: Mapping[str, Any] | None,
    queries: Mapping[str, Any],
    problems: Problems,
    *,
    need_qrels: bool,
) -> tuple[dict[str, Mapping[str, float]], dict[str, tuple[str, ...]]]:
    """Positive grades by query, and the query ids of each split; bad lines go to `problems`.

    Raises:
        InputError: there are no qrels, but they are needed.
    """
    files = [*folder.glob("qrels/*.tsv"), *folder.glob("splits/*.txt")]
    if need_qrels and not any(path.suffix == ".tsv" for path in files):
        raise InputError(f"{folder}: no qrels/<split>.tsv; expected at least one split")
    qrels: dict[str, Mapping[str, float]] = {}
    splits: dict[str, tuple[str, ...]] = {}
    split_of: dict[str, str] = {}
    for split in sorted({path.stem for path in files}):
        qrels_path, split_path = folder / f"qrels/{split}.tsv", folder / f"splits/{split}.txt"
        grades: dict[str, dict[str, float]] = {}
        judged: dict[str, str] = {}
        if qrels_path.exists():
            grades, judged = _read_qrels(qrels_path, corpus, queries, problems)
        listed = _read_split(split_path, queries, problems) if split_path.exists() else judged
        for query_id, where in (judged | listed).items():
            if query_id not in listed:
                problems.add(where, f"{query_id!r} is judged but not in {split_path}")
            if split_of.setdefault(query_id, split) != split:
                problems.add(where, f"{query_id!r} is in splits {split_of[query_id]} and {split}")
        qrels |= grades
        splits[split] = tuple(listed)
    return qrels, splits


def _unjudged(
    folder: Path, ids: Sequence[str], splits: Mapping[str, tuple[str, ...]], policy: str
) -> dict[str, tuple[str, ...]]:
    """The split with the queries that have no qrels, if they count; nothing if they are left out.

    Raises:
        InputError: they are refused, or there are several splits to choose from.
    """
    if policy == UNLABELLED:
        return {UNLABELLED: (*splits.get(UNLABELLED, ()), *ids)}
    subject = f"{len(ids)} queries have no qrels, such as {ids[0]!r:.80}"
    if policy not in UNJUDGED:
        raise InputError(f"unjudged should be one of {UNJUDGED}, got {policy!r}")
    if policy == "refuse":
        raise InputError(
            f"{folder}: {subject}. Either nothing answers them, or nobody judged them. List those "
            "that nothing answers in splits/<split>.txt with the others, or give --unjudged "
            "unanswerable or --unjudged leave-out"
        )
    if policy == "leave-out":
        return {}
    if len(splits) > 1:
        raise InputError(
            f"{folder}: {subject}, and there are {len(splits)} splits: list them in "
            "splits/<split>.txt"
        )
    ((split, judged_ids),) = splits.items()
    return {split: (*judged_ids, *ids)}


def write_files(labelled: LabelledFiles, folder: Path) -> None:
    """Write the BEIR layout; reading it back gives equal values. Existing splits are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    write_labels(labelled, folder)
    write_corpus(labelled.corpus.values(), folder)  # last: with it, the set is complete


def write_labels(labelled: LabelledFiles, folder: Path) -> None:
    """Write all of the layout except the corpus. Each file is replaced whole."""
    for subfolder in (folder / "qrels", folder / "splits"):
        subfolder.mkdir(parents=True, exist_ok=True)
    _write_lines(
        folder / "queries.jsonl", (to_json(query_row(q)) for q in labelled.queries.values())
    )
    for split, ids in labelled.splits.items():
        rows = ["\t".join(QRELS_HEADER)]
        for query_id in ids:
            for doc_id, grade in labelled.qrels.get(query_id, {}).items():
                rows.append(f"{query_id}\t{doc_id}\t{grade!r}")
        _write_lines(folder / f"qrels/{split}.tsv", rows)
        _write_lines(folder / f"splits/{split}.txt", ids)
    for kind in ("qrels/*.tsv", "splits/*.txt"):
        for path in folder.glob(kind):
            if path.stem not in labelled.splits:
                path.unlink()


def corpus_file(path: Path) -> Path:
    """The file of a corpus: the path, or `corpus.jsonl` in it if it is a folder."""
    return path / CORPUS if path.is_dir() else path


def write_corpus(passages: Iterable[Passage], folder: Path) -> None:
    """Write only `corpus.jsonl` into `folder`."""
    _write_lines(folder / CORPUS, (to_json(passage_row(p)) for p in passages))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    write_file(path, (line + "\n" for line in lines))
