"""The text between the sentences of an answer: a space, a new line, a paragraph, a list mark.

It knows nothing of sources and models.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rerank.rag.answer.sentences import BULLET, Sentence

PARAGRAPH = re.compile(r"\n\s*\n")


def separators(answer: str, found: Sequence[Sentence]) -> list[str]:
    """The separator before each of the sentences that `sentences` found in an answer.

    Punctuation may differ, because a citation after a full stop is moved before it: letters and
    digits tell where a sentence is. A sentence that is not found has a space before it.
    """
    places = [i for i, character in enumerate(answer) if character.isalnum()]
    bare = "".join(answer[i] for i in places)
    before, end = [], 0
    for sentence in found:
        own = "".join(filter(str.isalnum, sentence.text))
        start = bare.find(own, end)
        if start < 0 or not own:
            before.append(" ")
            continue
        after = places[end - 1] + 1 if end else 0
        before.append(_separator(answer[after : places[start]], first=not before))
        end = start + len(own)
    return before


def _separator(gap: str, *, first: bool) -> str:
    """The separator in the text between the letters of two sentences."""
    if first:
        mark = BULLET.match(gap.lstrip("\n"))
        return mark[0] if mark else ""
    if "\n" not in gap:
        return " "
    mark = BULLET.search(gap, gap.rindex("\n") + 1)
    return ("\n\n" if PARAGRAPH.search(gap) else "\n") + (mark[0] if mark else "")
