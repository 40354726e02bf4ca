"""Input records: a query, a passage, an id; from JSON lines, Parquet, HTTP or a table.

A record is a mapping of plain values; binary values, as in Parquet, are read as UTF-8.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rerank.data.checks import as_text, has_text, is_encodable, json_type, to_json
from rerank.errors import InputError
from rerank.types import INSTRUCTION, Floats, Passage, Query, metadata_name

LONGEST_ID = 512  # characters, also for a segment's name
LONGEST_QUERY = 10_000  # characters; a cross-encoder reads a few hundred
LONGEST_PASSAGE = 2**19  # characters, title and text
LONGEST_PASSAGES = 2**22  # characters of all passages of a query
LONGEST_RECORD = 2**23  # bytes of a line
MAX_PASSAGES = 1_000  # of one query
MAX_STAGES = 8  # whose scores come with a passage
PANDAS_WHOLE = (
    " (a whole number beside a missing one, of pandas? Save the column as text, or Int64)"
)
SHOWN = 200  # characters of a value, in a message
SHOWN_FIELDS = 8  # of a record, likewise

QUERY = ("query", "text", "question")  # a query's text field; the last only without the others
PASSAGES = ("passages", "documents")
DOC_ID = ("_id", "doc_id")
LOGIT = ("logit", "score")
# in the metadata of a labelled query
ASKED_ABOUT = "asked_about"  # unanswerable: the id of the passage it was asked about
JUDGED_WRONG = "judged_wrong"  # ids of passages that a person judged wrong
# of a query: those that are read
FIELDS = ("_id", "id", *QUERY, *PASSAGES, "filter", "metadata", INSTRUCTION)


def read_query(
    row: Mapping[str, Any], *, segment_by: str | None = None, passages: bool = True
) -> Query:
    """The query of a record: `_id`, `query` (or `text`, as in BEIR), and optional fields.

    `passages`, or `documents`: the query's own candidates, a list of texts or of `{"_id" (or
    "doc_id", or "id"), "title", "text", "logit" or "score"}`; `text` may be empty, which ranks last
    with relevance 0. Without an id a passage gets its position, from 0; no id may occur twice. All
    passages have a logit, or none. `scores` of a passage: its score by each stage of another
    system, null if a stage did not return it; all have the same stages, or none, and need no text.
    `metadata`: an object, of which `segment_by` keeps that key only, and "" none. `filter`: what a
    search may find, see `rerank.filters`; it may be JSON as text. `instruction`: that of the
    metadata, always kept. If the argument `passages` is False, those of the record are ignored.
    """
    query_id = read_id(row, id_of(row))
    field = _only_field(row, QUERY[:-1]) or _only_field(row, QUERY[-1:])
    field = field or next((name for name in QUERY if name in row), QUERY[0])
    text = read_text(row, field, max_length=LONGEST_QUERY)
    metadata = read_metadata(row, segment_by)
    if row.get(INSTRUCTION) is not None:
        asked = read_text(row, INSTRUCTION, max_length=LONGEST_ID, empty=True)
        metadata = {**metadata, INSTRUCTION: asked}
    name = _only_field(row, PASSAGES) if passages else None
    if name is None:
        return Query(text, query_id, metadata, where=row.get("filter"))
    provided = row[name]
    if not isinstance(provided, list):
        raise InputError(f"{name!r} should be a list, got {json_type(provided)}")
    if len(provided) > MAX_PASSAGES:
        raise InputError(f"{name!r} holds {len(provided)}, at most {MAX_PASSAGES} are taken")
    read = [_passage(i, value, f"{name}[{i}]") for i, value in enumerate(provided)]
    candidates = tuple(passage for passage, _, _ in read)
    check_length(name, candidates)
    logits = [logit for _, logit, _ in read if logit is not None]
    if logits and len(logits) < len(candidates):
        raise InputError(f"{len(logits)} of {len(candidates)} passages have a logit; all, or none")
    scores = _scores_by_stage([by_stage for _, _, by_stage in read], name)
    for doc_id, n in Counter(p.doc_id for p in candidates).items():
        if n > 1:
            of_position = " (a passage without an id gets its position)"
            raise InputError(f"{name!r} holds the id {quoted(doc_id)} twice{of_position}")
    given = np.array(logits, dtype=np.float64) if logits else None
    where = row.get("filter")  # refused
    return Query(text, query_id, metadata, candidates, logits=given, scores=scores, where=where)


def read_passage(
    row: Mapping[str, Any], *, default_id: str | None = None, empty: bool = False
) -> Passage:
    """The passage of a record: `_id`, `title` (optional), `text`, `metadata` (optional).

    The text may be empty if there is a title, or with `empty`.
    """
    key = _only_field(row, DOC_ID) or id_of(row)
    named = row.get(key) is not None or default_id is None
    doc_id = read_id(row, key) if named else str(default_id)
    title = "" if row.get("title") is None else read_text(row, "title", empty=True)
    may_be_empty = empty or has_text(title)
    text = read_text(row, "text", max_length=LONGEST_PASSAGE - len(title), empty=may_be_empty)
    return Passage(doc_id, title, text, read_metadata(row))


def check_length(name: str, passages: Sequence[Passage]) -> None:
    """Refuse passages of more than `LONGEST_PASSAGES` characters together."""
    length = sum(len(p.title) + len(p.text) for p in passages)
    if length > LONGEST_PASSAGES:
        most = f"at most {LONGEST_PASSAGES} are taken; send fewer or shorter ones"
        raise InputError(f"{name!r} holds {length} characters, {most}")


def id_of(row: Mapping[str, Any]) -> str:
    """The field of a record's id: `_id`, else `id`."""
    return "id" if row.get("_id") is None and row.get("id") is not None else "_id"


def read_id(row: Mapping[str, Any], key: str) -> str:
    """An id: text, or a whole number, which becomes its digits."""
    value = row.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64:
        return str(value)
    if key in row and not isinstance(value, (str, bytes)):
        came = "a whole number of more than 64 bits" if type(value) is int else json_type(value)
        if isinstance(value, float):
            came = f"{value!r}{PANDAS_WHOLE if value.is_integer() or math.isnan(value) else ''}"
        raise InputError(f"{key!r} should be text or a whole number, got {came}")
    text = read_text(row, key, max_length=LONGEST_ID)
    if text != text.strip() or any(c in text for c in "\t\n\r"):
        raise InputError(f"{key!r} {quoted(text)} holds a tab, a line end or outer spaces")
    return text


def read_text(
    row: Mapping[str, Any], key: str, *, max_length: int = LONGEST_PASSAGE, empty: bool = False
) -> str:
    """A field with text of at most `max_length` characters; with `empty`, it may be empty."""
    if key not in row:
        others = ", ".join(map(quoted, list(row)[:SHOWN_FIELDS]))
        raise InputError(f"{key!r} is missing{f'; there is {others}' if others else ''}")
    value = row[key]
    try:
        value = value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        raise InputError(f"{key!r} holds bytes that are not UTF-8") from None
    return as_text(key, value, max_length=max_length, empty=empty)


def passage_row(passage: Passage) -> dict[str, Any]:
    """The passage as a line of `corpus.jsonl`."""
    row = {"_id": passage.doc_id, "title": passage.title, "text": passage.text}
    return row | ({"metadata": dict(passage.metadata)} if passage.metadata else {})


def query_row(query: Query) -> dict[str, Any]:
    """The query as a line of `queries.jsonl`."""
    row: dict[str, Any] = {"_id": query.query_id, "text": query.text}
    if query.passages is not None:
        row["passages"] = [
            passage_row(p)
            | ({} if query.scores is None else {"scores": query.scores_of(i)})
            | ({} if query.logits is None else {"logit": float(query.logits[i])})
            for i, p in enumerate(query.passages)
        ]
    row |= {"filter": query.where.to_dict()} if query.where else {}
    return row | ({"metadata": dict(query.metadata)} if query.metadata else {})


def quoted(value: str) -> str:
    """The beginning of a text, quoted for a message."""
    return repr(value if len(value) <= SHOWN else value[:SHOWN] + "…")


def _only_field(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    present = [name for name in names if row.get(name) is not None]
    if len(present) > 1:
        raise InputError(f"has both {present[0]!r} and {present[1]!r}; expected one of them")
    return present[0] if present else None


Scores = Mapping[str, float]  # of a passage, by stage; NaN if a stage did not return it


def _passage(at: int, value: object, where: str) -> tuple[Passage, float | None, Scores | None]:
    if isinstance(value, (str, bytes)):
        text = read_text({where: value}, where, empty=True)
        return Passage(str(at), "", text), None, None
    if not isinstance(value, Mapping):
        raise InputError(f"{where} should be text or an object, got {json_type(value)}")
    try:
        scores = _scores(value)
        row = value if scores is None or value.get("text") is not None else {**value, "text": ""}
        passage = read_passage(row, default_id=str(at), empty=True)
        key = _only_field(value, LOGIT)
        return passage, None if key is None else read_number(value, key), scores
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def read_number(row: Mapping[str, Any], key: str) -> float:
    """A field that holds a finite number."""
    number = row[key]
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InputError(f"{key!r} should be a number, got {json_type(number)}")
    if (finite := finite_number(number)) is None:
        raise InputError(f"{key!r} is not a finite number")
    return finite


def finite_number(value: str | float) -> float | None:
    """The number that a value or a cell of text holds; None if it holds no finite one."""
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def read_right(row: Mapping[str, Any]) -> bool | None:
    """The field `right`; None if there is none."""
    right = row.get("right")
    if right is not None and not isinstance(right, bool):
        raise InputError(f"'right' should be true or false, got {right!r:.80}")
    return right


def _scores(row: Mapping[str, Any]) -> Scores | None:
    scores = _arrow_map_to_dict(row.get("scores"))
    if scores is None:
        return None
    if not isinstance(scores, Mapping) or not scores:
        came = json_type(scores) if scores else "an empty object"
        raise InputError(f"'scores' should be an object, a number by stage, got {came}")
    if row.get("logit") is not None or row.get("score") is not None:
        raise InputError("has both 'scores' and a logit; expected one of them")
    if len(scores) > MAX_STAGES:
        raise InputError(f"'scores' names {len(scores)} stages, at most {MAX_STAGES} are taken")
    for stage in scores:
        read_id({"the name of a stage": stage}, "the name of a stage")
    if all(number is None for number in scores.values()):
        raise InputError("'scores' are all null; expected a number of one stage at least")
    return {s: math.nan if n is None else read_number(scores, s) for s, n in scores.items()}


def _scores_by_stage(read: Sequence[Scores | None], where: str) -> dict[str, Floats] | None:
    """The scores of all passages, (n,) per stage; None if no passage has any."""
    if all(scores is None for scores in read):
        return None
    stages = list(read[0] or ())
    for i, scores in enumerate(read):
        if set(scores or ()) != set(stages):
            raise InputError(
                f"{where}[{i}] has the scores of {list(scores or ())}, {where}[0] those of "
                f"{stages}; expected the same stages, null where one did not bring the passage"
            )
    by_stage = {stage: [scores[stage] for scores in read if scores] for stage in stages}
    return {stage: np.array(numbers, dtype=np.float64) for stage, numbers in by_stage.items()}


def read_metadata(row: Mapping[str, Any], only: str | None = None) -> Mapping[str, Any]:
    """The metadata, or the one key of it that is kept."""
    metadata = _arrow_map_to_dict(row.get("metadata")) if only != "" else None
    if not metadata:
        return {}
    if not isinstance(metadata, Mapping):
        raise InputError(f"'metadata' should be an object, got {json_type(metadata)}")
    if only is None:
        try:
            line = to_json(metadata)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"'metadata' cannot be written as JSON ({error})") from None
        if not is_encodable(line):
            raise InputError("'metadata' holds a lone surrogate, which is not text")
        return metadata
    name = metadata_name(metadata, only)
    if len(name) > LONGEST_ID:
        raise InputError(f"metadata {only!r} has {len(name)} characters, at most {LONGEST_ID}")
    return {only: name}


def _arrow_map_to_dict(value: Any) -> Any:
    """The value; a map of Arrow, which is read as a list of pairs, becomes a dictionary."""
    is_map = isinstance(value, list) and all(isinstance(p, tuple) and len(p) == 2 for p in value)
    return dict(value) if is_map else value
