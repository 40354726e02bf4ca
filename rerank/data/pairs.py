"""Training pairs on disk: questions with their own passages.

A folder holds `pairs.jsonl` or `pairs.jsonl.gz`, one question per line: `query`; `positives` and
`hard_negatives`, lists of `{"title", "text"}`, with at least one passage in total; and optionally
`group`. The corpus consists of the passages of all lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rerank.data.beir import LabelledFiles
from rerank.data.checks import as_text, query_hash
from rerank.data.lines import Problems, records
from rerank.data.records import ASKED_ABOUT, JUDGED_WRONG, read_passage
from rerank.errors import InputError
from rerank.types import Passage, Query

PAIRS = ("pairs.jsonl", "pairs.jsonl.gz")


def pairs_in(folder: Path) -> Path | None:
    """The file of pairs in a folder, if there is one."""
    return next((folder / name for name in PAIRS if (folder / name).is_file()), None)


def read_pairs(path: Path, problems: Problems) -> LabelledFiles:
    """A file of pairs, with the one split `train`.

    Equal passages are merged. Lines with the same query and group are one query; what is right in
    one is wrong in none. The wrong passages are listed in a query's metadata as `JUDGED_WRONG`; a
    query without a right one counts as asked about the first of them.
    """
    passages: dict[tuple[str, str], str] = {}
    queries: dict[tuple[str, str], Query] = {}
    right: dict[str, dict[str, float]] = {}
    wrong: dict[str, dict[str, None]] = {}
    for _, (text, group, good, not_good) in records(path, partial(_pair, passages), problems):
        key = (query_hash(text), group)
        query = queries.setdefault(key, Query(text, f"q{len(queries) + 1}", {"group": group}))
        right.setdefault(query.query_id, {}).update(dict.fromkeys(good, 1.0))
        wrong.setdefault(query.query_id, {}).update(dict.fromkeys(not_good))
    problems.raise_if_any(str(path.parent))
    if not queries:
        raise InputError(f"{path}: this file of pairs is empty")
    judged: dict[str, Query] = {}
    for query in queries.values():
        metadata: dict[str, Any] = {k: v for k, v in query.metadata.items() if v}
        if bad := [i for i in wrong[query.query_id] if i not in right[query.query_id]]:
            metadata[JUDGED_WRONG] = bad
            if not right[query.query_id]:
                metadata[ASKED_ABOUT] = bad[0]
        judged[query.query_id] = replace(query, metadata=metadata)
    return LabelledFiles(
        {doc_id: Passage(doc_id, *texts) for texts, doc_id in passages.items()},
        judged,
        {query_id: ids for query_id, ids in right.items() if ids},
        {"train": tuple(judged)},
    )


def _pair(
    passages: dict[tuple[str, str], str], row: Mapping[str, Any]
) -> tuple[str, str, list[str], list[str]]:
    """The query and the group of a line, and the ids of its right and wrong passages.

    New passages are added to `passages`, (title, text) to id.
    """
    text = as_text("query", row.get("query"))
    group = as_text("group", row.get("group", ""), empty=True)
    ids: dict[str, list[str]] = {}
    for key in ("positives", "hard_negatives"):
        given = row.get(key, [])
        if not isinstance(given, list) or not all(isinstance(p, dict) for p in given):
            raise InputError(f"{key!r} should be a list of passages, each with 'text'")
        read = [read_passage(passage, default_id="") for passage in given]
        ids[key] = [passages.setdefault((p.title, p.text), f"p{len(passages) + 1}") for p in read]
    if not any(ids.values()):
        raise InputError("neither a positive nor a hard negative")
    return text, group, ids["positives"], ids["hard_negatives"]
