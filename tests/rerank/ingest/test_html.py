"""HTML: what is text of the page and what is not, headings, tables, code, encodings."""

from __future__ import annotations

import pytest

from rerank.ingest.document import Block, UnreadableError
from rerank.ingest.html import read

PAGE = """<!doctype html><html><head><title>Install - Site</title>
<meta name="last-modified" content="2024-05-31T10:00:00Z"><style>p {color: red}</style></head>
<body class="sidebar"><nav><ul><li><a href="/">Home</a></li></ul></nav>
<div role="main"><h1>Install<a class="headerlink" href="#i">¶</a></h1>
<p>Take the <b>pack</b>age,
then run <code>make</code>.</p><script>alert("boo")</script>
<h2>On Linux</h2><ul><li><p>First step.</p></li><li>Second step.</li></ul>
<h3>Options</h3>
<table><tr><th>name</th><th>meaning</th></tr><tr><td><p>-v</p></td><td>say more</td></tr></table>
<pre>$ make
  $ make install</pre>
<h3>Note:</h3><p>Mind it.</p>
<h2>On a Mac</h2><dl><dt>brew</dt><dd>It is there.</dd></dl>
<div hidden>secret</div></div><footer>Copyright</footer></body></html>"""


def test_a_page_is_read_in_order_under_its_headings() -> None:
    """The text of the main part, block by block; no script, style, navigation, footer, mark."""
    found = read(PAGE.encode())
    assert (found.title, found.revised) == ("Install", "2024-05-31")
    linux = ("Install", "On Linux")
    assert found.blocks == (
        Block("Take the package, then run make.", ("Install",)),
        Block("- First step.", linux),
        Block("- Second step.", linux),
        Block("name | meaning", (*linux, "Options")),
        Block("-v | say more", (*linux, "Options")),
        Block("$ make\n  $ make install", (*linux, "Options"), code=True),
        Block("Note:", (*linux, "Options"), leads=True),
        Block("Mind it.", (*linux, "Options")),
        Block("brew", ("Install", "On a Mac"), leads=True),
        Block("It is there.", ("Install", "On a Mac")),
    )


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ("<h2>Pricing<p>The price is 40.</p><p>Per seat.</p><h2>Next</h2>", [2, 2]),
        ("<h2>4.2 <div>Pricing</div></h2><p>It is 40.</p>", [2]),
        ("<h2>Release 4.2 drops support for old Windows workers</h2><h2>Next</h2>", [2]),
        ("<h3>Can I get a refund?<br>Yes, within 30 days.</h3>", [2]),
        ("<h2>Can anybody who is asked get a refund?</h2><p hidden>No.</p>", []),
        ("<h2>See also</h2><nav>Home</nav><h2>Contact</h2>", []),
        ("<h2>One that is long and has parts below it</h2><h3>A part</h3><p>Text.</p>", [3]),
    ],
)
def test_text_in_a_heading_is_not_lost(body: str, texts: list[int]) -> None:
    """That of blocks in it is below it; and nothing below it, it is text, unless it says nothing.

    texts: how many headings each block has above it.
    """
    found = read(f"<h1>Shop</h1>{body}".encode()).blocks
    assert [len(block.heading) for block in found] == texts
    words = " ".join(f"{block.heading} {block.text}" for block in found)
    assert "refund?Yes" not in words
    for word in ("Pricing", "40", "seat", "workers", "30 days"):
        assert (word in words) == (word in body)


def test_an_empty_cell_keeps_its_place() -> None:
    """Also the first one of a row: a number stays below the name of its column."""
    rows = "<tr><td></td><th>2024</th><th>2025</th></tr>", "<tr><th>Pump</th><td><td>30</tr>"
    rows += (
        "<tr>\n<td> <p></p> </td>\n<td>7</td>\n<td></td>\n</tr>",
        "<tr><td></td><td></td></tr>",
    )
    found = read(f"<table>{''.join(rows)}</table>".encode())
    assert [block.text for block in found.blocks] == ["| 2024 | 2025", "Pump | | 30", "| 7 |"]


def test_cells_with_blocks_of_their_own_are_no_row() -> None:
    """Such as those of a table that only arranges a page."""
    row = "<tr><td><ul><li>A</li></ul></td><td>B</td><td><h2>C</h2>D</td><td>E</td></tr>"
    found = read(f"<table>{row}</table>".encode())
    assert [block.text for block in found.blocks] == ["- A", "B |", "D | E"]


def test_the_navigation_of_texinfo_is_left_out() -> None:
    """GNU manuals have a table of links above and below each page, in no `nav`."""
    links = "<table class='header'><tr><td>[<a href='#'>Top</a>]</td><td>[ ? ]</td></tr></table>"
    links += "<div class='nav-panel'><p>Next: <a href='#'>Keys</a></p></div>"
    found = read(f"<body>{links}<h1>Shell</h1><p>It reads.</p>{links}</body>".encode())
    assert found.blocks == (Block("It reads.", ("Shell",)),)


def test_an_aside_is_text_unless_it_is_navigation() -> None:
    """A warning beside the text is read; links to other pages are not."""
    links = "<ul><li><a href='/a'>Other pages</a></li></ul>"
    page = (
        f"<main><h1>Pump</h1><aside class='warning'>Cut the <a href='/p'>power</a>.</aside>"
        "<aside class='admonition note'><a href='/k'>Turn the key with care</a></aside>"
        f"<p>Open it.</p><aside><b>See</b>{links}</aside></main>"
        f"<aside><h2>Here</h2>Its parts, in order<nav>{links}</nav></aside>"
    )
    for markup in (page, page.replace("main>", "div>")):
        texts = [block.text for block in read(markup.encode()).blocks]
        assert texts == ["Cut the power.", "Turn the key with care", "Open it."]


def test_deeply_nested_tags_are_read() -> None:
    """No recursion: the depth of a page does not end the process."""
    deep = 3_000
    found = read(b"<div>" * deep + b"the bottom" + b"</div>" * deep)
    assert [block.text for block in found.blocks] == ["the bottom"]


@pytest.mark.parametrize(
    "data",
    [
        "<p>Größe</p>".encode(),
        '<meta charset="iso-8859-1"><p>Größe</p>'.encode("latin-1"),
        "<p>Größe</p>".encode("cp1252"),
        "<p>Größe</p>".encode("utf-16"),
    ],
)
def test_encodings(data: bytes) -> None:
    """UTF-8, what the page declares, Windows-1252, UTF-16 with its mark."""
    assert read(data).blocks[0].text == "Größe"


def test_external_entities_and_processing_are_text_or_nothing() -> None:
    """An HTML parser reads no file for a page."""
    page = b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><p>see &e; there</p>'
    assert "root:" not in " ".join(block.text for block in read(page).blocks)


def test_binary_data_is_refused() -> None:
    """A picture that is named .html is no page."""
    with pytest.raises(UnreadableError, match="binary"):
        read(b"\x89PNG\r\n\x1a\n\0\0\0")


def test_a_heading_loses_its_link_and_not_its_last_sign() -> None:
    """A language is named "C#"; a link to the heading is shown as "#" too."""
    found = read(b"<h1>Introduction to C#</h1><h2>F# <a href='#f'>#</a></h2><p>Text.</p>")
    assert found.title == "Introduction to C#"
    assert found.blocks == (Block("Text.", ("Introduction to C#", "F#")),)


@pytest.mark.parametrize(
    "link",
    ["<a class=anchor href='#x'>{}</a>"]
    + [f"<a class=anchor href='#x'>{mark}</a>{{}}" for mark in ("¶", "§", "\U0001f517")],
)
def test_a_heading_inside_its_link_is_read(link: str) -> None:
    """Only a link that shows nothing but a mark is left out."""
    found = read(f"<h1>A</h1><h2>{link.format('Drain it')}</h2><p>Text.</p>".encode())
    assert found.blocks == (Block("Text.", ("A", "Drain it")),)


@pytest.mark.parametrize(
    "name", ["unicode_escape", "utf-7", "utf-16", "UTF32BE", "zlib", "nothing"]
)
def test_what_a_file_declares_is_used_only_if_it_is_an_encoding_of_text(name: str) -> None:
    """Else it is read as Windows-1252: never an unpaired surrogate, never an error."""
    data = f"<p>encoding='{name}' \\ud800 +2AA- caf\xe9</p>".encode("latin-1")
    (block,) = read(data).blocks
    assert block.text == f"encoding='{name}' \\ud800 +2AA- café"
