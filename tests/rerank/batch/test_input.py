"""What a rescoring reads: rows and why they are refused, JSONL and Parquet in chunks."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rerank.batch.input import open_input
from rerank.batch.parquet import write_parquet
from rerank.batch.rows import CHUNK_ROWS, JsonLines, QueryRow, RejectedRow, Row
from rerank.data.lines import foreign
from rerank.data.records import LONGEST_RECORD
from rerank.errors import InputError
from rerank.storage.files import RepeatedKeyError, loads
from rerank.types import Query

FEW = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def line(value: object) -> Row:
    return decoded(value if isinstance(value, bytes) else json.dumps(value).encode())


def decoded(data: bytes, segment_by: str = "") -> Row:
    return JsonLines(Path("q.jsonl"), segment_by, 0, "", 3).decode(3, data)


def rows(path: Path, segment_by: str = "") -> list[Row]:
    chunks = open_input(path, segment_by).chunks(0)
    return [row for chunk in chunks for row in chunk.rows]


def table(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


# --- a row ------------------------------------------------------------------------------------


def test_a_query_is_read() -> None:
    """An id and a text ask the index; a whole number is an id, and metadata is passed over."""
    assert line({"_id": "a", "text": "x", "metadata": [1]}) == QueryRow(3, Query("x", "a"))
    assert line({"_id": 7, "text": "x"}) == QueryRow(3, Query("x", "7"))


def test_metadata_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    """A date in Parquet costs its row, and not the run."""
    passages = [[{"text": "x", "metadata": {"date": date(2024, 1, 1)}}], [{"text": "y"}]]
    path = table(
        tmp_path / "p.parquet", {"_id": ["a", "b"], "text": ["q", "q"], "passages": passages}
    )
    bad, good = rows(path)
    assert isinstance(bad, RejectedRow)
    assert "cannot be written as JSON" in bad.reason
    assert isinstance(good, QueryRow)


def test_of_metadata_the_segment_is_read() -> None:
    """What names the segment, and nothing else; 1 and 1.0 are the same name."""
    metadata = {"language": 1.0, "notes": "x" * 1000}
    row = json.dumps({"_id": "a", "text": "x", "metadata": metadata}).encode()
    assert decoded(row, "language") == QueryRow(3, Query("x", "a", {"language": "1"}))
    for wrong, why in (("fr", "should be an object"), ({"language": "x" * 600}, "600 characters")):
        row = json.dumps({"_id": "a", "text": "x", "metadata": wrong}).encode()
        found = decoded(row, "language")
        assert isinstance(found, RejectedRow)
        assert why in found.reason


@pytest.mark.parametrize(
    "kind", [pa.map_(pa.string(), pa.string()), pa.struct({"by": pa.string()})]
)
def test_arrow_has_two_forms_of_an_object(kind: pa.DataType, tmp_path: Path) -> None:
    """A map and a struct are both read, if the model has segments."""
    pairs = [[("by", "faq")], None]
    values = pairs if pa.types.is_map(kind) else [v and dict(v) for v in pairs]
    made = pa.array(values, kind)
    table = pa.table({"_id": ["a", "b"], "text": ["x", "y"], "metadata": made})
    pq.write_table(table, tmp_path / "rows.parquet")
    for by, expected in (("by", [{"by": "faq"}, {}]), ("", [{}, {}])):
        found = rows(tmp_path / "rows.parquet", by)
        assert [r.query.metadata for r in found if isinstance(r, QueryRow)] == expected


def test_a_huge_value_rejects_its_row(tmp_path: Path) -> None:
    """Few bytes on disk may be many in memory: the row is refused before Python holds it."""
    table = pa.table({"_id": ["a", "b"], "text": ["x", "y" * (2**25 + 1)]})
    pq.write_table(table, tmp_path / "rows.parquet", compression="zstd")
    first, second = rows(tmp_path / "rows.parquet")
    assert first == QueryRow(1, Query("x", "a"))
    assert isinstance(second, RejectedRow)
    assert "at most 33554432 are taken" in second.reason


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"query": "x", "question": "y"}, "x"),
        ({"text": "x", "question": {"id": 7}}, "x"),
        ({"query": None, "question": "y"}, "y"),
    ],
)
def test_a_question_is_read_only_in_place_of_a_query(row: dict[str, Any], expected: str) -> None:
    """Else it is a field of others, which is ignored."""
    assert line({"_id": "a", **row}) == QueryRow(3, Query(expected, "a"))


def test_own_passages_are_read() -> None:
    """Texts and objects, under either name; what has no id gets its position."""
    for name in ("passages", "documents"):
        row = line({"_id": "a", "text": "x", name: ["one", {"doc_id": "d", "text": "two"}]})
        assert isinstance(row, QueryRow)
        assert row.query.passages is not None
        assert [(p.doc_id, p.title, p.text) for p in row.query.passages] == [
            ("0", "", "one"),
            ("d", "", "two"),
        ]
        assert row.query.logits is None


def test_a_passage_may_be_empty() -> None:
    """It is ranked last; the row is answered."""
    row = line({"_id": "a", "text": "x", "passages": ["one", "", {"text": " "}]})
    assert isinstance(row, QueryRow)
    assert [p.text for p in row.query.passages or ()] == ["one", "", " "]


def test_logits_are_read() -> None:
    """A logit or score per passage, as it came."""
    own = [{"_id": "p", "title": "t", "text": "b", "logit": 1.5}, {"text": "c", "score": -2}]
    row = line({"_id": "a", "text": "x", "passages": own})
    assert isinstance(row, QueryRow)
    assert row.query.passages is not None
    assert row.query.logits is not None
    assert row.query.logits.tolist() == [1.5, -2.0]
    assert row.query.passages[0].full_text == "t. b"


@pytest.mark.parametrize(
    ("value", "reason", "query_id"),
    [
        (b"{", "not JSON", None),
        (b"\xff", "not UTF-8 (byte 1", None),
        (b'{"_id": "a", "text": "x", "text": "y"}', "the key 'text' appears twice", None),
        (b"[" * 100_000, "nested too deep", None),
        (b'{"_id": ' + b"9" * 5000 + b"}", "not JSON (Exceeds the limit", None),
        ([], "expected a JSON object, got a list", None),
        ({"text": "x"}, "'_id' is missing", None),
        ({"_id": None, "text": "x"}, "'_id' should be text or a whole number, got null", None),
        ({"_id": True, "text": "x"}, "'_id' should be text or a whole number, got a boolean", None),
        ({"_id": 1.5, "text": "x"}, "'_id' should be text or a whole number, got 1.5", None),
        ({"_id": 2**70, "text": "x"}, "'_id' should be text or a whole number", None),
        ({"_id": " ", "text": "x"}, "'_id' is empty", None),
        ({"_id": "a\tb", "text": "x"}, "holds a tab", None),
        ({"_id": "x" * 1000, "text": "x"}, "'_id' has 1000 characters", None),
        ({"_id": "\ud800", "text": "x"}, "lone surrogate", None),
        ({"_id": "a"}, "'query' is missing", "a"),
        ({"_id": "a", "query": "x", "text": "x"}, "has both 'query' and 'text'", "a"),
        ({"_id": "a", "text": "\n"}, "'text' is empty", "a"),
        ({"_id": "a", "text": 5}, "'text' should be text, got a whole number", "a"),
        ({"_id": "a", "text": "y" * 20_000}, "'text' has 20000 characters", "a"),
        ({"_id": "a", "text": "x", "passages": "p"}, "should be a list, got text", "a"),
        ({"_id": "a", "text": "x", "passages": ["b", 3]}, "passages[1] should be text", "a"),
        ({"_id": "a", "text": "x", "passages": [{"_id": "b"}]}, "passages[0]: 'text' is", "a"),
        ({"_id": "a", "text": "x", "passages": ["b"], "documents": ["b"]}, "both", "a"),
        ({"_id": "a", "text": "x", "passages": ["b"] * 1001}, "holds 1001, at most", "a"),
        (
            {"_id": "a", "text": "x", "passages": [{"_id": "p", "text": "b"}] * 2},
            "'passages' holds the id 'p' twice",
            "a",
        ),
        (
            {"_id": "a", "text": "x", "passages": [{"_id": "1", "text": "b"}, "c"]},
            "'passages' holds the id '1' twice",
            "a",
        ),
        (
            {"_id": "a", "text": "x", "passages": [{"text": "b", "score": 1}, "c"]},
            "1 of 2 passages have a logit",
            "a",
        ),
        (
            {"_id": "a", "text": "x", "passages": [{"text": "b", "score": math.inf}]},
            "'score' is not a finite number",
            "a",
        ),
        ({"_id": "a", "text": "x", "passages": [{"text": "b", "score": "1"}]}, "a number", "a"),
        (
            {"_id": "a", "text": "x", "passages": [{"text": "b", "score": 10**400}]},
            "not a finite number",
            "a",
        ),
    ],
)
def test_a_bad_row_is_told_with_its_line_and_id(
    value: object, reason: str, query_id: str | None
) -> None:
    """Why, in words, and which line and query it was."""
    found = line(value)
    assert isinstance(found, RejectedRow)
    assert reason in found.reason
    assert (found.line, found.query_id) == (3, query_id)


def test_a_reason_is_short_whatever_came() -> None:
    """Ten megabytes of id do not come back in the side file."""
    found = line({"_id": "\t" + "x" * 500, "text": "x"})
    assert isinstance(found, RejectedRow)
    assert len(found.reason) < 400
    assert len(str(line({"_id": "x" * 10_000_000, "text": "x"}))) < 400


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["_id", "doc_id", "text", "title", "passages", "score", "x"]), inner
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(PLAIN)
def test_any_values_are_a_row_or_a_rejection(value: object) -> None:
    """Whatever a row holds, it is read or refused, never an exception."""
    found = JsonLines(Path("q.jsonl"), "", 0, "").parse(
        1, value if isinstance(value, dict) else {"_id": value, "text": value}
    )
    assert isinstance(found, (QueryRow, RejectedRow))
    json.dumps(found.to_dict() if isinstance(found, RejectedRow) else 0).encode()


# --- JSONL ------------------------------------------------------------------------------------


def test_lines_are_counted_from_one_blank_ones_too(tmp_path: Path) -> None:
    """A byte order mark, carriage returns and blank lines are not rows."""
    path = tmp_path / "q.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"_id": "a", "text": "x"}\r\n\n  \n{\n{"_id": "b", "text": "y"}')
    found = rows(path)
    assert [row.line for row in found] == [1, 4, 5]
    assert [type(row) for row in found] == [QueryRow, RejectedRow, QueryRow]


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path) -> None:
    """It is one rejected row, and the next line is read."""
    path = tmp_path / "q.jsonl"
    long = b'{"_id": "a", "text": "' + b"x" * (2 * LONGEST_RECORD) + b'"}\n'
    path.write_bytes(long + b'{"_id": "b", "text": "y"}\n' + long)
    found = rows(path)
    assert [row.line for row in found] == [1, 2, 3]
    assert found[1] == QueryRow(2, Query("y", "b"))
    assert "more than" in str(found[0])


@FEW
@given(st.lists(st.binary(max_size=40) | st.sampled_from([b'{"_id":"a","text":"b"}', b" "])))
def test_any_bytes_are_rows(tmp_path: Path, parts: list[bytes]) -> None:
    """Each line that is not blank gives one row, under its own number."""
    path = tmp_path / "q.jsonl"
    path.write_bytes(b"\n".join(parts))
    whole = path.read_bytes()
    expected = [i for i, part in enumerate(whole.split(b"\n"), 1) if part.strip()]
    if not expected:
        with pytest.raises(InputError, match="holds no query"):
            rows(path)
        return
    if foreign(whole, ".jsonl"):
        with pytest.raises(InputError, match=r"q\.jsonl: "):
            rows(path)
        return
    assert [row.line for row in rows(path)] == expected


# --- both -------------------------------------------------------------------------------------


@pytest.fixture(params=["q.jsonl", "q.parquet"])
def many(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Three chunks and a half; the Parquet in row groups that end within a chunk."""
    path = tmp_path / str(request.param)
    asked = [{"_id": str(i), "text": f"text {i}"} for i in range(CHUNK_ROWS * 7 // 2)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(r) + "\n" for r in asked))
        return path
    return table(path, {k: [r[k] for r in asked] for k in ("_id", "text")}, row_group_size=100)


def test_a_chunk_is_the_same_wherever_reading_begins(many: Path) -> None:
    """From the end of any chunk on, the chunks are those of reading from the start."""
    reader = open_input(many)
    whole = [(c.start, c.end, list(c.rows)) for c in reader.chunks(0)]
    assert reader.total == whole[-1][1] == CHUNK_ROWS * 7 // 2
    assert max(len(r) for _, _, r in whole) == CHUNK_ROWS
    for i, (start, _, _) in enumerate(whole):
        assert [(c.start, c.end, list(c.rows)) for c in reader.chunks(start)] == whole[i:]
        assert list(reader.starts(start)) == [s for s, _, _ in whole[i:]]
    for start, end, found in [*whole, *whole[::-1], *whole[::2]]:
        chunk = reader.at(start)
        assert (chunk.start, chunk.end, list(chunk.rows)) == (start, end, found)


@pytest.mark.parametrize("name", ["q.csv", "q.jsonl.gz", "folder.jsonl", "none.jsonl", "none.pq"])
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    """Another ending, a folder, nothing there."""
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(InputError, match=name):
        rows(tmp_path / name)


# --- Parquet ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["5", "6"], pa.large_string()),
        pa.array(["5", "6"], pa.string_view()),
        pa.array([b"5", b"6"], pa.binary()),
        pa.array([b"5", b"6"], pa.binary(1)),
        pa.array([5, 6], pa.int64()),
        pa.array([5, 6], pa.uint8()),
        pa.array(["5", "6"]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type).split("<")[0],
)
def test_ids_of_many_types_are_read(tmp_path: Path, column: pa.Array) -> None:
    """Text in any encoding that Arrow has for it, and whole numbers."""
    path = table(tmp_path / "q.parquet", {"_id": column, "text": ["x", "y"]})
    assert rows(path) == [QueryRow(1, Query("x", "5")), QueryRow(2, Query("y", "6"))]


def test_values_that_are_no_text_reject_their_row_alone(tmp_path: Path) -> None:
    """Nulls, bytes that are not UTF-8, numbers: the rows beside them are read."""
    bad = pa.Array.from_buffers(
        pa.string(),
        3,
        [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffb")],
    )
    path = table(tmp_path / "q.parquet", {"_id": [1, 2, 3], "text": bad})
    found = rows(path)
    assert [type(row) for row in found] == [QueryRow, RejectedRow, QueryRow]
    assert "'text' cannot be read" in str(found[1])
    assert rows(table(path, {"_id": [None, "b"], "text": ["x", None]})) == [
        RejectedRow(1, "'_id' should be text or a whole number, got null"),
        RejectedRow(2, "'text' should be text, got null", "b"),
    ]
    odd = {"_id": pa.array([1.5, 2.5]), "text": pa.array([Decimal("1.5"), None])}
    assert all(isinstance(row, RejectedRow) for row in rows(table(path, odd)))
    of_pandas = table(path, {"_id": pa.array([1.0, 2.0]), "text": ["x", "y"]})
    assert "got 1.0 (a whole number beside a missing one" in str(rows(of_pandas)[0])


def test_own_passages_of_nested_columns(tmp_path: Path) -> None:
    """Lists of text or of structs; a null list asks the index, null fields are as if not there."""
    kind = pa.list_(
        pa.struct(
            [
                ("doc_id", pa.int32()),
                ("title", pa.string()),
                ("text", pa.large_string()),
                ("score", pa.float32()),
            ]
        )
    )
    own = [[{"doc_id": 4, "title": None, "text": "one", "score": None}], None, [None], []]
    path = table(
        tmp_path / "q.parquet",
        {"_id": list("abcd"), "text": ["x"] * 4, "passages": pa.array(own, kind)},
    )
    first, second, third, fourth = rows(path)
    assert isinstance(first, QueryRow)
    assert first.query.passages is not None
    assert first.query.passages[0].doc_id == "4"
    assert second == QueryRow(2, Query("x", "b"))
    assert third == RejectedRow(3, "passages[0] should be text or an object, got null", "c")
    assert isinstance(fourth, QueryRow)
    assert fourth.query == Query("x", "d", passages=())


@pytest.mark.parametrize("columns", [{"_id": ["a"]}, {"key": ["a"], "text": ["x"]}])
def test_a_parquet_without_the_columns_is_refused(tmp_path: Path, columns: dict[str, Any]) -> None:
    """Every row would be; so it is told at once."""
    with pytest.raises(InputError, match="expected columns _id and query"):
        rows(table(tmp_path / "q.parquet", columns))


def test_a_damaged_parquet_is_refused(tmp_path: Path) -> None:
    """Cut anywhere, or with other bytes in it: refused in a sentence, or read."""
    path = table(
        tmp_path / "q.parquet",
        {"_id": [str(i) for i in range(200)], "text": [f"text {i}" for i in range(200)]},
        row_group_size=70,
    )
    whole = path.read_bytes()
    for end in range(0, len(whole), 97):
        path.write_bytes(whole[:end])
        with pytest.raises(InputError):
            rows(path)
    for at in range(0, len(whole), 41):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with suppress(InputError):
            assert all(isinstance(row, (QueryRow, RejectedRow)) for row in rows(path))


def test_a_written_parquet_reads_back(tmp_path: Path) -> None:
    """Numbers to the bit, nulls where nothing was read, rows in order; twice the same bytes."""
    predictions = [
        {
            "query_id": str(i),
            "confidence": 1 / (i + 3),
            "sufficiency": 0.5,
            "sufficiency_at": [0.1 * i] * 10,
            "level": "HIGH",
            "verdict": "PARTIAL",
            "accepted": True,
            "certified": False,
            "context_certified": False,
            "calibrated": True,
            "reasons": ["for: ö"],
            "ranking": [
                {"doc_id": "d", "logit": None, "relevance": 0.1 + i, "bm25": 2.0, "dense": -0.3}
            ]
            * (i % 3),
        }
        for i in range(150)
    ]
    lines = [json.dumps(p).encode() + b"\n" for p in predictions]
    for name in ("a.parquet", "b.parquet"):
        write_parquet(lines, tmp_path / name)
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == predictions
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    for prediction in predictions:
        scores = [("bm25", 2.0), ("reranker", None)]
        prediction["ranking"] = [{"doc_id": "d", "relevance": 0.1, "scores": dict(scores)}]
    lines = [json.dumps(p).encode() + b"\n" for p in predictions]
    write_parquet(lines, tmp_path / "c.parquet", other_stages=True)
    for row in pq.read_table(tmp_path / "c.parquet").to_pylist():
        assert row["ranking"] == [{"doc_id": "d", "relevance": 0.1, "scores": scores}]
    write_parquet([], tmp_path / "none.parquet")
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0


def test_many_keys_take_time_in_proportion() -> None:
    """Two hundred thousand, the last one a second time."""
    keys = ", ".join(f'"k{i}": 0' for i in [*range(200_000), 7])
    with pytest.raises(RepeatedKeyError, match="the key 'k7' appears twice"):
        loads(f"{{{keys}}}")
