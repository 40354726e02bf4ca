"""Labelled sets on disk, in the BEIR layout of docs/your-labels.md: read and check, write.

Each table may be any file of `rerank.data.lines`, or a folder of part files, as on the hubs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rerank.data.checks import to_json
from rerank.data.lines import (
    ENDINGS,
    SEPARATED,
    KindError,
    Problems,
    ending,
    lines,
    not_found,
    other_separator,
    parts_of,
    read_records,
    records,
    rows,
    stem,
)
from rerank.data.records import finite_number, passage_row, query_row, read_passage, read_query
from rerank.errors import InputError, check_one_of
from rerank.storage.files import write_file
from rerank.types import Passage, Query

logger = logging.getLogger(__name__)

CORPUS = "corpus.jsonl"
UNJUDGED = ("refuse", "leave-out", "unanswerable")  # how to treat a query without qrels
UNLABELLED = "unlabelled"  # the split of all such queries, if no labels are needed
QRELS_HEADER = ("query-id", "corpus-id", "score")
JUDGEMENT = (("query-id", "query_id"), ("corpus-id", "corpus_id", "doc_id"), ("score", "grade"))
PART_NUMBER = re.compile(r"-\d+-of-\d+$")  # in the names of the hub's part files


def _by_id(
    paths: Sequence[Path], make: Callable[[Mapping[str, Any]], Any], problems: Problems, what: str
) -> dict[str, Any]:
    """Passages or queries by id, equal ones once; errors in a line go to `problems`."""
    by_id: dict[str, Any] = {}
    for where, row in (pair for path in paths for pair in records(path, make, problems, what)):
        key = row.doc_id if isinstance(row, Passage) else row.query_id
        if (first := by_id.setdefault(key, row)) == row:
            problems.merged += first is not row
        else:
            problems.add(where, f"id {key!r} appears twice, and says something else", what)
    return by_id


def tables(folder: Path, name: str) -> list[Path]:
    """The files of `corpus` or `queries`: one, a folder of part files, or part files in `data`;
    `NAME.jsonl` if there is none.
    """
    plain = folder / f"{name}.jsonl"
    for place in () if plain.exists() else (folder, folder / "data"):
        found = sorted(p for p in place.glob(f"{name}.*") if ending(p) in ENDINGS)
        found = found or [p for p in (place / name,) if p.is_dir()]
        if len(found) > 1:
            names = " and ".join(p.name for p in found)
            raise InputError(f"{folder}: holds {names}; keep the one that counts")
        found = found or sorted(place.glob(f"{name}-*-of-*"))
        if found:
            return found
    return [plain]


def _qrels_files(folder: Path) -> dict[str, list[Path]]:
    """The files of judgements by split, in `qrels`, else as on the hub."""
    by_split: dict[str, list[Path]] = {}
    for place in (folder / name for name in ("qrels", "default", "data")):
        for path in sorted(place.iterdir()) if place.is_dir() and not by_split else ():
            split = PART_NUMBER.sub("", stem(path))
            known = (ending(path) in ENDINGS or path.is_dir()) and path.name[0] not in "._"
            if known and split not in ("corpus", "queries"):
                by_split.setdefault(split, []).append(path)
    return by_split


def read_queries(path: Path, *, passages: bool = False) -> list[Query]:
    """Queries in file order, of `_id`, `query` (or `text`), optional `metadata`, and, with
    `passages`, theirs. An id may occur twice, as in a log of one night's queries.
    """
    return read_records(path, partial(read_query, passages=passages), "query")


def _judgements(path: Path, problems: Problems) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(file and number, cells) of each judgement: query id, passage id and grade."""
    for part in parts_of(path):
        if separator := SEPARATED.get(ending(part)):
            for i, (where, line) in enumerate(lines(part)):
                if i == 0 and (other := other_separator(line, separator)) and not line.split()[3:]:
                    raise KindError(f"{part}: {other}")
                yield where, tuple(c.strip() for c in line.split(separator))
            continue
        for where, row in rows(part, problems):
            cells = tuple(
                str(next((row[name] for name in names if row.get(name) is not None), ""))
                for names in JUDGEMENT
            )
            if all(cells):
                yield where, cells
            else:
                expected = ", ".join(QRELS_HEADER)
                problems.add(where, f"expected {expected}; got {list(row)}", "judgements")


@dataclass(slots=True)
class _Split:
    """The judgements of a split, as its files are read; bad lines go to `problems`.

    Without a corpus, or without queries, their ids are not checked.
    """

    corpus: Mapping[str, Any] | None
    queries: Mapping[str, Any]
    problems: Problems
    grades: dict[str, dict[str, float]] = field(default_factory=dict)  # by query and passage
    places: dict[str, str] = field(default_factory=dict)  # each judged query, with its first place
    lost: dict[str, str] = field(default_factory=dict)  # likewise, if a judgement was left out

    def read(self, paths: Iterable[Path]) -> None:
        """Add what the files say; the first line may be a header: BEIR's own, or other names."""
        for path in paths:
            try:
                for where, cells in _judgements(path, self.problems):
                    named = len(cells) == 3 and cells[0] not in self.queries and cells[2].isalpha()
                    if self.places or not (named or cells == QRELS_HEADER):
                        self._judge(where, cells)
            except KindError as error:
                where, _, why = str(error).partition(": ")
                self.problems.refuse(where, why)

    def _judge(self, where: str, cells: tuple[str, ...]) -> None:
        """Add a judgement, or what is wrong with it; equal ones of one passage are merged."""
        if len(cells) != 3:
            trec = len(" ".join(cells).split()) == 4  # query, 0, passage, grade
            hint = " (of TREC's qrels? `rerank data import-trec` reads these)" if trec else ""
            problem = f"expected 3 cells, got {len(cells)}{hint}"
            self.problems.add(where, problem, "judgements")
            self.lost.setdefault(cells[0], where)
            return
        query_id, doc_id, grade_text = cells
        grade = finite_number(grade_text)
        bad = []
        if self.queries and query_id not in self.queries:
            bad.append(f"query id {query_id!r} is not in queries.jsonl")
        if self.corpus is not None and doc_id not in self.corpus:
            bad.append(f"passage id {doc_id!r} is not in corpus.jsonl")
        if grade is None:
            bad.append(f"grade {grade_text!r} is not a number")
        for problem in bad[:1] if self.problems.skip else bad:
            self.problems.add(where, problem, "judgements")
        if self.queries and query_id not in self.queries:
            return
        self.places.setdefault(query_id, where)
        if grade is None or bad:
            if grade is None or grade > 0:
                self.lost.setdefault(query_id, where)
            return
        grades = self.grades.setdefault(query_id, {})
        self.problems.merged += grades.get(doc_id) == grade
        if grades.setdefault(doc_id, grade) != grade:
            both = f"{grades[doc_id]:g} and {grade:g}"
            self.problems.refuse(where, f"{query_id!r} and {doc_id!r} are judged twice, {both}")


def _read_split(path: Path, queries: Mapping[str, Any], problems: Problems) -> dict[str, str]:
    """The query ids, each with its place."""
    places: dict[str, str] = {}
    for where, line in lines(path):
        query_id = line.strip()
        if unknown := query_id not in queries:
            problems.add(where, f"query id {query_id!r} is not in queries.jsonl", "ids of a split")
        if places.get(query_id):
            problems.add(where, f"query id {query_id!r} appears twice", "ids of a split")
        elif not (unknown and problems.skip):
            places[query_id] = where
    return places


def read_corpus(path: Path, on_bad_lines: str = "") -> dict[str, Passage]:
    """Passages by id, in file order, from a corpus file, or from a folder that holds one.

    With `on_bad_lines="skip"` a warning lists the lines that are left out; with "refuse" the error
    names this option.
    """
    problems = Problems.by(on_bad_lines) if on_bad_lines else Problems()
    paths = tables(path, "corpus") if path.is_dir() else [path]
    corpus = _by_id(paths, read_passage, problems, "passages")
    problems.raise_if_any(str(path))
    if not corpus:
        raise problems.nothing(f"{path}: holds no passage")
    if problems.left_out:
        logger.warning("%s: %s", path, problems.left_out_lines())
    return corpus


SAME_WORDS = 0.8  # share of the words of a query and a passage that both have


def without_itself(query: Query, passage: Passage | None, right: Mapping[str, float]) -> Query:
    """The query, `without` the passage of its own id if it is that passage: of the same words.

    An equal id alone may be chance: many sets number both. A passage that is judged right counts.
    """
    if passage is None or query.query_id in right:
        return query
    asked = set(query.text.lower().split())
    for there in (set(t.lower().split()) for t in (passage.text, passage.full_text)):
        if len(asked & there) >= SAME_WORDS * len(asked | there):
            return replace(query, without=frozenset({passage.doc_id}))
    return query


class LabelledFiles(NamedTuple):
    """The checked contents of a labelled set's files; see `rerank.data.labelled_set`."""

    corpus: Mapping[str, Passage]
    queries: Mapping[str, Query]
    qrels: Mapping[str, Mapping[str, float]]
    splits: Mapping[str, tuple[str, ...]]


def read_files(
    folder: Path,
    *,
    unjudged: str = "refuse",
    corpus_elsewhere: bool = False,
    problems: Problems | None = None,
) -> LabelledFiles:
    """Read and check the files of a labelled set.

    Without `splits/`, `unjudged` says what a query without qrels is: "unanswerable" adds it to the
    only split, "leave-out" to none, and "refuse" is an error. With `UNLABELLED` no qrels are
    needed, and such queries make up the split of this name. With `corpus_elsewhere`, `corpus.jsonl`
    is not read: the corpus then holds only the ids that the qrels name.

    `problems` says whether bad lines are left out, and counts these. A query of which a judgement
    is left out, and for which no other passage is right, is then left out too.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected a BEIR folder with corpus.jsonl")
    problems, need_qrels = problems or Problems(), unjudged != UNLABELLED
    corpus_paths = [] if corpus_elsewhere else tables(folder, "corpus")
    query_paths = tables(folder, "queries")
    missing = [path for path in (*corpus_paths, *query_paths) if not path.exists()]
    if need_qrels and not _qrels_files(folder):
        missing.append(folder / "qrels/<split>.tsv")
    if missing:
        raise not_found(missing)
    corpus: Mapping[str, Passage] | None = None
    if corpus_paths:
        corpus = _by_id(corpus_paths, read_passage, problems, "passages")
    queries = _by_id(query_paths, partial(read_query, passages=False), problems, "queries")
    for name, table in ((CORPUS, corpus), ("queries.jsonl", queries)):
        if table is not None and not table:  # else every line of the qrels would be reported
            problems.raise_if_any(str(folder))
            raise problems.nothing(f"{folder / name} is empty")
    qrels, splits, lost = _read_splits(folder, corpus, queries, problems)
    problems.raise_if_any(str(folder))
    queries = {i: query for i, query in queries.items() if i not in lost}
    splits = {name: tuple(i for i in ids if i not in lost) for name, ids in splits.items()}
    in_splits = {query_id for ids in splits.values() for query_id in ids}
    not_in_qrels = [query_id for query_id in queries if query_id not in in_splits]
    if not_in_qrels and not any(folder.glob("splits/*.txt")):
        if unjudged == UNLABELLED:
            splits[UNLABELLED] = (*splits.get(UNLABELLED, ()), *not_in_qrels)
        else:
            _check_unjudged(folder, not_in_qrels, splits, unjudged)
            if unjudged == "unanswerable":
                splits = {split: (*ids, *not_in_qrels) for split, ids in splits.items()}
    if corpus is None:
        named = sorted({doc_id for grades in qrels.values() for doc_id in grades})
        corpus = {doc_id: Passage(doc_id, "", "") for doc_id in named}
    queries = {i: without_itself(q, corpus.get(i), qrels.get(i, {})) for i, q in queries.items()}
    if (need_qrels and not corpus) or not any(splits.values()):
        raise problems.nothing(f"{folder}: needs at least one passage and one query in a split")
    return LabelledFiles(corpus, queries, qrels, splits)


def _read_splits(
    folder: Path, corpus: Mapping[str, Any] | None, queries: Mapping[str, Any], problems: Problems
) -> tuple[dict[str, Mapping[str, float]], dict[str, tuple[str, ...]], set[str]]:
    """Positive grades by query, the query ids of each split, and those to leave out."""
    files, listed_splits = _qrels_files(folder), [p.stem for p in folder.glob("splits/*.txt")]
    qrels: dict[str, Mapping[str, float]] = {}
    splits: dict[str, tuple[str, ...]] = {}
    first: dict[str, str] = {}
    all_lost: set[str] = set()
    for split in sorted({*files, *listed_splits}):
        split_path = folder / f"splits/{split}.txt"
        found = _Split(corpus, queries, problems)
        found.read(files.get(split, ()))
        judged = found.places
        right = {i: {d: g for d, g in of.items() if g > 0} for i, of in found.grades.items()}
        grades = {i: above_0 for i, above_0 in right.items() if above_0}
        listed = _read_split(split_path, queries, problems) if split_path.exists() else judged
        for query_id, where in (judged | listed).items():
            if query_id not in listed:
                problems.add(where, f"{query_id!r} is judged but not in {split_path}", "judgements")
            if first.setdefault(query_id, split) != split:
                problems.refuse(where, f"{query_id!r} is in splits {first[query_id]} and {split}")
        for query_id, where in found.lost.items() if problems.skip else ():
            if query_id in queries and not grades.get(query_id):
                why = f"{query_id!r} has no right passage left; whether one answers it is unknown"
                problems.add(where, why, "queries without their right passage")
                all_lost.add(query_id)
        qrels |= {i: above_0 for i, above_0 in grades.items() if i in listed}
        splits[split] = tuple(listed)
    return qrels, splits, all_lost


def _check_unjudged(folder: Path, ids: Sequence[str], splits: Collection[str], policy: str) -> None:
    """Refuse queries without qrels, if that is the policy, or if several splits could be theirs."""
    check_one_of("unjudged", policy, UNJUDGED)
    why = ""
    if policy == "refuse":
        why = (
            ". Either nothing answers them, or nobody judged them. List those that nothing answers "
            "in splits/<split>.txt with the others, or give --unjudged unanswerable or --unjudged "
            "leave-out"
        )
    elif policy == "unanswerable" and len(splits) > 1:
        why = f", and there are {len(splits)} splits: list them in splits/<split>.txt"
    if why:
        raise InputError(f"{folder}: {len(ids)} queries have no qrels, such as {ids[0]!r:.80}{why}")


def write_files(labelled: LabelledFiles, folder: Path) -> None:
    """Write the BEIR layout; reading it back gives equal values. Existing splits are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    write_labels(labelled, folder)
    write_corpus(labelled.corpus.values(), folder)  # last: with it, the set is complete


def write_labels(labelled: LabelledFiles, folder: Path) -> None:
    """Write all of the layout except the corpus. Each file is replaced whole."""
    for subfolder in (folder / "qrels", folder / "splits"):
        subfolder.mkdir(parents=True, exist_ok=True)
    queries = map(query_row, labelled.queries.values())
    _write_lines(folder / "queries.jsonl", map(to_json, queries))
    for split, ids in labelled.splits.items():
        rows = [
            (query_id, doc_id, repr(grade))
            for query_id in ids
            for doc_id, grade in labelled.qrels.get(query_id, {}).items()
        ]
        _write_lines(folder / f"qrels/{split}.tsv", map("\t".join, (QRELS_HEADER, *rows)))
        _write_lines(folder / f"splits/{split}.txt", ids)
    for kind in ("qrels/*.tsv", "splits/*.txt"):
        for path in folder.glob(kind):
            if path.stem not in labelled.splits:
                path.unlink()


def write_corpus(passages: Iterable[Passage], folder: Path) -> None:
    """Write only `corpus.jsonl` into `folder`."""
    _write_lines(folder / CORPUS, (to_json(passage_row(p)) for p in passages))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    write_file(path, (line + "\n" for line in lines))
