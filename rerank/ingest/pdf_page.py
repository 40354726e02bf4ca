"""One page of a PDF as a person sees it: lines in reading order, and what is not read.

Text that leaves no trace on the page, such as white on white, is not read, nor is text that a line
or an annotation strikes out; the invisible text that OCR sets upon a scan is. Values of fields and
free text stand where they are on the page. Comments appear on a click, so they are counted only.
"""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from ctypes import byref, c_double, c_float, c_int, c_size_t, c_void_p
from dataclasses import dataclass, field
from itertools import repeat
from statistics import median_low
from typing import Any

import numpy as np
import pypdfium2.raw as pdfium
from numpy.typing import NDArray
from pypdfium2 import PdfDocument, PdfiumError, PdfPage, PdfTextPage

from rerank.ingest.document import one_line
from rerank.ingest.encoding import CONTROLS
from rerank.ingest.pdf_lines import GAP, Box, Piece, lines, placed, with_raised_digits
from rerank.ingest.pdf_painted import PICTURE, Painted, bare, meet
from rerank.ingest.pdf_struck import Letters, are_struck, joined, may_strike, turned

MAX_OBJECTS = 2_000  # of a page, that are looked at for pictures
MAX_ANNOTATIONS = 5_000  # of a page
SPARSE = 60  # characters of a page that may be a picture with a number or a stamp
DRAWN = 50  # paths of a page without text that may be letters
UNMAPPED = 0.3  # share of words without Unicode from which a page is unreadable,
SMALL = 0.4  # and share of small letters in these below which they are not text
PIXELS = 2_000  # of the longer side of a page, where it is looked at
LARGE = 1.15  # height of a heading over that of most lines
SMALLEST = 1.5  # points of the height of letters that are seen, on a page of usual height
TRACE = 12  # difference of grey, of 255, that is seen
SLANTED = -1  # instead of a number of quarters that text is turned by
NOTHING = "\0"
SURROGATE, ASTRAL = re.compile("[\ud800-\udfff]"), re.compile("[\U00010000-\U0010ffff]")
LIGATURES = {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"}
SHOWN = str.maketrans(LIGATURES | {"\xad": "-", "\uf0b7": "•", "\uf0a7": "▪"})
ACCENTS = dict(
    zip(
        "¨´`ˆ˜ˇ˚˝¸¯˘˙",
        "\u0308\u0301\u0300\u0302\u0303\u030c\u030a\u030b\u0327\u0304\u0306\u0307",
        strict=True,
    )
)
ACCENTED = re.compile(rf"([{''.join(ACCENTS)}]) ?([^\W\d_])")
DOTLESS = {"ı": "i", "ȷ": "j"}
GONE = re.compile(rf"[\ufffd\ue000-\uf8ff]|{CONTROLS.pattern}")  # they stand for no character
BLANK, LINE_END, HYPHEN, DIGIT, LOST, SPECIAL = (1 << i for i in range(6))
KINDS = np.zeros(0x110000, np.uint8)  # of characters, by their codes
KINDS[[code for code in range(0x3001) if chr(code).isspace()]] = BLANK
KINDS[[*range(9), *range(14, 28), 0x7F, 0xFFFD, *range(0xE000, 0xF900)]] = LOST | SPECIAL
KINDS[[0, *SHOWN]] = SPECIAL
KINDS[list(b"\r\n")] = BLANK | LINE_END
KINDS[[2, 0xFFFE]] = BLANK | LINE_END | HYPHEN  # PDFium's marks of a hyphen at the end of a line
KINDS[list(b"0123456789")] = DIGIT
HIDDEN = pdfium.FPDF_ANNOT_FLAG_HIDDEN | pdfium.FPDF_ANNOT_FLAG_NOVIEW
PASSWORD = 1 << 13  # flag of a text field
FILLED = np.zeros(9, bool)  # by the mode of rendering, of which -1 is unknown
FILLED[[pdfium.FPDF_TEXTRENDERMODE_FILL, pdfium.FPDF_TEXTRENDERMODE_FILL_CLIP]] = True
Array = NDArray[Any]


BOX_AT = bare(pdfium.FPDFText_GetLooseCharBox)
INK_AT, ORIGIN_AT = bare(pdfium.FPDFText_GetCharBox), bare(pdfium.FPDFText_GetCharOrigin)
OBJECT_AT = bare(pdfium.FPDFText_GetTextObject, c_size_t)
ANGLE_AT = bare(pdfium.FPDFText_GetCharAngle, c_float)
IS_UNMAPPED_AT = bare(pdfium.FPDFText_HasUnicodeMapError)
COLOUR_AT = bare(pdfium.FPDFText_GetFillColor)
MODE_OF = bare(pdfium.FPDFTextObj_GetTextRenderMode)


@dataclass(slots=True)
class Page:
    """The lines of a page that are not empty, and what of it is not read."""

    lines: list[str] = field(default_factory=list)
    large: set[str] = field(default_factory=set)  # those in larger letters than most
    is_picture: bool = False
    is_unreadable: bool = False  # its letters have no Unicode
    left_out: Counter[str] = field(default_factory=Counter)  # number of each kind


def read_page(pdf: PdfDocument, number: int) -> Page:
    """The page of this number, from 0."""
    page = pdf[number]
    found = Page()
    values, struck, drawn = _annotations(pdf, page, found.left_out)
    page = _flattened(pdf, number, drawn) if drawn else page
    runs = _Runs(page, page.get_textpage(), struck, by_word=bool(values))
    is_seen = runs.are_seen()
    found.left_out["invisible words"] = runs.unseen + runs.words(~is_seen)
    found.left_out["deleted words"] = runs.struck
    found.is_unreadable = runs.is_unreadable(is_seen)
    on_page, turn = list[Piece](), 0
    if not found.is_unreadable:
        on_page, turn = runs.pieces(is_seen)
        found.is_picture = _is_picture(page, sum(len(p.text.replace(" ", "")) for p in on_page))
    for name, text, box in values:
        placed(on_page, text, Box(*turned(np.array(box), turn).tolist()), name=name)
    sized = [(line, size) for text, size in lines(on_page) if (line := one_line(text))]
    found.lines = [line for line, _ in sized]
    usual = median_low(size for _, size in sized) if sized else 0
    found.large = {line for line, size in sized if size > LARGE * usual}
    return found


class _Runs:
    """The text on a page in the order of PDFium, as arrays of runs.

    A run is the words of one text object in one line, or one word where words may differ: white
    ones, those at the edge of the page, those with raised digits, and all of them if `by_word`.
    Calls of PDFium take most of the time, so what a text object has in common is asked once.
    """

    def __init__(
        self, page: PdfPage, text: PdfTextPage, struck: Sequence[Box], *, by_word: bool
    ) -> None:
        self._page, self._raw = page, ctypes.cast(text.raw, c_void_p)
        self.struck = 0  # words
        self._signs = _signs(text)
        self._signs = ACCENTED.sub(self._accented, self._signs)
        kinds = KINDS[np.frombuffer(f" {self._signs} ".encode("utf-32-le"), np.uint32)]
        blank = kinds & BLANK
        bounds = np.flatnonzero(blank[1:] != blank[:-1])
        starts, ends = bounds[::2], bounds[1::2]  # of words
        kinds = self._kinds = kinds[1:]
        hyphens = kinds[ends] & HYPHEN > 0
        rows = np.searchsorted(np.flatnonzero(kinds & LINE_END), starts)
        objects = self._ask(OBJECT_AT, starts)
        unique, words, of = np.unique(objects, return_index=True, return_inverse=True)
        asked, colours = self._asked_of_objects(starts[words], unique)
        turns, pale, unmapped = (each[of] for each in asked)
        numbers = np.unique(np.searchsorted(ends, np.flatnonzero(kinds & DIGIT), side="right"))
        is_mixed = self._ask(OBJECT_AT, ends[numbers] - 1) != objects[numbers]
        apart = pale | by_word
        mixed = numbers[is_mixed]
        apart[mixed] = True
        edges = np.array(page.get_bbox())
        painted = Painted(page, unique, colours)
        for _ in range(2):
            begins = _changes(rows) | _changes(objects) | apart | np.append(0, apart)[:-1] > 0
            first = np.flatnonzero(begins)
            last = (np.append(first[1:], len(starts)) - 1)[: len(first)]
            low, high = self._boxes(starts[first]), self._boxes(ends[last] - 1 + hyphens[last])
            boxes = np.hstack([np.minimum(low, high)[:, :2], np.maximum(low, high)[:, 2:]])
            in_doubt = painted.may_hide(boxes, of[first])
            is_cut = np.any((boxes[:, :2] < edges[:2]) | (boxes[:, 2:] > edges[2:]), axis=1)
            is_cut |= in_doubt > 0
            if not is_cut.any():
                break
            apart |= is_cut[np.cumsum(begins) - 1]
        spans = starts[first], ends[last] + hyphens[last]
        gone = self._strike(painted.lines(), np.array(struck), boxes, turns[first], spans)
        hyphens &= ~gone[ends]
        sizes = (boxes[:, 2:] - boxes[:, :2])[np.arange(len(first)), 1 - turns[first] % 2]
        is_small = (sizes < SMALLEST * min(1, page.get_height() / 800)) & (turns[first] >= 0)
        kept = np.all((boxes[:, :2] <= edges[2:]) & (boxes[:, 2:] >= edges[:2]), axis=1) & ~is_small
        off = zip(starts[first[~kept]].tolist(), ends[last[~kept]].tolist(), strict=True)
        self.unseen = sum(_words(self._signs[a:b]) for a, b in off)  # off the page, or too small
        doubt = np.where(pale[first], PICTURE, in_doubt)[kept]
        first, last = first[kept], last[kept]
        self._around, self._turns, self._rows = boxes[kept], turns[first], rows[first]
        self._doubt, self._words = doubt, last - first + 1
        starts, ends = starts[first], ends[last]
        self._unmapped = unmapped[first]
        self._texts = self._written(starts, ends, hyphens[last], np.isin(first, mixed))

    def _accented(self, found: re.Match[str]) -> str:
        """A letter with the accent that is drawn above it; of the same length."""
        accent, letter = self._boxes(np.array([found.start(1), found.start(2)]))[:, [0, 2]]
        base = DOTLESS.get(found[2], found[2])
        one = unicodedata.normalize("NFC", base + ACCENTS[found[1]])
        is_above = accent[1] - letter[0] > (accent[1] - accent[0]) / 2
        return one.ljust(len(found[0]), NOTHING) if is_above and len(one) == 1 else found[0]

    def _written(self, starts: Array, ends: Array, hyphens: Array, is_mixed: Array) -> list[str]:
        """The texts of the runs, which have raised digits where they are mixed."""
        words = zip(starts.tolist(), ends.tolist(), hyphens.tolist(), strict=True)
        texts = [" ".join(self._signs[a:b].split()) + "-" * hyphen for a, b, hyphen in words]
        if (self._kinds & SPECIAL).any():
            lost = np.cumsum(np.append(0, self._kinds & LOST > 0))
            self._unmapped |= 2 * (lost[ends] - lost[starts]) > ends - starts
            texts = [_shown(text) for text in texts]
        for i in np.flatnonzero(is_mixed):
            upright = turned(self._boxes(np.arange(starts[i], ends[i])), self._turns[i])
            word = map(_shown, self._signs[starts[i] : ends[i]])
            boxes = map(Box._make, upright.tolist())
            texts[i] = with_raised_digits(list(zip(word, boxes, strict=True)))
            texts[i] += "-" * bool(hyphens[i])
        return texts

    def _strike(
        self, lines: Array, marks: Array, boxes: Array, turns: Array, spans: tuple[Array, Array]
    ) -> Array:
        """Take away what lines strike and marks of annotations cover, and say which signs it is."""
        is_struck = np.zeros(len(self._signs), bool)
        for turn in np.unique(turns[turns >= 0]).tolist():
            across = joined(turned(lines, turn))
            own = np.flatnonzero(turns == turn)
            for line, runs in may_strike(across, turned(boxes[own], turn)):
                at = self._letters(spans, own[runs])
                is_struck[at] |= are_struck(line, self._placed(at, turn))
        if marks.size:
            runs = np.flatnonzero(meet(boxes[:, None], marks).any(axis=1))
            at = self._letters(spans, runs)
            around = self._boxes(at)
            middle = np.tile((around[:, :2] + around[:, 2:]) / 2, 2)
            is_struck[at] |= meet(middle[:, None], marks).any(axis=1)
        is_struck &= self._kinds[:-1] & (BLANK | HYPHEN) != BLANK
        if is_struck.any():
            pairs = list(zip(self._signs, is_struck.tolist(), strict=True))
            self._signs = "".join(NOTHING if gone else sign for sign, gone in pairs)
            self._kinds[:-1][is_struck] = SPECIAL
            texts = (sign if gone or sign.isspace() else NOTHING for sign, gone in pairs)
            self.struck = _words("".join(texts))
        return np.append(is_struck, False)

    def _letters(self, spans: tuple[Array, Array], runs: Array) -> Array:
        """The indices of the characters of runs, with blanks between and beside their words."""
        ends = spans[1] + (self._kinds[spans[1]] == BLANK)
        starts = spans[0] - (self._kinds[spans[0] - 1] == BLANK)
        at = np.unique(np.concatenate([np.arange(starts[i], ends[i]) for i in runs.tolist()]))
        at = at[(at >= 0) & (at < len(self._signs))]
        return np.asarray(at[self._kinds[at] & (LINE_END | HYPHEN) != LINE_END])

    def _placed(self, at: Array, turn: int) -> Letters:
        """These characters with their boxes."""
        found = (c_double * (6 * len(at)))()
        for i, index in zip(range(0, ctypes.sizeof(found), 48), at.tolist(), strict=True):
            INK_AT(self._raw, index, *(byref(found, i + j) for j in (0, 16, 8, 24)))
            ORIGIN_AT(self._raw, index, byref(found, i + 32), byref(found, i + 40))
        placed = np.array(found).reshape(-1, 6)
        return Letters(
            turned(self._boxes(at), turn),
            turned(placed[:, :4], turn),
            turned(placed[:, [4, 5, 4, 5]], turn)[:, 1],
            np.array([self._signs[i].isalnum() for i in at.tolist()], bool),
        )

    def _ask(self, what: Callable[..., Any], indices: Array) -> Array:
        asked = map(what, repeat(self._raw), indices.tolist())
        return np.array(list(asked), np.uint64 if what is OBJECT_AT else float)

    def _boxes(self, indices: Array) -> Array:
        """Left, bottom, right and top of characters."""
        boxes = (pdfium.FS_RECTF * len(indices))()
        places = map(byref, repeat(boxes), range(0, ctypes.sizeof(boxes), 16))
        deque(map(BOX_AT, repeat(self._raw), indices.tolist(), places), maxlen=0)
        return np.frombuffer(boxes, np.float32).reshape(-1, 4)[:, [0, 3, 2, 1]].astype(float)

    def _asked_of_objects(
        self, first: Array, objects: Array
    ) -> tuple[tuple[Array, Array, Array], Array]:
        """Of each object its turn, whether it may be pale, has no Unicode, and its colour.

        `first`: a character of each.
        """
        quarters = self._ask(ANGLE_AT, first) / (math.pi / 2)
        is_straight = np.abs(quarters - quarters.round()) < 0.06
        turns = np.where(is_straight, quarters.round() % 4, SLANTED).astype(int)
        rgba = (ctypes.c_uint * 4)()
        places = [byref(rgba, i) for i in range(0, 16, 4)]
        colours = ((COLOUR_AT(self._raw, i, *places), bytes(rgba))[1] for i in first.tolist())
        colour = np.frombuffer(b"".join(colours), np.uint32).reshape(-1, 4)
        is_white = (colour[:, 3] < 16) | (colour[:, :3].min(1, initial=255) > 230)
        modes = np.array(list(map(MODE_OF, map(c_void_p, objects.tolist()))), int)
        unmapped = self._ask(IS_UNMAPPED_AT, first) == 1
        return (turns, is_white | ~FILLED[modes], unmapped), colour

    def are_seen(self) -> Array:
        """Which runs leave a trace on the page. It is drawn if some may not."""
        is_seen: Array = self._doubt == 0
        if not is_seen.all():
            scale = min(2.0, PIXELS / max(self._page.get_size()))
            grey = self._page.render(scale=scale, grayscale=True).to_numpy()
            for i in np.flatnonzero(self._doubt):
                box = self._around[i]
                box = box if self._doubt[i] == PICTURE else _core(box, self._turns[i])
                is_seen[i] = _has_trace(self._page, grey, box.tolist())
        return is_seen

    def words(self, which: Array) -> int:
        """The number of words of these runs."""
        return sum(_words(self._texts[i]) for i in np.flatnonzero(which))

    def is_unreadable(self, which: Array) -> bool:
        """Whether the letters of these runs are wrong, as their fonts do not say what they are.

        Where a font says nothing PDFium guesses. A guess that is right is text: mostly small
        letters, few of them with accents, or letters of another script.
        """
        unmapped = self._unmapped & which
        if self._words[unmapped].sum() <= UNMAPPED * self._words[which].sum():
            return False
        guessed = "".join(self._texts[i] for i in np.flatnonzero(unmapped)).replace(" ", "")
        return len(re.findall(r"[^\W\d_A-ZÀ-ÿ]", guessed)) < SMALL * len(guessed) or not guessed

    def pieces(self, which: Array) -> tuple[list[Piece], int]:
        """The pieces of lines of these runs, and the turn of most of them: a gap divides a line.

        Runs of another turn stay whole lines, without boxes.
        """
        kept = np.array([i for i in np.flatnonzero(which).tolist() if self._texts[i]], int)
        texts = [self._texts[i] for i in kept.tolist()]
        turns = self._turns[kept]
        number = np.bincount(turns + 1, self._words[kept], minlength=5)
        turn = max(range(SLANTED, 4), key=lambda turn: (number[turn + 1], turn == 0))
        boxes = turned(self._around[kept], turn)
        heights = boxes[:, 3] - boxes[:, 1]
        new_row = _changes(self._rows[kept]) | _changes(turns)
        tallest = np.maximum(heights[1:], heights[:-1])
        is_wide = np.abs(boxes[1:, 0] - boxes[:-1, 2]) >= GAP * tallest
        at = np.flatnonzero(new_row | np.append(True, is_wide & (turns[1:] == turn))[: len(kept)])
        if not len(at):
            return [], turn
        low, high = np.minimum.reduceat(boxes, at)[:, :2], np.maximum.reduceat(boxes, at)[:, 2:]
        ends = np.append(at[1:], len(kept))
        columns = at, ends, np.cumsum(new_row)[at], turns[at] == turn, np.hstack([low, high])
        spans = zip(*(column.tolist() for column in columns), strict=True)
        return [
            Piece(" ".join(texts[a:b]), row, Box(*box) if straight else None)
            for a, b, row, straight, box in spans
        ], turn


def _words(text: str) -> int:
    return sum(any(map(str.isalnum, word)) for word in text.split())


def _changes(values: Array) -> Array:
    """Where a value differs from the one before it, and at the first."""
    return np.append(True, values[1:] != values[:-1])[: len(values)]


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


def _shown(text: str) -> str:
    """The text as read: without ligatures and without characters of private fonts."""
    return GONE.sub("", text.translate(SHOWN))


def _core(box: Array, turn: int) -> Array:
    """The part of a box in which every letter leaves ink, without what lies around it."""
    if turn == SLANTED:
        return box
    size = box[2:] - box[:2]
    across, up = turn % 2, 1 - turn % 2
    edge = np.zeros(2)
    edge[up] = size[up] / 4
    edge[across] = min(size[up] / 10, size[across] / 5)
    return np.hstack([box[:2] + edge, box[2:] - edge])


def _has_trace(page: PdfPage, grey: Array, box: Sequence[float]) -> bool:
    """Whether anything can be told apart within a box of a page that was drawn."""
    height, width = grey.shape[:2]
    corners = []
    for x, y in (box[:2], box[2:]):
        across, down = c_int(), c_int()
        pdfium.FPDF_PageToDevice(page, 0, 0, width, height, 0, x, y, across, down)
        corners.append((across.value, down.value))
    (left, right), (top, bottom) = (sorted(pair) for pair in zip(*corners, strict=True))
    part = grey[max(0, top) : bottom + 1, max(0, left) : right + 1]
    return bool(part.size) and int(np.ptp(part)) > TRACE


def _is_picture(page: PdfPage, length: int) -> bool:
    """Whether a page with so much text is a picture: of an image, or of many paths."""
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


def _flattened(pdf: PdfDocument, number: int, drawn: Sequence[int]) -> PdfPage:
    """A copy of a page of which these annotations are a part, and the others gone.

    In the page itself this would hide fonts that it shares with others.
    """
    with suppress(PdfiumError):
        copy = PdfDocument.new()
        copy.import_pages(pdf, [number])
        page = copy[0]
        for i in reversed(range(pdfium.FPDFPage_GetAnnotCount(page))):
            if i not in drawn:
                pdfium.FPDFPage_RemoveAnnot(page, i)
        pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY)
        page.close()
        return copy[0]
    return pdf[number]


def _annotations(
    pdf: PdfDocument, page: PdfPage, left_out: Counter[str]
) -> tuple[list[tuple[str, str, Box]], list[Box], list[int]]:
    """Values and free text with names and boxes, and boxes struck out; comments are counted.

    The others that show something, such as stamps and signatures, are returned by their numbers.
    """
    values, struck, drawn = list[tuple[str, str, Box]](), list[Box](), list[int]()
    for i in range(min(pdfium.FPDFPage_GetAnnotCount(page), MAX_ANNOTATIONS)):
        annotation = pdfium.FPDFPage_GetAnnot(page, i)
        kind = pdfium.FPDFAnnot_GetSubtype(annotation)
        is_seen = kind not in (pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP)
        if annotation and is_seen and not pdfium.FPDFAnnot_GetFlags(annotation) & HIDDEN:
            name, text = "", _said(pdfium.FPDFAnnot_GetStringValue, annotation, b"Contents")
            if kind == pdfium.FPDF_ANNOT_STRIKEOUT:
                struck += _quads(annotation)
            if kind == pdfium.FPDF_ANNOT_WIDGET:
                name, text = _field(pdf.formenv, annotation) if pdf.formenv else ("", "")
            elif kind == pdfium.FPDF_ANNOT_FILEATTACHMENT:
                left_out["attached files"] += 1
            elif kind != pdfium.FPDF_ANNOT_FREETEXT:
                left_out["comments"] += bool(text)
                text = ""
            rect = pdfium.FS_RECTF()
            if text and pdfium.FPDFAnnot_GetRect(annotation, byref(rect)):
                values.append((name, text, Box(rect.left, rect.bottom, rect.right, rect.top)))
            elif pdfium.FPDFAnnot_GetObjectCount(annotation) > 0:
                drawn.append(i)
        pdfium.FPDFPage_CloseAnnot(annotation)
    return values, struck, drawn


def _quads(annotation: Any) -> Iterator[Box]:
    for i in range(min(pdfium.FPDFAnnot_CountAttachmentPoints(annotation), MAX_ANNOTATIONS)):
        at = pdfium.FS_QUADPOINTSF()
        if pdfium.FPDFAnnot_GetAttachmentPoints(annotation, i, byref(at)):
            across, down = (at.x1, at.x2, at.x3, at.x4), (at.y1, at.y2, at.y3, at.y4)
            yield Box(min(across), min(down), max(across), max(down))


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
