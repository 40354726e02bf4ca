"""What is read of a passage that is too long."""

from __future__ import annotations

import numpy as np
import pytest

from rerank.data.words import word_places
from rerank.inference.model_files import resolve
from rerank.inference.tokenizer import Tokenizer, open_tokenizer
from rerank.retrieval.excerpts import MIN_ROOM, REPEATED, best_window, excerpt
from rerank.types import Passage

FILLER = "The weather was mild and the road was long. " * 40
ANSWER = "The incubation period of the virus is five days."


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_tokenizer(resolve("minilm"), max_length=192)


def read(tokenizer: Tokenizer, text: str, weights: dict[str, float], room: int = 60) -> str:
    (spans,) = tokenizer.spans([text])
    return excerpt(Passage("a", "On viruses", text), spans, room, weights, language="english")


@pytest.mark.parametrize("before", ["", FILLER, 2 * FILLER])
def test_the_part_about_the_question_is_read_behind_the_title(
    tokenizer: Tokenizer, before: str
) -> None:
    text = before + ANSWER + " " + FILLER
    got = read(tokenizer, text, {"incub": 5.0, "period": 3.0, "virus": 2.0})
    assert got.startswith("On viruses. ")
    assert ANSWER in got
    assert got.removeprefix("On viruses. ") in text
    (spans,) = tokenizer.spans([got.removeprefix("On viruses. ")])
    assert len(spans) <= 60


def test_a_passage_that_fits_is_read_whole(tokenizer: Tokenizer) -> None:
    text = ANSWER + " It differs."
    assert read(tokenizer, text, {"differ": 1.0}) == f"On viruses. {text}"


def test_without_any_of_the_words_the_beginning_is_read(tokenizer: Tokenizer) -> None:
    got = read(tokenizer, ANSWER + " " + FILLER, {"piano": 9.0})
    assert got.startswith(f"On viruses. {ANSWER}")


def test_with_too_little_room_the_tokenizer_cuts_as_before(tokenizer: Tokenizer) -> None:
    text = FILLER + ANSWER
    assert read(tokenizer, text, {"incub": 5.0}, MIN_ROOM - 1) == f"On viruses. {text}"


def test_an_excerpt_begins_and_ends_with_whole_tokens_of_words(tokenizer: Tokenizer) -> None:
    """No word is cut at its beginning: its pieces alone would be other tokens."""
    text = "electroencephalographically " * 30 + "incubation " + "hypercholesterolaemia " * 30
    got = read(tokenizer, text, {"incub": 5.0}).removeprefix("On viruses. ")
    assert "incubation" in got
    assert got.split()[0] in ("electroencephalographically", "incubation")


def test_text_without_spaces_is_read_too(tokenizer: Tokenizer) -> None:
    text = "潜伏期是五天" * 100
    assert read(tokenizer, text, {"x": 1.0}).removeprefix("On viruses. ") in text
    assert read(tokenizer, "a" * 5000, {"x": 1.0})


def test_a_word_counts_once_and_a_little_for_each_time() -> None:
    places = [np.array([0, 1, 2]), np.array([10])]
    starts = np.array([0, 8])
    assert best_window(places, np.array([1.0, 1.0]), starts, 5) == 0
    assert best_window(places, np.array([1.0, 1.0 + 3 * REPEATED]), starts, 5) == 8
    assert best_window([], np.zeros(0), starts, 5) == 0


def test_places_of_words_are_those_of_their_stems() -> None:
    text = "Running dogs RAN; the dog's run."
    places = word_places(text, {"dog", "run"}, language="english")
    assert {word: [text[at : at + 4] for at in found] for word, found in places.items()} == {
        "run": ["Runn", "run."],
        "dog": ["dogs", "dog'"],
    }
    accented = "Ein schönes Café, CAFÉ"
    assert word_places(accented, {"café"}, language="none") == {"café": [12, 18]}


def test_spans_reach_to_the_end_of_a_text(tokenizer: Tokenizer) -> None:
    short, long = tokenizer.spans(["a b", FILLER])
    assert short.tolist() == [[0, 1], [2, 3]]
    assert long[-1].tolist() == [len(FILLER) - 2, len(FILLER) - 1]
    assert (np.diff(long[:, 0]) > 0).all()
    assert tokenizer.spans([""])[0].shape == (0, 2)


def test_room_is_what_a_pair_leaves(tokenizer: Tokenizer) -> None:
    assert tokenizer.room("a b", "") == 192 - 3 - 2
    assert tokenizer.room("a b", "c.") == 192 - 3 - 4
    assert tokenizer.room("a " * 500, "") == 0
