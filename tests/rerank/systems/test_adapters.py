"""Each adapter, by the system's own client, on a collection of twenty short passages."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collections_of import MAKERS, SERVERS, settings_file
from search_server import searching

from rerank.assessment.sources.other_system import SearchSystem, passages_by_id
from rerank.errors import FilterError, InputError
from rerank.filters import Where
from rerank.systems.settings import RetrieverSettings, connect, read_settings

WIDTH = 8
WORDS = ("zebra", "violin", "glacier", "pepper", "lantern")


def unit(row: int) -> Any:
    made = np.random.default_rng(row).normal(size=WIDTH)
    return (made / np.linalg.norm(made)).astype(np.float32)


ROWS = [
    {
        "id": f"it's {i}" if i % 2 else str(i),
        "title": f"number {i}",
        "text": f"the {WORDS[i % 5]} of story {i}" + " zebra" * (i == 0),
        "place": f"page {i}",
        "year": 2000 + i // 3,
        "live": i % 4 == 0,
        "vector": unit(i),
    }
    for i in range(20)
]


@pytest.fixture(scope="module", params=sorted([*MAKERS, *SERVERS]))
def settings(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[RetrieverSettings]:
    place: Path = tmp_path_factory.mktemp(request.param)
    if request.param in MAKERS:
        yield read_settings(MAKERS[request.param](ROWS, place))
        return
    pytest.importorskip(SERVERS[request.param])
    with searching(ROWS) as server:
        named = {"system": request.param, "url": server.url, "keyword": "text"}
        yield read_settings(settings_file(place, **named))


@pytest.fixture(scope="module")
def system(settings: RetrieverSettings) -> SearchSystem:
    return connect(settings)


def test_keyword_search(system: SearchSystem) -> None:
    """What holds the word, best first; what holds no word of the query is not found."""
    found = system.keyword("a ZEBRA?", 10)
    assert {h.passage.doc_id for h in found} == {"0", "it's 5", "10", "it's 15"}
    assert found[0].passage.doc_id == "0"
    scores = [h.score for h in found]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) > 0
    assert len(system.keyword("zebra", 2)) == 2
    assert not system.keyword("?!", 10)


def test_vector_search(system: SearchSystem) -> None:
    """Itself first, and the order of the cosines."""
    found = system.vector(unit(7), 20)
    cosines = {row["id"]: float(row["vector"] @ unit(7)) for row in ROWS}
    expected = sorted(cosines, key=lambda i: -cosines[i])
    assert [h.passage.doc_id for h in found] == expected
    assert all(a.score >= b.score for a, b in itertools.pairwise(found))
    assert len(system.vector(unit(7), 3)) == 3


@pytest.mark.parametrize(
    "given",
    [
        {"place": "page 3"},
        {"place": ["page 3", "it's no page", "page 10"], "year": [2001, 2003.0]},
        {"year": {"gte": 2001, "lt": 2004}, "live": True},
        {"year": {"gt": 2005.5}},
        {"live": False, "year": {"lte": 2000}},
        {"year": 1999},
    ],
)
def test_filters_are_applied_before_ranking(system: SearchSystem, given: dict[str, Any]) -> None:
    """Both searches find what a look at every row finds, even where better rows do not fit."""
    where = Where.read(given)
    assert where
    fitting = {row["id"] for row in ROWS if where.holds(row)}
    nearest = sorted(ROWS, key=lambda row: -float(row["vector"] @ unit(7)))
    expected = [row["id"] for row in nearest if row["id"] in fitting][:3]
    assert [h.passage.doc_id for h in system.vector(unit(7), 3, where)] == expected
    words = " ".join(WORDS)
    assert {h.passage.doc_id for h in system.keyword(words, 20, where)} == fitting


@pytest.mark.parametrize("given", [{"yaer": 1}, {"text": "zebra"}, {"vector": [1, 2]}])
def test_filters_that_no_field_can_answer(
    system: SearchSystem, settings: RetrieverSettings, given: dict[str, Any]
) -> None:
    """The field is named, and not where the collection is."""
    if settings.system == "qdrant" or (settings.remote, "vector" in given) == (True, True):
        pytest.skip("declares no fields")
    if settings.system == "lancedb" and "text" in given:
        pytest.skip("compares whole texts")
    with pytest.raises(FilterError, match=next(iter(given))) as error:
        system.vector(unit(7), 3, Where.read(given))
    assert settings.url not in str(error.value)


def test_passages_by_id(system: SearchSystem) -> None:
    """Those that are there, whatever their ids are made of."""
    found = {p.doc_id: p for p in system.passages(["it's 7", "4", "nothing", "';--"])}
    assert sorted(found) == ["4", "it's 7"]
    assert found["4"].title == "number 4"
    assert found["4"].text == "the lantern of story 4"
    assert found["4"].metadata == {"place": "page 4"}
    assert not system.passages(["nothing"])


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"collection": "passagse"}, "passagse.*(not found|no such)"),
        ({"text": "texts"}, "no field 'texts'; did you mean 'text'"),
        ({"vector": "vectors"}, "no field 'vectors'"),
        ({"keyword": ("words",)}, "no field 'words'"),
    ],
)
def test_what_the_collection_lacks(
    settings: RetrieverSettings, changed: dict[str, Any], sentence: str
) -> None:
    """One sentence that names it, of every search."""
    system = connect(replace(settings, **changed))
    for search in (
        lambda: system.keyword("zebra", 1),
        lambda: system.vector(unit(0), 1),
        lambda: system.passages(["4"]),
    ):
        with pytest.raises(InputError, match=sentence):
            search()


def test_keyword_search_needs_text(settings: RetrieverSettings) -> None:
    """A column of another type is the settings' fault, not the system's."""
    if settings.system != "lancedb":
        pytest.skip("LanceDB's columns have types")
    system = connect(replace(settings, keyword=("vector",)))
    with pytest.raises(
        InputError, match="'vector' of `keyword` holds no text, but fixed_size_list"
    ):
        system.keyword("zebra", 1)


def test_vectors_of_another_size(system: SearchSystem) -> None:
    """Both sizes are told."""
    with pytest.raises(InputError, match=f"have {WIDTH} numbers, those of the encoder 3"):
        system.vector(np.ones(3, dtype=np.float32), 1)


def test_a_folder_that_is_not_there(settings: RetrieverSettings, tmp_path: Path) -> None:
    """It is named, and nothing is made."""
    if settings.remote:
        pytest.skip("a server")
    system = connect(replace(settings, url=str(tmp_path / "none")))
    once = f"{re.escape(str(system.settings))}: there is no such folder"
    with pytest.raises(InputError, match=f"^{once}$"):
        system.keyword("zebra", 1)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("column", ["doc id", "docId", "order"])
def test_lancedb_takes_any_name_of_the_id_column(column: str, tmp_path: Path) -> None:
    """One with a space, with capitals, and one that is a word of SQL."""
    lancedb = pytest.importorskip("lancedb")
    rows = [{column: row["id"], "text": row["text"], "vector": row["vector"]} for row in ROWS]
    lancedb.connect(tmp_path).create_table("passages", data=rows)
    settings = RetrieverSettings("lancedb", str(tmp_path), "passages", id=column, vector="vector")
    assert [p.doc_id for p in connect(settings).passages(["4", "nothing"])] == ["4"]


def test_rows_with_one_id_hide_no_other(tmp_path: Path) -> None:
    """An answer has as many rows as there are ids: what is missing is asked for again."""
    lancedb = pytest.importorskip("lancedb")
    rows = [{k: ROWS[i][k] for k in ("id", "text", "vector")} for i in (0, 0, 0, 1)]
    lancedb.connect(tmp_path).create_table("passages", data=rows)
    system = connect(RetrieverSettings("lancedb", str(tmp_path), "passages", vector="vector"))
    assert {*passages_by_id(system, ["0", "it's 1", "nothing"])} == {"0", "it's 1"}


def test_lancedb_finds_what_another_program_has_added(tmp_path: Path) -> None:
    """Also after the first search: a server keeps its connection for days."""
    lancedb = pytest.importorskip("lancedb")
    old, new = ({k: row[k] for k in ("id", "text", "vector")} for row in ROWS[:2])
    table = lancedb.connect(tmp_path).create_table("passages", data=[old])
    settings = RetrieverSettings(
        "lancedb", str(tmp_path), "passages", keyword=("text",), vector="vector"
    )
    system = connect(settings)
    assert [h.passage.doc_id for h in system.vector(unit(1), 5)] == ["0"]
    assert not system.keyword(WORDS[1], 5)
    table.add([new])
    assert [h.passage.doc_id for h in system.vector(unit(1), 5)] == ["it's 1", "0"]
    assert [h.passage.doc_id for h in system.keyword(WORDS[1], 5)] == ["it's 1"]
    assert [p.doc_id for p in system.passages(["it's 1"])] == ["it's 1"]
    table.delete("id = '0'")
    assert [h.passage.doc_id for h in system.vector(unit(1), 5)] == ["it's 1"]


def test_fields_of_a_passage_that_no_point_of_qdrant_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Qdrant has no columns: a title and metadata may be missing; an id or a text may not."""
    rows = [dict(row) for row in ROWS]
    settings = read_settings(MAKERS["qdrant"](rows, tmp_path))
    more = replace(settings, title="headline", metadata=("place", "revised"))
    (found,) = connect(more).passages(["4"])
    assert (found.title, found.metadata) == ("", {"place": "page 4"})
    assert "none of 20 points has a field 'headline'" in caplog.text
    for name in ("id", "text"):
        with pytest.raises(InputError, match="no field 'wrong'"):
            connect(replace(more, **{name: "wrong"})).passages(["4"])
