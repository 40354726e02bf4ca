"""Proposes questions from the headings and FAQ lines of a corpus, if people have none at hand."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from rerank.data.canonical import query_hash
from rerank.types import Passage, Query

PROPOSED = "proposed"  # metadata key of a query made from the corpus and accepted by a person
PREFIX = "proposed-"  # of its id, before the hash of its original text
ABOUT = "What does the documentation say about {}?"
MARKS = ("?", "？", "؟")
END = re.compile(r"[?.!](?=\s|$)|[？؟]")  # of a sentence; a sign such as `?` ends none
LONGEST = 300  # characters of a question, or of a heading that one is about
NUMBER = re.compile(
    r"^(?:(?:chapter|part|section)\s+\d+|\d+(?:\.\d+)+|\d+(?=[.:)]))[.:)]*\s+", re.I
)
WORDS = re.compile(r"[¿\"'“‘«(`]*[^\W_]")  # how a text begins, unless it is links or signs


def propose(passages: Iterable[Passage], count: int) -> list[Query]:
    """At most `count` questions, each once; those that the corpus itself asks come first.

    A question is a heading or a first sentence that asks one, else a question about the heading.
    Within each kind they are ordered by a hash, so that they come from all parts of the corpus.
    """
    found: dict[str, tuple[bool, Query]] = {}
    for passage in passages:
        text, own = question_of(passage)
        name = query_hash(text)
        if text and name not in found:
            found[name] = own, Query(text, f"{PREFIX}{name}", {PROPOSED: True})
    order = sorted(found, key=lambda n: (not found[n][0], hashlib.sha256(n.encode()).hexdigest()))
    return [found[name][1] for name in order[:count]]


def question_of(passage: Passage) -> tuple[str, bool]:
    """The question of a passage, or "", and whether the corpus itself asks it."""
    heading = str(passage.metadata.get("heading") or passage.title).split(" > ")[-1].strip()
    heading = NUMBER.sub("", heading)
    for text in (heading, _first_sentence(passage.text)):
        if text.endswith(MARKS) and len(text) <= LONGEST and WORDS.match(text):
            return text, True
    about = WORDS.match(heading) and len(heading) <= LONGEST
    return (ABOUT.format(heading), False) if about else ("", False)


def _first_sentence(text: str) -> str:
    """The text up to the first end of a sentence or line."""
    line = next(iter(text.strip().splitlines()), "")
    end = END.search(line)
    return line[: end.end() if end else len(line)].strip()
