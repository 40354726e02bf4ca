"""The glossary: the words that an assessment speaks, on one screen, a line each."""

from __future__ import annotations

import pytest

from rerank.cli import main
from rerank.report.glossary import GLOSSARY
from rerank.types import Assessment, RankedPassage

WORDS = [word for words in GLOSSARY.values() for word in words]


def test_every_word_is_a_field_of_an_answer() -> None:
    """Nothing is explained that an answer does not hold, and no word twice."""
    fields = {*Assessment.__dataclass_fields__, *RankedPassage.__dataclass_fields__}
    assert set(WORDS) <= fields
    assert len(set(WORDS)) == len(WORDS) == 9


def test_it_fits_on_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """`rerank glossary` prints one line a word, at most 24 lines of 100 characters."""
    assert main(["glossary"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    assert [sum(line.split()[:1] == [word] for line in lines) for word in WORDS] == [1] * 9
