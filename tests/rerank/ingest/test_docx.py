"""DOCX: headings, tables, lists; files that are packed to harm."""

from __future__ import annotations

import io
import re
from datetime import datetime
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls

from rerank.ingest.document import Block, UnreadableError
from rerank.ingest.docx import read

ENTITY = (
    '<?xml version="1.0"?><!DOCTYPE d [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
    '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>'
    "<w:p><w:r><w:t>see &e;</w:t></w:r></w:p></w:body></w:document>"
)


def written() -> bytes:
    made = docx.Document()
    made.core_properties.modified = datetime(2024, 5, 31)
    made.add_paragraph("The handbook", style="Title")
    made.add_heading("Install", 1)
    made.add_paragraph("Take the package.")
    made.add_heading("Linux", 2)
    made.add_paragraph("First step.", style="List Bullet")
    table = made.add_table(1, 2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "-v", "say more"
    made.add_paragraph("After the table.")
    made.add_heading("Release 4.2 drops support for Windows workers", 2)
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def with_part(data: bytes, name: str, part: bytes) -> bytes:
    """The same DOCX with another part of this name."""
    out = io.BytesIO()
    with ZipFile(io.BytesIO(data)) as old, ZipFile(out, "w", ZIP_DEFLATED) as new:
        for each in old.namelist():
            if each != name:
                new.writestr(each, old.read(each))
        new.writestr(name, part)
    return out.getvalue()


def test_a_document_is_read_in_order_under_its_headings() -> None:
    """Paragraphs, lists and tables, as they come."""
    found = read(written())
    assert (found.title, found.revised) == ("The handbook", "2024-05-31")
    linux, workers = ("Install", "Linux"), "Release 4.2 drops support for Windows workers"
    assert found.blocks == (
        Block("Take the package.", ("Install",)),
        Block("- First step.", linux),
        Block("-v | say more", linux),
        Block("After the table.", linux),
        Block(workers, ("Install", workers)),
    )


def test_content_controls_and_insertions_are_read() -> None:
    """As Word shows them; a table of contents and deleted text are left out."""
    made = docx.Document()
    made.add_paragraph("First.")
    made.add_paragraph("")
    made.add_paragraph("")
    made.add_paragraph("Last.")
    _, control, changed, _ = (p._p for p in made.paragraphs)

    def put(place: Any, xml: str) -> None:
        place.getparent().replace(place, parse_xml(f"<w:body {nsdecls('w')}>{xml}</w:body>")[0])

    toc = '<w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj>'
    line = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"
    put(
        control,
        f"<w:sdt><w:sdtContent><w:sdt><w:sdtPr>{toc}</w:sdtPr><w:sdtContent>"
        f"{line.format('Chapter 1, page 3')}</w:sdtContent></w:sdt>{line.format('In a control.')}"
        "</w:sdtContent></w:sdt>",
    )
    put(
        changed,
        "<w:p><w:r><w:t>Kept </w:t></w:r><w:ins><w:r><w:t>new</w:t></w:r></w:ins>"
        "<w:del><w:r><w:delText>old</w:delText></w:r></w:del></w:p>",
    )
    out = io.BytesIO()
    made.save(out)
    texts = [block.text for block in read(out.getvalue()).blocks]
    assert texts == ["First.", "In a control.", "Kept new", "Last."]


def test_marked_text_and_tables_in_cells_are_read() -> None:
    """Smart tags, simple fields and custom XML, around words and paragraphs; each cell whole."""
    made = docx.Document()
    run = "<w:r><w:t xml:space='preserve'>{}</w:t></w:r>".format
    marked = (
        f"<w:p><w:smartTag w:element='city'>{run('Bonn')}</w:smartTag>{run(', page ')}"
        f"<w:fldSimple w:instr='PAGE'>{run('7')}</w:fldSimple>{run(' of ')}"
        f"<w:customXml w:element='b'>{run('the book')}</w:customXml></w:p>",
        f"<w:customXml w:element='a'><w:p>{run('A paragraph.')}</w:p></w:customXml>",
    )
    body = parse_xml(f"<w:body {nsdecls('w')}>{''.join(marked)}</w:body>")
    for i, child in enumerate(list(body)):
        made.element.body.insert(i, child)
    outer = made.add_table(1, 2)
    left, right = outer.rows[0].cells
    left.text, right.text = "Sizes:", "in metres"
    inner = left.add_table(2, 2)
    for row, texts in zip(inner.rows, (("A", "1"), ("B", "2")), strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    inner.rows[1].cells[1].add_table(1, 1).rows[0].cells[0].text = "or 3"
    out = io.BytesIO()
    made.save(out)
    assert [block.text for block in read(out.getvalue()).blocks] == [
        "Bonn, page 7 of the book",
        "A paragraph.",
        "Sizes: A | 1; B | 2 or 3 | in metres",
    ]


def test_an_empty_cell_keeps_its_place() -> None:
    """A number stays below the name of its column; a merged cell is read once."""
    made = docx.Document()
    cells = ("Item", "2024", "2025"), ("Pump", "", "30"), ("Valve", "7", ""), ("", "", "")
    table = made.add_table(0, 3)
    for texts in (*cells, ("Both", "", "37"), ("", "1", "2")):
        for cell, text in zip(table.add_row().cells, texts, strict=True):
            cell.text = text
    table.cell(4, 0).merge(table.cell(4, 1))
    out = io.BytesIO()
    made.save(out)
    assert [block.text for block in read(out.getvalue()).blocks] == [
        "Item | 2024 | 2025",
        "Pump | | 30",
        "Valve | 7 |",
        "Both | 37",
        "| 1 | 2",
    ]


def test_a_zip_bomb_is_not_unpacked() -> None:
    """The lengths that the parts name are looked at before anything is unpacked."""
    bomb = with_part(written(), "word/media/image.bin", bytes(100 * 2**20))
    assert len(bomb) < 2**20
    with pytest.raises(UnreadableError, match="unpacks to 100 MiB"):
        read(bomb)


def test_an_external_entity_is_not_read() -> None:
    """No file of this machine comes into a passage."""
    texts = [
        block.text
        for block in read(with_part(written(), "word/document.xml", ENTITY.encode())).blocks
    ]
    assert texts == ["see"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xd0\xcf\x11\xe0" + bytes(600), "encrypted"),
        (b"no zip at all", "broken"),
        (written()[:5000], "broken"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, why: str) -> None:
    """A file with a password, text, half a file."""
    with pytest.raises(UnreadableError, match=why):
        read(data)


def test_a_file_without_properties_has_no_title_and_no_date() -> None:
    """The library would call it "Word Document", of today."""
    made, out = docx.Document(), io.BytesIO()
    made.add_paragraph("Only text.")
    made.save(out)
    bare = io.BytesIO()
    with ZipFile(out) as old, ZipFile(bare, "w") as new:
        for name in old.namelist():
            part = old.read(name)
            if name == "_rels/.rels":
                part = re.sub(rb"<Relationship [^>]*core-properties[^>]*/>", b"", part)
            if name != "docProps/core.xml":
                new.writestr(name, part)
    found = read(bare.getvalue())
    assert (found.title, found.revised) == ("", "")
    assert [block.text for block in found.blocks] == ["Only text."]
