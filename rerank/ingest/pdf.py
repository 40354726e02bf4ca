"""PDF: the lines of its pages without running heads, under the headings of its outline.

A PDF has lines but no paragraphs, so lines are joined. What is not read is counted and named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby, islice

import pypdfium2.raw as pdfium
from pypdfium2 import PdfDocument, PdfiumError

from rerank.ingest import document
from rerank.ingest.document import Block, Document, Headings
from rerank.ingest.pdf_lines import END
from rerank.ingest.pdf_page import Page, read_page

MAX_PAGES = 20_000
MAX_MARKS = 20_000  # entries of an outline
EDGE = 2  # lines at the top and at the bottom of a page that may repeat on others
LEADER = re.compile(r"(?:\. ?){4,}(\d+)$")  # dots to the number of a page
TITLE = 3  # lines of a heading, at most
CONTENTS = "contents lines"
LISTED = 4  # entries of a table of contents on a page, at least
ITEM = re.compile(r"^(?:[•▪◦●‣*–-]|\(?\d{1,2}[.)])\s+")
LOWER = "[a-zß-ÿ]"
UNSHARED = r"(?!(?:and|or|und|oder|et|ou|y|o)\b)"  # not as in "pre- and post-processing"
DIVIDED = re.compile(rf"(?<={LOWER})-\n(?={LOWER}){UNSHARED}")  # a word in lower case
HYPHEN = re.compile(rf"(?<=\w-)\n(?=\w){UNSHARED}")  # as in "Wi-Fi"; a dash has a space
NUMBER = re.compile(r"\d+|\b[ivxlc]+\b")
ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
MOST_STEP = 2  # of the numbers of pages, of which some may be missing
LABEL = re.compile(  # as "Step 3" and "Day 1", and no number of a page
    r"(?!(?:p|pg|page|sheet|folio|s|seite|blatt|págs?|p[aá]gina|sida|side|str|strona|стр|страница)\b)"
    r"((?:[^\W\d_]+ ){1,3})(?:\d{1,3}|[ivxlc]+)\b(?![./]\d)(.*)",
    re.IGNORECASE,
)
Shape = tuple[str, list[int], int]
Mark = tuple[int, str]  # level and title of an entry of the outline


def read(data: bytes) -> Document:
    """The document of a PDF file."""
    try:
        pdf = PdfDocument(data)
    except PdfiumError as error:
        if "password" in str(error).lower():
            raise document.UnreadableError("it is encrypted") from None
        raise document.UnreadableError(f"it is broken ({error})") from None
    with pdf:
        if len(pdf) > MAX_PAGES:
            raise document.UnreadableError(f"it has {len(pdf)} pages; at most {MAX_PAGES} are read")
        with suppress(PdfiumError):
            pdf.init_forms()
        pages: list[Page | None] = [None] * len(pdf)  # None: one that is broken
        for number in range(len(pdf)):
            with suppress(PdfiumError):
                pages[number] = _without_contents(read_page(pdf, number), len(pdf))
        skipped = _skipped(pdf, pages)
        if not any(pages):
            raise document.UnreadableError("it is broken (no page of it can be opened)")
        if not any(page and page.lines for page in pages):
            raise document.UnreadableError(
                document.clauses(f"no text in its {document.counted(len(pdf), 'page')}", skipped)
            )
        facts = dict[str, str]()
        with suppress(UnicodeDecodeError):
            facts |= pdf.get_metadata_dict()
        outline: dict[int, list[Mark]] = {}
        for mark in islice(pdf.get_toc(max_depth=6), MAX_MARKS):
            target = mark.get_dest()
            page = target.get_index() if target else None
            if page is not None:
                with suppress(UnicodeDecodeError):
                    entry = mark.level + 1, document.one_line(mark.get_title())
                    outline.setdefault(page, []).append(entry)
    dated = document.date_in(facts.get("ModDate", "").removeprefix("D:")[:8])
    lines, heads = _without_edges([page or Page() for page in pages])
    skipped = document.clauses(skipped, document.counted(heads, "running head"))
    blocks = _blocks(lines, outline)
    return Document(tuple(blocks), document.one_line(facts.get("Title", "")), dated, skipped)


def _skipped(pdf: PdfDocument, pages: Sequence[Page | None]) -> str:
    numbered = list(enumerate(pages, start=1))
    left_out = sum((page.left_out for page in pages if page), Counter[str]())
    left_out["attached files"] += pdfium.FPDFDoc_GetAttachmentCount(pdf)
    unreadable = "unreadable (fonts without Unicode)"
    return document.clauses(
        _told([i for i, p in numbered if p is None], "broken", "broken"),
        _told([i for i, p in numbered if p and p.is_picture], "a picture", "pictures"),
        _told([i for i, p in numbered if p and p.is_unreadable], unreadable, unreadable),
        *(document.counted(left_out[many], many[:-1], many) for many in sorted(left_out)),
        "an XFA form" if pdf.get_formtype() == pdfium.FORMTYPE_XFA_FULL else "",
    )


def _told(pages: Sequence[int], one: str, many: str) -> str:
    """Pages in words, as "pages 2-4 and 7 are pictures"; empty for none."""
    if len(pages) < 2:
        return "".join(f"page {page} is {one}" for page in pages)
    runs = groupby(enumerate(pages), key=lambda pair: pair[1] - pair[0])
    ends = ((own[0], own[-1]) for _, run in runs if (own := [page for _, page in run]))
    *first, last = ("-".join(map(str, dict.fromkeys(pair))) for pair in ends)
    return f"pages {' and '.join(filter(None, [', '.join(first), last]))} are {many}"


def _without_contents(page: Page, last: int) -> Page:
    """The page without a table of contents: its numbers never fall, and no page is after `last`."""
    numbers = [int(entry[1]) for line in page.lines if (entry := LEADER.search(line))]
    if len(numbers) < LISTED or numbers != sorted(numbers) or numbers[-1] > last:
        return page
    lines = [line for line in page.lines if not LEADER.search(line)]
    return replace(page, lines=lines, left_out=page.left_out + Counter({CONTENTS: len(numbers)}))


def _without_edges(pages: Sequence[Page]) -> tuple[list[list[str]], int]:
    """The lines of the pages without those at top and bottom that two of the four nearest share.

    Also how many of these have words. Numbers in such lines may count the pages, but not those of
    steps and chapters. A line with only the number of its page is removed too. If nothing else is
    on any page, these lines are the text.
    """
    edges = [
        {i: _shape(line, page) for i, line in enumerate(page.lines) if min(i, n - 1 - i) < EDGE}
        for page in pages
        for n in [len(page.lines)]
    ]
    kept, heads = list[list[str]](), 0
    for number, page in enumerate(pages):
        near = [i for i in range(max(0, number - 2), min(len(pages), number + 3)) if i != number]
        gone = set[int]()
        for row, own in edges[number].items():
            shared = sum(
                any(_counts(own, other, i - number) for other in edges[i].values()) for i in near
            )
            if shared > 1 or (own[0] == "0" and (shared == 1 or own[1] == [number + 1])):
                gone.add(row)
                heads += own[0] != "0"
        kept.append([line for i, line in enumerate(page.lines) if i not in gone])
    return (kept, heads) if any(kept) else ([page.lines for page in pages], 0)


def _shape(line: str, page: Page) -> Shape:
    """A line in lower case with 0 for each number, its numbers, and how fast they may grow."""
    label = LABEL.fullmatch(line)
    is_heading = label and (line in page.large or (label[1].count(" ") == 1 and len(label[2]) < 2))
    values = [_value(each) for each in NUMBER.findall(line.lower())]
    return NUMBER.sub("0", line.lower()), values, 0 if is_heading else MOST_STEP


def _value(number: str) -> int:
    if number.isdigit():
        return int(number[-9:])
    digits = [ROMAN[digit] for digit in number]
    return sum(-a if a < b else a for a, b in zip(digits, [*digits[1:], 0], strict=True))


def _counts(one: Shape, other: Shape, distance: int) -> bool:
    """Whether two lines are equal but for numbers that grow as those of pages do."""
    steps = ((b - a) / distance for a, b in zip(one[1], other[1], strict=False))
    return one[0] == other[0] and all(step == 0 or 1 <= step <= one[2] for step in steps)


def _blocks(pages: Sequence[Sequence[str]], outline: dict[int, list[Mark]]) -> list[Block]:
    blocks = list[Block]()
    headings = Headings(blocks)
    off_page = set[str]()  # titles that stand in the outline alone

    def enter(passed: Sequence[Mark], page: int) -> None:
        for mark in passed:
            headings.enter(*mark)
            headings.page = page + 1

    for number, page in enumerate(pages):
        marks = list(outline.get(number, []))
        held: list[str] = []
        width = max(map(len, page), default=0)
        after = 0  # the last heading
        for row, line in enumerate(page):
            if row < after:
                continue
            titles = [_bare(title) for _, title in marks]
            ends = ((end, _bare("".join(page[row:end]))) for end in range(row + 1, row + TITLE + 1))
            at, after = next(((titles.index(t), e) for e, t in ends if t and t in titles), (-1, 0))
            if after or ITEM.match(line):
                blocks += _joined(held, headings, number)
                held = []
            if after:
                shown = " ".join(block.text for block in _joined(page[row:after], headings, number))
                off_page |= {title for _, title in marks[:at]}
                enter([*marks[:at], (marks[at][0], shown)], number)
                del marks[: at + 1]
                continue
            held.append(line)
            if len(line) < 0.75 * width and END.search(line):
                blocks += _joined(held, headings, number)
                held = []
        blocks += _joined(held, headings, number)
        off_page |= {title for _, title in marks}
        enter(marks, number)
    headings.enter(1, "")
    return [b for b in blocks if b.text not in off_page or b.heading[-1:] != (b.text,)]


def _bare(text: str) -> str:
    """The letters of a line or of a title of the outline, in lower case."""
    return re.sub(r"[\W\d_]+", "", text).lower()


def _joined(lines: Sequence[str], headings: Headings, page: int) -> Iterator[Block]:
    """The lines as one block; a word that a hyphen divides at the end of a line is joined."""
    if text := HYPHEN.sub("", DIVIDED.sub("", "\n".join(lines))).replace("\n", " "):
        yield Block(text, headings.path, page + 1)
