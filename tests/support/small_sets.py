"""Labelled sets cut out of others: small ones, and the same under other ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rerank.assessment.pipeline import CHUNK
from rerank.data.labelled_set import LabelledSet

PASSAGES = 250
FIT_QUERIES, REPORT_QUERIES = CHUNK, 30  # so that the two halves of a run are two chunks
WORDS = [a + b for a in ("red", "blue", "green", "old", "new") for b in ("house", "bird", "song")]
UNANSWERABLE = 0.2  # share of the small set's queries


def cut(pydata: LabelledSet) -> LabelledSet:
    """About 250 passages and 90 queries of `pydata`, a fifth of them unanswerable.

    `train` comes from its `dev`, `test` from its `test`: the bundled cross-encoder was trained on
    neither.
    """
    splits = {
        "train": _some_queries(pydata, "dev", FIT_QUERIES),
        "test": _some_queries(pydata, "test", REPORT_QUERIES),
    }
    kept = [i for ids in splits.values() for i in ids]
    qrels = {i: pydata.qrels[i] for i in kept if i in pydata.qrels}
    wanted = {d for right in qrels.values() for d in right}
    others = sorted(set(pydata.corpus) - wanted, key=_mixed)[: PASSAGES - len(wanted)]
    corpus = {d: p for d, p in pydata.corpus.items() if d in wanted.union(others)}
    return LabelledSet(corpus, {i: pydata.queries[i] for i in kept}, qrels, splits, "small")


def two_word_questions(folder: Path) -> Path:
    """A BEIR folder: 72 questions of two words about passages of nine; every fourth is `test`."""
    (folder / "qrels").mkdir(parents=True)
    draw = np.random.default_rng(7)
    texts = [" ".join(draw.choice(WORDS, 9)) + f" n{i}" for i in range(72)]
    passages = [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(texts)]
    queries = [
        {"_id": f"q{i}", "text": " ".join([*text.split()[:2], f"n{i}" if i % 3 else ""]).strip()}
        for i, text in enumerate(texts)
    ]
    for name, rows in (("corpus", passages), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split, rest in (("train", (0, 1, 2)), ("test", (3,))):
        right = "".join(f"q{i}\td{i}\t1\n" for i in range(72) if i % 4 in rest)
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{right}")
    return folder


def relabelled(labelled: LabelledSet, rename: Callable[[str], str]) -> LabelledSet:
    """The same set under other passage and query ids."""
    return LabelledSet(
        {rename(d): replace(p, doc_id=rename(d)) for d, p in labelled.corpus.items()},
        {rename(q): replace(x, query_id=rename(q)) for q, x in labelled.queries.items()},
        {
            rename(q): {rename(d): grade for d, grade in right.items()}
            for q, right in labelled.qrels.items()
        },
        {split: tuple(rename(q) for q in ids) for split, ids in labelled.splits.items()},
        labelled.name,
    )


def _some_queries(labelled: LabelledSet, split: str, count: int) -> tuple[str, ...]:
    """Queries of whole groups in mixed order, a fifth of them unanswerable."""
    room = {False: round(UNANSWERABLE * count), True: count - round(UNANSWERABLE * count)}
    by_group: dict[str, list[str]] = {}
    for i in labelled.splits[split]:
        by_group.setdefault(labelled.group(i), []).append(i)
    found: list[str] = []
    for group in sorted(by_group, key=_mixed):
        ids = by_group[group]
        answerable = ids[0] in labelled.qrels
        if len(ids) <= room[answerable]:
            found += ids
            room[answerable] -= len(ids)
    return tuple(found)


def _mixed(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


QUERIES = 240  # of `write_numbered`


def encoder(texts: Sequence[str]) -> np.ndarray:
    """How often each of `WORDS` is in a text."""
    counts = [[text.split().count(word) for word in WORDS] for text in texts]
    return np.array(counts, dtype=np.float64) + 0.01


def write_numbered(folder: Path, *, asked: int) -> Path:
    """Questions of `asked` words about passages of six, both with a number at the end.

    A fifth has no answer; half is `test`.
    """
    for part in ("qrels", "splits"):
        (folder / part).mkdir(parents=True)
    draw = np.random.default_rng(5)
    texts = [" ".join(draw.choice(WORDS, 6)) for _ in range(QUERIES)]
    passages = [{"_id": f"d{i}", "title": "", "text": f"{t} x{i}"} for i, t in enumerate(texts)]
    queries = [
        {"_id": f"q{i}", "text": " ".join([*t.split()[:asked], f"y{i if i % 5 else -1 - i}"])}
        for i, t in enumerate(texts)
    ]
    for name, rows in (("corpus", passages), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split, rest in (("train", 0), ("test", 1)):
        ids = [i for i in range(QUERIES) if i % 2 == rest]
        right = "".join(f"q{i}\td{i}\t1\n" for i in ids if i % 5)
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{right}")
        (folder / "splits" / f"{split}.txt").write_text("".join(f"q{i}\n" for i in ids))
    return folder
