"""A list of sections as text and as a page, where every value is escaped and nothing is fetched."""

from __future__ import annotations

import re
from base64 import b64decode
from html.parser import HTMLParser

from calibration.plots import Picture
from rerank.report.sections import Section, as_page, as_text

HOSTILE = "<script>alert('1')</script> & \"quoted\" </td></table> <img src=http://x.org/a.png>"
PNG = b"\x89PNG not really"
VOID = {"meta", "img"}


def sections(text: str) -> list[Section]:
    """A headline, a section with all that one can hold, and a folded one."""
    rows = [(text, text), (text, text), ("after", text)]
    picture = Picture(b"whole", PNG, text, text)
    return [
        Section("", [text, text]),
        Section(text, [text], table=rows, ours="after", note=text),
        Section(text, words={text: text}, picture=picture),
        Section(text, words={text: text}, folded=True),
    ]


def page(text: str) -> str:
    return as_page(text, text, sections(text))


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
    assert hostile.texts.count(HOSTILE) == 20
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


def test_the_text_is_of_the_same_sections() -> None:
    """A line a sentence of the headline; pictures and what is folded are on the page alone."""
    assert as_text(sections("word " * 30 + "end").copy()[:1]).count("\n") == 2
    assert as_text(sections("plain")) == (
        "plain\nplain\n\nplain:\nplain\n\nplain  plain\nplain  plain\nafter  plain\nplain\n"
    )
    text = as_text([Section("How?", ["word " * 30], words={"a": "b"})])
    assert text.startswith("How?\n")
    assert text.endswith("\na: b\n")
