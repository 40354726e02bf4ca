"""A report as one self-contained HTML page: sections of text, tables and pictures.

Values in, a string out: no network, no scripts, pictures inlined. All text is escaped. It computes
nothing and knows nothing of what it shows.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from calibration.plots.picture import Picture

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""What a browser may load for the page: its own pictures and style, nothing else."""

STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 50rem; padding: 1.5rem 1rem 4rem;
  color: #1f2933; background: #fff;
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 0.3rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 0.6rem; padding-top: 0.8rem;
  border-top: 1px solid #c8d0d8; }
p { margin: 0.5rem 0; }
.below, figcaption, .note { color: #66727f; font-size: 0.9rem; }
.lead { font-size: 1.15rem; background: #eef4f9; border-left: 4px solid #1f5f99;
  padding: 0.7rem 1rem; margin: 0.8rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums;
  margin: 0.6rem 0; min-width: 100%; }
th, td { text-align: right; padding: 0.3rem 0 0.3rem 0.8rem; border-bottom: 1px solid #e4e9ed;
  vertical-align: top; white-space: nowrap; background: #fff; }
th:first-child, td:first-child { text-align: left; padding-left: 0; position: sticky; left: 0; }
th { color: #66727f; font-weight: normal; vertical-align: bottom; }
.ours td { font-weight: bold; background: #eef4f9; }
.words td:first-child { color: #66727f; white-space: normal; width: 25%; }
.words td:last-child { text-align: left; white-space: normal; overflow-wrap: anywhere; }
figure { margin: 0.8rem 0 1.6rem; }
img { display: block; width: 100%; height: auto; }
summary { cursor: pointer; color: #1f5f99; }
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  table { font-size: 8pt; }
  h2 { break-after: avoid; }
  figure, tr, .lead { break-inside: avoid; }
  section > .wide { break-inside: avoid; break-after: avoid; }
  img { max-height: 12cm; width: auto; max-width: 100%; }
  details::details-content { content-visibility: visible; display: block; }
}
""".strip()


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; one with weight stands out."""

    text: str
    weight: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells below a head, which may be empty.

    The row numbered `ours` stands out; `note` says how to read the table; `words`: the last column
    holds words and not numbers.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    ours: int | None = None
    words: bool = False


@dataclass(frozen=True, slots=True)
class Folded:
    """Parts behind a line that opens them."""

    summary: str
    parts: Sequence[Text | Table]


Part = Text | Table | Picture | Folded


@dataclass(frozen=True, slots=True)
class Section:
    """Parts under a heading; no heading where the title is empty."""

    title: str
    parts: Sequence[Part]


def html_page(title: str, below: str, sections: Sequence[Section]) -> str:
    """Return the whole page: a title, a line below it, and the sections in order."""
    body = "\n".join(_section(section) for section in sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n"
        f"{_tag('h1', title)}\n{_tag('p', below, 'below')}\n{body}\n"
        "</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    head = f"{_tag('h2', section.title)}\n" if section.title else ""
    inner = "\n".join(_part(part) for part in section.parts)
    return f"<section>\n{head}{inner}\n</section>"


def _part(part: Part) -> str:
    if isinstance(part, Text):
        return _tag("p", part.text, "lead" if part.weight else "")
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, Picture):
        data = b64encode(part.plain).decode()
        image = f'<img alt="{escape(part.title)}" src="data:image/png;base64,{data}">'
        return f"<figure>\n{image}\n{_tag('figcaption', part.caption)}\n</figure>"
    inner = "\n".join(_part(each) for each in part.parts)
    return f"<details>\n{_tag('summary', part.summary)}\n{inner}\n</details>"


def _table(table: Table) -> str:
    head = "".join(_tag("th", cell) for cell in table.head)
    rows = [
        _open("tr", "ours" if i == table.ours else "")
        + "".join(_tag("td", cell) for cell in row)
        + "</tr>"
        for i, row in enumerate(table.rows)
    ]
    note = "\n" + _tag("p", table.note, "note") if table.note else ""
    above = [f"<thead><tr>{head}</tr></thead>"] if table.head else []
    inner = "\n".join([*above, "<tbody>", *rows, "</tbody>"])
    whole = _open("table", "words" if table.words else "")
    return f"{_open('div', 'wide')}{whole}\n{inner}\n</table></div>{note}"


def _tag(name: str, text: str, kind: str = "") -> str:
    """An element that holds text, escaped."""
    return f"{_open(name, kind)}{escape(text)}</{name}>"


def _open(name: str, kind: str = "") -> str:
    return f'<{name} class="{kind}">' if kind else f"<{name}>"
