"""The page: everything is escaped, nothing is fetched, and what was given is there in order."""

from __future__ import annotations

import re
from base64 import b64decode
from html.parser import HTMLParser

import pytest
from jinja2 import UndefinedError

from calibration.plots.picture import Picture
from rerank.report.html import html_page

HOSTILE = "<script>alert('1')</script> & \"quoted\" </td></table> <img src=http://x.org/a.png>"
PNG = b"\x89PNG not really"
VOID = {"meta", "img"}
HEADINGS = ("Before and after, on the same labels", "Is the confidence true?")


def everything(text: str) -> str:
    """A page whose every string is `text`: sentences, a table, a picture."""
    return html_page(
        "recalibration",
        title=text,
        below=text,
        sentences=[text, text],
        comparison=[(text, text), (text, text), (text, text)],
        note=text,
        pictures=[Picture(b"whole", PNG, text, text)],
    )


class Reader(HTMLParser):
    """Every tag with its attributes, all text, and whether tags close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a tag, and wait for its end."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Fail where another tag should end first."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        if data.strip() and self.open[-1] != "style":
            self.texts.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


@pytest.mark.parametrize("text", ["plain", HOSTILE])
def test_every_text_is_escaped(text: str) -> None:
    """Whatever the texts hold, they are shown as they are and no tag comes of them."""
    reader = read(everything(text))
    assert reader.texts.count(text) == len(reader.texts) - len(HEADINGS) == 13
    assert [tag for tag, _ in reader.tags] == [tag for tag, _ in read(everything("plain")).tags]
    assert next(attrs["alt"] for tag, attrs in reader.tags if tag == "img") == text


def test_nothing_is_fetched_and_nothing_runs() -> None:
    """No script, no link, no handler; the only source is the picture's own data."""
    page = everything("plain")
    reader = read(page)
    tags = {tag for tag, _ in reader.tags}
    assert tags.isdisjoint({"script", "link", "iframe", "object", "embed", "base", "form", "a"})
    for _, attrs in reader.tags:
        assert not any(name.startswith("on") or name in {"href", "style"} for name in attrs)
        assert (attrs.get("src") or "data:").startswith("data:")
    assert not re.search(r"https?:|//|@import|url\(", page.replace("<!doctype html>", ""))
    assert "default-src 'none'" in page


def test_pictures_are_inlined_without_their_caption() -> None:
    """The data decodes to the very PNG that has no caption; the caption stands below it."""
    page = everything("plain")
    data = re.findall(r'src="data:image/png;base64,([^"]*)"', page)
    assert [b64decode(each) for each in data] == [PNG]
    assert "<figcaption>plain</figcaption>" in page


def test_parts_keep_their_order_and_tags_are_closed() -> None:
    """Title, line below, sentences, table and pictures come as they were given."""
    page = html_page(
        "recalibration",
        title="Title",
        below="below",
        sentences=["first", "second"],
        comparison=[("head",), ("cell",)],
        note="a note",
        pictures=[Picture(b"whole", PNG, "title", "caption")],
    )
    reader = read(page)
    assert reader.open == []
    assert reader.texts == [
        *("Title", "Title", "below", "first", "second", HEADINGS[0], "head", "cell", "a note"),
        *(HEADINGS[1], "caption"),
    ]


def test_a_value_that_is_missing_is_no_blank() -> None:
    """A page with a hole in it is not made."""
    with pytest.raises(UndefinedError, match="sentences"):
        html_page("recalibration", title="Title", below="below")
