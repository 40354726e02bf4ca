"""Features of what the metadata of passages says: numbers, words, and what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.assessment.metadata_features import (
    MAX_WORDS,
    QUERY_ENTITIES,
    MetadataFeature,
    choose_metadata_features,
    metadata_features,
    metadata_from_dict,
    number,
)
from rerank.errors import InputError
from rerank.types import Passage, Query


def passages(*metadata: dict[str, Any]) -> list[Passage]:
    return [Passage(f"d{i}", "", "text", said) for i, said in enumerate(metadata)]


def test_numbers_and_words_by_hand() -> None:
    """A column of numbers, and a column a word; a passage that says nothing is a usual one."""
    found = passages(
        {"temperature": 80, "source": "press"},
        {"temperature": "20", "source": "law"},
        {"temperature": 50.0, "source": "press"},
        {"temperature": None, "source": " "},
    )
    columns = choose_metadata_features(("temperature", "source"), found)
    names = ["metadata.temperature", "metadata.source=law", "metadata.source=press"]
    assert [column.name for column in columns] == names
    X = metadata_features(columns, found)
    assert X[:, 0].tolist() == [80, 20, 50, 50]  # the median
    assert X[:, 1].tolist() == [0, 1, 0, pytest.approx(1 / 3)]
    assert X[:, 2].tolist() == [1, 0, 1, pytest.approx(2 / 3)]


def test_what_was_not_seen_when_the_columns_were_chosen() -> None:
    """Another word is none of those known; a word where numbers are expected says nothing."""
    columns = (MetadataFeature("age", None, 7.0), MetadataFeature("source", "law", 0.5))
    X = metadata_features(columns, passages({"age": "old", "source": "blog"}, {}))
    assert X.tolist() == [[7.0, 0.0], [7.0, 0.5]]
    assert metadata_features(columns, []).shape == (0, 2)
    assert metadata_features((), passages({})).shape == (1, 0)


def test_dates_are_years() -> None:
    """So a date is a number like any other."""
    earlier, later = number("2024-01-01"), number("2025-01-01T10:00:00Z")
    assert earlier is not None
    assert later is not None
    assert later - earlier == pytest.approx(366 / 365.25)
    assert number("12340512") == 12340512.0  # not a day in 1234
    assert number(True) == 1.0
    assert number("1e200") is None
    assert number([1]) is None


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ([{}, {}], "'kind': no passage has any"),
        ([{"kind": "law"}, {"kind": "law"}], "all have 'law'"),
        ([{"kind": f"k{i}"} for i in range(MAX_WORDS + 1)], f"got {MAX_WORDS + 1} words"),
    ],
)
def test_what_teaches_nothing_is_refused(metadata: list[dict[str, Any]], said: str) -> None:
    """With what came, and the option's name."""
    with pytest.raises(InputError, match=said) as raised:
        choose_metadata_features(("kind",), passages(*metadata))
    assert "--metadata-features" in str(raised.value)


def naming(names: object) -> Query:
    return Query("any", metadata={QUERY_ENTITIES: names})


def test_the_share_of_names_by_hand() -> None:
    """Words one after another in the text, or all in the title; in one coding, stemmed."""
    found = [
        Passage("a", "", "Ada Lovelace wrote to Babbage."),
        Passage("b", "", "Lovelace, and later Ada; of Caf\u00e9 Babbages"),
        Passage("c", "Lovelace, Ada", "nothing"),
        Passage("d", "", ""),
    ]
    columns = choose_metadata_features((QUERY_ENTITIES,), found, [naming(["Ada"]), naming([])])
    assert [column.name for column in columns] == ["metadata.query_entities"]
    asked = naming(["ADA LOVELACE", "Babbage", "cafe\u0301", "  ", "++"])
    assert metadata_features(columns, found, asked)[:, 0].tolist() == [
        *(pytest.approx(share) for share in (2 / 3, 2 / 3, 1 / 3, 0.0)),
    ]
    for none in (naming([]), naming(None), naming([" "]), Query("any"), None):
        assert metadata_features(columns, found, none)[:, 0].tolist() == [1.0] * 4
    chinese = [Passage("a", "", "\u6211\u7231\u5317\u4eac\u5e02"), Passage("b", "", "\u4eac\u5317")]
    shares = metadata_features(columns, chinese, naming(["\u5317\u4eac"]), "none")
    assert shares[:, 0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        ([naming([]), naming(None)], "no query has names as 'query_entities'"),
        ([naming(["Ada"]), Query("any")], "expected a list of texts as 'query_entities'"),
        ([naming("Ada, Babbage")], "got 'Ada, Babbage'"),
        ([naming(["Ada", 3])], "got .'Ada', 3."),
    ],
)
def test_queries_that_do_not_say_their_names_are_refused(queries: list[Query], said: str) -> None:
    """An empty list says that there is none."""
    with pytest.raises(InputError, match=said):
        choose_metadata_features((QUERY_ENTITIES,), [], queries)


@pytest.mark.parametrize(
    "kept",
    [
        [{"key": "age"}],
        [{"key": "age", "word": None, "usual": "often"}],
        [{"key": "age", "word": None, "usual": float("nan")}],
        ["age"],
        3,
    ],
)
def test_a_changed_folder_is_refused(kept: Any) -> None:
    """Whatever stands where the features should."""
    with pytest.raises(InputError, match="metadata feature"):
        metadata_from_dict(kept)


ANYTHING = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5)


@settings(max_examples=100, deadline=None)
@given(values=st.lists(ANYTHING, min_size=1, max_size=10))
def test_features_are_finite(values: list[Any]) -> None:
    """Whatever the metadata holds."""
    found = passages(*({"key": value} for value in values))
    try:
        columns = choose_metadata_features(("key",), found)
    except InputError:
        return
    assert np.isfinite(metadata_features(columns, found)).all()
