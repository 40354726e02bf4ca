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


WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
NAMES = (
    f'xmlns:w="{WORD}" xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape" '
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
    'xmlns:w14="http://schemas.microsoft.com/office/word/2010/wordml" '
    'xmlns:v="urn:schemas-microsoft-com:vml" xmlns:o="urn:schemas-microsoft-com:office:office"'
)
TYPE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/"


def packed(body: str, *, parts: dict[str, str | bytes] | None = None, **xml: str) -> bytes:
    """A DOCX of this body; `xml` are parts such as `styles`, `parts` files that it refers to."""
    out = io.BytesIO()
    related = [(kind, f"{kind}.xml", kind) for kind in xml]
    related += [(name, name, "aFChunk") for name in parts or {}]
    rels = "".join(
        f'<Relationship Id="{i}" Type="{TYPE}{kind}" Target="{to}"/>' for i, to, kind in related
    )
    head = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    with ZipFile(out, "w") as made:
        made.writestr(
            "_rels/.rels",
            f'{head}<Relationship Id="a" Type="{TYPE}officeDocument" '
            'Target="word/document.xml"/></Relationships>',
        )
        made.writestr("word/_rels/document.xml.rels", f"{head}{rels}</Relationships>")
        made.writestr(
            "word/document.xml", f"<w:document {NAMES}><w:body>{body}</w:body></w:document>"
        )
        for kind, text in xml.items():
            made.writestr(f"word/{kind}.xml", f"<w:{kind} {NAMES}>{text}</w:{kind}>")
        for name, part in (parts or {}).items():
            made.writestr(f"word/{name}", part)
    return out.getvalue()


def p(inner: str = "", *, style: str = "", props: str = "") -> str:
    """A paragraph; text without markup becomes a run."""
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{named}{props}</w:pPr>{inner if inner[:1] == '<' else run(inner)}</w:p>"


def run(text: str, props: str = "") -> str:
    return f"<w:r><w:rPr>{props}</w:rPr><w:t xml:space='preserve'>{text}</w:t></w:r>"


def texts(data: bytes) -> list[str]:
    return [block.text for block in read(data).blocks]


def box(text: str) -> str:
    return f"<w:txbxContent>{p(text)}</w:txbxContent>"


def test_a_text_box_is_read_once() -> None:
    """One of the forms that Word writes of it; the sentence around it stays whole."""
    both = (
        "<w:r><mc:AlternateContent><mc:Choice Requires='wps'><w:drawing><wps:txbx>"
        f"{box('Warning: hot.')}</wps:txbx></w:drawing></mc:Choice><mc:Fallback><w:pict><v:shape>"
        f"<v:textbox>{box('Warning: hot.')}</v:textbox></v:shape></w:pict></mc:Fallback>"
        "</mc:AlternateContent></w:r>"
    )
    old = f"<w:r><w:pict><v:shape><v:textbox>{box('Old box.')}</v:textbox></v:shape></w:pict></w:r>"
    data = packed(p(run("Open ") + both + run("the valve.")) + p(old + run("Next.")))
    assert texts(data) == ["Open the valve.", "Warning: hot.", "Next.", "Old box."]
    assert read(data).skipped == ""


def test_notes_stand_at_their_references() -> None:
    """Each once; one of a heading is text below it. Their marks join no number."""
    refer = "<w:r><w:{0}Reference w:id='{1}'/></w:r>".format
    notes = f"<w:footnote w:id='2'>{p('33 before 2019.')}</w:footnote>"
    notes += f"<w:footnote w:id='3'>{p('Of the law.')}</w:footnote>"
    data = packed(
        p(run("Leave") + refer("footnote", 3), props="<w:outlineLvl w:val='0'/>")
        + p(run("You have 28") + refer("footnote", 2) + run(" days.") + refer("endnote", 2))
        + p(run("Again.") + refer("footnote", 2)),
        footnotes=notes,
        endnotes=f"<w:endnote w:id='2'>{p('Or hours.')}</w:endnote>",
    )
    assert read(data).blocks == (
        Block("Of the law.", ("Leave",)),
        Block("You have 28 [Note: 33 before 2019.] days. [Note: Or hours.]", ("Leave",)),
        Block("Again.", ("Leave",)),
    )


def test_notes_of_raised_references_stand_apart() -> None:
    """As Word writes them: several in a sentence, with their numbers; one within another."""
    refer = (
        "<w:r><w:rPr><w:vertAlign w:val='superscript'/></w:rPr><w:{0}Reference w:id='{1}'/></w:r>"
    )
    mark = "<w:r><w:{0}Ref/></w:r>"

    def note(kind: str, number: int, inner: str) -> str:
        return f"<w:{kind} w:id='{number}'>{p(mark.format(kind) + inner)}</w:{kind}>"

    first, second = refer.format("footnote", 1), refer.format("footnote", 2)
    third, fourth = refer.format("endnote", 1), refer.format("endnote", 2)
    body = p(run("Pay 30") + first + third + run(" euros in 10") + second + run(" days."))
    square = run(" Or 9 m") + run("2", "<w:vertAlign w:val='superscript'/>")
    data = packed(
        body,
        footnotes=note("footnote", 1, run(" Net.")) + note("footnote", 2, square + fourth),
        endnotes=note("endnote", 1, run(" In May.")) + note("endnote", 2, run(" Paved.")),
    )
    assert texts(data) == [
        "Pay 30 [Note: Net.] [Note: In May.] euros in 10 [Note: Or 9 m2 [Note: Paved.]] days."
    ]


def math(inner: str) -> str:
    return re.sub(r"\{([^{}]*)\}", r"<m:r><m:t>\1</m:t></m:r>", inner)


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("{D=0.8×CL×C}", "D=0.8×CL×C"),
        ("<m:f><m:num>{a+b}</m:num><m:den>{2}</m:den></m:f>{x}", "(a+b)/2 x"),
        ("{2}<m:f><m:num>{1}</m:num><m:den>{3}</m:den></m:f>", "2 1/3"),
        ("<m:sSup><m:e>{10}</m:e><m:sup>{-6}</m:sup></m:sSup>{m}", "10^-6 m"),
        (
            "<m:sSubSup><m:e>{x}</m:e><m:sub>{1}</m:sub><m:sup>{n+1}</m:sup></m:sSubSup>",
            "x_1^(n+1)",
        ),
        ("<m:rad><m:deg>{3}</m:deg><m:e>{8}</m:e></m:rad>", "8^(1/3)"),
        ("<m:rad><m:deg/><m:e>{x+1}</m:e></m:rad>", "√(x+1)"),
        (
            "<m:nary><m:naryPr><m:chr m:val='∑'/></m:naryPr><m:sub>{i=1}</m:sub><m:sup>{n}</m:sup>"
            "<m:e>{i}</m:e></m:nary>",
            "∑_(i=1)^n i",
        ),
        (
            "<m:d><m:dPr><m:begChr m:val='['/><m:endChr m:val=']'/></m:dPr><m:e>{a}</m:e></m:d>",
            "[a]",
        ),
        (
            "<m:m><m:mr><m:e>{1}</m:e><m:e>{2}</m:e></m:mr><m:mr><m:e>{3}</m:e><m:e>{4}</m:e></m:mr>"
            "</m:m>",
            "[1, 2; 3, 4]",
        ),
        ("<m:func><m:fName>{sin}</m:fName><m:e>{x}</m:e></m:func>", "sin x"),
    ],
)
def test_an_equation_is_text_in_its_sentence(inner: str, text: str) -> None:
    """In a line, with parentheses where two dimensions say what belongs together."""
    data = packed(p(run("It is ") + f"<m:oMath>{math(inner)}</m:oMath>" + run(" mg.")))
    assert texts(data) == [f"It is {text} mg."]


def level(ilvl: int, form: str, text: str, more: str = "") -> str:
    shape = f"<w:numFmt w:val='{form}'/><w:lvlText w:val='{text}'/>{more}"
    return f"<w:lvl w:ilvl='{ilvl}'><w:start w:val='1'/>{shape}</w:lvl>"


def test_lists_and_clauses_keep_their_numbers() -> None:
    """Levels, formats, a start, a restart, an interruption, the number of a style of headings."""
    numbering = (
        f"<w:abstractNum w:abstractNumId='0'>{level(0, 'decimal', '%1.')}"
        f"{level(1, 'lowerLetter', '%2)')}{level(2, 'upperRoman', '%3')}</w:abstractNum>"
        f"<w:abstractNum w:abstractNumId='1'>{level(0, 'upperRoman', 'Article %1')}"
        f"{level(1, 'decimalZero', 'Section %1.%2', '<w:isLgl/>')}</w:abstractNum>"
        f"<w:abstractNum w:abstractNumId='2'>{level(0, 'bullet', '')}</w:abstractNum>"
        "<w:num w:numId='1'><w:abstractNumId w:val='0'/></w:num>"
        "<w:num w:numId='2'><w:abstractNumId w:val='0'/><w:lvlOverride w:ilvl='0'>"
        "<w:startOverride w:val='4'/></w:lvlOverride></w:num>"
        "<w:num w:numId='3'><w:abstractNumId w:val='1'/></w:num>"
        "<w:num w:numId='4'><w:abstractNumId w:val='2'/></w:num>"
    )
    styles = (
        "<w:style w:type='paragraph' w:styleId='c1'><w:name w:val='heading 1'/><w:pPr><w:numPr>"
        "<w:numId w:val='3'/></w:numPr></w:pPr></w:style>"
        "<w:style w:type='paragraph' w:styleId='c2'><w:name w:val='Clause'/>"
        "<w:basedOn w:val='c1'/><w:pPr><w:numPr><w:ilvl w:val='1'/></w:numPr>"
        "<w:outlineLvl w:val='1'/></w:pPr></w:style>"
    )

    def item(number: int, text: str, ilvl: int = 0) -> str:
        ids = f"<w:ilvl w:val='{ilvl}'/><w:numId w:val='{number}'/>"
        return p(text, props=f"<w:numPr>{ids}</w:numPr>")

    body = [
        *(item(1, "Open."), item(1, "Look.", 1), item(1, "Wait.", 1), item(1, "Deep.", 2)),
        *(p("Between."), item(1, "Close."), item(1, "Again.", 1), item(2, "Anew."), item(2, "On.")),
        *(item(4, "A point."), p("Scope", style="c1"), p("Terms", style="c2"), p("Text.")),
    ]
    found = read(packed("".join(body), numbering=numbering, styles=styles)).blocks
    assert [block.text for block in found] == [
        *("1. Open.", "a) Look.", "b) Wait.", "I Deep.", "Between.", "2. Close.", "a) Again."),
        *("4. Anew.", "5. On.", "- A point.", "Text."),
    ]
    assert found[-1].heading == ("Article I Scope", "Section 1.01 Terms")


@pytest.mark.parametrize(
    ("form", "labels"),
    [
        ("<w:numFmt w:val='russianLower'/>", "а б в"),
        ("<w:numFmt w:val='ordinalText'/>", "First Second Third"),
        ("<w:numFmt w:val='custom' w:format='001, 002, 003, ...'/>", "001 002 003"),
        ("<w:numFmt w:val='ideographZodiac'/>", "子 丑 寅"),
        ("<w:start w:val='19'/><w:numFmt w:val='chineseCounting'/>", "十九 二十 二十一"),
        ("<w:start w:val='10'/><w:numFmt w:val='japaneseCounting'/>", "十 十一 十二"),
        ("<w:start w:val='99'/><w:numFmt w:val='taiwaneseCounting'/>", "九十九 100 101"),
        ("<w:start w:val='9'/><w:numFmt w:val='thaiNumbers'/>", "9 10 11"),
        ("<w:start w:val='98'/><w:numFmt w:val='upperRoman'/>", "XCVIII XCIX C"),
    ],
)
def test_numbers_have_the_form_of_their_list(form: str, labels: str) -> None:
    """Digits where it is not known, or the number is too high for it."""
    numbering = (
        f"<w:abstractNum w:abstractNumId='0'><w:lvl w:ilvl='0'>{form}<w:lvlText w:val='%1:'/>"
        "</w:lvl></w:abstractNum><w:num w:numId='1'><w:abstractNumId w:val='0'/></w:num>"
    )
    start = "" if "start" in form else "<w:start w:val='1'/>"
    numbering = numbering.replace("<w:lvl w:ilvl='0'>", f"<w:lvl w:ilvl='0'>{start}")
    body = p("x", props="<w:numPr><w:numId w:val='1'/></w:numPr>") * 3
    assert texts(packed(body, numbering=numbering)) == [f"{each}: x" for each in labels.split()]


@pytest.mark.parametrize(
    ("form", "text"),
    [("decimal", "x%1" * 50_000), (f"custom' w:format='{'0' * 50_000}1", "%1" * 9)],
)
def test_a_long_label_is_cut(form: str, text: str) -> None:
    """It stands before every item of its list: 600 of them would have 30 MB."""
    numbering = (
        f"<w:abstractNum w:abstractNumId='0'>{level(0, form, text)}</w:abstractNum>"
        "<w:num w:numId='1'><w:abstractNumId w:val='0'/></w:num>"
    )
    body = p("x", props="<w:numPr><w:numId w:val='1'/></w:numPr>") * 3
    found = texts(packed(body, numbering=numbering))
    assert len(found) == 3
    assert all(len(each) < 110 for each in found)


def test_signs_of_fonts_soft_hyphens_and_bars_over_letters() -> None:
    """As drawn: a tick of Wingdings however it is written, a word whole, a mean with its bar."""
    wing = "<w:rFonts w:ascii='Wingdings'/>"
    second = "<w:r><w:sym w:font='Wingdings 2' w:char='F0{}'/></w:r>".format
    bar = "<m:bar><m:barPr><m:pos m:val='top'/></m:barPr><m:e>{x}</m:e></m:bar>{=5}"
    body = p(run("\xfe", wing) + run("\uf0fe \xa8", wing) + second("52") + second("A3"))
    body += p(run("cen\xadtral ") + f"<m:oMath>{math(bar)}</m:oMath>") + p(run("J.", wing))
    found = read(packed(body))
    assert [b.text for b in found.blocks] == ["☑☑ ☐☑☐", "central x\u0304=5"]
    assert found.skipped == "2 signs of a font of signs"


def test_headings_are_those_of_word() -> None:
    """By the level of the paragraph, of its style, of what that is based on, in any language."""
    styles = (
        "<w:style w:type='paragraph' w:styleId='b'><w:name w:val='heading 2'/></w:style>"
        "<w:style w:type='paragraph' w:styleId='own'><w:name w:val='Chapter'/>"
        "<w:basedOn w:val='b'/></w:style>"
        "<w:style w:type='paragraph' w:styleId='de'><w:name w:val='Überschrift 1'/></w:style>"
        "<w:style w:type='paragraph' w:styleId='t'><w:name w:val='toc 1'/></w:style>"
    )
    long = "A paragraph that somebody gave a level for its look. " * 10
    body = p("One", style="de") + p("Two", style="own") + p("Text.") + p("One  7", style="t")
    body += p("Three", props="<w:outlineLvl w:val='2'/>")
    body += p(long, props="<w:outlineLvl w:val='0'/>")
    assert read(packed(body, styles=styles)).blocks == (
        Block("Text.", ("One", "Two")),
        Block(long.strip(), ("One", "Two", "Three")),
    )


def test_what_the_page_does_not_show_is_not_read() -> None:
    """Hidden text, instructions of fields; signs, hyphens and forms are read as drawn."""
    field = "<w:r><w:fldChar w:fldCharType='{}'>{}</w:fldChar></w:r>".format
    code = "<w:r><w:instrText>IF </w:instrText></w:r>"
    box = "<w:ffData><w:checkBox><w:default w:val='0'/><w:checked/></w:checkBox></w:ffData>"
    styles = (
        "<w:style w:type='character' w:styleId='h'><w:name w:val='secret'/><w:rPr><w:vanish/>"
        "</w:rPr></w:style>"
    )
    body = (
        p(run("Shown") + run(" hidden", "<w:vanish/>") + run(" too", "<w:rStyle w:val='h'/>"))
        + p(
            field("begin", "") + code + run("code") + field("separate", "") + run("Result")
            + field("end", "") + run(".") + field("begin", box) + field("end", "")
        )
        + p(
            run("5 ") + run("\uf06d", "<w:rFonts w:ascii='Symbol'/>") + run("g ")
            + "<w:r><w:sym w:font='Symbol' w:char='F0A3'/></w:r>"
            + "<w:r><w:t>well</w:t><w:noBreakHyphen/><w:t>known</w:t><w:softHyphen/>"
            "<w:t>s</w:t></w:r>"
        )
        + p(field("begin", "") + run("never closed")) + p("The rest.")
    )  # fmt: skip
    assert texts(packed(body, styles=styles)) == [
        *("Shown", "Result.☒", "5 μg ≤well-knowns", "The rest.")
    ]


def test_what_is_not_read_is_counted() -> None:
    """Charts, objects, comments, inserted files of other kinds; photos only if nothing else is."""
    picture = "<w:r><w:drawing><wp:docPr {}/><a:blip/></w:drawing></w:r>".format
    body = (
        p("<w:r><w:drawing><c:chart/></w:drawing><w:object><o:OLEObject ProgID='Equation.3'/>"
          "</w:object><w:object><o:OLEObject ProgID='Excel.Sheet.12'/></w:object></w:r>"
          + picture("") + run("Text.") + "<w:r><w:commentReference w:id='1'/></w:r>")
        + "<w:altChunk r:id='a.rtf'/><w:altChunk r:id='b.html'/><w:altChunk r:id='b.html'/>"
    )  # fmt: skip
    parts: dict[str, str | bytes] = {
        "a.rtf": "{\\rtf1 x}",
        "b.html": "<h1>More</h1><p>Inserted <del>old</del> text.<b>",
    }
    found = read(packed(body, parts=parts))
    assert found.blocks[0].text == "Text."
    assert found.blocks[1].heading == ("More",)
    assert found.skipped == "1 chart; 1 comment; 1 embedded object; 1 equation; 2 inserted files"
    assert read(packed(p(picture("")) * 2)).skipped == "2 pictures"


def test_a_byte_of_an_inserted_file_that_is_not_read_is_told() -> None:
    """As it is for a file of its own."""
    spoilt = "café, naïve, déjà vu".encode() + b"\x92"
    found = read(packed(p("Text.") + "<w:altChunk r:id='c.txt'/>", parts={"c.txt": spoilt}))
    assert found.blocks[1].text.startswith("café, naïve, déjà vu")
    assert found.skipped == "1 inserted file with unknown characters"


def test_inserted_pages_of_mail_are_read_and_broken_files_counted() -> None:
    """Programs that make Word files of pages insert them so."""
    mail = (
        "MIME-Version: 1.0\nContent-Type: multipart/related; boundary=b\n\n--b\n"
        "Content-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n"
        "<h1>Caf=C3=A9</h1><p>It is open.</p>\n--b\nContent-Type: image/png\n\nx\n--b--\n"
    )
    body = "<w:altChunk r:id='a.mht'/><w:altChunk r:id='b.docx'/><w:altChunk r:id='c.mht'/>"
    parts: dict[str, str | bytes] = {"a.mht": mail, "b.docx": "no zip", "c.mht": "no page"}
    found = read(packed(body, parts=parts))
    assert found.blocks == (Block("It is open.", ("Café",)),)
    assert found.skipped == "2 inserted files"


def test_a_field_of_a_form_to_be_typed_over_shows_its_code() -> None:
    """MACROBUTTON has no result; its words may stand in several runs."""
    mark = "<w:r><w:fldChar w:fldCharType='{}'/></w:r>".format
    code = "<w:r><w:instrText xml:space='preserve'>{}</w:instrText></w:r>".format
    typed = code(" MACROBUTTON NoMacro [Type a ") + code("name]")
    body = p(run("To ") + mark("begin") + typed + mark("end") + run("."))
    body += p(mark("begin") + code("PAGE") + mark("separate") + run("7") + mark("end"))
    assert texts(packed(body)) == ["To [Type a name].", "7"]


def test_a_diagram_is_counted() -> None:
    """SmartArt: its words are in another part, in an order of its own."""
    shown = '<w:drawing><dgm:relIds xmlns:dgm="urn:dgm"/></w:drawing>'
    found = read(packed(p("Text.") + f"<w:p><w:r>{shown}</w:r></w:p>"))
    assert found.skipped == "1 diagram"


def test_boxes_and_cells_of_several_rows() -> None:
    """A table of one column is a box; a cell over rows stands in each, a long one once."""

    def cell(text: str, props: str = "") -> str:
        return f"<w:tc><w:tcPr>{props}</w:tcPr>{p(text)}</w:tc>"

    def table(*rows: str) -> str:
        return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"

    start, on = "<w:vMerge w:val='restart'/>", "<w:vMerge/>"
    body = table(f"<w:tc>{p('First.')}{p('Second.')}</w:tc>")
    body += table(cell("Pump", start) + cell("A"), cell("", on) + cell("B"))
    body += table(cell("word " * 50, start) + cell("A"), cell("", on) + cell("B"))
    assert texts(packed(body)) == [
        *("First.", "Second.", "Pump | A", "Pump | B", f"{'word ' * 50}| A", "| B")
    ]


def test_the_strict_form_is_read() -> None:
    """ISO's own names of the same elements."""
    data, out = packed(p("Strict.", props="<w:outlineLvl w:val='9'/>")), io.BytesIO()
    with ZipFile(io.BytesIO(data)) as old, ZipFile(out, "w") as new:
        for name in old.namelist():
            part = old.read(name)
            for kind in (b"wordprocessingml", b"officeDocument"):
                usual = b"http://schemas.openxmlformats.org/" + kind + b"/2006/"
                part = part.replace(usual, b"http://purl.oclc.org/ooxml/" + kind + b"/")
            new.writestr(name, part)
    assert texts(out.getvalue()) == ["Strict."]


def test_digits_that_are_set_higher_or_in_parts_are_powers() -> None:
    """By their position; a raised number in several runs is one."""
    up, down = '<w:position w:val="6"/>', '<w:position w:val="-4"/>'
    sup = '<w:vertAlign w:val="superscript"/>'
    body = p(run("10") + run("6", up)) + p(run("10") + run("2", down))
    body += p(run("10") + run("1", sup) + run("2", sup)) + p(run("a ") + run("set b", up))
    assert texts(packed(body)) == ["10^6", "10_2", "10^12", "a set b"]


def test_deleted_cells_are_gone_and_what_word_computes_is_counted() -> None:
    """A field without a result, drawings by hand; the words of a locked drawing are read."""
    gone = f'<w:tc><w:tcPr><w:cellDel w:id="1"/></w:tcPr>{p(run("old"))}</w:tc>'
    table = f"<w:tbl><w:tr><w:tc>{p(run('kept'))}</w:tc>{gone}</w:tr></w:tbl>"
    begin, end = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "end"))
    code = r"<w:r><w:instrText> EQ \f(1,2) </w:instrText></w:r>"
    drawn = '<w:r><w:drawing><a:t xmlns:a="urn:a">valve 3 bar</a:t><contentPart/></w:drawing></w:r>'
    found = read(packed(table + p(run("dose ") + begin + code + end) + p(drawn)))
    assert [b.text for b in found.blocks] == ["kept", "dose", "valve 3 bar"]
    assert found.skipped == "1 drawing by hand; 1 equation"


def test_a_hidden_row_is_counted_and_one_that_is_not_is_read() -> None:
    row = "<w:tr><w:trPr><w:hidden{}/></w:trPr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr>"
    body = row.format("", p(run("Old price")), p(run("5")))
    body += row.format(" w:val='0'", p(run("New price")), p(run("7")))
    found = read(packed(f"<w:tbl>{body}</w:tbl>"))
    assert [b.text for b in found.blocks] == ["New price | 7"]
    assert found.skipped == "3 invisible words"


WHITE = "<w:color w:val='FFFFFF'/>"
BLUE = "<w:shd w:val='clear' w:color='auto' w:fill='1F3864'/>"
CELL = "<w:tbl><w:tblPr>{}</w:tblPr><w:tr><w:tc><w:tcPr>{}</w:tcPr>{}</w:tc></w:tr></w:tbl>"


PAINT = "<w14:textFill>{}</w14:textFill>"
SOLID = (
    "<w14:solidFill><w14:srgbClr w14:val='{}'><w14:alpha w14:val='{}'/></w14:srgbClr>"
    "</w14:solidFill>"
)
COLOURS = (
    "<a:themeElements><a:clrScheme><a:dk1><a:sysClr lastClr='102030'/></a:dk1>"
    "<a:lt1><a:srgbClr val='FFFFFF'/></a:lt1></a:clrScheme></a:themeElements>"
)


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (p(run("It is secret.", "<w:vanish/>")), False),
        (p(run("It is secret.", "<w:sz w:val='2'/>")), False),
        (p(run("It is secret.", "<w:sz w:val='20'/>")), True),
        (p(run("It is secret.", WHITE)), False),
        (p(run("It is secret.", "<w:color w:val='FDFDFD'/>")), False),
        (p(run("It is secret.", "<w:color w:val='auto'/>")), True),
        (p(run("It is secret.", "<w:rStyle w:val='pale'/>")), False),
        (p(run("It is secret."), style="white"), False),
        (p(run("It is secret.", WHITE), style="blue"), True),
        (p(run("It is secret.", WHITE + BLUE)), True),
        (p(run("It is secret.", WHITE + "<w:highlight w:val='red'/>")), True),
        (p(run("It is secret.", WHITE), props=BLUE), True),
        (p(run("It is secret.", WHITE), props="<w:shd w:val='nil'/>"), False),
        (
            "<w:tbl><w:tblPr/><w:tr><w:tblPrEx>" + BLUE + "</w:tblPrEx><w:tc>"
            f"{p(run('It is secret.', WHITE))}</w:tc></w:tr></w:tbl>",
            True,
        ),
        (p(run("It is secret.", "<w:color w:val='1F3864'/>" + BLUE)), False),
        (p(run("It is secret.", "<w:color w:val='000000'/><w:highlight w:val='black'/>")), False),
        (p(run("It is secret.", WHITE + "<w:shadow/>")), True),
        (CELL.format("", BLUE, p(run("It is secret.", WHITE))), True),
        (CELL.format("", "", p(run("It is secret.", WHITE))), False),
        (CELL.format("<w:tblStyle w:val='Dark'/>", "", p(run("It is secret.", WHITE))), True),
        (CELL.format(BLUE, "", p(run("It is secret.", WHITE))), True),
        (p(run("It is secret.", "<w:color w:val='FFFFFF' w:themeColor='text1'/>")), True),
        (p(run("It is secret.", "<w:color w:val='000000' w:themeColor='background1'/>")), False),
        (
            p(
                run(
                    "It is secret.",
                    "<w:color w:val='808080' w:themeColor='background1' w:themeShade='80'/>",
                )
            ),
            True,
        ),
        (
            p(run("It is secret.", WHITE), props="<w:shd w:val='clear' w:themeFill='text1'/>"),
            True,
        ),
        (
            p(run("It is secret.", WHITE), props="<w:shd w:val='clear' w:themeFill='lt1'/>"),
            False,
        ),
        (p(run("It is secret.", PAINT.format("<w14:noFill/>"))), False),
        (p(run("It is secret.", PAINT.format(SOLID.format("000000", "")))), True),
        (p(run("It is secret.", PAINT.format(SOLID.format("FFFFFF", "")))), False),
        (p(run("It is secret.", PAINT.format(SOLID.format("000000", "99000")))), False),
        (p(run("It is secret.", PAINT.format(SOLID.format("000000", "40000")))), True),
        (p(run("It is secret.", WHITE + PAINT.format("<w14:gradFill/>"))), True),
        (
            p(run("It is secret.", PAINT.format("<w14:noFill/>") + "<w14:textOutline/>")),
            True,
        ),
        (CELL.format("<w:tblStyle w:val='Plain'/>", "", p(run("It is secret.", WHITE))), False),
        (CELL.format("<w:tblStyle w:val='Filled'/>", "", p(run("It is secret.", WHITE))), True),
        (CELL.format("<w:tblStyle w:val='Based'/>", "", p(run("It is secret.", WHITE))), True),
    ],
)
def test_text_that_nobody_sees_is_counted_and_not_read(body: str, seen: bool) -> None:
    """Hidden, of one point, or of the colour of its background, if that is known."""
    styles = (
        f"<w:style w:type='character' w:styleId='pale'><w:rPr>{WHITE}</w:rPr></w:style>"
        f"<w:style w:type='paragraph' w:styleId='white'><w:rPr>{WHITE}</w:rPr></w:style>"
        f"<w:style w:type='paragraph' w:styleId='blue'><w:pPr>{BLUE}</w:pPr></w:style>"
        "<w:style w:type='table' w:styleId='Plain'/>"
        f"<w:style w:type='table' w:styleId='Filled'><w:tblStylePr><w:tcPr>{BLUE}</w:tcPr>"
        "</w:tblStylePr></w:style>"
        "<w:style w:type='table' w:styleId='Based'><w:basedOn w:val='Filled'/></w:style>"
        "<w:style><w:rPr><w:vanish/></w:rPr></w:style>"
    )
    found = read(packed(body + p(run("Text.")), styles=styles, theme=COLOURS))
    assert [b.text for b in found.blocks] == ["It is secret."] * seen + ["Text."]
    assert found.skipped == ("" if seen else "3 invisible words")


@pytest.mark.parametrize("behind", [0, 1])
def test_white_text_may_stand_on_a_picture(behind: int) -> None:
    """As on a cover page, where a picture lies behind the text."""
    picture = (
        "<w:r><w:drawing><wp:anchor xmlns:wp='http://schemas.openxmlformats.org/drawingml/2006/"
        f"wordprocessingDrawing' behindDoc='{behind}'/></w:drawing></w:r>"
    )
    assert texts(packed(p(picture + run("A title", WHITE)) + p("Text."))) == [
        *["A title"] * behind,
        "Text.",
    ]


@pytest.mark.parametrize(
    ("props", "shown"), [("<w:vanish/>", ""), (WHITE, ""), ("<w:sz w:val='20'/>", "Hidden. ")]
)
def test_what_a_document_says_of_all_its_text(props: str, shown: str) -> None:
    """Its defaults hold where neither a run nor a style says otherwise."""
    styles = (
        f"<w:docDefaults><w:rPrDefault><w:rPr>{props}</w:rPr></w:rPrDefault></w:docDefaults>"
        "<w:style w:type='paragraph' w:styleId='plain'><w:rPr><w:vanish w:val='0'/>"
        "<w:color w:val='000000'/></w:rPr></w:style>"
        "<w:style w:type='character' w:styleId='bold'><w:rPr><w:b/></w:rPr></w:style>"
    )
    body = p("Hidden. ") + p(run("Shown.", "<w:rStyle w:val='bold'/>"), style="plain")
    assert " ".join(texts(packed(body, styles=styles))) == f"{shown}Shown.".replace("  ", " ")


def test_a_heading_with_nothing_below_it_is_text() -> None:
    """So that no line of the page is lost; one with a lower heading or text below it is none."""
    top, low = (f"<w:outlineLvl w:val='{i}'/>" for i in range(2))
    body = p("Call 555-0100", props=low) + p("Ask for Ann", props=low) + p("By day.")
    body += p("Prices", props=top) + p("Old", props=low) + p("Free.") + p("Why?", props=top)
    assert read(packed(body)).blocks == (
        Block("Call 555-0100", ("Call 555-0100",)),
        Block("By day.", ("Ask for Ann",)),
        Block("Free.", ("Prices", "Old")),
        Block("Why?", ("Why?",)),
    )


def test_a_title_may_be_all_that_there_is() -> None:
    """It is then read as text."""
    styles = "<w:style w:type='paragraph' w:styleId='t'><w:name w:val='Title'/></w:style>"
    found = read(packed(p("Closed &amp; sold", style="t"), styles=styles))
    assert (found.title, [b.text for b in found.blocks]) == ("Closed & sold", ["Closed & sold"])


def test_running_heads_are_counted() -> None:
    """Those with words; a number of a page is no text."""
    data = packed(p("Text."), header=p("Valid until May"), footer=p("7"))
    assert (texts(data), read(data).skipped) == (["Text."], "1 running head")
