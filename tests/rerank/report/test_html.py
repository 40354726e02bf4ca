"""The page: everything is escaped, nothing is fetched, and what was given is there in order."""

from __future__ import annotations

import re
from base64 import b64decode
from html.parser import HTMLParser

import pytest

from rerank.report.html import Folded, Picture, Section, Table, Text, html_page

HOSTILE = "<script>alert('1')</script> & \"quoted\" </td></table> <img src=http://x.org/a.png>"
PNG = b"\x89PNG not really"
VOID = {"meta", "img"}


def everything(text: str) -> str:
    """A page whose every string is `text`."""
    table = Table((text, text), ((text, text), (text, text)), note=text, ours=1, words=True)
    parts = [Text(text, weight=True), table, Picture(b"whole", PNG, text, text)]
    return html_page(text, text, [Section(text, [*parts, Folded(text, [Text(text), table])])])


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
    assert set(reader.texts) == {text}
    assert len(reader.texts) == 22
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


def test_sections_keep_their_order_and_tags_are_closed() -> None:
    """Title, line below, sections and their parts come as they were given."""
    sections = [
        Section("", [Text("first"), Text("second")]),
        Section("A heading", [Table(("head",), (("cell",),), note="a note")]),
        Section("Another", [Folded("more", [Text("inside")])]),
    ]
    reader = read(html_page("Title", "below", sections))
    assert reader.open == []
    assert reader.texts == [
        *("Title", "Title", "below", "first", "second", "A heading", "head", "cell", "a note"),
        *("Another", "more", "inside"),
    ]


def test_a_table_without_a_head_has_none() -> None:
    """Rows alone are a table too."""
    page = html_page("t", "b", [Section("s", [Table((), (("a", "b"),))])])
    assert "<thead>" not in page
    assert "<tr><td>a</td><td>b</td></tr>" in page
