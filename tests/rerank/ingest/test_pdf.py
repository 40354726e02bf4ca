"""PDF: pages, outline, running heads; files with a password, half files, scans."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen.canvas import Canvas

from rerank.ingest.document import Block, Document, UnreadableError
from rerank.ingest.pdf import read

PAGES = (
    (
        "1 Install",
        ("Take the package and un-", "pack it on a disk of your own choice.", "Then go on."),
    ),
    ("2 Use", ("Press the button that you see.", "• One item.", "• Another item.")),
    ("3 Repair", ("It needs no repair at all.",)),
)


def written(*, encrypt: Any = None) -> bytes:
    """Three pages with a head, a page number, and an outline of their headings."""
    out = io.BytesIO()
    canvas = Canvas(out, encrypt=encrypt)
    canvas.setTitle("The handbook")
    for number, (heading, lines) in enumerate(PAGES, start=1):
        canvas.drawString(60, 800, "Handbook of the Machine")
        canvas.bookmarkPage(heading)
        canvas.addOutlineEntry(heading.split(" ", 1)[1], heading, level=0)
        canvas.drawString(60, 740, heading)
        for i, line in enumerate(lines):
            canvas.drawString(60, 700 - 14 * i, line)
        canvas.drawString(300, 40, f"Page {number}")
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def test_pages_are_read_under_the_outline() -> None:
    """Without head and page number, a divided word whole, each item a block."""
    found = read(written())
    assert found.title == "The handbook"
    assert found.revised[:2] == "20"
    first = "Take the package and unpack it on a disk of your own choice."
    assert " ".join(block.text for block in found.blocks[:-4]) == f"{first} Then go on."
    assert {(block.heading, block.page) for block in found.blocks[:-4]} == {(("Install",), 1)}
    assert found.blocks[-4:] == (
        Block("Press the button that you see.", ("Use",), 2),
        Block("• One item.", ("Use",), 2),
        Block("• Another item.", ("Use",), 2),
        Block("It needs no repair at all.", ("Repair",), 3),
    )


def test_only_a_hyphen_at_the_end_of_a_line_divides_a_word() -> None:
    """One within a line stays as it is, and so does one before a word such as "and"."""
    lines = (
        "The pre- and post-processing of a text is the pre-",
        "paration of it. Look at the Vor-",
        "und Nachteile, the in-",
        "or output, the Wi-",
        "Fi net, COVID-",
        "19 and a dash -",
        "at the end of a line that is long",
    )
    out = io.BytesIO()
    canvas = Canvas(out)
    for i, line in enumerate(lines):
        canvas.drawString(60, 700 - 14 * i, line)
    canvas.save()
    (block,) = read(out.getvalue()).blocks
    assert block.text == (
        "The pre- and post-processing of a text is the preparation of it. Look at the Vor- und "
        "Nachteile, the in- or output, the Wi-Fi net, COVID-19 and a dash - at the end of a line "
        "that is long"
    )


def test_a_broken_page_is_named_and_the_others_are_read() -> None:
    """A file of which no page can be opened is skipped whole."""
    whole = written()
    listed = re.search(rb"/Kids \[ (.+?) \]", whole)
    assert listed is not None
    first, _, third = re.findall(rb"\d+ 0 R", listed[1])
    found = read(whole.replace(listed[1], b" ".join((first, b"99 0 R", third))))
    assert {block.page for block in found.blocks} == {1, 3}
    assert found.skipped == "broken pages, not read: 2"
    assert Document.from_dict(found.to_dict()) == found
    with pytest.raises(UnreadableError, match="no page of it can be opened"):
        read(whole.replace(listed[1], b"97 0 R 98 0 R 99 0 R"))


def test_a_password_is_asked_for_only_where_there_is_one() -> None:
    """A file that anyone may open is read, whatever else it forbids."""
    forbids = StandardEncryption("", ownerPassword="x", canPrint=0, canCopy=0)
    assert len(read(written(encrypt=forbids)).blocks) == len(read(written()).blocks)
    with pytest.raises(UnreadableError, match="encrypted"):
        read(written(encrypt=StandardEncryption("secret")))


def test_half_a_file_is_broken_or_read_as_far_as_it_goes() -> None:
    """It raises nothing else."""
    whole = written()
    for end in (10, len(whole) // 3, len(whole) // 2):
        with pytest.raises(UnreadableError, match=r"broken|no text"):
            read(whole[:end])


def test_a_scan_has_no_text() -> None:
    """The reason says what would help."""
    out = io.BytesIO()
    canvas = Canvas(out)
    canvas.rect(10, 10, 100, 100)
    canvas.save()
    with pytest.raises(UnreadableError, match="no text in its 1 pages; scanned"):
        read(out.getvalue())
