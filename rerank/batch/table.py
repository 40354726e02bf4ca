"""Questions and assessments as flat tables: what MLflow's ways of running a model pass around."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rerank.assessment.pipeline import CHUNK
from rerank.data.text import can_be_written
from rerank.errors import InputError, optional
from rerank.types import Assessment, Query

if TYPE_CHECKING:
    import pandas as pd

    from rerank.assessment.model import CalibratedReranker

TOP = 10  # passages of a row, best first

INPUT_EXAMPLE: dict[str, list[Any]] = {
    "query_id": ["1", None],  # an id may be missing: then it is the row's number
    "text": ["median along an axis while ignoring NaNs", "sort an array"],
}
OUTPUT_EXAMPLE: dict[str, list[Any]] = {
    "query_id": ["1"],
    "confidence": [0.86],
    "sufficiency": [0.93],
    "level": ["MEDIUM"],
    "verdict": ["SUFFICIENT"],
    "accepted": [True],
    "certified": [False],
    "doc_ids": [["numpy.nanmedian", "numpy.median"]],
    "relevance": [[0.43, 0.01]],
}


NUMBERS = ("confidence", "sufficiency", "accepted", "certified")


def frame(columns: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """A data frame of these columns, text as Python's own strings."""
    with optional():
        import pandas as pd

    made = pd.DataFrame(columns)
    return made.astype({name: object for name in made if name not in NUMBERS})


def assess_table(
    model: CalibratedReranker, questions: Mapping[str, Sequence[Any]] | pd.DataFrame
) -> pd.DataFrame:
    """A row a question, in their order, with the columns of `OUTPUT_EXAMPLE`.

    `questions` has a column `text`, and may have `query_id` and what the model corrects by
    (`--segment-by`); others are not looked at.

    Raises:
        InputError: no column `text`, or rows whose text is empty or no text, which are named.
    """
    queries = list(_queries(questions, model.segment_by))
    rows: list[dict[str, Any]] = []
    for start in range(0, len(queries), CHUNK):
        rows += map(_row, model.assess(queries[start : start + CHUNK]))
    return frame({name: [row[name] for row in rows] for name in OUTPUT_EXAMPLE}).astype(
        {name: type(OUTPUT_EXAMPLE[name][0]) for name in NUMBERS}
    )


def input_example(segment_by: str) -> dict[str, list[Any]]:
    """Questions as a model takes them that corrects by this metadata, or by none where it is ""."""
    column: dict[str, list[Any]] = {segment_by: ["some kind", None]} if segment_by else {}
    return {**column, **INPUT_EXAMPLE}


def _queries(
    questions: Mapping[str, Sequence[Any]] | pd.DataFrame, segment_by: str
) -> Iterator[Query]:
    if "text" not in questions:
        raise InputError(f"expected a column 'text', got {sorted(map(str, questions))}")
    texts = list(questions["text"])
    ids, segments = (
        list(questions[key]) if key in questions else [None] * len(texts)
        for key in ("query_id", segment_by)
    )
    bad = [row for row, text in enumerate(texts) if not _is_text(text)]
    if bad:
        shown = ", ".join(map(str, bad[:10])) + (" and others" if len(bad) > 10 else "")
        raise InputError(f"rows {shown}: 'text' is empty or no text; expected some words")
    for row, (given, text, segment) in enumerate(zip(ids, texts, segments, strict=True)):
        missing = given is None or isinstance(given, float)  # NaN, as pandas has what is missing
        yield Query(text, str(row) if missing else str(given), {segment_by: segment})


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and can_be_written(value)


def _row(found: Assessment) -> dict[str, Any]:
    ranking = found.ranking
    return {
        "query_id": ranking.query.query_id,
        "confidence": found.confidence,
        "sufficiency": found.sufficiency,
        "level": found.level,
        "verdict": found.verdict,
        "accepted": found.accepted,
        "certified": found.certified,
        "doc_ids": list(ranking.doc_ids[:TOP]),
        "relevance": ranking.relevance[:TOP].tolist(),
    }
