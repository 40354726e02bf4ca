"""The pages: every value is escaped, nothing is fetched, and a missing value is an error."""

from __future__ import annotations

import re
from base64 import b64decode
from html.parser import HTMLParser
from typing import Any

import jinja2
import pytest

from calibration.plots.picture import Picture
from rerank.report.html import html_page

HOSTILE = "<script>alert('1')</script> & \"quoted\" </td></table> <img src=http://x.org/a.png>"
PNG = b"\x89PNG not really"
VOID = {"meta", "img"}


def values(text: str) -> dict[str, Any]:
    """What the page of a recalibration shows, each of its strings being `text`."""
    return {
        "title": text,
        "below": text,
        "parts": [(text, [text, text], [(text, text), (text, text), ("after", text)])],
        "note": text,
        "notes": [text],
        "pictures": [Picture(b"whole", PNG, text, text)],
    }


def page(text: str) -> str:
    return html_page("recalibration", **values(text))


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


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def test_every_text_is_escaped() -> None:
    """Whatever the texts hold, they are shown as they are and no tag comes of them."""
    plain, hostile = read(page("plain")), read(page(HOSTILE))
    assert hostile.texts == [HOSTILE if text == "plain" else text for text in plain.texts]
    assert hostile.texts.count(HOSTILE) == 14
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert next(attrs["alt"] for tag, attrs in hostile.tags if tag == "img") == HOSTILE


def test_nothing_is_fetched_and_nothing_runs() -> None:
    """No script, no link, no handler; the only source is the picture's own data."""
    made = page("plain")
    reader = read(made)
    tags = {tag for tag, _ in reader.tags}
    assert tags.isdisjoint({"script", "link", "iframe", "object", "embed", "base", "form", "a"})
    for _, attrs in reader.tags:
        assert not any(name.startswith("on") or name in {"href", "style"} for name in attrs)
        assert (attrs.get("src") or "data:").startswith("data:")
    assert not re.search(r"https?:|//|@import|url\(", made.replace("<!doctype html>", ""))
    assert "default-src 'none'" in made


def test_pictures_are_inlined_without_their_caption() -> None:
    """The data decodes to the very PNG that has no caption; the caption stands below it."""
    made = page("plain")
    data = re.findall(r'src="data:image/png;base64,([^"]*)"', made)
    assert [b64decode(each) for each in data] == [PNG]
    assert "<figcaption>plain</figcaption>" in made


def test_our_own_row_stands_out() -> None:
    """The row of the model, and no other, is marked."""
    assert re.findall(r'class="ours"><td>(\w+)<', page("plain")) == ["after"]


@pytest.mark.parametrize("name", values("plain"))
def test_a_missing_value_is_an_error(name: str) -> None:
    """No page is made with a hole in it."""
    given = values("plain")
    del given[name]
    with pytest.raises(jinja2.UndefinedError, match=name):
        html_page("recalibration", **given)
