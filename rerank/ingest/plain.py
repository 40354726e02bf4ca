"""Plain text: paragraphs between blank lines, under underlined headings."""

from __future__ import annotations

import re

from rerank.ingest.document import Block, Document, Headings, one_line
from rerank.ingest.encoding import decoded

PARAGRAPH = re.compile(r"\n[ \t\f]*\n\s*?(?=\S|[ \t]+\S|\Z)")
UNDERLINE = re.compile(r"([=~*^#_-])\1{2,}")
SHAPED = re.compile(r"^(?: {4}|\t)|\S {3,}\S", re.MULTILINE)  # code, or a table
LONGEST = 120  # characters of a heading


def read(data: bytes) -> Document:
    """The document of a text file, in any encoding that `decoded` knows."""
    blocks, marks, title = list[Block](), "", ""
    headings = Headings(blocks)
    whole, unread = decoded(data)
    for part in PARAGRAPH.split(whole):
        lines = part.strip("\n").split("\n")
        if len(lines) > 1 and _is_underlined_heading(lines[0], lines[1]):
            mark, text = lines[1].strip()[0], one_line(lines[0])
            marks += "" if mark in marks else mark
            headings.enter(marks.index(mark) + 1, text)
            title = title or text
            lines = lines[2:]
        text = "\n".join(lines)
        shaped = len(lines) > 1 and SHAPED.search(text) is not None
        text = text.rstrip() if shaped else one_line(text)
        if text.strip():
            blocks.append(Block(text, headings.path, code=shaped))
    headings.enter(1, "")
    return Document(tuple(blocks), title, skipped=unread)


def _is_underlined_heading(line: str, below: str) -> bool:
    text, rule = line.strip(), below.strip()
    return (
        0 < len(text) <= LONGEST
        and UNDERLINE.fullmatch(rule) is not None
        and abs(len(rule) - len(text)) <= 2
    )
