"""Queries and predictions as tables, for MLflow's ways of running a model and for data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from rerank.assessment.metadata_features import QUERY_ENTITIES
from rerank.assessment.pipeline import CHUNK
from rerank.data.lines import Problems
from rerank.data.records import QUERY, read_query
from rerank.errors import InputError, optional
from rerank.types import Assessment, Query, as_passages

if TYPE_CHECKING:
    import pandas as pd

    from rerank.assessment.model import CalibratedReranker

TOP = 10  # passages in a row, best first

INPUT_EXAMPLE: dict[str, list[Any]] = {
    "query_id": ["q1", None],  # a missing id becomes the row's number
    "query": ["median along an axis while ignoring NaNs", "sort an array"],
    "passages": [  # only where a query brings its own; with every field that may be missing
        [
            {"_id": "numpy.nanmedian", "title": "", "text": "Ignores NaNs.", "metadata": None},
            {"text": "The median along the axis."},
        ],
        None,
    ],
}
OUTPUT_EXAMPLE: dict[str, list[Any]] = {
    "query_id": ["1"],
    "confidence": [0.86],
    "sufficiency": [0.93],
    "sufficiency_at": [[0.86, 0.9, 0.91, 0.92, 0.93, 0.93, 0.94, 0.94, 0.95, 0.95]],
    "level": ["MEDIUM"],
    "verdict": ["SUFFICIENT"],
    "accepted": [True],
    "certified": [False],
    "context_certified": [False],
    "calibrated": [True],
    "reasons": [["the first passage is far ahead of the second"]],
    "ranking": [
        [  # the second one was not scored by the cross-encoder
            {"doc_id": "nanmedian", "logit": 4.2, "relevance": 0.86, "bm25": 21.3, "dense": 0.71},
            {"doc_id": "median", "logit": None, "relevance": 0.01, "bm25": 17.9, "dense": 0.64},
        ]
    ],
}
SCALARS = ("confidence", "sufficiency", "accepted", "certified", "context_certified", "calibrated")


def frame(columns: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """A data frame of these columns, text as Python's own strings."""
    with optional():
        import pandas as pd
    table = pd.DataFrame(columns)
    return table.astype({name: object for name in table if name not in SCALARS})


def assess_table(
    model: CalibratedReranker, table: Mapping[str, Sequence[Any]] | pd.DataFrame
) -> pd.DataFrame:
    """One row per query, in their order, with the columns of `OUTPUT_EXAMPLE`.

    `table` has a column `query` (or `text`), and may have `query_id`, `passages`, and the metadata
    that the model uses of a query: what names its segments, and `query_entities`.

    Raises:
        InputError: no column `query`, or rows that cannot be used; the message names them.
    """
    queries = _queries(table, model.query_key, [model.segment_by, *model.source.said])
    rows: list[dict[str, Any]] = []
    for start in range(0, len(queries), CHUNK):
        assessed = model.assess(queries[start : start + CHUNK])
        rows += [assessment.to_dict(top=TOP) for assessment in assessed]
    return frame({name: [row[name] for row in rows] for name in OUTPUT_EXAMPLE}).astype(
        {name: type(OUTPUT_EXAMPLE[name][0]) for name in SCALARS}
    )


ScoreKeys = Sequence[str] | Mapping[str, str] | None


@overload
def assess_lists(
    model: CalibratedReranker,
    query: str | None,
    rows: Sequence[Mapping[str, Any]],
    *,
    score_keys: ScoreKeys = None,
) -> Assessment: ...


@overload
def assess_lists(
    model: CalibratedReranker,
    query: str | None,
    rows: pd.DataFrame,
    *,
    score_keys: ScoreKeys = None,
) -> pd.DataFrame: ...


def assess_lists(
    model: CalibratedReranker, query: str | None, rows: Any, *, score_keys: ScoreKeys = None
) -> Any:
    """Assess dictionaries that your own stages have found and scored, or a data frame of them.

    A dictionary is a passage as `rerank.types.as_passage` reads it. `score_keys` are the keys of
    its scores, named as the stages of the model, or by stage; by default the stages themselves. A
    score that is missing or NaN: that stage did not find the passage.

    Returns:
        The assessment, whose passages have `scores`, your numbers, beside the relevance. Of a
        frame: its rows, best first, with the columns `relevance`, `confidence`, `level`, `accepted`
        and `calibrated`; without a `query`, for each value of its column `query`.

    Raises:
        InputError: no query, no row has one of the keys, or as `CalibratedReranker.assess`.
    """
    frame = rows if hasattr(rows, "iloc") else None
    if query is None:
        if frame is None or "query" not in frame or not len(frame):
            raise InputError("expected a query, or a data frame of rows with a column 'query'")
        with optional():
            import pandas as pd
        by_query = frame.groupby("query", sort=False, dropna=False)
        return pd.concat([assess_lists(model, q, r, score_keys=score_keys) for q, r in by_query])
    dictionaries = rows if frame is None else frame.to_dict("records")
    given = model.source.kind.stages if score_keys is None else score_keys
    keys = dict(given) if isinstance(given, Mapping) else {name: name for name in given}
    for row in dictionaries if keys else ():
        if not isinstance(row, Mapping):
            raise InputError(f"expected dictionaries with scores, got {row!r:.100}")
    for key in keys.values():
        if dictionaries and not any(key in row for row in dictionaries):
            raise InputError(
                f"no passage has the score {key!r:.80}; it has {list(dictionaries[0])}"
            )
    scores: Any = {stage: [row.get(key) for row in dictionaries] for stage, key in keys.items()}
    asked = Query(query, passages=as_passages(dictionaries), scores=scores or None)
    found = model.assess([asked])[0]
    if frame is None:
        return found
    whole = {n: getattr(found, n) for n in ("confidence", "level", "accepted", "calibrated")}
    best_first = frame.iloc[[p.row for p in found.passages]]
    return best_first.assign(relevance=[p.relevance for p in found.passages], **whole)


def input_example(segment_by: str, *, entities: bool = False) -> dict[str, list[Any]]:
    """Example queries for a model whose segments are named by this metadata; "": it has none.

    `entities`: it uses the names in a query.
    """
    column: dict[str, list[Any]] = {segment_by: ["some segment", None]} if segment_by else {}
    names: dict[str, list[Any]] = {QUERY_ENTITIES: [["NaN"], None]} if entities else {}
    return {**column, **names, **INPUT_EXAMPLE}


def _queries(
    table: Mapping[str, Sequence[Any]] | pd.DataFrame, key: str | None, used: Sequence[str]
) -> list[Query]:
    name = next((name for name in QUERY if name in table), None)
    if name is None:
        raise InputError(f"expected a column {QUERY[0]!r}, got {sorted(map(str, table))}")
    texts = _values(table, name)
    optional_ones = {n: _values(table, n) for n in ("query_id", "passages", *used) if n in table}
    ids = optional_ones.pop("query_id", [None] * len(texts))
    given = {str(query_id) for query_id in ids}
    queries, problems = [], Problems()
    for row, (query_id, text) in enumerate(zip(ids, texts, strict=True)):
        own = {n: values[row] for n, values in optional_ones.items()}
        record = {"_id": str(row) if query_id is None else query_id, name: text}
        record |= {"passages": own.pop("passages", None), "metadata": own}
        if query_id is None and str(row) in given:
            problems.add(f"row {row}", "it has no id, and its number is the id of another row")
            continue
        try:
            queries.append(read_query(record, segment_by=key))
        except InputError as error:
            problems.add(f"row {row}", str(error))
    problems.raise_if_any("the table")
    return queries


def _values(table: Mapping[str, Sequence[Any]] | pd.DataFrame, name: str) -> list[Any]:
    """A column as Python values: None for NaN, an int for a whole float (of pandas)."""
    import pandas as pd

    column: Any = table[name]
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    plain = (None if pd.api.types.is_scalar(v) and pd.isna(v) else v for v in values)
    return [int(v) if isinstance(v, float) and v.is_integer() else v for v in plain]
