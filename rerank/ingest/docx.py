"""DOCX: paragraphs and tables in order, under the headings of Word's built-in styles."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any
from zipfile import BadZipFile, ZipFile

import docx
from docx.document import Document as Docx
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.oxml.ns import qn
from docx.table import Table, _Cell
from docx.text.paragraph import Paragraph

from rerank.ingest.document import Block, Document, Headings, UnreadableError, one_line

MAX_UNPACKED = 256 * 2**20  # bytes of all parts of a file when unpacked
RATIO = 200  # and as a multiple of the file's size, if above `FREE`
FREE = 2**24
OLE = b"\xd0\xcf\x11\xe0"  # starts a file with a password, and the older .doc
HEADING = re.compile(r"heading (\d)", re.IGNORECASE)
GONE = ("w:del", "w:moveFrom")
MARKED = ("w:smartTag", "w:fldSimple", "w:customXml")  # text that Word or a program has marked
WRAPPERS = ("w:sdt", "w:ins", "w:moveTo", *MARKED, *GONE)
GALLERY = ("w:sdtPr", "w:docPartObj", "w:docPartGallery")  # where a content control says its kind
CONTENTS = "Table of Contents"


def read(data: bytes) -> Document:
    """The document of a DOCX file; the stated sizes of its parts are checked first."""
    if data.startswith(OLE):
        raise UnreadableError("it is encrypted, or of an older Word")
    try:
        with ZipFile(io.BytesIO(data)) as packed:
            size = sum(part.file_size for part in packed.infolist())
            encrypted = any(part.flag_bits & 1 for part in packed.infolist())
    except BadZipFile as error:
        raise UnreadableError(f"it is broken ({error})") from None
    if encrypted:
        raise UnreadableError("it is encrypted")
    if size > MAX_UNPACKED or (size > FREE and size > RATIO * len(data)):
        raise UnreadableError(f"it unpacks to {size // 2**20} MiB, which no document does")
    found = docx.Document(io.BytesIO(data))
    _unwrap(found.element.body)
    blocks, title = _blocks(found)
    named, revised = _properties(found)
    return Document(tuple(blocks), title or named, revised)


def _unwrap(body: Any) -> None:
    """Put content controls, and inserted or marked text, where python-docx reads them.

    Tables of contents, and text that was deleted or moved away, are left out.
    """
    for wrapper in list(body.iter(*map(qn, WRAPPERS))):
        parent = wrapper.getparent()
        if parent is None:
            continue
        galleries = wrapper.findall("/".join(map(qn, GALLERY)))
        gone = wrapper.tag in map(qn, GONE) or CONTENTS in [g.get(qn("w:val")) for g in galleries]
        content = wrapper.find(qn("w:sdtContent")) if wrapper.tag == qn("w:sdt") else wrapper
        place = parent.index(wrapper)
        for child in [] if gone or content is None else list(content):
            parent.insert(place, child)
            place += 1
        parent.remove(wrapper)


def _properties(found: Docx) -> tuple[str, str]:
    """The title and the date of the last revision, if the file has properties at all.

    Without them python-docx would make some up, with a title and the date of today.
    """
    try:
        found.part.package.part_related_by(RELATIONSHIP_TYPE.CORE_PROPERTIES)
    except (AttributeError, KeyError):
        return "", ""
    core = found.core_properties
    return one_line(core.title), core.modified.date().isoformat() if core.modified else ""


def _blocks(found: Docx) -> tuple[list[Block], str]:
    """The blocks, and the text of the paragraph in the style Title, if there is one."""
    blocks, title = list[Block](), ""
    headings = Headings(blocks)
    for part in found.iter_inner_content():
        if isinstance(part, Table):
            blocks += [Block(row, headings.path) for row in _rows(part)]
            continue
        text, style = one_line(part.text), _style(part)
        level = HEADING.match(style)
        if level:
            headings.enter(int(level[1]), text)
        elif style == "Title" and not title:
            title = text
        elif text:
            item = style.startswith("List")
            blocks.append(Block(f"- {text}" if item else text, headings.path))
    headings.enter(1, "")
    return blocks, title


def _style(paragraph: Paragraph) -> str:
    return (paragraph.style.name or "") if paragraph.style is not None else ""


def _rows(table: Table) -> Iterator[str]:
    for row in table.rows:
        cells = {cell._tc: _cell_text(cell) for cell in row.cells}  # a merged cell appears twice
        if any(cells.values()):
            yield one_line(" | ".join(cells.values()))


def _cell_text(cell: _Cell) -> str:
    """The paragraphs and the tables of a cell, in order."""
    parts = (
        "; ".join(_rows(part)) if isinstance(part, Table) else one_line(part.text)
        for part in cell.iter_inner_content()
    )
    return " ".join(filter(None, parts))
