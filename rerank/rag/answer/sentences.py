"""Text split into sentences, each with the sources that it cites. It knows nothing of models."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from rerank.data.words import sentence_end

CITATION = re.compile(r"\[(S\d+(?:\s*[,;]\s*S\d+)*)\]")
LINE_END = r"\n\s*\n|(?<![^\n]{40})\n+|\n(?![ \t]*[a-z(])"  # but not where a long line is wrapped
STOP = sentence_end(r"(?=[^\s\[])")
END = re.compile(rf"{STOP}|{LINE_END}")
END_IN_PASSAGE = re.compile(rf"{STOP}|\n\s*\n")
BULLET = re.compile(r"^[ \t]*(?:[-*•]|\d{1,3}[.)])[ \t]+", re.MULTILINE)
# in passages: lines of prose, rather than of code or of a table, and how they end and go on
SHORTEST, WIDEST, LABEL = 40, 100, 3  # characters of a line that is wrapped; words of a label
PROSE = re.compile(r"[ \t]*[^\W_]|[ \t]*[\"'“‘`(]+[^\W_]")
CODE = re.compile(r"^[ \t]*(?:>>>|\.\.\.|#|import |from \w+ import )| = |^ {8}|[;{}\[]$")
ENDED = re.compile(r"[.!?:。！？][\"'”’)`*]*\s*$")
LOWER = re.compile(r"[ \t]*[a-z(]")
ROW = re.compile(r"(?:^|\s)\|(?:\s|$)|\t\S|\S {3,}\S")
# a sentence that begins without a space: no name such as pandas.DataFrame, and no URL
JOINED = re.compile(r"(?:(?<=[\])\"'”’][.!?])|(?<=[!?]))(?=[A-Z][\w'’]*[\s,])")


# not to be shown: characters that command a terminal, or the order in which text is written
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
ESCAPED = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"
)  # whole commands


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of an answer."""

    text: str  # as written, with its citations
    claim: str  # without citations and quotation marks
    cited: tuple[str, ...]  # ids of sources, such as S1


def without_controls(text: str) -> str:
    """The text without characters that command a terminal or the direction of writing."""
    return CONTROL.sub("", ESCAPED.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def has_word(text: str, word: str) -> bool:
    """Whether a text has a word, but not as a part of a longer one or of a longer number."""
    return (
        re.search(rf"(?<!\w)(?!(?<=\d\.)\d){re.escape(word)}(?!\w|(?<=\d)\.\d)", text) is not None
    )


def split(text: str) -> list[str]:
    """The sentences of a text, without white space around them, and without marks of list items.

    A line ends a sentence, unless it is long and the next one goes on in lower case or in brackets.
    """
    return [part for piece in END.split(BULLET.sub("\n\n", text)) if (part := piece.strip())]


def split_passage(text: str) -> list[str]:
    """The sentences of a passage, as `split`, but a sentence goes on where its line was wrapped.

    That is a line of prose that ends without a full stop or colon, and so near the width of its
    paragraph that the next word had no room. The lines of lists, tables and code are apart.
    """
    paragraphs = re.split(r"(\n\s*\n)", text)
    apart = "".join(_lines_apart(p) if p.strip() else p for p in paragraphs)
    return [part for p in END_IN_PASSAGE.split(BULLET.sub("\n\n", apart)) if (part := p.strip())]


def _lines_apart(paragraph: str) -> str:
    """The paragraph with an empty line after each line whose sentence does not go on."""
    lines = paragraph.split("\n")
    whole = [line for line in lines if line.strip()]
    # three or more that begin anew, and none of which ends a sentence, are names or headings
    anew = all(not LOWER.match(line) and not ENDED.search(line) for line in whole)
    width = 0 if len(whole) > 2 and anew else max(map(len, lines))
    ends = ["\n" if _goes_on(line, after, width) else "\n\n" for line, after in pairwise(lines)]
    return "".join(line + end for line, end in zip(lines, [*ends, ""], strict=True))


def _goes_on(line: str, after: str, width: int) -> bool:
    """Whether a sentence of a line goes on in the next one, in a paragraph of this width."""
    rows = [ROW.search(text) is not None for text in (line, after)]
    if len(line) < SHORTEST or all(rows):
        return False
    if LOWER.match(after):
        return True
    item, words = BULLET.match(line), after.split()
    inner, outer = (len(text) - len(text.lstrip()) for text in (after, line))
    return (
        not any(rows)
        and len(line) <= WIDEST
        and 0 < width < len(line.rstrip()) + 1 + len(words[0] if words else "")
        and (inner > outer if item else inner == outer)
        and PROSE.match(line[item.end() :] if item else line) is not None
        and PROSE.match(after) is not None
        and not (ENDED.search(line) or BULLET.match(after))
        and not (CODE.search(line) or CODE.search(after))
        and (len(words) > LABEL or ENDED.search(after) is not None)
    )


def sentences(answer: str) -> list[Sentence]:
    """The sentences of an answer; a citation after the full stop belongs to the one before."""

    def citation_before_end(match: re.Match[str]) -> str:
        end, cited = match[1], match[2].strip()
        return f" {cited}{end}" if end in ".!?。！？" else f"{end[:-1]} {cited}{end[-1]}"

    joined = re.sub(
        r"([.!?。！？][\"'”’)]*)\s*((?:\s*\[S\d+[^\]]*\])+)", citation_before_end, answer
    )
    parts = []
    for text in split(JOINED.sub(" ", joined)):
        cited = re.findall(r"S\d+", " ".join(CITATION.findall(text)))
        bare = re.sub(r"[\"“”]", "", CITATION.sub("", text))
        claim = re.sub(r"\s+([.!?,;:。！？])", r"\1", bare)
        parts.append(Sentence(text, claim.strip(), tuple(dict.fromkeys(cited))))
    return [sentence for sentence in parts if re.search(r"\w", sentence.claim)]
