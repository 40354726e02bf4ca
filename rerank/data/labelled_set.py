"""A labelled set in memory: passages, queries, which passages are right, and its splits.

It is read from a BEIR folder (`rerank.data.beir`), a file of lists (`.lists`) or pairs (`.pairs`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rerank.data.beir import LabelledFiles, read_files, write_files
from rerank.data.checks import query_hash, to_json
from rerank.data.labels import Labelled
from rerank.data.lines import ON_BAD_LINES, Problems
from rerank.data.lists import read_lists
from rerank.data.pairs import pairs_in, read_pairs
from rerank.data.records import ASKED_ABOUT, passage_row, query_row
from rerank.errors import InputError, nearest
from rerank.types import ListKind, Mode, Passage, Query, metadata_name


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups that keep queries together, by query id in `of`; missing ids stay by themselves.

    name: what a group is, in a word. about: the questions that a certificate by them is about.
    """

    name: str
    about: str
    of: Mapping[str, str] = field(repr=False)

    def shares(self, some: Iterable[str], others: Iterable[str]) -> bool:
        """Whether any query of `some` is in a group of `others`."""
        theirs = {self.of[i] for i in others if i in self.of}
        return any(self.of.get(i) in theirs for i in some)


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading a set left out or merged: counts, and the first lines that were left out."""

    on_bad_lines: str = "refuse"
    left_out: Mapping[str, int] = field(default_factory=dict)  # by what the lines hold
    listed: str = ""  # the same in a sentence, with the first lines
    merged: int = 0  # lines that are there twice, and say the same
    own_passages: int = 0  # queries that are themselves a passage, which they do not find

    @classmethod
    def of(cls, problems: Problems) -> Reading:
        """What the problems say."""
        policy = ON_BAD_LINES[problems.skip]
        return cls(policy, dict(problems.left_out), problems.left_out_lines(), problems.merged)

    def described(self) -> dict[str, Any]:
        """What is recorded of it; {} if nothing was left out or merged."""
        told = {k: v for k, v in asdict(self).items() if v and k not in ("on_bad_lines", "listed")}
        return {"reading": {"on_bad_lines": self.on_bad_lines, **told}} if told else {}

    def notes(self, queries: int) -> list[str]:
        """The same in sentences, with the lines, of so many `queries`."""
        twice = f"{self.merged} lines are there twice, and count once."
        own = (
            f"{self.own_passages} of {queries} queries have the id of a passage, and its words: as "
            "BEIR does for ArguAna and Quora, a query's own passage is left out of its candidates. "
            "`search` and `rescore` leave nothing out."
        )
        told = ((self.listed, self.listed), (self.merged, twice), (self.own_passages, own))
        return [sentence for has, sentence in told if has]


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """A corpus, its queries, and which passages are right for which query.

    `qrels[query_id][doc_id]` is a grade > 0; a query without an entry is unanswerable.
    `splits[name]` lists query ids in file order; every query is in at most one split.
    """

    corpus: Mapping[str, Passage] = field(repr=False)
    queries: Mapping[str, Query] = field(repr=False)
    qrels: Mapping[str, Mapping[str, float]] = field(repr=False)
    splits: Mapping[str, tuple[str, ...]] = field(repr=False)
    name: str = "labelled set"
    grouping: Grouping | None = None  # larger than `question_group`; see `rerank.data.grouping`
    lists: ListKind | None = None  # if the queries come with scored passages
    group_by: str = ""  # the metadata that `grouped_by` took as the group
    reading: Reading = field(default_factory=Reading, compare=False, repr=False)

    @classmethod
    def read(
        cls,
        folder: str | Path,
        *,
        unjudged: str = "refuse",
        corpus_elsewhere: bool = False,
        on_bad_lines: str = "refuse",
    ) -> LabelledSet:
        """The labelled set in a folder, of BEIR's layout or of pairs, or in a file of lists.

        With `on_bad_lines="skip"`, bad lines are left out; `reading` counts and lists them. A query
        that is itself a passage (same id, nearly the same words, as in ArguAna and Quora) does not
        find that passage: its `without` names it, and a list of its own does not hold it.

        Raises:
            InputError: a file that is missing, or bad lines, which are listed.
        """
        folder, problems, kind = Path(folder), Problems.by(on_bad_lines), None
        pairs = pairs_in(folder)
        if folder.is_file():
            files, kind = read_lists(folder, problems)
        elif pairs and not corpus_elsewhere:
            files = read_pairs(pairs, problems)
        else:
            files = read_files(
                folder, unjudged=unjudged, corpus_elsewhere=corpus_elsewhere, problems=problems
            )
        name = folder.name.partition(".")[0] if kind else folder.resolve().name
        own = sum(bool(query.without) for query in files.queries.values())
        reading = replace(Reading.of(problems), own_passages=own)
        return cls(*files, name=name, lists=kind, reading=reading)

    @classmethod
    def of_corpus(cls, corpus: Mapping[str, Passage], name: str) -> LabelledSet:
        """Passages by id, without queries."""
        return cls(corpus, {}, {}, {}, name)

    @property
    def mode(self) -> Mode:
        """Whether its queries search an index of its corpus, or come with their own lists."""
        return "lists" if self.lists else "search"

    def refuse_lists(self) -> None:
        """Raise InputError if its queries come with their own scored lists."""
        if self.lists:
            raise InputError(f"{self.name} holds lists with their scores; expected a BEIR folder")

    def write(self, folder: str | Path) -> None:
        """Write the set as a BEIR folder; `read` gives an equal one back. InputError for a set of
        lists, whose scores have no place there.
        """
        if self.lists:
            raise InputError(
                f"{self.name}: lists with scores cannot be written as a BEIR folder; keep the file "
                "that they were read from"
            )
        files = LabelledFiles(self.corpus, self.queries, self.qrels, self.splits)
        write_files(files, Path(folder))

    def relevant(self, query_id: str) -> frozenset[str]:
        """Ids of the right passages; empty for an unanswerable query."""
        return frozenset(self.qrels.get(query_id, ()))

    def group(self, query_id: str) -> str:
        """The label that keeps queries together: that of `grouping`, else `question_group`."""
        group = None if self.grouping is None else self.grouping.of.get(query_id)
        return group or self.question_group(query_id)

    def question_group(self, query_id: str) -> str:
        """The label that keeps queries about the same passages together.

        It is `metadata.group` if present; else the set of right passages; else the passage that an
        unanswerable query was asked about; else the words of the query.
        """
        named, about = self.subject(query_id)
        if named:
            return group_label(named)
        return f"right:{_sha256(about)[:32]}" if about else self._words(query_id)

    def subject(self, query_id: str) -> tuple[str, list[str]]:
        """Its `metadata.group`, or "", and the passages: right, else the one it was asked about."""
        query = self.queries[query_id]
        asked = asked_about(query)
        about = [asked] if asked else []
        return given_group(query), sorted(self.qrels.get(query_id, ())) or about

    def grouped_by(self, key: str) -> LabelledSet:
        """The set with `metadata[key]` as the group of every query that has it."""
        queries = {i: grouped_query(q, key) for i, q in self.queries.items()}
        known = any(metadata_name(q.metadata, key) for q in queries.values())
        return replace(self, queries=queries, group_by=key if known else self.group_by)

    def duplicate_keys(self, query_id: str) -> frozenset[str]:
        """Keys of a repeated query, whatever its labels: its words and its given group."""
        named = given_group(self.queries[query_id])
        return frozenset({self._words(query_id), *([group_label(named)] if named else [])})

    def _words(self, query_id: str) -> str:
        return f"query:{query_hash(self.queries[query_id].text)}"

    def select(
        self, ids: Sequence[str], groups: Mapping[str, str] | None = None
    ) -> Labelled[Query]:
        """The queries of these ids, in order, with their labels; by default in their `group`."""
        group_of = self.group if groups is None else groups.__getitem__
        return Labelled(
            [self.queries[i] for i in ids],
            np.array([group_of(i) for i in ids], dtype=np.str_),
            [self.qrels.get(i, {}) for i in ids],
        )

    def split(self, name: str) -> tuple[str, ...]:
        """The query ids of a split, in its order.

        Raises:
            InputError: no such split, or an empty one.
        """
        if name not in self.splits:
            raise InputError(
                f"{self.name} has no split {name!r}; it has {list(self.splits)}"
                f"{nearest(name, self.splits)}"
            )
        if not self.splits[name]:
            raise InputError(f"{self.name}: its split {name!r} is empty")
        return self.splits[name]

    def described(self) -> dict[str, Any]:
        """What a model folder records of the set: name, digest, counts, grouping and reading."""
        grouped = {"group_by": self.group_by} if self.group_by else {}
        read = self.reading.described()
        return {"name": self.name, "digest": self.digest(), **self.counts(), **grouped, **read}

    def digest(self) -> str:
        """sha256 over all content in a fixed order: the same set, the same digest."""
        queries = sorted(self.queries.values(), key=lambda q: q.query_id)
        rows: list[Any] = list(map(query_row, queries))
        for split, ids in sorted(self.splits.items()):
            rows += [[split, i, sorted(self.qrels.get(i, {}).items())] for i in sorted(ids)]
        return _sha256([*_corpus_lines(self.corpus.values()), *map(to_json, rows)])

    def corpus_digest(self) -> str:
        """sha256 over the passages alone: see `corpus_digest`."""
        return corpus_digest(self.corpus.values())

    def counts(self) -> dict[str, int]:
        """Passages, queries, and per split the queries and how many have a right passage."""
        counts = {"passages": len(self.corpus), "queries": len(self.queries)}
        for split, ids in self.splits.items():
            counts[f"{split}_queries"] = len(ids)
            counts[f"{split}_answerable"] = sum(q in self.qrels for q in ids)
        return counts


def grouped_query(query: Query, key: str) -> Query:
    """The query with `metadata[key]` as its `metadata.group`, if it has such metadata."""
    if not metadata_name(query.metadata, key):
        return query
    return replace(query, metadata={**query.metadata, "group": query.metadata[key]})


def given_group(query: Query) -> str:
    """The `metadata.group` of the query; "" if it has none."""
    return metadata_name(query.metadata, "group")


def group_label(name: str) -> str:
    """The label of a given group, as `LabelledSet.group` returns it."""
    return f"group:{name}"


def asked_about(query: Query) -> str:
    """The id of the passage that an unanswerable query was asked about; "" if it names none."""
    return metadata_name(query.metadata, ASKED_ABOUT)


def _sha256(lines: Iterable[str]) -> str:
    state = hashlib.sha256()
    for line in lines:
        state.update(f"{line}\n".encode())
    return state.hexdigest()


def corpus_digest(passages: Iterable[Passage]) -> str:
    """sha256 over passages in any order: the same corpus, the same index."""
    return _sha256(_corpus_lines(passages))


def _corpus_lines(passages: Iterable[Passage]) -> Iterator[str]:
    for passage in sorted(passages, key=lambda p: p.doc_id):
        yield to_json(passage_row(passage))
