"""Citations as language models write them, in one form."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rerank.data.words import Lexicon
from rerank.rag.answer.attribution import SupportCheck, with_plain_citations
from rerank.rag.answer.sources import Source


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("It is so [S1]. And so [S1, S2].", "It is so [S1]. And so [S1, S2]."),
        ("It is so (S1).", "It is so [S1]."),
        ("It is so (S1, S2). (S3)", "It is so [S1, S2]. [S3]"),
        ("It is so [S1 and S2].", "It is so [S1, S2]."),
        ("It is so【S1】.", "It is so [S1]."),
        ("It is so【S1†S2.pdf】.", "It is so [S1]."),
        ("It is so (source: S2).", "It is so [S2]."),
        ("It is so. Source: S1.", "It is so. [S1]"),
        ("It is so.\nSources: S1, S2", "It is so. [S1, S2]"),
        ("It is so [1]. And so.[2][3]", "It is so [S1]. And so. [S2, S3]"),
    ],
)
def test_other_styles_are_read(answer: str, expected: str, sources: list[Source]) -> None:
    """They name a source, and nothing else of that name is in the sources."""
    assert with_plain_citations(answer, sources) == expected


@pytest.mark.parametrize(
    "answer",
    [
        "It is so (S9).",  # no source
        "It is so [7].",
        "It is so [S1], but x[1].",  # labels as well as numbers
        "It is so for x[1].",
        "The array [1] is so.",
        "In the range [1, 2].",
        "The size S1 is so.",
        "The model (S1a) is so.",
    ],
)
def test_what_may_mean_something_else_stays(answer: str, sources: list[Source]) -> None:
    """No words of an answer are taken for a citation."""
    assert with_plain_citations(answer, sources) == answer


def test_a_label_that_the_sources_use_is_read_in_one_form(sources: list[Source]) -> None:
    """Such as a storage service of that name, or the notes of an encyclopedia."""
    passage = replace(sources[1].passage, text="Amazon S3 stores objects [1].")
    named = [sources[0], replace(sources[1], passage=passage), sources[2]]
    for answer in ("Simple Storage Service (S3).", "It stores objects [1].", "It does [S3]."):
        assert with_plain_citations(answer, named) == answer


def test_the_check_reads_them(sources: list[Source], lexicon: Lexicon) -> None:
    """And shows them in one form."""
    (found,) = SupportCheck(lexicon)("The median is the middle value. Source: S1.", sources)
    assert found.supported
    assert found.sentence.text == "The median is the middle value [S1]."
