"""The glossary: the words of an assessment, on one screen."""

from __future__ import annotations

from rerank.config import Config, Thresholds
from rerank.report.glossary import glossary
from rerank.types import Assessment, RankedPassage

WORDS = [word for words in glossary().values() for word in words]


def test_every_word_is_a_field_of_an_answer() -> None:
    """Nothing is explained that an answer does not hold, and no word twice."""
    fields = {*Assessment.__dataclass_fields__, *RankedPassage.__dataclass_fields__}
    assert set(WORDS) <= fields
    assert len(set(WORDS)) == len(WORDS) == 9


def test_it_is_about_the_model_that_it_comes_with() -> None:
    """Of another threshold and another k it says so."""
    said = glossary(Config(sufficiency_k=3, thresholds=Thresholds(medium=0.8)))
    assert said["Act on"]["accepted"].startswith("confidence is 0.8 or more")
    assert "at least 80% of such answers" in said["Act on"]["certified"]
    assert "the first 3 passages" in said["Act on"]["verdict"]
