"""Words and sentences: the quick way for ASCII gives what the way for all scripts gives."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.data.words import SENTENCE_END, WORD, _normalise, words, words_in_sentences


def by_sentence(text: str) -> dict[int, list[str]]:
    """The words of each sentence that has any, by its number."""
    numbered = zip(*words_in_sentences(text, language="none"), strict=True)
    return {n: [word for word, _ in said] for n, said in groupby(numbered, lambda pair: pair[1])}


def split_everywhere(normal: str) -> dict[int, list[str]]:
    """The same by the patterns for every script, one after the other."""
    parts = [WORD.findall(part) for part in SENTENCE_END.split(normal)]
    return {n: part for n, part in enumerate(parts) if part}


@given(st.text(alphabet=[*map(chr, range(128)), *"  .\n_aZ09"], max_size=200))
def test_ascii_is_no_other_language(given_text: str) -> None:
    """The same words, in the same sentences, as the patterns for every script find."""
    lower = given_text.lower()
    assert by_sentence(given_text) == split_everywhere(lower)
    assert words(given_text, language="none") == WORD.findall(lower)


@pytest.mark.parametrize("mixed", ["Größe. Maß", "naïve café; x", "a\u3002b", "e\u0301te. no"])
def test_one_letter_of_another_script_is_enough(mixed: str) -> None:
    """A text that is not ASCII as a whole goes the way for all scripts, part by part the same."""
    assert by_sentence(mixed) == split_everywhere(_normalise(mixed))


def test_endless_accents_cost_no_time() -> None:
    """Composing a run of them takes time that grows with its square: a hundred thousand, minutes.

    They are cut after thirty; a letter with an accent stays what it is.
    """
    assert words("a" + "\u0301\u0323" * 100_000) == words("a" + "\u0301\u0323" * 15)
    assert words("Zu\u0308rich", language="none") == ["zürich"]
