"""Which language a corpus is found to be in, and what becomes of a configuration."""

from __future__ import annotations

import importlib.util

import pytest

from rerank.config import Config
from rerank.jobs.automatic import Found, find_language, with_language
from rerank.types import Passage

GERMAN = "Der Median ist der mittlere Wert einer sortierten Liste von Zahlen."
JAPANESE = "中央値は、並べ替えたリストの真ん中の値です。"
ENGLISH = "The median is the middle value of a sorted list of numbers."


def corpus(*texts: str) -> list[Passage]:
    """Passages without a title."""
    return [Passage(str(i), "", text) for i, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("texts", "language", "codes"),
    [
        ([ENGLISH] * 3, "english", ["en"]),
        ([GERMAN] * 3, "german", ["de"]),
        ([JAPANESE] * 3, "none", ["ja"]),
        ([GERMAN, JAPANESE], "none", ["de", "ja"]),
        ([*[ENGLISH] * 19, GERMAN], "english", ["en"]),  # one of twenty is a quotation
        (["12 %", "3.14"], "english", []),
    ],
)
def test_the_language_of_a_corpus(texts: list[str], language: str, codes: list[str]) -> None:
    """A stemmer for one language; none for several, or for one that Snowball does not know."""
    found = find_language(corpus(*texts))
    assert found.language == language
    assert sorted(found.shares) == codes


def test_the_encoder_follows_the_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only from auto, and only where none was named and the package is there."""
    german, english = corpus(GERMAN, GERMAN), corpus(ENGLISH, ENGLISH)
    assert with_language(Config(), english) == Config(language="english")
    assert with_language(Config(), german) == Config(language="german", encoder="e5-multilingual")
    assert with_language(Config(encoder="own"), german) == Config(language="german", encoder="own")
    named = Config(language="dutch")
    assert with_language(named, german) is named
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert with_language(Config(), german) == Config(language="german")


def test_what_was_found_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Each language with its share, and how to choose another."""
    with_language(Config(), corpus(GERMAN, GERMAN, JAPANESE))
    (told,) = caplog.messages
    assert "de 67%, ja 33%" in told
    assert "--language" in told
    assert str(Found({"zxx": 0.84, "en": 0.16}, "none")) == "no language 84%, en 16%"
