"""Markdown and plain text: headings, code, front matter."""

from __future__ import annotations

from typing import Any

import pytest

from rerank.ingest import markdown, plain
from rerank.ingest.document import Block

PAGE = """---
title: "The guide"
date: 2023-11-05
---
# Guide

Some *text* with a [link](http://a.example).

## Install

```sh
# not a heading
make
```

### On Linux

| a | b |
|---|---|
| 1 | 2 |

Setext
------

Last &amp; least. <script>alert(1)</script>
"""


def test_markdown_is_read_under_its_headings() -> None:
    """Code keeps its lines and gives no headings; front matter gives title and date."""
    found = markdown.read(PAGE.encode())
    assert (found.title, found.revised) == ("The guide", "2023-11-05")
    assert found.blocks == (
        Block("Some text with a link.", ("Guide",)),
        Block("# not a heading\nmake", ("Guide", "Install"), code=True),
        Block("a | b", ("Guide", "Install", "On Linux")),
        Block("1 | 2", ("Guide", "Install", "On Linux")),
        Block("Last & least.", ("Guide", "Setext")),
    )


@pytest.mark.parametrize(
    ("front", "read"),
    [
        ("\nCut the power first.\n", True),
        ("\n# Dangers\n\nCut the power first.\n", True),
        ("- Cut the power first.", True),
        ("\nTwo dangers: heat and pressure.\n\nCut the power first.\n", True),
        ("title: A\ntags:\n- b\n-\n  c\n\n# note\n'x.y/z': [\n]\nlast mod: 2024", False),
        ("og:title: A\nprice (EUR): 3\nC++: yes\n<<: *d\n? a", False),
        ("", False),
    ],
)
def test_text_between_two_rules_is_no_front_matter(front: str, read: bool) -> None:
    """Front matter are fields, lists, what is indented, and comments."""
    found = markdown.read(f"---\n{front}\n---\nThe rest.\n".encode())
    texts = [block.text for block in found.blocks]
    assert any("Cut the power first." in text for text in texts) == read
    assert texts[-1] == "The rest."
    assert read or len(texts) == 1


def test_a_deep_list_is_read_whole() -> None:
    """The parser's own limit, 20, is 10 lists deep, and it drops the rest."""
    found = markdown.read("".join(f"{'  ' * i}- item {i}\n" for i in range(40)).encode())
    assert [block.text for block in found.blocks] == [f"- item {i}" for i in range(40)]


@pytest.mark.parametrize("opened", ["> ", "- ", "> - ", "[", "![", "[x](", "*", "<b>"])
def test_markdown_nested_without_end_is_read(opened: str) -> None:
    """The parser bounds the depth itself, before Python's stack ends."""
    assert markdown.read(opened.encode() * 2000 + b"text") is not None


TEXT = """Release notes
=============

Version 2 reads faster.
It writes faster too.

Tables
------

    name   size
    a      1

The rest.
"""


@pytest.mark.parametrize("reader", [markdown.read, plain.read])
def test_a_heading_that_is_a_sentence_is_text_if_nothing_is_below(reader: Any) -> None:
    """As in release notes; also the last one."""
    said = ["Release 4.2 drops support for Windows workers", "It needs a newer Python than before"]
    text = "".join(f"{line}\n{'-' * len(line)}\n\n" for line in said)
    assert reader(text.encode()).blocks == tuple(Block(line, (line,)) for line in said)


def test_plain_text_has_paragraphs_and_underlined_headings() -> None:
    """Lines of a paragraph are joined, those of a table are not."""
    found = plain.read(TEXT.encode())
    assert found.title == "Release notes"
    assert found.blocks == (
        Block("Version 2 reads faster. It writes faster too.", ("Release notes",)),
        Block("    name   size\n    a      1", ("Release notes", "Tables"), code=True),
        Block("The rest.", ("Release notes", "Tables")),
    )


def test_latin_1_is_read() -> None:
    """Text without a mark that is not UTF-8 is Windows-1252, of which Latin-1 is a part."""
    assert plain.read("Müller & Söhne".encode("latin-1")).blocks[0].text == "Müller & Söhne"


def test_an_empty_field_of_the_front_matter_is_empty() -> None:
    """It does not take the next line as its value."""
    found = markdown.read(b"---\ndescription:\ntitle: Install guide\ndate:\n---\nText.\n")
    assert (found.title, found.revised) == ("Install guide", "")
    folded = markdown.read(b"---\ntitle: >-\n  Install guide\n---\n# First steps\n\nText.\n")
    assert folded.title == "First steps"


def test_markdown_keeps_numbers_and_notes_and_leaves_out_deleted_text() -> None:
    page = "3. Hold.[^a]\n4. Wait.\n\n~~Old.~~ 10<sup>6</sup>\n\n[^a]: Never.\n"
    assert [block.text for block in markdown.read(page.encode()).blocks] == [
        *("3. Hold.[^a]", "4. Wait.", "10^6", "[^a]: Never.")
    ]


def test_a_bad_byte_costs_its_own_character() -> None:
    """And is named, in every format that is text."""
    data = "The driver\u2019s caf\u00e9 \u2014 \u20ac300. The insurer".encode() + b"\x92s card."
    for read in (markdown.read, plain.read):
        found = read(data)
        assert (
            found.blocks[0].text
            == "The driver\u2019s caf\u00e9 \u2014 \u20ac300. The insurer\ufffds card."
        )
        assert found.skipped == "1 byte is not UTF-8"


def test_a_formula_is_no_markup_and_prices_are_no_formula() -> None:
    """What is multiplied is not set in italics."""
    read = markdown.read(b"Is $2*3*4$ and\n$$\nx_{1}*y_{2}*z\n$$\nso $5 *each* or \\$6 $.")
    said = "Is $2*3*4$ and $$ x_{1}*y_{2}*z $$ so $5 each or $6 $."
    assert [block.text for block in read.blocks] == [said]
