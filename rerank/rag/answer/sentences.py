"""Text split into sentences, each with the sources that it cites. It knows nothing of models."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rerank.data.abbreviations import NOT_AFTER_SHORT

CITATION = re.compile(r"\[(S\d+(?:\s*[,;]\s*S\d+)*)\]")
LINE_END = r"\n\s*\n|(?<![^\n]{40})\n+|\n(?![ \t]*[a-z(])"  # but not where a long line is wrapped
END = re.compile(rf"{NOT_AFTER_SHORT}(?<=[.!?])[\"'”’)]*\s+(?=[^\s\[])|{LINE_END}|(?<=[。！？])")
BULLET = re.compile(r"^[ \t]*(?:[-*•]|\d{1,3}[.)])[ \t]+", re.MULTILINE)
# a sentence that begins without a space: no name such as pandas.DataFrame, and no URL
JOINED = re.compile(r"(?:(?<=[\])\"'”’][.!?])|(?<=[!?]))(?=[A-Z][\w'’]*[\s,])")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of an answer."""

    text: str  # as written, with its citations
    claim: str  # without citations and quotation marks
    cited: tuple[str, ...]  # ids of sources, such as S1


def has_word(text: str, word: str) -> bool:
    """Whether a text has a word, but not as a part of a longer one."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def split(text: str) -> list[str]:
    """The sentences of a text, in order, without the white space around them.

    A line ends a sentence, unless it is long and the next one goes on in lower case or in brackets.
    The mark or number of a list item belongs to no sentence.
    """
    return [part for piece in END.split(BULLET.sub("\n\n", text)) if (part := piece.strip())]


def sentences(answer: str) -> list[Sentence]:
    """The sentences of an answer; a citation after the full stop belongs to the one before."""
    joined = re.sub(r"([.!?][\"'”’)]*)\s*((?:\s*\[S\d+[^\]]*\])+)", _citation_before_end, answer)
    found = []
    for text in split(JOINED.sub(" ", joined)):
        cited = re.findall(r"S\d+", " ".join(CITATION.findall(text)))
        bare = re.sub(r"[\"“”]", "", CITATION.sub("", text))
        claim = re.sub(r"\s+([.!?,;:])", r"\1", bare)
        found.append(Sentence(text, claim.strip(), tuple(dict.fromkeys(cited))))
    return [sentence for sentence in found if re.search(r"\w", sentence.claim)]


def _citation_before_end(match: re.Match[str]) -> str:
    end, cited = match[1], match[2].strip()
    return f" {cited}{end}" if end in ".!?" else f"{end[:-1]} {cited}{end[-1]}"
