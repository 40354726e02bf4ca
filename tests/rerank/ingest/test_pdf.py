"""PDF: pages, outline, running heads; files with a password, half files, scans."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image
from pypdfium2 import PdfDocument
from reportlab.lib.pagesizes import A4
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.utils import ImageReader
from reportlab.pdfbase.pdfdoc import PDFArray, PDFDictionary, PDFName, PDFString
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
    assert {(block.heading, block.page) for block in found.blocks[:-4]} == {(("1 Install",), 1)}
    assert found.blocks[-4:] == (
        Block("Press the button that you see.", ("2 Use",), 2),
        Block("• One item.", ("2 Use",), 2),
        Block("• Another item.", ("2 Use",), 2),
        Block("It needs no repair at all.", ("3 Repair",), 3),
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
    assert found.skipped == "page 2 is broken"
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


def drawn(draw: Callable[[Canvas], object], *, size: tuple[float, float] = A4) -> Document:
    """The document of one page or more."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=size)
    canvas.setTitle("")
    draw(canvas)
    canvas.save()
    return read(out.getvalue())


def said(found: Document) -> str:
    """The text of a document on one line."""
    return " ".join(block.text for block in found.blocks)


def picture() -> ImageReader:
    """A scan: dark bars on paper."""
    image = Image.new("L", (200, 280), 250)
    for y in range(20, 260, 12):
        image.paste(60, (20, y, 180, y + 5))
    return ImageReader(image)


def test_a_file_without_text_is_skipped_with_its_pictures() -> None:
    """A scan is pictures; so are letters that are drawn as lines. A rectangle is not."""

    def scan(canvas: Canvas) -> None:
        for _ in range(2):
            canvas.drawImage(picture(), 0, 0, *A4)
            canvas.showPage()

    with pytest.raises(UnreadableError, match="no text in its 2 pages; pages 1-2 are pictures"):
        drawn(scan)
    with pytest.raises(UnreadableError, match="page 1 is a picture"):
        drawn(lambda canvas: [canvas.circle(9 * i, 9, 4) for i in range(60)])
    with pytest.raises(UnreadableError, match=r"no text in its 1 page$"):
        drawn(lambda canvas: canvas.rect(10, 10, 100, 100))


def test_scanned_pages_between_others_are_named() -> None:
    """So is one with a page number only; the text that OCR lays upon a scan is read."""

    def mixed(canvas: Canvas) -> None:
        canvas.drawString(60, 700, "The rent is due on the first.")
        canvas.showPage()
        for number in (2, 3, 5):
            canvas.drawImage(picture(), 0, 0, *A4)
            if number == 3:
                canvas.drawString(300, 20, "Page 3")
            canvas.showPage()
            if number == 3:
                canvas.drawImage(picture(), 0, 0, *A4)
                text = canvas.beginText(60, 700)
                text.setTextRenderMode(3)
                text.textLine(
                    "The keys are handed over in the presence of both parties on the third of May."
                )
                canvas.drawText(text)
                canvas.showPage()

    found = drawn(mixed)
    assert found.skipped == "pages 2-3 and 5 are pictures"
    assert said(found).endswith(
        "The keys are handed over in the presence of both parties on the third of May."
    )


def test_text_that_leaves_no_trace_is_not_read() -> None:
    """White on white, or without colour; white on a dark ground is read."""

    def draw(canvas: Canvas) -> None:
        canvas.rect(50, 590, 200, 30, fill=1)
        canvas.setFillColorRGB(1, 1, 1)
        canvas.drawString(60, 600, "Read me.")
        canvas.drawString(60, 500, "Not me.")
        text = canvas.beginText(60, 400)
        text.setTextRenderMode(3)
        text.textLine("Nor me.")
        canvas.drawText(text)

    found = drawn(draw)
    assert said(found) == "Read me."
    assert found.skipped == "4 invisible words"


SECRET = "The code is 4711 today."


def black_on_black(canvas: Canvas) -> None:
    canvas.rect(50, 590, 200, 30, fill=1)
    canvas.drawString(60, 600, SECRET)


def blue_on_black(canvas: Canvas) -> None:
    canvas.rect(50, 590, 200, 30, fill=1)
    canvas.setFillColorRGB(0.2, 0.5, 1)
    canvas.drawString(60, 600, SECRET)


def redacted(canvas: Canvas) -> None:
    canvas.drawString(60, 600, SECRET)
    width = canvas.stringWidth("The code is ", "Helvetica", 12)
    canvas.rect(60 + width, 598, canvas.stringWidth("4711"), 10, fill=1, stroke=0)


def redacted_in_a_form(canvas: Canvas) -> None:
    canvas.beginForm("mark")
    canvas.rect(0, 0, 300, 16, fill=1, stroke=0)
    canvas.endForm()
    canvas.drawString(60, 600, SECRET)
    canvas.translate(40, 596)
    canvas.doForm("mark")


def highlighted(canvas: Canvas) -> None:
    canvas.drawString(60, 600, SECRET)
    canvas.setFillColorRGB(1, 1, 0, alpha=0.4)
    canvas.rect(50, 590, 200, 30, fill=1, stroke=0)


def underlined(canvas: Canvas) -> None:
    canvas.drawString(60, 600, SECRET)
    canvas.rect(50, 596, 200, 1, fill=1)


def clipped(canvas: Canvas) -> None:
    path = canvas.beginPath()
    path.rect(0, 0, 50, 50)
    canvas.clipPath(path, stroke=0, fill=0)
    canvas.drawString(60, 600, SECRET)


def clipped_to_itself(canvas: Canvas) -> None:
    path = canvas.beginPath()
    path.rect(55, 590, 200, 30)
    canvas.clipPath(path, stroke=0, fill=0)
    canvas.drawString(60, 600, SECRET)


def in_white_lines(canvas: Canvas) -> None:
    canvas.setStrokeColorRGB(1, 1, 1)
    text = canvas.beginText(60, 600)
    text.setTextRenderMode(1)
    text.textLine(SECRET)
    canvas.drawText(text)


@pytest.mark.parametrize(
    ("draw", "seen"),
    [
        (black_on_black, ""),
        (blue_on_black, SECRET),
        (redacted, "The code is today."),
        (redacted_in_a_form, ""),
        (highlighted, SECRET),
        (underlined, SECRET),
        (clipped, ""),
        (clipped_to_itself, SECRET),
        (in_white_lines, ""),
    ],
)
@pytest.mark.parametrize("turn", [0, 90])
def test_what_a_page_hides_is_counted_and_not_read(
    draw: Callable[[Canvas], None], seen: str, turn: int
) -> None:
    """Behind something drawn later, in the colour of what is below it, or clipped."""

    def both(canvas: Canvas) -> None:
        canvas.setPageRotation(turn)
        canvas.translate(300, 420)
        canvas.rotate(turn)
        canvas.translate(-220, -500)
        canvas.drawString(60, 700, "All may read this.")
        draw(canvas)

    found = drawn(both)
    assert said(found) == f"All may read this. {seen}".strip()
    hidden = 5 - len(seen.split())
    assert found.skipped == (f"{hidden} invisible word{'s' * (hidden > 1)}" if hidden else "")


def test_a_layer_that_is_switched_off_is_not_read() -> None:
    """A layer that is shown is."""
    for state, seen in (("/OFF", ""), ("/ON", " In a layer.")):
        data = page_with(
            "BT /F 12 Tf 20 300 Td (On the page.) Tj ET /OC /L BDC BT /F 12 Tf 20 280 Td "
            "(In a layer.) Tj ET EMC",
            font=HELVETICA,
            catalog=f"/OCProperties << /OCGs [6 0 R] /D << {state} [6 0 R] >> >>",
            resources="/Properties << /L 6 0 R >>",
            more=("<< /Type /OCG /Name (L) >>",),
        )
        found = read(data)
        assert said(found) == f"On the page.{seen}"
        assert found.skipped == ("" if seen else "3 invisible words")


@pytest.mark.parametrize("kind", ["/Stamp", "/Widget /FT /Sig", "/Square"])
def test_what_an_annotation_draws_is_read(kind: str) -> None:
    """A stamp, a signature: as its appearance shows it, and not if it is hidden."""
    shown = "BT /F 12 Tf 2 4 Td (Approved in May) Tj ET"
    for flags, seen in ((4, " Approved in May"), (6, "")):
        data = page_with(
            "BT /F 12 Tf 20 300 Td (On the page.) Tj ET",
            font=HELVETICA,
            page="/Annots [6 0 R]",
            more=(
                f"<< /Type /Annot /Subtype {kind} /Rect [20 100 220 120] /F {flags} "
                "/AP << /N 7 0 R >> >>",
                "<< /Type /XObject /Subtype /Form /BBox [0 0 200 20] /Resources << /Font << /F 5 0 "
                f"R >> >> /Length {len(shown)} >>\nstream\n{shown}\nendstream",
            ),
        )
        assert said(read(data)) == f"On the page.{seen}"


def test_values_of_a_form_stand_at_their_labels() -> None:
    """On their right, below them, or behind a box to tick; a field without a label has its name."""

    def draw(canvas: Canvas) -> None:
        for x, y, label in ((80, 700, "Name:"), (80, 670, "City:"), (80, 620, "Remarks")):
            canvas.drawString(x, y, label)
        canvas.drawString(320, 620, "Sum")
        canvas.drawString(80, 500, "It is new.")
        canvas.drawString(80, 440, "Thank you.")
        form = canvas.acroForm
        box = {"width": 200, "height": 18}
        form.textfield(x=160, y=695, value="Robin Carter", name="a", **box)
        form.choice(x=160, y=665, value="Oslo", options=["Bergen", "Oslo"], name="b", **box)
        form.textfield(x=80, y=595, value="None so far", name="c", **box)
        form.textfield(x=320, y=595, value="7 euros", name="f", **box)
        form.checkbox(x=60, y=498, size=14, checked=True, name="d")
        form.textfield(x=300, y=300, value="482.50", name="e", tooltip="Amount in euros", **box)

    assert said(drawn(draw)) == (
        "Name: Robin Carter City: Oslo Remarks None so far Sum 7 euros [x] It is new. Thank you. "
        "Amount in euros: 482.50"
    )


def annotated(kind: str, contents: str, y: int) -> Callable[[Canvas], None]:
    """A canvas gets an annotation."""

    def draw(canvas: Canvas) -> None:
        entries = {
            "Type": PDFName("Annot"),
            "Subtype": PDFName(kind),
            "Contents": PDFString(contents),
        }
        note = PDFDictionary({**entries, "Rect": PDFArray([60, y, 260, y + 16])})
        canvas._addAnnotation(note)

    return draw


def test_free_text_is_read_and_comments_are_counted() -> None:
    """A person sees the former on the page, and the latter on a click."""

    def draw(canvas: Canvas) -> None:
        canvas.drawString(60, 700, "The gate is on the north side.")
        canvas.drawString(60, 600, "The end.")
        annotated("FreeText", "The code is 4711.", 650)(canvas)
        annotated("Text", "Is that so?", 500)(canvas)
        annotated("Highlight", "Check this.", 700)(canvas)
        annotated("Highlight", "", 600)(canvas)

    found = drawn(draw)
    assert said(found) == "The gate is on the north side. The code is 4711. The end."
    assert found.skipped == "2 comments"


PROSE = (
    ("The committee read the annual", "The budget of the coming year", "Members who have moved"),
    ("report of the society and found", "was approved, with a fee of 45", "are asked to tell the"),
    (
        "no errors in it. The treasurer",
        "euros for each member, which is",
        "office their new address",
    ),
    (
        "was thanked for her work of the",
        "due before the end of March by",
        "before the next meeting is",
    ),
    ("year, and was elected again.", "transfer to the bank only.", "called by the chair."),
)


@pytest.mark.parametrize("count", [2, 3])
def test_columns_drawn_row_by_row_follow_each_other(count: int) -> None:
    """Below a heading as wide as the page, and above a line that ends them."""

    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica", 10)
        canvas.drawString(
            40, 760, "Minutes of the meeting of the society, held in the town hall " * 2
        )
        for i, row in enumerate(PROSE):
            for j, text in enumerate(row[:count]):
                canvas.drawString(40 + 170 * j, 730 - 12 * i, text)
        canvas.drawString(40, 600, "Signed by all.")

    columns = " ".join(row[j] for j in range(count) for row in PROSE)
    assert said(drawn(draw)).endswith(f"town hall {columns} Signed by all.")


def test_rows_of_a_table_stay_rows() -> None:
    """Cells, even long ones, are no columns of prose."""
    rows = [
        ("The pump makes a noise", "Close the valve at once"),
        ("The lamp is red", "Call the maker of it"),
        ("No water comes out", "Look at the filter first"),
        ("The door does not close", "Oil the lock of the door"),
    ]

    def draw(canvas: Canvas) -> None:
        for i, row in enumerate(rows):
            for j, text in enumerate(row):
                canvas.drawString(40 + 250 * j, 730 - 14 * i, text)

    assert said(drawn(draw)) == " ".join(" ".join(row) for row in rows)


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_words_at_the_ends_of_lines_stay_apart_on_a_turned_page(turn: int) -> None:
    """In landscape, too; columns are put in order there as well."""

    def draw(canvas: Canvas) -> None:
        canvas.setPageRotation(turn)
        canvas.translate(300, 420)
        canvas.rotate(turn)
        canvas.setFont("Helvetica", 10)
        for i, row in enumerate(PROSE):
            for j, text in enumerate(row[:2]):
                canvas.drawString(170 * j - 170, 12 * -i, text)

    assert said(drawn(draw)) == " ".join(row[j] for j in (0, 1) for row in PROSE)


def test_raised_and_lowered_digits_do_not_join_a_number() -> None:
    """A power, a unit, a note and a formula."""

    def draw(canvas: Canvas) -> None:
        text = canvas.beginText(60, 700)
        for part, rise in (("At most 10", 0), ("6", 5), (" messages on 5 m", 0), ("2", 5)):
            text.setFont("Helvetica", 7 if rise else 12)
            text.setRise(rise)
            text.textOut(part)
        for part, rise in ((" of CO", 0), ("2", -3), (" since 2019", 0), ("3", 5)):
            text.setFont("Helvetica", 7 if rise else 12)
            text.setRise(rise)
            text.textOut(part)
        canvas.drawText(text)

    assert said(drawn(draw)) == "At most 10⁶ messages on 5 m² of CO₂ since 2019³"


def test_the_raised_mark_of_a_note_joins_no_number_behind_it() -> None:
    """As below a table: a note of 30 days is none of 130."""

    def draw(canvas: Canvas) -> None:
        text = canvas.beginText(60, 700)
        for part, rise in (("1", 5), ("30 days, log", 0), ("2", -3), ("8", 0)):
            text.setFont("Helvetica", 7 if rise else 12)
            text.setRise(rise)
            text.textOut(part)
        canvas.drawText(text)

    assert said(drawn(draw)) == "¹ 30 days, log₂ 8"


def test_attached_files_are_counted() -> None:
    """They are not opened."""
    pdf = PdfDocument.new()
    pdf.new_page(100, 100)
    pdf.new_attachment("a.txt").set_data(b"a")
    out = io.BytesIO()
    pdf.save(out)
    with pytest.raises(UnreadableError, match=r"no text in its 1 page; 1 attached file$"):
        read(out.getvalue())


def test_pages_of_one_line_each_are_text() -> None:
    """Lines that differ in numbers alone look like running heads, but they are all there is."""
    out = io.BytesIO()
    canvas = Canvas(out)
    for number in range(1, 7):
        canvas.drawString(60, 700, f"Meter {number} stands in room {number + 20}.")
        canvas.showPage()
    canvas.save()
    assert [block.text for block in read(out.getvalue()).blocks] == [
        f"Meter {number} stands in room {number + 20}." for number in range(1, 7)
    ]


def test_rows_of_numbers_at_the_edges_of_pages_are_text() -> None:
    """They differ in numbers alone, which do not count the pages; heads and page numbers do."""
    out = io.BytesIO()
    canvas = Canvas(out)
    sums = (310, 75, 1200, 42, 980)
    for number, due in enumerate(sums):
        lines = (
            f"Accounts of 2024, part {number + 3}",
            f"4711 {due}.50 {due * 3}",
            "in euros",
            *(f"Account {'abcde'[number]} is open." for _ in range(2)),
            f"{due}",
            f"{('iv', 'v', 'vi', 'vii', 'viii')[number]}",
        )
        for i, line in enumerate(lines):
            canvas.drawString(60, 700 - 14 * i, line)
        canvas.showPage()
    canvas.save()
    blocks = read(out.getvalue()).blocks
    for number, due in enumerate(sums):
        text = " ".join(block.text for block in blocks if block.page == number + 1)
        account = f"Account {'abcde'[number]} is open. " * 2
        assert text == f"4711 {due}.50 {due * 3} in euros {account}{due}"


def test_a_heading_may_have_two_lines() -> None:
    """What stands above it on its page belongs to the heading before."""
    out = io.BytesIO()
    canvas = Canvas(out)
    for title in ("Before", "May I remove an old kernel, and if so, how is it done?"):
        canvas.bookmarkPage(title)
        canvas.addOutlineEntry(title, title, level=0)
    lines = (
        "Before",
        "It is old.",
        "2 May I remove an old kernel, and if",
        "so, how is it done?",
        "Yes.",
    )
    for i, line in enumerate(lines):
        canvas.drawString(60, 700 - 14 * i, line)
    canvas.save()
    assert [(block.heading, block.text) for block in read(out.getvalue()).blocks] == [
        (("Before",), "It is old."),
        (("2 May I remove an old kernel, and if so, how is it done?",), "Yes."),
    ]


@pytest.mark.parametrize(
    ("numbers", "kept"), [((3, 3, 7, 12), 0), ((30, 12, 45, 7), 4), ((5, 9, 12, 13), 4)]
)
def test_a_table_of_contents_is_not_read(numbers: tuple[int, ...], kept: int) -> None:
    """Dots to the numbers of pages, which never fall: it is told. Lists of prices are read."""
    out = io.BytesIO()
    canvas = Canvas(out)
    canvas.drawString(60, 700, "What you find here.")
    for i, number in enumerate(numbers):
        canvas.drawString(60, 680 - 14 * i, f"Part {'ABCD'[i]} {'. ' * 20}{number}")
    for number in range(2, 13):
        canvas.showPage()
        canvas.drawString(60, 700, f"On page {number}.")
    canvas.save()
    found = read(out.getvalue())
    text = " ".join(block.text for block in found.blocks)
    assert text.startswith("What you find here.")
    assert text.count("Part") == kept
    assert ("4 contents lines" in found.skipped) != bool(kept)
    assert "11 running heads" in found.skipped


@pytest.mark.parametrize(
    ("head", "size", "kept"),
    [
        ("Step {}", 12, 6),
        ("Question {} (5 points)", 16, 6),
        ("Question {} (5 points)", 12, 0),
        ("Page {}", 16, 0),
        ("{} of 6", 12, 0),
        ("Manual of our pump {}", 12, 0),
        ("Appendix", 16, 0),
    ],
)
def test_a_heading_on_each_page_is_no_running_head(head: str, size: int, kept: int) -> None:
    """Though its numbers grow as those of pages; lines that are left out are counted."""
    out = io.BytesIO()
    canvas = Canvas(out)
    for number in range(1, 7):
        canvas.setFont("Helvetica", size)
        canvas.drawString(60, 700, head.format(number))
        canvas.setFont("Helvetica", 12)
        for i, what in enumerate(("red", "blue", "green")):
            canvas.drawString(60, 660 - 14 * i, f"Turn valve {'ABCDEF'[number - 1]} to {what}.")
        canvas.drawString(300, 40, f"{number}")
        canvas.showPage()
    canvas.save()
    found = read(out.getvalue())
    text = " ".join(block.text for block in found.blocks)
    assert sum(head.format(number) in text for number in range(1, 7)) == kept
    assert found.skipped == ("" if kept else "6 running heads")


def test_struck_out_text_is_not_read() -> None:
    """As deleted text of other formats: words below the marks of an annotation."""

    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica", 12)
        canvas.drawString(60, 700, "The fee is 40 euros, or 45 euros by post.")
        left = 60 + canvas.stringWidth("The fee is ", "Helvetica", 12)
        right = left + canvas.stringWidth("40 euros,", "Helvetica", 12)
        corners = PDFArray([left, 712, right, 712, left, 698, right, 698])
        entries = {"Type": PDFName("Annot"), "Subtype": PDFName("StrikeOut"), "QuadPoints": corners}
        canvas._addAnnotation(PDFDictionary({**entries, "Rect": PDFArray([left, 698, right, 712])}))

    found = drawn(draw)
    assert said(found) == "The fee is or 45 euros by post."
    assert found.skipped == "2 deleted words"


FEE = "The fee is 40 euros, or 45 euros by post."


def filled(canvas: Canvas, text: str, up: float = 3.4, thick: float = 0.8) -> None:
    left = 60 + canvas.stringWidth(FEE[: FEE.index(text)])
    canvas.rect(left, 600 + up, canvas.stringWidth(text), thick, fill=1, stroke=0)


def stroked(canvas: Canvas, text: str, up: float = 3.8) -> None:
    left = 60 + canvas.stringWidth(FEE[: FEE.index(text)])
    canvas.line(left, 600 + up, left + canvas.stringWidth(text), 600 + up)


def struck_twice(canvas: Canvas, text: str) -> None:
    stroked(canvas, text, 3.2)
    stroked(canvas, text, 4.8)


def struck_in_parts(canvas: Canvas, text: str) -> None:
    left, width = 60 + canvas.stringWidth(FEE[: FEE.index(text)]), canvas.stringWidth(text)
    for i in range(4):
        canvas.rect(left + i * width / 4, 603.4, width / 4, 0.8, fill=1, stroke=0)


def struck_in_a_form(canvas: Canvas, text: str) -> None:
    canvas.beginForm("line")
    filled(canvas, text)
    canvas.endForm()
    canvas.doForm("line")


def struck_in_red(canvas: Canvas, text: str) -> None:
    canvas.setFillColorRGB(1, 0, 0)
    filled(canvas, text, thick=2)


@pytest.mark.parametrize(
    "strike", [filled, stroked, struck_twice, struck_in_parts, struck_in_a_form, struck_in_red]
)
@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_text_that_a_line_strikes_is_counted_and_not_read(
    strike: Callable[[Canvas, str], None], turn: int
) -> None:
    """As programs draw it: words with or without a space, or a part of one; all of a line."""
    for gone, seen, words in (
        ("40 euros,", "The fee is or 45 euros by post.", 2),
        ("40 ", "The fee is euros, or 45 euros by post.", 1),
        (" euros, ", "The fee is 40 or 45 euros by post.", 1),
        ("0", "The fee is 4 euros, or 45 euros by post.", 1),
        (FEE, "", 10),
    ):

        def draw(canvas: Canvas, gone: str = gone) -> None:
            canvas.setPageRotation(turn)
            canvas.translate(300, 420)
            canvas.rotate(turn)
            canvas.translate(-220, -600)
            canvas.drawString(60, 620, "All may read this.")
            canvas.drawString(60, 600, FEE)
            strike(canvas, gone)

        found = drawn(draw)
        assert said(found) == f"All may read this. {seen}".strip()
        assert found.skipped == f"{words} deleted word{'s' * (words > 1)}"


def label_on_a_line(canvas: Canvas) -> None:
    canvas.line(40, 603.8, 330, 603.8)


def line_below_a_label(canvas: Canvas) -> None:
    stroked(canvas, FEE)
    canvas.setFillColorRGB(1, 1, 1)
    canvas.rect(50, 596, 260, 12, fill=1, stroke=0)
    canvas.setFillColorRGB(0, 0, 0)
    canvas.drawString(60, 600, FEE)


def white_line(canvas: Canvas) -> None:
    canvas.setFillColorRGB(1, 1, 1)
    filled(canvas, FEE)


def clipped_line(canvas: Canvas) -> None:
    path = canvas.beginPath()
    path.rect(0, 0, 50, 50)
    canvas.clipPath(path, stroke=0, fill=0)
    filled(canvas, FEE)


def ruled(canvas: Canvas) -> None:
    stroked(canvas, FEE, -4)
    stroked(canvas, FEE, 10.5)


def fraction(canvas: Canvas) -> None:
    canvas.setFont("Helvetica", 6)
    canvas.drawString(310, 605.2, "12")
    canvas.drawString(310, 598.5, "40")
    canvas.rect(309, 603.6, 8, 0.5, fill=1, stroke=0)


def underlined_water(canvas: Canvas) -> None:
    for x, up, size, text in ((310, 0, 12, "H"), (319, -3, 7, "2"), (323, 0, 12, "O")):
        canvas.setFont("Helvetica", size)
        canvas.drawString(x, 600 + up, text)
    canvas.rect(310, 598, 22, 0.8, fill=1, stroke=0)


@pytest.mark.parametrize(
    "draw",
    [
        lambda canvas: filled(canvas, "40 euros,", -1.5),
        lambda canvas: filled(canvas, "40 euros,", 9.5),
        lambda canvas: filled(canvas, " ", 3.4),
        label_on_a_line,
        line_below_a_label,
        white_line,
        clipped_line,
        ruled,
        fraction,
        underlined_water,
    ],
)
def test_other_lines_strike_nothing(draw: Callable[[Canvas], None]) -> None:
    """Under and above letters, of tables and fractions, covered, or longer than their text."""

    def both(canvas: Canvas) -> None:
        canvas.drawString(60, 600, FEE)
        draw(canvas)

    found = drawn(both)
    assert said(found).startswith(FEE)
    assert found.skipped == ""


@pytest.mark.parametrize("turn", [90, 270])
def test_fields_and_white_text_on_a_turned_page(turn: int) -> None:
    """A value stands at its label, and what leaves no trace is left out, as on any other page."""

    def draw(canvas: Canvas) -> None:
        canvas.setPageRotation(turn)
        canvas.translate(300, 420)
        canvas.rotate(turn)
        canvas.drawString(-170, 100, "Name:")
        canvas.drawString(-170, 60, "Signed by all.")
        canvas.setFillColorRGB(1, 1, 1)
        canvas.drawString(-170, 20, "Not me.")
        x, y = canvas.absolutePosition(-130, 112 if turn == 90 else 98)
        y -= 100 if turn == 270 else 0
        canvas.acroForm.textfield(x=x, y=y, width=14, height=100, value="Robin Carter", name="a")

    found = drawn(draw)
    assert said(found) == "Name: Robin Carter Signed by all."
    assert found.skipped == "2 invisible words"


def test_wide_gaps_divide_what_is_drawn_in_parts() -> None:
    """Words of a line that are drawn one by one, some white, some raised, stay in order."""

    def draw(canvas: Canvas) -> None:
        x = 60.0
        for word in ("At", "most", "10", "lamps", "of", "5", "watts"):
            canvas.drawString(x, 700, word)
            x += canvas.stringWidth(word + " ")

    assert said(drawn(draw)) == "At most 10 lamps of 5 watts"


def handwritten(*objects: str) -> bytes:
    """A PDF of these objects, the first of which is the catalog."""
    out = "%PDF-1.7\n"
    places = []
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    trailer = f"trailer << /Size {size} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF"
    return f"{out}xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}".encode("latin-1")


def page_with(
    content: str,
    *,
    font: str,
    catalog: str = "",
    resources: str = "",
    page: str = "",
    more: tuple[str, ...] = (),
) -> bytes:
    """A PDF of one page with this content, in which F is the font; entries of its parts."""
    return handwritten(
        f"<< /Type /Catalog /Pages 2 0 R {catalog} >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 400 400] /Contents 4 0 R "
        f"/Resources << /Font << /F 5 0 R >> {resources} >> {page} >>",
        f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        font,
        *more,
    )


HELVETICA = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"


def test_an_accent_that_is_drawn_over_a_letter_belongs_to_it() -> None:
    """As TeX sets it; one beside a letter is an apostrophe, and stays."""
    data = page_with(
        "BT /F 12 Tf 20 300 Td [(k) (\\250) 445 (onnen Fran) (\\270) 400 (cais it\\264s)] TJ ET",
        font=HELVETICA.replace(">>", "/Encoding /WinAnsiEncoding >>"),
    )
    assert said(read(data)) == "können Français it´s"


def test_an_xfa_form_is_told() -> None:
    """Its pages are made by a program that only some viewers have."""
    template = "<template/>"
    data = page_with(
        "BT /F 12 Tf 20 300 Td (Please open it in another viewer.) Tj ET",
        font=HELVETICA,
        catalog="/NeedsRendering true /AcroForm << /Fields [] /XFA 6 0 R >>",
        more=(f"<< /Length {len(template)} >>\nstream\n{template}\nendstream",),
    )
    found = read(data)
    assert said(found) == "Please open it in another viewer."
    assert found.skipped == "an XFA form"


def test_a_page_whose_font_has_no_unicode_is_told() -> None:
    """What its codes stand for is drawn only, so that any letters of it would be wrong."""
    names = " ".join(f"/g{code}" for code in range(33, 60))
    glyphs = " ".join(f"/g{code} 6 0 R" for code in range(33, 60))
    font = (
        "<< /Type /Font /Subtype /Type3 /FontBBox [0 0 500 500] /FontMatrix [.001 0 0 .001 0 0] "
        f"/FirstChar 33 /LastChar 59 /Widths [{'500 ' * 27}] /Resources << >> "
        f"/Encoding << /Type /Encoding /Differences [33 {names}] >> /CharProcs << {glyphs} >> >>"
    )
    glyph = "500 0 0 0 500 500 d1 0 0 400 400 re f"
    data = page_with(
        "BT /F 12 Tf 20 300 Td (!#$%&* +,-./01234) Tj ET",
        font=font,
        more=(f"<< /Length {len(glyph)} >>\nstream\n{glyph}\nendstream",),
    )
    with pytest.raises(UnreadableError, match=r"page 1 is unreadable \(fonts without Unicode\)"):
        read(data)


def test_an_outline_is_no_text() -> None:
    """A title that stands on no page is not read as text; one on a page is, with its number."""

    def draw(canvas: Canvas) -> None:
        for title in ("On no page", "Prices"):
            canvas.bookmarkPage(title)
            canvas.addOutlineEntry(title, title, level=0)
        canvas.drawString(60, 700, "All is said.")
        canvas.drawString(60, 670, "3.2 Prices")

    assert drawn(draw).blocks == (
        Block("All is said.", (), 1),
        Block("3.2 Prices", ("3.2 Prices",), 1),
    )


def test_headings_are_the_text_of_a_file_that_has_no_other() -> None:
    """Such as slides of titles; each stands on its page."""

    def draw(canvas: Canvas) -> None:
        for number in range(1, 4):
            canvas.drawString(60, 700, f"Goal {'abc'[number - 1]}")
            canvas.bookmarkPage(str(number))
            canvas.addOutlineEntry(f"Goal {'abc'[number - 1]}", str(number), level=0)
            canvas.showPage()

    assert [(block.text, block.page) for block in drawn(draw).blocks] == [
        *(("Goal a", 1), ("Goal b", 2), ("Goal c", 3))
    ]


@pytest.mark.parametrize(
    ("size", "left", "seen"),
    [(10, 60, True), (4, 60, True), (1, 60, False), (0.1, 60, False), (10, -400, False)],
)
def test_text_without_size_or_off_the_page_is_counted_and_not_read(
    size: float, left: float, seen: bool
) -> None:
    out = io.BytesIO()
    canvas = Canvas(out)
    canvas.drawString(60, 760, "Text.")
    canvas.setFont("Helvetica", size)
    canvas.drawString(left, 700, "It is secret.")
    canvas.save()
    found = read(out.getvalue())
    assert " ".join(b.text for b in found.blocks) == "Text." + " It is secret." * seen
    assert found.skipped == ("" if seen else "3 invisible words")
