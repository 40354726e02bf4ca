"""The text of a file of any format, in order, under headings: bytes -> Document -> passages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

LONGEST_HEADING = 300  # characters; a heading is repeated in each passage below it
INVISIBLE = re.compile("[\xad\u200b\u2060\ufeff]")  # where a word may be divided, or not
DATE = re.compile(r"\b(\d{4})-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])")

JUNK = re.compile(  # titles that programs make up, and names of files
    r"""(?:[\W\d_]*(?:untitled|no\ title|title|slide|sheet|layout|book|page|img|image|dsc|doc|file
        |fax|scan(?:ned)?|(?:(?:scanned|new|microsoft|word|acrobat|latex)[\ -]?)*do[ck]umento?
        |(?:powerpoint[\ -]?)?(?:pr[eéä]senta[ct]i[oó]n?|演示文稿|プレゼンテーション|презентация)
        (?:\ (?:de\ )?powerpoint)?|(?:no\ )?job\ name|full\ page\ photo|print
        |(?:insert|type|enter|your|the|add|document|report|slide|presentation)\b.*\btitle(?:\ here)?
        |output|unknown|unspecified|anonymous|none|null|n/?a|tmp|temp|template|blank(?:\ page)?
        |unbenannt|ohne\ titel|kein\ titel|titel|präsentation|folie|sans\ titre|titre|sans\ nom
        |diapositiv[ae]|sin\ título|senza\ titolo|sem\ título|naamloos|namnlös|bez\ názvu
        |bez\ tytułu|без\ названия|документ|слайд|無題|无标题|文書|文档|スライド|幻灯片)
      (?:[\W\d_]*(?:document|copy)?[\W\d_]*))
    |(?:microsoft|adobe|acrobat|corel|quark|libreoffice|openoffice)\b.{0,30}\ -\ .*
    |(?:about:|file:|https?:).*|(?:[a-z]:)?[\\/].*|[a-z]:.*[\\/].*
    |.*\.(?:do[ct][xm]?|rtf|od[tsp]|ott|pages|wp[ds5]|tex|dvi|e?ps|pdf|xls[xm]?|csv|pp[ts]x?|key|indd
      |idml|qx[dp]|pmd|p65|fm|book|ai|psd|cdr|pub|vsdx?|dwg|dxf|sla|x?html?|xml|md|rst|te?xt|tiff?
      |jpe?g|png|mif|sdw|lwp|tmp)(?:\ \[[\w\ -]+\])?
    |\{?[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\}?|[0-9a-f]{24,}
    """,
    re.IGNORECASE | re.VERBOSE,
)


class UnreadableError(Exception):
    """A file is skipped; the message says why, and is shown after the file's name."""


class ReaderEndedError(UnreadableError):
    """Reading took too long, or ended the process that reads; it may go better next time."""


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, an item of a list, a row of a table, or code."""

    text: str
    heading: tuple[str, ...] = ()  # the headings above it, highest first
    page: int | None = None  # from 1, if the format has pages
    code: bool = False  # its line breaks must be kept
    leads: bool = False  # it introduces the next block, as a term its definition


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a file."""

    blocks: tuple[Block, ...]
    title: str = ""
    revised: str = ""  # the date of its last revision, as 2024-05-31; empty if unknown
    skipped: str = ""  # the parts with text that were not read, joined by `clauses`; else empty

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` returns an equal document."""
        blocks = [[b.text, b.heading, b.page, b.code, b.leads] for b in self.blocks]
        return {**asdict(replace(self, blocks=())), "blocks": blocks}

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> Document:
        """The document of `to_dict`."""
        blocks = (Block(text, tuple(heading), *rest) for text, heading, *rest in kept["blocks"])
        return cls(**{**kept, "blocks": tuple(blocks)})


class Headings:
    """The headings above the current place in a document that is read from its start.

    `blocks` are those of the document so far. If nothing stands below a heading, it becomes a block
    too, so that its text is not lost. So does one of more than `LONGEST_HEADING` characters, which
    is cut.
    """

    def __init__(self, blocks: list[Block] | None = None) -> None:
        self._open: list[tuple[int, str]] = []
        self._blocks: list[Block] = [] if blocks is None else blocks
        self._entered = 0  # number of blocks at the last heading
        self.page: int | None = None  # where the last heading is

    def enter(self, level: int, text: str) -> None:
        """Enter a heading of this level, 1 for the highest; closes those of its level and below.

        At the end of the document enter one of level 1 without text.
        """
        if self._open and self._open[-1][0] >= level and len(self._blocks) == self._entered:
            self._blocks.append(Block(self._open[-1][1], self.path, self.page))
        self._entered = len(self._blocks)
        self._open = [(above, t) for above, t in self._open if above < level]
        if len(text) > LONGEST_HEADING:
            self._open.append((level, f"{text[:LONGEST_HEADING].rstrip()}…"))
            self._blocks.append(Block(text, self.path))
        elif text:
            self._open.append((level, text))

    @property
    def path(self) -> tuple[str, ...]:
        """The open headings, highest first."""
        return tuple(text for _, text in self._open)


def counted(number: int, one: str, many: str = "") -> str:
    """A count in words, as "1 equation" or "2 text boxes"; empty for none.

    `many` is the plural, by default `one` with an s.
    """
    return f"{number} {one if number == 1 else many or one + 's'}" if number else ""


def clauses(*parts: str) -> str:
    """The parts that are not empty, joined by "; ", as `Document.skipped` has them.

    Each names, and counts, what was not read: "2 text boxes; pages 2-4 are pictures".
    """
    return "; ".join(filter(None, parts))


def date_in(text: str) -> str:
    """The first date of a text in ISO 8601 order, as 2024-05-31; "" if there is none."""
    found = DATE.search(text)
    return "-".join(found.groups()) if found else ""


def real_title(title: str) -> str:
    """The title, unless a program made it up or it is the name of a file; then ""."""
    return "" if JUNK.fullmatch(title) or not any(map(str.isalpha, title)) else title


def one_line(text: str) -> str:
    """The text without invisible signs, each run of white space as one space, none at its ends."""
    return " ".join((text if text.isascii() else INVISIBLE.sub("", text)).split())
