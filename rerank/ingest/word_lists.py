"""The numbers of Word's lists and clauses, as shown on the page: "2.", "a)", "Section 4.1"."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
LEVELS = 9
LONGEST_LABEL = 100  # characters; it is repeated with each item
PLACE = re.compile(r"%([1-9])")
ROMAN = ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")
POWERS = tuple(map(str.maketrans, ("ivx",) * 4, ("m__", "cdm", "xlc", "ivx")))
BULLET = "-"
CHECKS = ("☐", "☑", "☒")  # bullets that tell something
OFF = ("0", "false", "off")
SIGNS = {  # of the first numbers, in formats of languages
    "ideographTraditional": "甲乙丙丁戊己庚辛壬癸",
    "ideographZodiac": "子丑寅卯辰巳午未申酉戌亥",
    "decimalEnclosedCircle": "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳",
    "aiueo": "アイウエオカキクケコサシスセソタチツテト",
    "ganada": "가나다라마바사아자차카타파하",
    "hebrew1": "אבגדהוזחטי",
    "hebrew2": "אבגדהוזחטיכלמנסעפצקרשת",
    "arabicAlpha": "أبتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "arabicAbjad": "أبجدهوزحطيكلمنسعفصقرشتثخذضظغ",
    "russianLower": "абвгдежзиклмнопрстуфхцчшщыэюя",
    "russianUpper": "АБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЩЫЭЮЯ",
}
WORDS = {
    "cardinalText": ("One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten"),
    "ordinalText": (
        *("First", "Second", "Third", "Fourth", "Fifth"),
        *("Sixth", "Seventh", "Eighth", "Ninth", "Tenth"),
    ),
}
CHINESE = re.compile("(?:chinese|taiwanese|japanese)Counting")
DIGITS = " 一二三四五六七八九"


def value(node: Any, path: str = "", default: str = "") -> str:
    """The `w:val` of an element, or of the one at a path such as "pPr/jc" below it."""
    found = node.find("/".join(W + name for name in path.split("/"))) if path else node
    return default if found is None else str(found.get(f"{W}val", default))


def whole(text: str, default: int) -> int:
    """The number that a text states, or the default; no document counts beyond 32 bits."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else default


@dataclass(frozen=True, slots=True)
class _Level:
    start: int = 1
    form: str = "decimal"
    text: str = ""
    restart: int = LEVELS  # 0: never; else after a paragraph above this level
    plain: bool = False  # all numbers of the label in digits
    style: str = ""  # of its paragraphs


class Numbering:
    """Counts the numbered paragraphs of a document, which are told to it in their order."""

    def __init__(self, root: Any | None, list_of_style: Callable[[str], str]) -> None:
        """`root`: numbering.xml, if there is one. `list_of_style`: the list that a style names."""
        self._levels: dict[str, dict[int, _Level]] = {}  # by list
        self._counted_as: dict[str, str] = {}  # lists that count together
        self._starts: dict[tuple[str, int], int] = {}  # of lists that begin anew
        self._counts: dict[str, list[int | None]] = {}
        if root is None:
            return
        abstract = {each.get(f"{W}abstractNumId"): each for each in root.iter(f"{W}abstractNum")}
        lists = {each.get(f"{W}numId"): each for each in root.findall(f"{W}num")}
        for number, each in lists.items():
            shape = abstract.get(value(each, "abstractNumId"))
            linked = "" if shape is None else value(shape, "numStyleLink")
            if linked and (other := lists.get(list_of_style(linked))) is not None:
                shape = abstract.get(value(other, "abstractNumId"))
            if shape is None:
                continue
            self._counted_as[number] = shape.get(f"{W}abstractNumId")
            self._levels[number] = _levels(shape)
            for override in each.findall(f"{W}lvlOverride"):
                level = whole(override.get(f"{W}ilvl", "0"), 0)
                self._levels[number] |= _levels(override)
                start = value(override, "startOverride")
                if start:
                    self._starts[number, level] = whole(start, 1)

    def level_of(self, number: str, style: str) -> int:
        """The level of a list that a style of paragraphs stands for; 0 if none does."""
        levels = self._levels.get(number, {})
        return next((i for i, level in levels.items() if style and level.style == style), 0)

    def label(self, number: str, level: int) -> str:
        """The label of the next paragraph of a list at a level from 0; `BULLET` for any bullet."""
        levels = self._levels.get(number)
        if levels is None or not 0 <= level < LEVELS:
            return ""
        counts = self._counts.setdefault(self._counted_as[number], [None] * LEVELS)
        own, before = levels.get(level, _Level()), counts[level]
        again = self._starts.pop((number, level), None)
        counts[level] = again if again is not None else own.start if before is None else before + 1
        for i in range(level + 1, LEVELS):
            restart = levels.get(i, _Level()).restart
            if level < restart:
                counts[i] = None
        if own.form == "bullet":
            return own.text if own.text in CHECKS else BULLET

        def shown(found: re.Match[str]) -> str:
            i = int(found[1]) - 1
            at = levels.get(i, _Level())
            count = counts[i]
            form = "decimal" if own.plain and at.form[:1] != "0" else at.form
            return formatted(at.start if count is None else count, form)

        return PLACE.sub(shown, own.text).strip()[:LONGEST_LABEL]


def _levels(parent: Any) -> dict[int, _Level]:
    return {
        whole(each.get(f"{W}ilvl", "0"), 0): _Level(
            start=whole(value(each, "start"), 0),
            form=_form(each.find(f"{W}numFmt")),
            text=value(each, "lvlText")[:LONGEST_LABEL],
            restart=whole(value(each, "lvlRestart"), LEVELS),
            plain=each.find(f"{W}isLgl") is not None and value(each, "isLgl", "1") not in OFF,
            style=value(each, "pStyle"),
        )
        for each in parent.findall(f"{W}lvl")
    }


def _form(node: Any | None) -> str:
    if node is None:
        return "decimal"
    form = (node.get(f"{W}format") or value(node, default="decimal"))[:LONGEST_LABEL]
    return "01" if form == "decimalZero" else str(form)


def formatted(count: int, form: str) -> str:
    """A number in one of Word's formats; in digits if the format is not known here."""
    match form:
        case "none":
            return ""
        case _ if form.startswith("0"):  # as "001, 002, ..."
            return str(count).zfill(len(form.partition(",")[0]))
        case "lowerLetter" | "upperLetter" if 0 < count <= 26 * 30:
            letter = chr(ord("a") + (count - 1) % 26) * ((count - 1) // 26 + 1)
            return letter if form == "lowerLetter" else letter.upper()
        case "lowerRoman" | "upperRoman" if 0 < count < 4000:
            digits = zip(f"{count:04}", POWERS, strict=True)
            text = "".join(ROMAN[int(digit)].translate(power) for digit, power in digits)
            return text if form == "lowerRoman" else text.upper()
        case "ordinal":
            suffix = {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
            return f"{count}{'th' if 10 < count % 100 < 14 else suffix}"
        case _:
            return _in_language(count, form) or str(count)


def _in_language(count: int, form: str) -> str:
    known: Sequence[str] = SIGNS.get(form, WORDS.get(form, ()))
    if 0 < count <= len(known):
        return known[count - 1]
    if not CHINESE.match(form) or not 0 < count < 100:
        return ""
    tens, ones = divmod(count, 10)
    return f"{DIGITS[tens] if tens > 1 else ''}{'十' * (tens > 0)}{DIGITS[ones] if ones else ''}"
