"""One page of a PDF as a person sees it: lines in reading order, and what is not read.

Text that leaves no trace on the page, such as white on white, is not read; the invisible text that
OCR sets upon a scan is. Values of fields and free text stand where they are on the page. Comments
appear on a click, so they are counted only.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pypdfium2.raw as pdfium
from pypdfium2 import PdfDocument, PdfPage, PdfTextPage

from rerank.ingest.document import one_line
from rerank.ingest.encoding import CONTROLS
from rerank.ingest.pdf_lines import Box, Piece, lines, pieces, placed, with_raised_digits

MAX_OBJECTS = 2_000  # of a page, that are looked at for pictures
MAX_ANNOTATIONS = 5_000  # of a page
SPARSE = 60  # characters of a page that may be a picture with a number or a stamp
DRAWN = 50  # paths of a page without text that may be letters
UNMAPPED = 0.3  # share of words without Unicode from which a page is unreadable,
SMALL = 0.4  # and share of small letters in these below which they are not text
PIXELS = 2_000  # of the longer side of a page, where it is looked at
TRACE = 12  # difference of grey, of 255, that is seen
HYPHENS = ("\x02", "\ufffe")  # PDFium's marks of a hyphen at the end of a line
NOTHING = "\0"
WORD, LINE_END = re.compile(r"[^\s\x02\ufffe]+"), re.compile(r"[\r\n\x02\ufffe]")
DIGIT = re.compile(r"\d")
SURROGATE, ASTRAL = re.compile("[\ud800-\udfff]"), re.compile("[\U00010000-\U0010ffff]")
LIGATURES = str.maketrans(
    {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"}
    | {"\xad": "-", "\uf0b7": "•", "\uf0a7": "▪", "\ufffd": ""}
)
HIDDEN = pdfium.FPDF_ANNOT_FLAG_HIDDEN | pdfium.FPDF_ANNOT_FLAG_NOVIEW
PASSWORD = 1 << 13  # flag of a text field
SILENT = (pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP, pdfium.FPDF_ANNOT_WIDGET)


@dataclass(slots=True)
class Page:
    """The lines of a page that are not empty, and what of it is not read."""

    lines: list[str] = field(default_factory=list)
    is_picture: bool = False
    is_unreadable: bool = False  # its letters have no Unicode
    left_out: Counter[str] = field(default_factory=Counter)  # number of each kind


def read_page(pdf: PdfDocument, number: int) -> Page:
    """The page of this number, from 0.

    Raises:
        PdfiumError: it is broken.
    """
    page = pdf[number]
    found = Page()
    words = list(_words(page, page.get_textpage()))
    found.left_out["invisible words"] = sum(word.is_hidden for word in words)
    words = [word for word in words if not word.is_hidden]
    found.is_unreadable = _is_unreadable(words)
    words = [] if found.is_unreadable else [word for word in words if word.text]
    turns = Counter(word.turn for word in words)
    main = max(turns, key=lambda turn: (turns[turn], turn == 0), default=0)
    on_page: list[Piece] = []
    for row, of_row in enumerate(_rows(words)):
        if of_row[0].turn == main:
            on_page += pieces([(word.text, word.box) for word in of_row], row)
        else:
            on_page.append(Piece(" ".join(word.text for word in of_row), row, None))
    found.is_picture = not found.is_unreadable and _is_picture(page, words)
    _add_annotations(pdf, page, on_page, main, found.left_out)
    found.lines = [line for text in lines(on_page) if (line := one_line(text))]
    return found


@dataclass(slots=True)
class _Word:
    text: str
    box: Box  # upright
    turn: int | None  # quarters that the text is turned by; None if it is slanted
    row: int
    is_hidden: bool
    is_unmapped: bool


def _is_unreadable(words: Sequence[_Word]) -> bool:
    """Whether the letters of the words are wrong, since their fonts do not say which they are.

    Where a font says nothing PDFium guesses. A guess that is right is text: mostly small letters,
    few of them with accents, or letters of another script.
    """
    guessed = "".join(word.text for word in words if word.is_unmapped)
    small = len(re.findall(r"[^\W\d_A-ZÀ-ÿ]", guessed))
    is_wrong = small < SMALL * len(guessed) or not guessed
    return is_wrong and sum(word.is_unmapped for word in words) > UNMAPPED * len(words)


def _rows(words: Sequence[_Word]) -> Iterator[list[_Word]]:
    row: list[_Word] = []
    for word in words:
        if row and (word.row, word.turn) != (row[-1].row, row[-1].turn):
            yield row
            row = []
        row.append(word)
    if row:
        yield row


def _words(page: PdfPage, text: PdfTextPage) -> Iterator[_Word]:
    """The words of a page in the order of PDFium, without those outside of it."""
    edges = Box(*page.get_bbox())
    signs = _signs(text)
    look = _Look(page)
    raw, rect = text.raw, pdfium.FS_RECTF()
    row = seen = 0
    for match in WORD.finditer(signs):
        start, end = match.span()
        if start - seen > 1 or signs[seen] != " ":
            row += len(LINE_END.findall(signs, seen, start))
        seen = end
        hyphen = end < len(signs) and signs[end] in HYPHENS
        last = end - 1 + hyphen
        around = _box(raw, start, rect)
        if last > start:
            around = around.joined(_box(raw, last, rect))
        if not around.overlaps(edges):
            continue
        turn = _turn(pdfium.FPDFText_GetCharAngle(raw, start))
        word, lost = match[0], 0
        has_digit = DIGIT.search(word) is not None
        is_plain = word.isascii() and word.isprintable()
        if has_digit or not is_plain:
            shown = [*word] if is_plain else [_shown(sign) for sign in word]
            lost = shown.count("") - word.count(NOTHING)
            if has_digit:
                boxes = (_turned(_box(raw, i, rect), turn or 0) for i in range(start, end))
                word = with_raised_digits(list(zip(shown, boxes, strict=True)))
            else:
                word = "".join(shown)
        yield _Word(
            f"{word}-" if hyphen else word,
            _turned(around, turn) if turn else around,
            turn,
            row,
            look.is_suspicious(raw, start) and not look.shows(around),
            2 * lost > end - start or pdfium.FPDFText_HasUnicodeMapError(raw, start) == 1,
        )


def _signs(text: PdfTextPage) -> str:
    """The characters of a page by their index; half of a surrogate pair is `NOTHING`."""
    count = text.count_chars()
    buffer = (ctypes.c_ushort * (count + 1))()
    if pdfium.FPDFText_GetText(text, 0, count, buffer) - 1 == count:
        signs = bytes(buffer)[: 2 * count].decode("utf-16-le", "surrogatepass")
        signs = signs if len(signs) == count else ASTRAL.sub(rf"\g<0>{NOTHING}", signs)
    else:
        codes = (pdfium.FPDFText_GetUnicode(text, i) for i in range(count))
        signs = "".join(chr(code) if code < 0x110000 else NOTHING for code in codes)
    return SURROGATE.sub(NOTHING, signs)


def _shown(sign: str) -> str:
    """A character as text; "" if it stands for none, such as one of a private font."""
    sign = sign.translate(LIGATURES)
    return "" if "\ue000" <= sign <= "\uf8ff" or CONTROLS.match(sign) else sign


def _box(text: Any, index: int, rect: Any) -> Box:
    pdfium.FPDFText_GetLooseCharBox(text, index, rect)
    return Box(rect.left, rect.bottom, rect.right, rect.top)


def _turn(angle: float) -> int | None:
    if not angle:
        return 0
    quarters = angle / (math.pi / 2)
    return round(quarters) % 4 if abs(quarters - round(quarters)) < 0.06 else None


def _turned(box: Box, turn: int) -> Box:
    """The box as it lies when its text is upright."""
    left, bottom, right, top = box
    if turn == 3:
        return Box(bottom, -right, top, -left)
    if turn == 2:
        return Box(-right, -top, -left, -bottom)
    return Box(-top, left, -bottom, right) if turn == 1 else box


def _is_colourless(text: Any, index: int, drawn: Any) -> bool:
    mode = pdfium.FPDFTextObj_GetTextRenderMode(drawn)
    if mode in (pdfium.FPDF_TEXTRENDERMODE_INVISIBLE, pdfium.FPDF_TEXTRENDERMODE_CLIP):
        return True
    if mode not in (pdfium.FPDF_TEXTRENDERMODE_FILL, pdfium.FPDF_TEXTRENDERMODE_FILL_CLIP):
        return False
    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    pdfium.FPDFText_GetFillColor(text, index, red, green, blue, alpha)
    return alpha.value < 16 or min(red.value, green.value, blue.value) > 230


class _Look:
    """What a page looks like; it is drawn when it is first asked."""

    def __init__(self, page: PdfPage) -> None:
        self._page = page
        self._grey: Any = None
        self._suspicious: dict[int | None, bool] = {}  # by address of a text object

    def is_suspicious(self, text: Any, index: int) -> bool:
        """Whether text may leave no trace: without colour, or white."""
        drawn = pdfium.FPDFText_GetTextObject(text, index)
        address = ctypes.addressof(drawn.contents) if drawn else None
        if address not in self._suspicious:
            self._suspicious[address] = bool(drawn) and _is_colourless(text, index, drawn)
        return self._suspicious[address]

    def shows(self, box: Box) -> bool:
        """Whether anything can be told apart within the box."""
        if self._grey is None:
            scale = min(2.0, PIXELS / max(self._page.get_size()))
            self._grey = self._page.render(scale=scale, grayscale=True).to_numpy()
        height, width = self._grey.shape[:2]
        corners = []
        for x, y in ((box.left, box.bottom), (box.right, box.top)):
            across, down = ctypes.c_int(), ctypes.c_int()
            pdfium.FPDF_PageToDevice(self._page, 0, 0, width, height, 0, x, y, across, down)
            corners.append((across.value, down.value))
        (left, right), (top, bottom) = (sorted(pair) for pair in zip(*corners, strict=True))
        part = self._grey[max(0, top) : bottom + 1, max(0, left) : right + 1]
        return bool(part.size) and int(np.ptp(part)) > TRACE


def _is_picture(page: PdfPage, words: Sequence[_Word]) -> bool:
    """Whether a page is a picture: with hardly any text, of an image or of many paths."""
    length = sum(len(word.text) for word in words)
    if length > SPARSE:
        return False
    paths, covered, images = 0, 0.0, 0
    objects = page.get_objects(max_depth=4)
    for drawn, _ in zip(objects, range(MAX_OBJECTS), strict=False):
        paths += drawn.type == pdfium.FPDF_PAGEOBJ_PATH
        if drawn.type == pdfium.FPDF_PAGEOBJ_IMAGE:
            images += 1
            left, bottom, right, top = drawn.get_bounds()
            covered += (right - left) * (top - bottom)
    if not length:
        return images > 0 or paths >= DRAWN
    width, height = page.get_size()
    return bool(covered > 0.5 * width * height)


def _add_annotations(
    pdf: PdfDocument, page: PdfPage, on_page: list[Piece], turn: int | None, left_out: Counter[str]
) -> None:
    """Place values and free text among the pieces, and count what is left out."""
    for i in range(min(pdfium.FPDFPage_GetAnnotCount(page), MAX_ANNOTATIONS)):
        annotation = pdfium.FPDFPage_GetAnnot(page, i)
        if not annotation:
            continue
        try:
            if pdfium.FPDFAnnot_GetFlags(annotation) & HIDDEN:
                continue
            kind = pdfium.FPDFAnnot_GetSubtype(annotation)
            name = ""
            text = _said(pdfium.FPDFAnnot_GetStringValue, annotation, b"Contents")
            if kind == pdfium.FPDF_ANNOT_WIDGET and pdf.formenv:
                name, text = _field(pdf.formenv, annotation)
            elif kind == pdfium.FPDF_ANNOT_FILEATTACHMENT:
                left_out["attached files"] += 1
            elif kind != pdfium.FPDF_ANNOT_FREETEXT:
                left_out["comments"] += bool(text) and kind not in SILENT
                continue
            rect = pdfium.FS_RECTF()
            if text and pdfium.FPDFAnnot_GetRect(annotation, byref(rect)):
                box = Box(rect.left, rect.bottom, rect.right, rect.top)
                placed(on_page, text, _turned(box, turn or 0), name=name)
        finally:
            pdfium.FPDFPage_CloseAnnot(annotation)


def _field(form: Any, widget: Any) -> tuple[str, str]:
    """The name of a field for people, and what a person sees in it; "" for buttons."""
    kind = pdfium.FPDFAnnot_GetFormFieldType(form, widget)
    name = _said(pdfium.FPDFAnnot_GetFormFieldAlternateName, form, widget) or _said(
        pdfium.FPDFAnnot_GetFormFieldName, form, widget
    )
    if kind in (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON):
        return name, "[x]" if pdfium.FPDFAnnot_IsChecked(form, widget) else "[ ]"
    is_text = kind == pdfium.FPDF_FORMFIELD_TEXTFIELD
    if kind not in (pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX) and not is_text:
        return name, ""
    if is_text and pdfium.FPDFAnnot_GetFormFieldFlags(form, widget) & PASSWORD:
        return name, ""
    chosen = [
        _said(pdfium.FPDFAnnot_GetOptionLabel, form, widget, i)
        for i in range(min(pdfium.FPDFAnnot_GetOptionCount(form, widget), MAX_ANNOTATIONS))
        if pdfium.FPDFAnnot_IsOptionSelected(form, widget, i)
    ]
    value = ", ".join(chosen) or _said(pdfium.FPDFAnnot_GetFormFieldValue, form, widget)
    return name, value


def _said(ask: Callable[..., int], *of: Any) -> str:
    """A text of PDFium on one line: it is asked for its length, then for itself."""
    size = ask(*of, None, 0)
    if size <= 2:
        return ""
    buffer = (ctypes.c_ushort * (size // 2))()
    ask(*of, buffer, size)
    text = bytes(buffer).decode("utf-16-le", errors="ignore")
    return one_line(CONTROLS.sub("", text.replace("\r", "\n").rstrip("\0")))
