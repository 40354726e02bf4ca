"""Batch rescoring: a file of queries in, a file of predictions out, in the order of the input."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from calibration.store import write_file
from rerank.assessor import CalibratedReranker
from rerank.beir import read_queries
from rerank.pipeline import CHUNK
from rerank.progress import progress
from rerank.types import InputError, Query


def rescore(model: CalibratedReranker, queries: Path, out: Path) -> int:
    """Assess every query of a JSONL file (`_id`, `text`); returns how many.

    `out` appears when it is complete, one JSON object a line. With a score cache in the model's
    pipeline, an interrupted run goes on where it was.

    Raises:
        InputError: a bad line in `queries` (all are listed), no folder for `out`, or `out` is
            `queries` itself.
    """
    if out.resolve() == queries.resolve():
        raise InputError(f"{out}: the predictions would replace the queries; give another file")
    if not out.parent.is_dir() or out.is_dir():
        raise InputError(f"{out}: expected a file name in a folder that exists")
    found = list(read_queries(queries).values())
    write_file(out, _lines(model, found))
    return len(found)


def _lines(model: CalibratedReranker, queries: Sequence[Query]) -> Iterator[str]:
    """A prediction a line, a chunk of queries at a time."""
    with progress(len(queries), "rescoring queries", unit="query") as bar:
        for start in range(0, len(queries), CHUNK):
            part = queries[start : start + CHUNK]
            for found in model.assess(model.rank(part)):
                yield json.dumps(found.to_dict(), ensure_ascii=False) + "\n"
            bar.update(len(part))
