"""Batch rescoring: a file of queries in, a file of predictions out, in the order of the input."""

from __future__ import annotations

import json
from pathlib import Path

from calibration.store import write_file
from rerank.assessor import CalibratedReranker
from rerank.beir import read_queries
from rerank.types import InputError


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
    rankings = model.rank(found, label="rescoring queries")
    lines = [json.dumps(a.to_dict(), ensure_ascii=False) for a in model.assess(rankings)]
    write_file(out, "\n".join(lines) + "\n")
    return len(lines)
