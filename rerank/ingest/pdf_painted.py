"""What a page of a PDF paints, in its order: whether something may hide or strike a text of it.

That is a suspicion: bounds may be larger than what is painted, and colours may be mixed. Who has
one draws the page and looks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_void_p
from typing import Any

import numpy as np
import pypdfium2.raw as pdfium
from numpy.typing import NDArray
from pypdfium2 import PdfPage

MAX_OBJECTS = 20_000  # of a page, that are looked at
MAX_PAIRS = 30_000_000  # of a text and a fill of a page, that are compared
DEEPEST = 4  # of objects within others
THINNEST = 3  # points of what may cover letters; a line is thinner
LINE = 8  # points of a line through large letters, at most
PALE = 230  # of 255, from which a colour is not seen on paper
MAX_CORNERS = 50  # of a path that clips
ALIKE = 12  # difference of two colours, of 255, that is not seen
PICTURE = 2
UNKNOWN = 1000  # instead of a part of a colour
TOGETHER = 100  # objects that are compared with all texts at once
EVERYWHERE, NOWHERE = (np.array([-end, -end, end, end]) for end in (np.inf, -np.inf))
Array = NDArray[Any]


def bare(function: Any, result: Any = c_int) -> Callable[..., Any]:
    """A function of PDFium for many calls: no types are checked, which takes half of the time."""
    return ctypes.PYFUNCTYPE(result)(ctypes.cast(function, c_void_p).value or 0)


OBJECT_IN_PAGE = bare(pdfium.FPDFPage_GetObject, c_size_t)
OBJECT_IN_FORM = bare(pdfium.FPDFFormObj_GetObject, c_size_t)
TYPE_OF, BOUNDS_OF = bare(pdfium.FPDFPageObj_GetType), bare(pdfium.FPDFPageObj_GetBounds)
COLOUR_OF, DRAWN_AS = bare(pdfium.FPDFPageObj_GetFillColor), bare(pdfium.FPDFPath_GetDrawMode)
STROKE_OF = bare(pdfium.FPDFPageObj_GetStrokeColor)
CLIP_OF = bare(pdfium.FPDFPageObj_GetClipPath, c_size_t)
PATHS_IN = bare(pdfium.FPDFClipPath_CountPaths)
CORNERS_IN = bare(pdfium.FPDFClipPath_CountPathSegments)
CORNER_OF = bare(pdfium.FPDFClipPath_GetPathSegment, c_size_t)
POINT_OF = bare(pdfium.FPDFPathSegment_GetPoint)
MARKS_OF, NAME_OF = bare(pdfium.FPDFPageObj_CountMarks), bare(pdfium.FPDFPageObjMark_GetName)
MARK_OF = bare(pdfium.FPDFPageObj_GetMark, c_size_t)
SLOTS = (c_float * 4)(), c_int(), c_int(), (c_uint * 4)()  # where PDFium answers
EDGES, COLOURS = ([byref(SLOTS[which], i) for i in range(0, 16, 4)] for which in (0, 3))
MODES = [byref(SLOTS[1]), byref(SLOTS[2])]
LAYER = "OC\0".encode("utf-16-le")


class Painted:
    """Fills of a page, and when and where each of some texts is painted."""

    def __init__(self, page: PdfPage, texts: Array, colours: Array) -> None:
        """`texts`: addresses of text objects, in ascending order; `colours`: theirs."""
        self._colours = colours.astype(int)
        self._places = np.full(len(texts), -1)  # -1: it was not looked at
        self._clips = np.tile(EVERYWHERE, (len(texts), 1))
        at = {address: i for i, address in enumerate(texts.tolist())}
        fills, clips = list[tuple[float, ...]](), dict[tuple[int, ...], Any]()
        lines, within = list[tuple[float, ...]](), list[Array]()  # with two clips of each
        walk = _walk(page)
        for place, (one, kind, matrix, around) in zip(range(MAX_OBJECTS), walk, strict=False):
            if kind == pdfium.FPDF_PAGEOBJ_TEXT and one in at:
                self._places[at[one]] = place
                is_in_layer = _is_in_layer(c_void_p(one))
                clip = NOWHERE if is_in_layer else _clip(c_void_p(one), matrix, clips)
                self._clips[at[one]] = clip
            elif kind != pdfium.FPDF_PAGEOBJ_TEXT and (fill := _fill(c_void_p(one), kind, matrix)):
                left, bottom, right, top, *colour, is_stroke = fill
                sides = right - left, top - bottom
                if min(sides) >= THINNEST and not is_stroke:
                    fills.append((place, *fill[:-1]))
                if 2 * min(sides) < max(sides) and min(sides) < LINE and min(colour) <= PALE:
                    lines.append((place, *fill[:4]))
                    within += [_clip(c_void_p(one), matrix, clips), around]
        self._fills = np.array(fills, float).reshape(-1, 8)
        self._lines = np.array(lines, float).reshape(-1, 5)
        boxes, around = self._lines[:, None, 1:], np.array(within, float).reshape(-1, 2, 4)
        self._lines = self._lines[meet(boxes, around).all(axis=1)]

    def may_hide(self, boxes: Array, of: Array) -> Array:
        """Whether texts with these boxes, parts of the text objects `of`, may be hidden.

        0 if not, `PICTURE` if by a picture, whose colours are not known, and else 1.
        """
        clips, places, colours = self._clips[of], self._places[of], self._colours[of, :3]
        found = (~meet(boxes, clips)).astype(int)
        for start in range(0, min(len(self._fills), MAX_PAIRS // (len(boxes) + 1)), TOGETHER):
            fills = self._fills[start : start + TOGETHER]
            text, fill = np.nonzero(meet(boxes[:, None], fills[:, 1:5]))
            is_alike = np.abs(fills[fill, 5:] - colours[text]).max(1, initial=0) <= ALIKE
            hides = (fills[fill, 0] > places[text]) | is_alike
            kinds = np.where(fills[fill, 5] == UNKNOWN, PICTURE, 1)
            np.maximum.at(found, text[hides], kinds[hides])
        return np.where(places >= 0, found, 0)

    def lines(self) -> Array:
        """The boxes of thin lines that no fill covers."""
        is_covered = np.zeros(len(self._lines), bool)
        for start in range(0, min(len(self._fills), MAX_PAIRS // (len(is_covered) + 1)), TOGETHER):
            fills = self._fills[start : start + TOGETHER]
            is_below = self._lines[:, None, 0] < fills[:, 0]
            is_covered |= (is_below & meet(self._lines[:, None, 1:], fills[:, 1:5])).any(1)
        return self._lines[~is_covered, 1:]


def meet(boxes: Array, others: Array) -> Array:
    """Which boxes share more than an edge with others, over the last axis."""
    meet = (boxes[..., :2] < others[..., 2:]) & (boxes[..., 2:] > others[..., :2])
    return np.asarray(meet.all(axis=-1))


def _walk(page: PdfPage) -> Iterator[tuple[int, int, Array | None, Array]]:
    """Each object with its kind, and the matrix and the clip of the one around it.

    The matrix is None in the page itself.
    """
    forms: list[tuple[Iterator[int], Array | None, Array]] = []
    raw = ctypes.cast(page.raw, c_void_p)
    count = pdfium.FPDFPage_CountObjects(page)
    forms.append((map(OBJECT_IN_PAGE, [raw] * count, range(count)), None, EVERYWHERE))
    while forms:
        one = next(forms[-1][0], None)
        if one is None:
            forms.pop()
            continue
        kind = TYPE_OF(c_void_p(one))
        _, matrix, around = forms[-1]
        yield one, kind, matrix, around
        if kind == pdfium.FPDF_PAGEOBJ_FORM and len(forms) <= DEEPEST:
            own = pdfium.FS_MATRIX()
            form = ctypes.cast(one, pdfium.FPDF_PAGEOBJECT)
            pdfium.FPDFPageObj_GetMatrix(form, byref(own))
            inner = np.array([[own.a, own.b, 0], [own.c, own.d, 0], [own.e, own.f, 1]])
            count = max(pdfium.FPDFFormObj_CountObjects(form), 0)
            within = map(OBJECT_IN_FORM, [c_void_p(one)] * count, range(count))
            clip = _clip(c_void_p(one), matrix, {})
            around = np.hstack([np.maximum(clip[:2], around[:2]), np.minimum(clip[2:], around[2:])])
            forms.append((within, inner if matrix is None else inner @ matrix, around))


def _fill(one: c_void_p, kind: int, matrix: Array | None) -> tuple[float, ...] | None:
    """The box and the colour of what an object fills; `UNKNOWN` for that of a picture."""
    if kind in (pdfium.FPDF_PAGEOBJ_TEXT, pdfium.FPDF_PAGEOBJ_FORM):
        return None
    edges, mode, is_drawn, rgba = SLOTS
    is_path = kind == pdfium.FPDF_PAGEOBJ_PATH
    if is_path and not (DRAWN_AS(one, *MODES) and (mode.value or is_drawn.value)):
        return None
    if not BOUNDS_OF(one, *EDGES):
        return None
    left, bottom, right, top = edges
    box = (left, bottom, right, top)
    if matrix is not None:
        box = tuple(_moved(np.array(edges).reshape(2, 2), matrix).tolist())
    if not is_path:
        return (*box, UNKNOWN, UNKNOWN, UNKNOWN, False)
    is_stroke = not mode.value
    if is_stroke and min(box[2] - box[0], box[3] - box[1]) >= LINE:
        return None
    is_known = (STROKE_OF if is_stroke else COLOUR_OF)(one, *COLOURS)
    return (*box, *(rgba[:3] if is_known else [UNKNOWN] * 3), is_stroke)


def _clip(one: c_void_p, matrix: Array | None, known: dict[tuple[int, ...], Any]) -> Any:
    """The box to which an object is clipped; many have the same path."""
    path = c_void_p(CLIP_OF(one))
    count = PATHS_IN(path) if path else 0
    paths = tuple(CORNER_OF(path, i, 0) for i in range(min(count, DEEPEST)))
    key = (*paths, id(matrix))
    if key not in known:
        clip = EVERYWHERE
        for i in range(len(paths)):
            corners = CORNERS_IN(path, i)
            if 0 < corners <= MAX_CORNERS:
                box = _moved(
                    np.array([_point(CORNER_OF(path, i, j)) for j in range(corners)]), matrix
                )
                clip = np.hstack([np.maximum(clip[:2], box[:2]), np.minimum(clip[2:], box[2:])])
        known[key] = clip
    return known[key]


def _is_in_layer(one: c_void_p) -> bool:
    """Whether an object is in a layer, which may be switched off."""
    name, length = ctypes.create_string_buffer(len(LAYER)), c_uint()
    for i in range(min(MARKS_OF(one), DEEPEST)):
        mark = c_void_p(MARK_OF(one, i))
        if NAME_OF(mark, name, c_uint(len(LAYER)), byref(length)) and name.raw == LAYER:
            return True
    return False


def _point(segment: int) -> tuple[float, float]:
    x, y = c_float(), c_float()
    POINT_OF(c_void_p(segment), byref(x), byref(y))
    return x.value, y.value


def _moved(points: Array, matrix: Array | None) -> Array:
    """The box around points that a matrix moves."""
    if matrix is not None:
        low, high = points.min(0), points.max(0)
        corners = np.array([[x, y, 1] for x in (low[0], high[0]) for y in (low[1], high[1])])
        points = (corners @ matrix)[:, :2]
    return np.hstack([points.min(0), points.max(0)])
