"""A report as a list of sections, and what shows it: plain text, or one self-contained HTML page.

The page has no scripts and loads nothing; every value is escaped. Showing computes nothing, and
knows nothing of what it shows.
"""

from __future__ import annotations

import textwrap
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from calibration.reliability import aligned
from rerank.errors import optional

if TYPE_CHECKING:
    from jinja2 import Template

    from calibration.plots import Picture

WIDTH = 96  # characters of a line of the text


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report; without a title, the headline, or more on the subject of the one before.

    The text leaves out the sections with a picture, and those that the page shows folded.
    """

    title: str
    sentences: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()  # a row of heads, then rows of cells
    note: str = ""  # how to read the table
    ours: str = ""  # first cell of the row that stands out
    words: Mapping[str, str] = field(default_factory=dict)  # names, and what is said of each
    picture: Picture | None = None
    folded: bool = False  # opened by a click


def pictured(title: str, pictures: Mapping[str, Picture], *names: str) -> Iterator[Section]:
    """A section for each of the pictures that there are; the first one has the title."""
    for i, name in enumerate(name for name in names if name in pictures):
        yield Section("" if i else title, picture=pictures[name])


def as_text(sections: Sequence[Section]) -> str:
    """The sections as plain text, with a blank line between; the first has a line a sentence."""
    texts: list[str] = []
    for section in (one for one in sections if not (one.picture or one.folded)):
        parts = [textwrap.fill(one, WIDTH) if texts else one for one in section.sentences]
        if section.title:
            parts.insert(0, section.title if section.title.endswith("?") else f"{section.title}:")
        if section.table:
            parts += [*([""] if section.sentences else []), aligned(section.table)]
        words = (f"{name}: {said}" for name, said in section.words.items())
        parts += [textwrap.fill(one, WIDTH) for one in (section.note, *words) if one]
        texts.append("\n".join(parts))
    return "\n\n".join(texts) + "\n"


def as_page(title: str, below: str, sections: Sequence[Section] = ()) -> str:
    """The sections as an HTML page; `below` stands under its title."""
    return _template().render(title=title, below=below, sections=sections)


@cache
def _template() -> Template:
    with optional():
        from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("rerank.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["base64"] = lambda data: b64encode(data).decode()
    return environment.get_template("report.html.j2")
