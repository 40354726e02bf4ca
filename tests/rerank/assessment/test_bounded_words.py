"""The features of a passage read its first characters, however long it is."""

from rerank.data.words import READ
from rerank.data.words import read_words as passage_words


def test_words_after_the_first_characters_are_no_features() -> None:
    """What stands after `READ` characters costs nothing, and counts for nothing."""
    begun = "one. two " * (READ // 9)
    whole = passage_words("", begun.ljust(READ) + "three " * 50_000, "english")
    assert whole == passage_words("", begun, "english")
