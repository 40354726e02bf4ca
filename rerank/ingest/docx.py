"""DOCX: the body as Word prints it, translated to HTML and read as such.

Running heads are not read; what else holds text and is not read is counted.
"""

from __future__ import annotations

import html
import io
import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from email import message_from_bytes
from functools import partial
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

from lxml import etree
from selectolax.lexbor import LexborHTMLParser

from rerank.ingest import document
from rerank.ingest.document import Document, UnreadableError
from rerank.ingest.encoding import decoded
from rerank.ingest.formulas import kind_of, mathml
from rerank.ingest.html import MAX_REPEATED, read_markup
from rerank.ingest.styles import ALIKE
from rerank.ingest.word_lists import BULLET, OFF, Numbering, W, value, whole

MAX_UNPACKED = 256 * 2**20  # bytes of all parts of a file when unpacked
RATIO = 200  # and as a multiple of the file's size, if above `FREE`
FREE = 2**24
OLE = b"\xd0\xcf\x11\xe0"  # starts a file with a password, and the older .doc
STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(officeDocument|wordprocessingml|drawingml)/")
TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"  # the namespaces of most files
HEADING = re.compile(
    r"(?:heading|überschrift|titre|título|titolo|kop|rubrik|overskrift|nagłówek|заголовок|見出し|标题"
    r"|標題|제목) ?([1-9])",
    re.IGNORECASE,
)
CONTENTS = re.compile(r"toc (?:\d|heading)|table of figures", re.IGNORECASE)
TITLES = ("title", "titel", "titre", "título", "titolo")

GONE = {"delText", "instrText", "delInstrText", "rPr", "pPr", "sdtPr", "rt"}
UNSHOWN = ("{*}AlternateContent", *(W + kind for kind in ("sdt", "del", "moveFrom")))
WRAPPERS = (  # what is in them stands in their place
    *("{*}AlternateContent", "{*}Choice", "{*}Fallback"),
    *(W + kind for kind in ("ins", "moveTo", "customXml", "smartTag", "sdt", "sdtContent")),
    *(W + kind for kind in ("ruby", "rubyBase")),
)
OBJECTS = {"drawing", "pict", "object"}
SMALLEST = 2  # half points of letters that nobody sees
HEX = re.compile("[0-9A-Fa-f]{6}")
NOTHING = "nothing"  # instead of a colour
THEME = {  # the names that text has for its colours
    **{"dk1": ("text1", "tx1"), "lt1": ("background1", "bg1")},
    **{"dk2": ("text2", "tx2"), "lt2": ("background2", "bg2")},
}
MARKERS = {"black": "000000", "white": "FFFFFF"}
COLOURED = (f"{W}background", ".//{*}anchor[@behindDoc='1']", ".//{*}pict")  # no white page
FILL = "{http://schemas.microsoft.com/office/word/2010/wordml}textFill"
EFFECTS = {"outline", "shadow", "glow", "textOutline", "emboss", "imprint"}
CLEAR = 97_000  # of 100,000: how much of what lies behind it a text shows, if nobody sees it
TEXT = {"rPr", "t", "tab", "br", "cr", "noBreakHyphen", "lastRenderedPageBreak"}
MARKS = {"noBreakHyphen": "-", "tab": " ", "ptab": " ", "br": "<br>", "cr": "<br>"}
UNREAD = {
    **{"chart": "chart", "relIds": "diagram", "OLEObject": "embedded object"},
    **{"blip": "picture", "imagedata": "picture", "contentPart": "drawing by hand"},
}
PLURALS = {
    "sign of a font of signs": "signs of a font of signs",
    "inserted file with unknown characters": "inserted files with unknown characters",
}
MOVED = re.compile(r"[\w+\u2212–-]{1,6}")  # what is raised as a power, not to place it
BUTTON = re.compile(r"\s*(?:MACRO|GOTO)BUTTON\s+\S+\s*(.*)", re.IGNORECASE | re.DOTALL)
# fields without a result in the file
COMPUTED = re.compile(r"\s*(EQ|LISTNUM|AUTONUM\w*)\b", re.IGNORECASE)
GENERATED = re.compile(
    r"description (?:automatically )?generated|AI-generated|\.(?:png|jpe?g|gif|emf|wmf)$"
)
SYMBOL = {  # the characters of the font Symbol that no letter of the text stands for
    **dict(zip(range(0x61, 0x7B), "αβχδεφγηιϕκλμνοπθρστυϖωξψζ", strict=True)),
    **dict(zip(range(0x41, 0x5B), "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ", strict=True)),
    **{0x40: "≅", 0x5E: "⊥", 0x7E: "∼", 0xA3: "≤", 0xA5: "∞", 0xAB: "↔", 0xAC: "←", 0xAD: "↑"},
    **{0xAE: "→", 0xAF: "↓", 0xB0: "°", 0xB1: "±", 0xB3: "≥", 0xB4: "×", 0xB5: "∝", 0xB6: "∂"},
    **{0xB7: "•", 0xB8: "÷", 0xB9: "≠", 0xBA: "≡", 0xBB: "≈", 0xBC: "…", 0xD1: "∇", 0xD6: "√"},
    **{0xD7: "⋅", 0xD8: "¬", 0xDE: "⇒", 0xE5: "∑", 0xF2: "∫"},
}
WINGDINGS = {
    **{0x20: " ", 0x6F: "☐", 0xA8: "☐", 0xFB: "☒", 0xFC: "✓", 0xFD: "☒", 0xFE: "☑"},
    **{0xE0: "→", 0xDF: "←"},
}
WINGDINGS_2 = {0x20: " ", 0x50: "✓", 0x52: "☑", 0x53: "☒", 0x54: "☒", 0xA3: "☐"}
PRIVATE = re.compile("[\uf020-\uf0ff]")  # where Word puts the characters of such fonts
TO_PRIVATE = {code: 0xF000 + code for code in range(0x20, 0x100)}
_escaped = partial(html.escape, quote=False)


def read(data: bytes) -> Document:
    """The document of a DOCX file; the stated sizes of its parts are checked first."""
    with _opened(data) as packed:
        package = _Package(packed)
        body = _Body(package)
        markup, left = body.markup(), body.left
        facts = package.first("core-properties", of="")
    named, dated = (
        "" if facts is None else facts.findtext(f"{{*}}{name}") or ""
        for name in ("title", "modified")
    )
    found = read_markup(markup)
    if found.blocks:
        del left["picture"]  # what a photo shows is no text; but it may be all that there is
    skipped = document.clauses(
        *(document.counted(n, one, PLURALS.get(one, "")) for one, n in sorted(left.items()))
    )
    title = body.title or document.one_line(named)
    return replace(found, title=title, revised=document.date_in(dated), skipped=skipped)


def _opened(data: bytes) -> ZipFile:
    if data.startswith(OLE):
        raise UnreadableError("it is encrypted, or of an older Word")
    try:
        packed = ZipFile(io.BytesIO(data))
    except BadZipFile as error:
        raise UnreadableError(f"it is broken ({error})") from None
    size = sum(part.file_size for part in packed.infolist())
    if any(part.flag_bits & 1 for part in packed.infolist()):
        raise UnreadableError("it is encrypted")
    if size > MAX_UNPACKED or (size > FREE and size > RATIO * len(data)):
        raise UnreadableError(f"it unpacks to {size // 2**20} MiB, which no document does")
    return packed


class _Package:
    def __init__(self, packed: ZipFile) -> None:
        self._packed = packed
        self.main = self._path("officeDocument", of="") or "word/document.xml"
        if self.root(self.main) is None:
            raise UnreadableError("it is broken (it holds no document of Word)")

    def bytes(self, path: str) -> bytes | None:
        """A part; None if there is none."""
        return self._packed.read(path) if path in self._packed.NameToInfo else None

    def root(self, path: str) -> Any | None:
        """The root of a part in XML; None if there is none. Nothing that it refers to is opened."""
        data = self.bytes(path)
        if data is None:
            return None
        parser = etree.XMLParser(resolve_entities=False, no_network=True)
        root = etree.fromstring(STRICT.sub(TRANSITIONAL, data), parser)
        for node in list(root.iter(*UNSHOWN)):
            kind, parent = kind_of(node), node.getparent()
            gallery = value(node, "sdtPr/docPartObj/docPartGallery")
            if parent is None or (kind == "sdt" and gallery != "Table of Contents"):
                continue
            if kind == "AlternateContent":  # forms of one content: the first is read
                forms = [form for form in node if len(form)]
                node[:] = forms[:1]
            elif kind == "sdt" or len(node):  # an empty one is a mark in properties
                parent.remove(node)
        etree.strip_tags(root, *WRAPPERS)
        return root

    def related(self, path: str) -> dict[str, tuple[str, str]]:
        """Kind and path of each part in the file that a part refers to, by its id there."""
        folder, name = posixpath.split(path)
        root = self.root(posixpath.join(folder, "_rels", f"{name}.rels"))
        return {
            each.get("Id", ""): (
                each.get("Type", "").rpartition("/")[2],
                posixpath.normpath(posixpath.join("/", folder, each.get("Target", ""))).strip("/"),
            )
            for each in (() if root is None else root.iter("{*}Relationship"))
            if each.get("TargetMode") != "External"
        }

    def _path(self, kind: str, of: str) -> str:
        return next((path for known, path in self.related(of).values() if known == kind), "")

    def first(self, kind: str, of: str | None = None) -> Any | None:
        """The root of the first part of a kind that the main one refers to, or the one `of`."""
        return self.root(self._path(kind, self.main if of is None else of))


class _Style(NamedTuple):
    name: str = ""
    level: int = 0  # of a heading, from 1; 0 if it is none
    number: str = ""  # of its list
    deep: str = ""  # level in it
    run: tuple[Any, ...] = ()  # its properties of characters and paragraphs, and inherited ones
    is_filled: bool = False  # whether it colours parts of a table


NO_STYLE = _Style()
DEFAULTS = {"paragraph": "", "table": " table"}


class _Body:
    def __init__(self, package: _Package, depth: int = 0) -> None:
        self.left: Counter[str] = Counter()  # what was not read
        self.title = ""
        self._out: list[str] = []
        self._package, self._depth = package, depth
        self._related = package.related(package.main)
        self._styles = _styles(package.first("styles"))
        self._theme = _colours(package.first("theme"))
        self._numbering = Numbering(
            package.first("numbering"), lambda style: self._styles.get(style, NO_STYLE).number
        )
        self._notes = {
            (kind, each.get(f"{W}id")): each
            for kind in ("footnote", "endnote")
            for each in _children(package.first(f"{kind}s"), kind)
        }
        self._used: set[str] = set()  # parts that were read; each is read once
        self._fields: list[bool] = []  # of the open ones: whether their code, not result, follows
        self._boxes: list[Any] = []  # text boxes anchored in the current paragraph
        self._heading = False  # whether the current paragraph is one
        self._is_white = False  # whether the page is, without a picture behind its text
        self._carried = ""  # the start of a paragraph whose end mark is deleted, or a drop cap

    def markup(self) -> str:
        """The HTML of the body."""
        root: Any = self._package.root(self._package.main)
        self._is_white = not any(root.find(each) is not None for each in COLOURED)
        for row in root.iter(f"{W}tr"):
            if _on(row.findall(f"{W}trPr"), "hidden"):
                said = (len((node.text or "").split()) for node in row.iter(f"{W}t"))
                self.left["invisible word"] += sum(said)
        for each in _children(root, "body"):
            self._blocks(each)
        for kind, path in {*self._related.values()}:
            part = self._package.root(path) if kind in ("header", "footer") else None
            words = "" if part is None else "".join(part.itertext(f"{W}t"))
            self.left["running head"] += any(map(str.isalpha, words))
        if self._carried:  # no later paragraph has taken it up
            self._out.append(f"<p>{self._carried}</p>")
        if not self._out and self.title:  # all that there is
            self._out.append(f"<p>{_escaped(self.title)}</p>")
        return "".join(self._out)

    def _blocks(self, parent: Any) -> None:
        for node in _children(parent):
            kind = kind_of(node)
            if kind == "p":
                self._paragraph(node)
            elif kind == "tbl":
                self._table(node)
            elif kind == "altChunk":
                self._inserted(node)
            elif kind == "oMathPara":
                self._out.append(f"<p><math>{mathml(node)}</math></p>")

    def _paragraph(self, node: Any) -> None:
        style = self._style_of(node)
        if CONTENTS.match(style.name):
            return
        self._fields.clear()  # one that is never closed must not hide the rest
        level = whole(value(node, "pPr/outlineLvl"), style.level - 1) + 1
        title = not self.title and style.name.lower() in TITLES
        self._heading = title or 0 < level < 10
        text, label = self._text_of(node), self._label(node, style)
        frame = node.find(f"{W}pPr/{W}framePr")
        plain = document.one_line(re.sub("<[^>]*>", "", text))
        if node.find(f"{W}pPr/{W}rPr/{W}del") is not None or (
            frame is not None and frame.get(f"{W}dropCap", "none") != "none"
        ):
            self._carried = text
        elif title and plain:
            self.title = html.unescape(plain)
        elif text.strip():
            heading = self._heading and len(plain) <= document.LONGEST_HEADING
            tag = f"h{min(level, 6)}" if heading else "p"
            label = "" if heading and label == BULLET else label
            text = f"{_escaped(label)}{' ' if label else ''}{text}"
            self._out.append(f"<{tag}>{text}</{tag}>")
        boxes, self._boxes, self._heading = self._boxes, [], False
        for box in boxes:
            self._blocks(box)

    def _text_of(self, paragraph: Any) -> str:
        text = self._carried + "".join(self._parts(paragraph, self._style_of(paragraph)))
        text = re.sub(r"</(su[pb])><\1>", "", text)
        self._carried = ""
        return text

    def _style_of(self, paragraph: Any) -> _Style:
        return self._styles.get(value(paragraph, "pPr/pStyle"), self._styles.get("", NO_STYLE))

    def _label(self, node: Any, style: _Style) -> str:
        """The number of a paragraph in its list, counted on; "-" for a bullet."""
        number = value(node, "pPr/numPr/numId", style.number)
        mark = node.findall(f"{W}pPr/{W}rPr")
        if number == "0" or _on(mark, "del") or _on(mark, "vanish"):
            return ""
        deep = style.deep or str(self._numbering.level_of(number, value(node, "pPr/pStyle")))
        level = whole(value(node, "pPr/numPr/ilvl", deep), 0)
        label = self._numbering.label(number, level) if number else ""
        return label or (BULLET if style.name.lower().startswith("list bullet") else "")

    def _parts(self, parent: Any, style: _Style) -> Iterator[str]:
        for node in _children(parent):
            kind = kind_of(node)
            if kind == "r":
                yield self._run(node, style)
            elif kind in ("oMath", "oMathPara"):
                yield f"<math>{mathml(node)}</math>"
            elif kind == "subDoc":
                self.left["linked document"] += 1
            elif kind not in GONE:
                yield from self._parts(node, style)

    def _run(self, run: Any, style: _Style) -> str:
        character = self._styles.get(value(run, "rPr/rStyle"), NO_STYLE)
        of_paragraph = run.iterfind(f"../{W}pPr")
        shapes = [*run.iterfind(f"{W}rPr"), *character.run, *of_paragraph, *style.run]
        if _on(shapes, "vanish") or (
            TEXT.issuperset(map(kind_of, run)) and self._is_unseen(run, shapes)
        ):
            if not any(self._fields):
                said = " ".join(node.text or "" for node in run.iter(f"{W}t"))
                self.left["invisible word"] += len(said.split())
            return ""
        fonts = (shape.find(f"{W}rFonts") for shape in shapes)
        named = (f.get(f"{W}ascii") or f.get(f"{W}hAnsi") or "" for f in fonts if f is not None)
        text = "".join(self._run_parts(run, next(named, "")))
        raised, height = _first(shapes, "vertAlign"), _first(shapes, "position")
        if not raised and height.strip("-0") and MOVED.fullmatch(text):
            raised = "subscript" if height.startswith("-") else "superscript"
        tag = {"superscript": "sup", "subscript": "sub"}.get(raised)
        is_note = any(kind_of(node).endswith("noteReference") for node in run)
        if tag and text.strip() and not is_note:
            text = f"<{tag}>{text}</{tag}>"
        return f"<s>{text}</s>" if _on(shapes, "strike") or _on(shapes, "dstrike") else text

    def _is_unseen(self, run: Any, shapes: list[Any]) -> bool:
        """Whether a text is of one point or less, or of the colour of its known background."""
        size = _first(shapes, "sz")
        if 0 <= whole(size, -1) <= SMALLEST:
            return True
        paints = (shape.find(FILL) for shape in shapes)
        paint = next((each for each in paints if each is not None), None)
        colour = self._colour(shapes) if paint is None else self._painted(paint)
        if not HEX.fullmatch(colour) and colour != NOTHING:
            return False
        if any(kind_of(node) in EFFECTS for shape in shapes for node in shape):
            return False
        if colour == NOTHING:
            return True
        grounds = [self._shade(shape) for shape in shapes]
        for around in run.iterancestors():
            kind = kind_of(around)
            shapes_of = ("tcPr", "tblPrEx", "tblPr")
            grounds += [self._shade(around.find(f"{W}{name}")) for name in shapes_of]
            named = value(around, "tblPr/tblStyle")
            style = self._styles.get(named or DEFAULTS["table"])
            is_filled = style.is_filled if style else bool(named)
            if kind == "txbxContent" or (kind == "tbl" and is_filled):
                grounds.append("of a style")
        ground = next(filter(None, grounds), "FFFFFF" if self._is_white else "")
        return all(map(HEX.fullmatch, (colour, ground))) and all(
            abs(a - b) <= ALIKE for a, b in zip(*map(bytes.fromhex, (colour, ground)), strict=True)
        )

    def _colour(self, shapes: list[Any]) -> str:
        """The colour of a text, if it is known."""
        stated = (shape.find(f"{W}color") for shape in shapes)
        first = next((each for each in stated if each is not None), None)
        return "" if first is None else self._of_theme(first, "themeColor") or value(first)

    def _shade(self, shape: Any | None) -> str:
        """The colour behind a text that a shape gives, or words for one that is not known."""
        shade = None if shape is None else shape.find(f"{W}shd")
        marked = "" if shape is None else value(shape, "highlight").replace("none", "")
        if shade is None or marked:
            return MARKERS.get(marked, marked)
        if value(shade) not in ("clear", "nil"):
            return "of a pattern"
        fill = self._of_theme(shade, "themeFill") or shade.get(f"{W}fill", "")
        return str(fill).replace("auto", "")

    def _painted(self, paint: Any) -> str:
        """The colour of a fill of letters; `NOTHING` if there is none, "" if it is not known."""
        solid = paint.find("{*}solidFill/*")
        if paint.find("{*}noFill") is not None:
            return NOTHING
        if solid is None:
            return ""
        changes = {kind_of(node): "".join(node.attrib.values()) for node in solid}
        if whole(changes.pop("alpha", ""), 0) >= CLEAR:
            return NOTHING
        named = "".join(solid.attrib.values())
        return "" if changes else self._theme.get(named, named)

    def _of_theme(self, node: Any, name: str) -> str:
        """The colour of the theme that a node names; "" for none, words if it is not known."""
        named = node.get(f"{W}{name}")
        changes = (node.get(f"{W}{name.removesuffix('Color')}{how}") for how in ("Tint", "Shade"))
        return self._theme.get(named, "of a theme") if named and not any(changes) else ""

    def _run_parts(self, run: Any, font: str) -> Iterator[str]:
        for node in _children(run):
            kind = kind_of(node)
            if kind == "fldChar":
                yield self._field(node)
            elif kind == "instrText" and (code := COMPUTED.match(node.text or "")):
                self.left["equation" if code[1].upper() == "EQ" else "computed number"] += 1
            elif kind == "instrText" and self._fields:
                button = BUTTON.match(node.text or "")
                self._fields[-1] &= button is None  # its code is what it shows
                text = node.text or "" if button is None else button[1]
                yield "" if any(self._fields) else _escaped(text)
            elif any(self._fields):
                continue
            elif kind == "t":
                yield _escaped(self._in_font(node.text or "", font))
            elif kind == "sym":
                code, of = node.get(f"{W}char", ""), node.get(f"{W}font", "")
                text = chr(int(code, 16)) if re.fullmatch("[0-9A-Fa-f]{1,4}", code) else ""
                yield _escaped(self._in_font(text, of))
            elif kind in ("footnoteReference", "endnoteReference"):
                yield self._note(kind.removesuffix("Reference"), node.get(f"{W}id"))
            elif kind == "commentReference":
                self.left["comment"] += 1
            elif kind in OBJECTS:
                yield self._object(node)
            elif kind == "r":  # the base of a ruby
                yield self._run(node, NO_STYLE)
            else:
                yield MARKS.get(kind, "")

    def _in_font(self, text: str, font: str) -> str:
        """The text with the characters of fonts that draw signs in place of letters."""
        table = _signs(font)

        def shown(found: re.Match[str]) -> str:
            code = ord(found[0]) & 0xFF
            if code not in table and (table is not SYMBOL or code > 0x7E):
                self.left["sign of a font of signs"] += 1
                return ""
            return table.get(code, chr(code))

        return PRIVATE.sub(shown, text.translate(TO_PRIVATE)) if table else text

    def _field(self, node: Any) -> str:
        """Open or close a field; what a form's check box or list shows."""
        kind = node.get(f"{W}fldCharType")
        if kind == "end":
            del self._fields[-1:]
        elif kind == "separate" and self._fields:
            self._fields[-1] = False
        elif kind == "begin":
            self._fields.append(True)
            box, choices = (node.find(f"{W}ffData/{W}{name}") for name in ("checkBox", "ddList"))
            if box is not None:
                stated = "default" if box.find(f"{W}checked") is None else "checked"
                return "☒" if _on([box], stated) else "☐"
            if choices is not None:
                entries = [value(each) for each in choices.findall(f"{W}listEntry")]
                chosen = whole(value(choices, "result", value(choices, "default")), 0)
                return _escaped(entries[chosen]) if 0 <= chosen < len(entries) else ""
        return ""

    def _note(self, kind: str, number: str | None) -> str:
        """A foot- or endnote in its place, once."""
        note = self._notes.pop((kind, number), None)
        if note is not None and self._heading:
            self._boxes.append(note)  # text below the heading
            return ""
        text = "" if note is None else self._joined(note)
        return f" [Note: {text}]" if text else ""

    def _joined(self, parent: Any) -> str:
        parts = []
        for node in _children(parent):
            kind = kind_of(node)
            if kind == "p":
                text, label = self._text_of(node), self._label(node, self._style_of(node))
                parts.append(f"{_escaped(label)} {text}" if label and text.strip() else text)
                boxes, self._boxes = self._boxes, []
                parts += [self._joined(box) for box in boxes]
            elif kind == "tbl":
                parts.append("; ".join(" | ".join(row) for row in self._rows(node)))
            elif kind == "altChunk":
                self.left["inserted file"] += 1
        return " ".join(part.strip() for part in parts if part.strip())

    def _table(self, table: Any) -> None:
        shape = list(_cells(table))
        if all(len(cells) == 1 for cells in shape):  # a box, or a layout
            for cells in shape:
                self._blocks(cells[0][0])
            return
        rows = ("".join(f"<td>{cell}</td>" for cell in row) for row in self._rows(table))
        self._out += ["<table>", *(f"<tr>{row}</tr>" for row in rows), "</table>"]

    def _rows(self, table: Any) -> Iterator[list[str]]:
        """The texts of a table's cells; one that spans rows stands in each."""
        spanning: dict[int, str] = {}
        for row in _cells(table):
            texts = []
            for cell, column in row:
                merge = None if cell is None else cell.find(f"{W}tcPr/{W}vMerge")
                if merge is not None and value(merge, default="continue") == "continue":
                    texts.append(spanning.get(column, ""))
                    continue
                texts.append("" if cell is None else self._joined(cell))
                if cell is not None:
                    spanning[column] = texts[-1] if len(texts[-1]) <= MAX_REPEATED else ""
            if any(texts):
                yield texts

    def _object(self, node: Any) -> str:
        """The description and the words of an object; text boxes wait for the paragraph's end."""
        shown = ""
        for each in _own(node):
            kind = kind_of(each)
            described = each.get("descr" if kind == "docPr" else "alt", "")
            if kind in ("docPr", "shape") and described and not GENERATED.search(described):
                shown += f'<img alt="{html.escape(described)}">'
            elif kind == "txbxContent":
                self._boxes.append(each)
            elif kind in ("textpath", "t"):
                shown += _escaped(each.get("string") or each.text or "") + " "
            elif kind == "OLEObject" and each.get("ProgID", "").startswith("Equation"):
                self.left["equation"] += 1
            elif kind in UNREAD:
                self.left[UNREAD[kind]] += 1
        return shown

    def _inserted(self, node: Any) -> None:
        """A file that Word shows in this place, if it is HTML, text or DOCX."""
        ids = (v for k, v in node.attrib.items() if k.endswith("}id"))
        _, path = self._related.get(next(ids, ""), ("", ""))
        kind = posixpath.splitext(path)[1].lower()
        data = None if path in self._used else self._package.bytes(path)
        self._used.add(path)
        if data is not None and kind in (".mht", ".mhtml"):  # a mail of a page and its pictures
            parts: Iterator[Any] = message_from_bytes(data).walk()
            pages = (part for part in parts if part.get_content_subtype() == "html")
            data = next((page.get_payload(decode=True) for page in pages), None)
            kind = ".html"
        if data is not None and kind in (".htm", ".html", ".xhtml"):
            body = LexborHTMLParser(self._text_in(data)).body  # its tags are closed
            self._out.append(body.html or "" if body else "")
        elif data is not None and kind == ".txt":
            self._out += [f"<p>{_escaped(line)}</p>" for line in self._text_in(data).splitlines()]
        elif data is not None and kind == ".docx" and not self._depth:
            try:
                with _opened(data) as packed:
                    inner = _Body(_Package(packed), self._depth + 1)
                    self._out.append(inner.markup())
                self.left += inner.left
            except UnreadableError:
                self.left["inserted file"] += 1
        else:
            self.left["inserted file"] += 1

    def _text_in(self, data: bytes) -> str:
        text, doubt = decoded(data)
        self.left["inserted file with unknown characters"] += bool(doubt)
        return text


def _styles(root: Any | None) -> dict[str, _Style]:
    """The styles by their ids; those in `DEFAULTS` are of what names none."""
    nodes = {name: each for each in _children(root, "style") if (name := each.get(f"{W}styleId"))}
    common = [] if root is None else root.findall(f"{W}docDefaults/*/*")
    made = {"": _Style(run=tuple(common))}
    for own, node in nodes.items():
        chain: list[Any] = []
        each: Any = node
        while each is not None and each not in chain and len(chain) < 20:
            chain.append(each)
            each = nodes.get(value(each, "basedOn"))
        levels = list[int | None]()  # of a heading; 0 for body text, None if a style is silent
        for style in chain:
            headed, stated = HEADING.match(value(style, "name")), value(style, "pPr/outlineLvl")
            level = (whole(stated, 9) + 1) % 10 if stated else headed and int(headed[1])
            levels.append(level)
        made[own] = _Style(
            value(node, "name"),
            next((level for level in levels if level is not None), 0),
            _first(chain, "pPr/numPr/numId"),
            _first(chain, "pPr/numPr/ilvl"),
            tuple(
                [shape for style in chain for shape in _children(style, "rPr", "pPr")]
                + common * (node.get(f"{W}type") == "paragraph")
            ),
            any(each.find(f".//{W}shd") is not None for each in chain),
        )
        if node.get(f"{W}default", "0") not in OFF:
            made[DEFAULTS.get(node.get(f"{W}type"), own)] = made[own]
    return made


def _first(shapes: list[Any], name: str) -> str:
    """The value of a property in the first of the shapes that states it."""
    return next(filter(None, (value(shape, name) for shape in shapes)), "")


def _colours(root: Any | None) -> dict[str, str]:
    """The colours of a theme, by the names that text has for them."""
    found = dict[str, str]()
    for node in () if root is None else root.iterfind("{*}themeElements/{*}clrScheme/*"):
        kind = kind_of(node)
        stated = next((e.get("lastClr") or e.get("val", "") for e in node), "")
        found |= dict.fromkeys((kind, *THEME.get(kind, ())), stated)
    return found


def _children(node: Any | None, *kinds: str) -> Iterator[Any]:
    if node is not None:
        yield from node.iterchildren(*([W + kind for kind in kinds] or [etree.Element]))


def _own(node: Any) -> Iterator[Any]:
    """The elements below one, without those in its text boxes."""
    for each in _children(node):
        yield each
        if kind_of(each) != "txbxContent":
            yield from _own(each)


def _signs(font: str) -> dict[int, str]:
    if font == "Symbol":
        return SYMBOL
    return WINGDINGS_2 if font == "Wingdings 2" else WINGDINGS if "dings" in font else {}


def _cells(table: Any) -> Iterator[list[tuple[Any, int]]]:
    """The cells of each row with the column where they begin; None for one that is left free."""
    for row in table.findall(f"{W}tr"):
        if any(_on(row.findall(f"{W}trPr"), gone) for gone in ("del", "hidden")):
            continue
        column = min(whole(value(row, "trPr/gridBefore"), 0), 1000)
        cells: list[tuple[Any, int]] = [(None, i) for i in range(column)]
        for cell in row.findall(f"{W}tc"):
            if cell.find(f"{W}tcPr/{W}cellDel") is not None:
                continue
            cells.append((cell, column))
            column += max(whole(value(cell, "tcPr/gridSpan"), 1), 1)
        yield cells


def _on(shapes: list[Any], name: str) -> bool:
    """Whether a property is switched on; the first that names it counts."""
    found = (shape.find(f"{W}{name}") for shape in shapes)
    first = next((each for each in found if each is not None), None)
    return first is not None and value(first, default="1") not in OFF
