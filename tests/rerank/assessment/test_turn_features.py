"""Features of turns of a conversation: who speaks, and when, beside what a query names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.assessment.metadata_features import (
    TURN_FEATURES,
    MetadataFeature,
    asked_speaker,
    asked_time,
    choose_metadata_features,
    metadata_features,
)
from rerank.types import Passage, Query


def turns(*said: dict[str, str]) -> list[Passage]:
    return [Passage(f"t{i}", "", "text", one) for i, one in enumerate(said)]


TURNS = turns(
    {"speaker": "Ada", "date": "8 May, 2023"},
    {"speaker": "Grace Hopper", "date": "2023-06-20T10:00"},
    {},
)


def test_turns_get_their_features_and_other_passages_none() -> None:
    """Half of the passages say it, in different ways, and a time is a day; else there is none."""
    speaker = MetadataFeature("asked_speaker", "speaker", 0.0)
    columns = choose_metadata_features((), TURNS)
    assert columns == (speaker, MetadataFeature("asked_time", "date", 0.0))
    assert columns[0].name == "metadata.asked_speaker=speaker"
    assert choose_metadata_features((), turns({"speaker": "Ada"}, {"speaker": "Ada"})) == ()
    assert (
        choose_metadata_features((), turns({"speaker": "Ada"}, {}, {"speaker": "Jo"}, *[{}] * 9))
        == ()
    )
    assert choose_metadata_features((), turns({"time": "noon"}, {"time": "one"})) == ()
    assert choose_metadata_features((), []) == ()
    assert set(TURN_FEATURES) == {"asked_speaker", "asked_time"}


def test_a_query_beside_turns() -> None:
    """Who it names and when, against who speaks and when; 0 where one of them says nothing."""
    columns = choose_metadata_features((), TURNS)
    both = metadata_features(columns, TURNS, Query("What did Grace Hopper say on 6 June 2023?"))
    assert both[:, 0].tolist() == [-1, 1, 0]
    assert both[0, 1] < both[1, 1] < 0 == both[2, 1]  # 29 days, 14 days
    assert not metadata_features(columns, TURNS, Query("What did they say?")).any()
    assert not metadata_features(columns, TURNS).any()


@pytest.mark.parametrize(
    ("query", "turn", "days"),
    [
        ("on 7 May 2023", "2023-05-08", 1),
        ("on May 7th", "1:56 pm on 8 May, 2023", 1),
        ("in May 2023?", "2023-06-02", 2),
        ("in december", "7 January 2024", 7),
        ("in 2022", "2022-07-01", 0),
        ("on 2022-12-31", "2023-01-01", 1),
        ("in 2021 or in March", "March 3, 2023", 0),
        ("on 31 February 2023", "2023-02-20", 7),  # no such day: neither for nor against
        ("May I march there?", "2023-01-01", 7),
        ("in 2022", "some day", 7),
    ],
)
def test_days_between_a_query_and_a_turn(query: str, turn: str, days: int) -> None:
    """In the words that people use for dates."""
    assert asked_time(query, [turn], "english")[0] == pytest.approx(2 / (1 + days / 7) - 1)


def test_names_are_whole_words() -> None:
    """Stemmed as the words of the query are; a name within another word is none."""
    values = ["Ada", "Sam"]
    assert asked_speaker("What is Ada's plan?", values, "english").tolist() == [1, -1]
    assert asked_speaker("Is it the same canada?", values, "english").tolist() == [0, 0]
    assert asked_speaker("Ada or Sam?", values, "english").tolist() == [1, 1]


@settings(max_examples=200, deadline=None)
@given(query=st.text(max_size=40), said=st.lists(st.text(max_size=30), max_size=5))
def test_features_are_bounded(query: str, said: list[str]) -> None:
    """Whatever the texts hold; digits and months in all orders."""
    for function in TURN_FEATURES.values():
        values = function(f"{query} in May 0031-02-29 9999-12-31 {query}", said, "english")
        assert values.shape == (len(said),)
        assert np.all((values >= -1) & (values <= 1))
    last = asked_time(
        "in December, 9999-12 and 0001-01-01", ["9999-12-31", "0001-01-01"], "english"
    )
    assert last.tolist() == [1, 1]
