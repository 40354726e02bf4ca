"""HTML: what is text of the page and what is not, headings, tables, code, encodings."""

from __future__ import annotations

import re
import time

import pytest

from rerank.ingest.document import Block, UnreadableError
from rerank.ingest.html import raised, read

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
        ("<h2>Pricing<p>The price is 40.</p><p>Per seat.</p><h2>Next</h2>", [2, 2, 2]),
        ("<h2>4.2 <div>Pricing</div></h2><p>It is 40.</p>", [2]),
        ("<h2>Release 4.2 drops support for old Windows workers</h2><h2>Next</h2>", [2, 2]),
        ("<h3>Can I get a refund?<br>Yes, within 30 days.</h3>", [2]),
        ("<h2>Can anybody who is asked get a refund?</h2><p hidden>No.</p>", [2]),
        ("<h2>See also</h2><nav>Home</nav><h2>Contact</h2>", [2, 2]),
        ("<h2>One that is long and has parts below it</h2><h3>A part</h3><p>Text.</p>", [3]),
    ],
)
def test_text_in_a_heading_is_not_lost(body: str, texts: list[int]) -> None:
    """That of blocks in it is below it; and if nothing is below it, it is text.

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


def test_what_stands_beside_the_text_is_text_unless_it_is_navigation() -> None:
    source = "<blockquote>Q.<footer>By Ada.</footer></blockquote><footer>Imprint</footer>"
    assert texts(f"<div role=complementary>Not in winter.</div>{source}") == [
        *("Not in winter.", "Q.", "By Ada.")
    ]


@pytest.mark.parametrize(
    ("page", "found", "left_out"),
    [
        ("<main><p>Text.</p></main> To top<div>By <b>Ada</b></div>", ["Text."], 4),
        ("<nav><a>One</a><a>two</a></nav><main><p>Text.<p class=toc>3</main>", ["Text."], 3),
        ("<header><h1>T</h1><p>From May.</header><main><p>Text.</main>", ["From May.", "Text."], 0),
        ("<header><h1>Site</h1><p>Of us.</header><main><h1>T</h1>Text.</main>", ["Text."], 3),
        ("<header><a href=/><h1>T</h1></a></header><main><p>Text.</main>", ["Text."], 1),
        (
            "<p>A b.</p><main role=main><div role=main>Text.</div>More.</main>",
            ["Text.", "More."],
            2,
        ),
        ("<p>A b.</p><main>Text.</main><main>More.</main>", ["A b.", "Text.", "More."], 0),
    ],
)
def test_what_is_outside_the_main_text_is_counted(
    page: str, found: list[str], left_out: int
) -> None:
    """The header with the title is a part of the text, if `main` has no title of its own."""
    document = read(page.encode())
    assert [block.text for block in document.blocks] == found
    assert [int(each) for each in re.findall(r"\d+", document.skipped)] == [left_out] * (
        left_out > 0
    )


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


def texts(markup: str) -> list[str]:
    return [block.text for block in read(markup.encode()).blocks]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("10<sup>6</sup>", "10^6"),
        ("10<sup>\u22126</sup>", "10^-6"),
        ("<b>10</b><sup>+3</sup>", "10^+3"),
        ("2<sup>n-1</sup>", "2^(n-1)"),
        ("25 m<sup>2</sup>, CO<sub>2</sub>", "25 m2, CO2"),
        ("s<sup>-1</sup>", "s^-1"),
        ("SO<sub>4</sub><sup>2-</sup>, Ca<sup>2+</sup>", "SO4^2-, Ca2+"),
        ("10<sub>2</sub>", "10_2"),
        ("the 3<sup>rd</sup>, M<sup>me</sup>", "the 3rd, Mme"),
        ("$19<sup>99</sup>", "$19.99"),
        ("models<sup>1</sup>", "models^1"),
        ("2020<sup><a href='#fn1'>1</a></sup>", "2020[1]"),
        ("word<a href='#fn1'><sup>1</sup></a>", "word[1]"),
        ("May.<sup>[1]</sup>", "May.[1]"),
        ("May <a class=footnote-reference role=doc-noteref href='#id1'>1</a>", "May [1]"),
        ("2<sup>2<sup>n</sup></sup>", "2^2^n"),
        ("Brand<sup>TM</sup>", "Brand\u2122"),
        ("10<span style='vertical-align: top'>6</span>", "10^6"),
        ("10<small style='vertical-align: .4em'>6</small>", "10^6"),
        ("10<span style='position: relative; top: -.5em'>6</span>", "10^6"),
        ("10<span style='position: relative; bottom: -2px'>2</span>", "10_2"),
        ("10<span style='vertical-align: 0'>6</span>", "106"),
        ("co&shy;operate, zero&#8203;width", "cooperate, zerowidth"),
        (
            "<math><msup><mi>r</mi><mn>2</mn></msup><mo>\u00d7</mo><mi>\u03c0</mi></math>",
            "r^2 \u00d7 \u03c0",
        ),
        (
            "<math><mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mn>2</mn></mfrac></math>",
            "(a + b)/2",
        ),
        ("open <del>9 to 5</del> <ins>10 to 6</ins>", "open 10 to 6"),
        ("<s>30</s><strike>20</strike> 12", "12"),
        ("<span style='text-decoration: line-through'>30</span> 12", "12"),
        ("<img alt='The door is north.' src=x>", "The door is north."),
        ("<label>Name <input value=Ann></label> <input type=hidden value=x>", "Name Ann"),
        ("<select><option>One<option>Two</select>", "One / Two"),
        ("<ruby>\u6f22<rt>kan</rt></ruby>", "\u6f22(kan)"),
        ("<svg><title>icon</title><text>Pump</text><text>Valve</text></svg>", "Pump; Valve"),
    ],
)
def test_characters_that_change_a_fact_are_read_as_shown(markup: str, text: str) -> None:
    """Raised digits are no part of the number before them; deleted text is left out."""
    assert texts(f"<p>{markup}</p>") == [text]
    if "<svg>" not in markup:
        assert read(f"<h1>{markup}</h1>".encode()).title == text


@pytest.mark.parametrize(
    ("markup", "found"),
    [
        ("<pre>cd x<br>make</pre>", ["cd x\nmake"]),
        ("<p><img alt='[Tipp]' src=a.png>Text.", ["Text."]),
        ("<p><img alt='[注意]' src=a.png>Text.", ["Text."]),
        ("<p><a href=b.html><img alt=Next src=a.png></a>Text.", ["Text."]),
        ("<p><a href=b.html><img alt='The pump' src=a.png></a>Text.", ["The pump Text."]),
        ("<p><img alt=Pump src=a.png>Text.", ["Pump Text."]),
        ("<p><img alt=tcp-flow src=b/tcp-flow.png>Text.", ["Text."]),
        ("<p>Text.</p><div class=ttc>int x Definition a.h:5</div>", ["Text."]),
    ],
)
def test_a_picture_of_a_mark_is_no_text_and_lines_of_code_stay_apart(
    markup: str, found: list[str]
) -> None:
    """Also what a page shows only beside the pointer is left out."""
    assert texts(markup) == found


def test_an_exponent_after_nothing_is_as_it_is() -> None:
    assert raised("of ", "14") == "14"


@pytest.mark.parametrize(
    ("markup", "found"),
    [
        ("<ol start=4><li>A<li>B</ol>", ["4. A", "5. B"]),
        ("<ol reversed><li>A<li>B</ol>", ["2. A", "1. B"]),
        ("<ol><li value=7>A<li>B</ol>", ["7. A", "8. B"]),
        ("<ol type=a start=3><li>A<ol type=I><li>B</ol><li>C</ol>", ["c. A", "I. B", "d. C"]),
        ("<ol class=lowerroman start=4><li>A</ol>", ["iv. A"]),
        ("<ol style='list-style-type: upper-alpha'><li>A</ol>", ["A. A"]),
        ("<ol><li><p>A</p><p>B</p><li>C</ol>", ["1. A", "B", "2. C"]),
        ("<ol><li><pre>make</pre><li></li></ol>C", ["1.", "make", "C"]),
        ("<ol><li>A<ul><li>B</ul><li>C</ol>", ["1. A", "- B", "2. C"]),
        ("<ol style='list-style: none'><li>A</ol>", ["- A"]),
        (
            "<style>ol {list-style: none} li::before {content: counter(n) '. '}</style>"
            "<ol start=2><li>A<li>B</ol>",
            ["2. A", "3. B"],
        ),
    ],
)
def test_steps_keep_their_numbers(markup: str, found: list[str]) -> None:
    assert texts(markup) == found


def test_a_step_that_is_a_heading_keeps_its_number() -> None:
    found = read(b"<ol><li><h3>Open</h3><p>It.</p><li><h3>Close</h3><p>It.</p></ol>").blocks
    assert [block.heading for block in found] == [("1. Open",), ("2. Close",)]


@pytest.mark.parametrize(
    "markup",
    [
        "<ul role=tablist><li role=tab>PC<li role=tab>macOS</ul><div role=tabpanel>PC.</div>"
        "<div role=tabpanel hidden>On a Mac.</div>",
        "<ul><li><a data-toggle=tab href=#mac>macOS</a></ul>"
        "<div class=tab-pane id=mac style='display: none'>On a Mac.</div>",
        "<button role=tab aria-controls=mac>macOS</button>"
        "<div role=tabpanel id=mac aria-hidden=true>On a Mac.</div>",
        "<button class=tablinks onclick=\"show(event, 'mac')\">macOS</button>"
        "<div class=tabcontent id=mac style=display:none>On a Mac.</div>",
        "<div><input type=radio id=__tabbed_1><div class=tabbed-labels><label for=__tabbed_1>macOS"
        "</label></div><div class=tabbed-content>"
        "<div class=tabbed-block>On a Mac.</div></div></div>",
    ],
)
def test_a_panel_is_read_under_its_tab(markup: str) -> None:
    """What a click shows is text; the text behind the tabs is under the heading before them."""
    found = read(f"<h1>Install</h1>{markup}<p>Then start it.</p>".encode()).blocks
    assert found[-2:] == (
        Block("On a Mac.", ("Install", "macOS")),
        Block("Then start it.", ("Install",)),
    )


@pytest.mark.parametrize(
    ("markup", "shown"),
    [
        ("<div hidden=until-found>It.</div>", True),
        ("<details><summary>It.</summary></details>", True),
        ("<a href=#a>Q</a><div id=a style='display:none'>It.</div>", True),
        ("<button data-tab-target=#a>Q</button><div id=a hidden>It.</div>", True),
        ("<div x-show='open' style='display:none'>It.</div>", True),
        ("<tab-panel hidden>It.</tab-panel>", True),
        ("<div class=uk-switcher><p hidden>It.</div>", True),
        ("<a href=#a>Q</a><div id=a class=modal hidden>It.</div>", False),
        ("<a href=#menu>Q</a><div id=menu hidden>It.</div>", False),
        ("<a data-target=#a data-toggle=collapse>Q</a><div id=a hidden>It.</div>", True),
        ("<button aria-controls=a>Q</button><div id=a hidden>It.</div>", True),
        ("<a onclick=\"show('a')\">Q</a><div id=a style='display:none'>It.</div>", True),
        ("<style>.a {display: none} .a.on {display: block}</style><p class=a>It.</p>", True),
        ("<style>@media print { .a {display: none} }</style><p class=a>It.</p>", True),
        ("<style>.a {display: none}</style><p class=a>It.</p>", False),
        (
            "<style>.c{display:none} #t:checked ~ #c1{display:block}</style>"
            "<input type=radio id=t><p class=c id=c1>It.</p>",
            True,
        ),
        ("<style>#c{display:none} .c:target{display:block}</style><p class=c id=c>It.</p>", True),
        ("<style>.c{display:none} .d:target{display:block}</style><p class=c>It.</p>", False),
        ("<p style='visibility:hidden'>It.</p>", False),
        ("<p style='DISPLAY : NONE'>It.</p>", False),
        ("<p hidden>It.</p>", False),
        ("<i aria-hidden=true>It.</i>", False),
        ("<template>It.</template>", False),
        ("<button>It.</button>", False),
    ],
)
def test_hidden_until_a_click_is_not_invisible(markup: str, shown: bool) -> None:
    assert ("It." in texts(markup)) == shown


def test_the_question_of_an_accordion_is_a_heading() -> None:
    page = "<h2><button class=accordion-button>How much?</button></h2><div hidden id=a>5</div>"
    assert read(f"{page}<p>Text.</p>".encode()).blocks == (Block("Text.", ("How much?",)),)


def test_what_is_left_out_is_counted() -> None:
    """Not what a browser does not show at all; nor a panel, which is read."""
    said = "word " * 12
    page = f"<template>{said}</template><noscript>{said}</noscript><p>Text.</p>"
    page += f"<div role=tabpanel hidden>{said}</div>"
    assert read(page.encode()).skipped == ""
    hidden = "<p hidden>One two<b style='display:none'>three</b></p><i aria-hidden=true>four</i>"
    assert read(f"{page}{hidden}".encode()).skipped == "4 invisible words"
    choices = "<option>A" * 30
    page += f"<canvas></canvas><iframe src=a></iframe><iframe src=b>{said}</iframe>"
    page += f"<dialog>{said}</dialog>"
    page += f"<embed src=c><iframe src=d width=0></iframe><select>{choices}</select>"
    assert read(page.encode()).skipped == (
        "1 drawing by a script; 2 embedded pages; 1 embedded file; 12 invisible words; "
        "1 long list of choices"
    )


@pytest.mark.parametrize(
    ("markup", "said"),
    [
        ("1<sup>1</sup>/<sub>2</sub> cups", "1 1/2 cups"),
        ("2<sup>3</sup>⁄<sub>4</sub> inches", "2 3⁄4 inches"),
        ("5 m<sup>3</sup>/h", "5 m3/h"),
        ("10<sup>6</sup>/10<sup>3</sup>", "10^6/10^3"),
        ("x<sub>i+1</sub> = x<sub>i</sub>", "x_(i+1) = xi"),
    ],
)
def test_fractions_and_indices_keep_their_value(markup: str, said: str) -> None:
    """One and a half is not a power of one, and the index of x is not added to it."""
    assert [b.text for b in read(f"<p>{markup}</p>".encode()).blocks] == [said]


def test_the_radio_buttons_of_tabs_are_no_fields() -> None:
    """As sphinx-design writes them."""
    markup = (
        '<div class="sd-tab-set"><input type="radio" id="a"><label for="a">Linux</label>'
        '<div class="sd-tab-content">Run apt.</div></div>'
    )
    assert [b.text for b in read(markup.encode()).blocks] == ["Linux", "Run apt."]


def test_items_of_a_list_in_letters_go_on_in_digits() -> None:
    """After z; and Roman numbers are written as such."""
    items = "<li>x" * 2
    markup = f"<ol type=a start=26>{items}</ol><ol type=I start=4>{items}</ol>"
    said = [b.text for b in read(markup.encode()).blocks]
    assert said == ["z. x", "27. x", "IV. x", "V. x"]


@pytest.mark.parametrize(
    ("markup", "found"),
    [
        ('<p>10<span style="vertical-align: super">6</span> bytes', ["10^6 bytes"]),
        ("<style>span.e{vertical-align:sub}</style><p>10<span class=e>2</span>", ["10_2"]),
        ("<style>p .o{text-decoration:line-through}</style><p><i class=o>30</i> 12", ["12"]),
        ("<style>.a, div.b > p{display:none}</style><div class=b><p>x</p></div>y", ["y"]),
        ("<style>.b p{display:none}.b.open p{display:block}</style><div class=b><p>x", ["x"]),
        ("<style>ol{list-style-type:upper-roman}</style><ol><li>a<li>b", ["I. a", "II. b"]),
    ],
)
def test_the_rules_of_a_page_count_as_the_styles_of_its_nodes(
    markup: str, found: list[str]
) -> None:
    """What they raise, strike out, hide and number; not what another rule of the same shows."""
    assert texts(markup) == found


def test_a_cell_that_spans_rows_stands_in_each() -> None:
    """Also two beside each other; the page of a table cannot make it much longer."""
    rows = "<tr><td rowspan=3>A<td rowspan=2>B<td>c<tr><td>d<tr><td>e<td>f<tr><td>g<td>h<td>i"
    assert texts(f"<table>{rows}</table>") == ["A | B | c", "A | B | d", "A | e | f", "g | h | i"]
    wide = "<td colspan=2>ab<td rowspan=65534>C<tr><td>x<td>y"
    assert texts(f"<table><tr>{wide}</table>") == ["ab | C", "x | y | C"]
    bomb = f"<tr>{'<td rowspan=100>' + 'x' * 190}" * 20 + "<tr>" * 2000
    assert sum(map(len, texts(f"<table>{bomb}</table>"))) < 100 * len(bomb)


def test_formulas_of_mathjax_are_read_once() -> None:
    """From their source, also where a saved page has what was drawn of it."""
    drawn = '<span class="MathJax"><span>10</span><span>6</span></span>'
    source = '<script type="math/tex">10^6</script>'
    assert texts(f"<p>holds {drawn}{source} bytes<script>x</script>") == ["holds 10^6 bytes"]


def test_a_button_named_in_a_sentence_is_read_and_recordings_are_counted() -> None:
    """A button elsewhere is no text, but its words are counted."""
    found = read(b"<p>Press <button>Start</button> now.<div><button>Copy</button></div><video>")
    assert [b.text for b in found.blocks] == ["Press Start now."]
    assert found.skipped == "1 recording; 1 word outside the main text"


@pytest.mark.parametrize(
    ("markup", "seen"),
    [
        ("<p style='color:#fff'>It is secret.", False),
        ("<p style='color:White'>It is secret.", False),
        ("<p><font color=#ffffff>It is secret.</font>", False),
        ("<style>.w{color:rgb(255, 255, 255)}</style><p class=w>It is secret.", False),
        ("<style>p{color:#333}</style><p style='color:#fefefe'>It is secret.", False),
        ("<div style='background:#000'><p style='color:#000'>It is secret.</div>", False),
        ("<table bgcolor=#00ff00><td><font color='#00ff00'>It is secret.</font>", False),
        ("<p style='color:transparent'>It is secret.", False),
        ("<p style='color:#fff;background:navy url(x.png)'>It is secret.", True),
        ("<p style='color:#fff;background-color:#036'>It is secret.", True),
        ("<div style='background:#036'><p style='color:#fff'>It is secret.</div>", True),
        ("<style>.n{background:#036}</style><div class=n><p style=color:#fff>It is secret.", True),
        ("<link rel=stylesheet href=x><p style='color:#fff'>It is secret.", True),  # on what?
        ("<style>p:focus{background:#036}</style><p style=color:#fff>It is secret.", True),
        ("<style>@media screen{p{background:red}}</style><p style=color:#fff>It is secret.", True),
        ("<div style='position:absolute'><p style='color:#fff'>It is secret.</div>", True),
        ("<p style='color:#fff;text-shadow:1px 1px #000'>It is secret.", True),
        ("<p style='color:#fff'><b style='color:#000'>It is secret.</b>", True),
        ("<p style='font-size:0'>It is secret.", False),
        ("<p style='font-size:1px'>It is secret.", False),
        ("<p style='font: 0/0 a'>It is secret.", False),
        ("<p style='font-size:.8em'>It is secret.", True),
        ("<p style='font-size:0'><b style='font-size:12px'>It is secret.</b>", True),
        ("<p style='opacity:0'>It is secret.", False),
        ("<style>.o{opacity:0.0}</style><p class=o>It is secret.", False),
        ("<p style='opacity:.4'>It is secret.", True),
        ("<p style='opacity:0;transition:opacity 1s'>It is secret.", True),  # it appears
        ("<style>.o{opacity:0} .on .o{opacity:1}</style><p class=o>It is secret.", True),
        ("<p style='position:absolute;left:-9999px'>It is secret.", False),
        ("<p style='text-indent:-1000em'>It is secret.", False),
        ("<p style='position:relative;left:-9px'>It is secret.", True),
        ("<p style='position:absolute;clip:rect(0 0 0 0)'>It is secret.", False),
        ("<p style='clip-path:inset(50%)'>It is secret.", False),
        ("<p style='transform:translateX(-9999px)'>It is secret.", False),
        ("<style media=print>p{opacity:0}</style><p>It is secret.", True),
        ("<div class=panel style='opacity:0'>It is secret.</div>", True),  # shown by a click
        ("<div style='background:navy'><p style='color:#fff'>It is secret.</div>", True),
        ("<table bgcolor=teal><td style='color:white'>It is secret.</table>", True),
        ("<div style='background:hsl(9 9% 9%)'><p style='color:#fff'>It is secret.</div>", True),
        ("<div style='background:#000c'><p style='color:#fff'>It is secret.</div>", True),
        ("<p style='color:navajowhite'>It is secret.", True),
        ("<p style='color:var(--x, white)'>It is secret.", True),
        ("<style media='(prefers-color-scheme: dark)'>p{opacity:0}</style><p>It is secret.", True),
        ("<style media=' print '>p{display:none}</style><p>It is secret.", True),
        ("<style>.dark{.t{display:none}}</style><p class=t>It is secret.", True),
        ("<style>a{content:'} .t{display:none}'}</style><p class=t>It is secret.", True),
        ("<style>#k{color:#000} .j{color:#fff}</style><p id=k class=j>It is secret.", True),
        ("<style>p{color:#000!important}</style><p style='color:#fff'>It is secret.", True),
        ("<style>p:not(.q){color:#000}</style><div style='color:#fff'><p>It is secret.", True),
        ("<style>@import url(dark.css);</style><p style='color:#fff'>It is secret.", True),
        ("<style>p{color:#333}</style><p style='color:#fff'>It is secret.", False),
        ("<p style='font-size:1vw'>It is secret.", True),
        ("<p style='font-size:.2in'>It is secret.", True),
        ("<p style='font:1.2 Arial'>It is secret.", True),
        ("<p style='font:bold 1px Arial'>It is secret.", False),
        ("<p style='position:absolute;top:6400px'>It is secret.", True),
        ("<p style='transform:scale(0.5)'>It is secret.", True),
        ("<p style='transform:scale(0)'>It is secret.", False),
        ("<p style='color:#fff'><mark>It is secret.</mark>", True),
        ("<body style='opacity:0'><p>It is secret.", True),  # a script shows it
        ("<p style='color:snow'>It is secret.", False),
        ("<p style='color:#ffff'>It is secret.", False),
        ("<p style='color:#fff0'>It is secret.", False),
        ("<p style='color:hsl(0 0% 100%)'>It is secret.", False),
        ("<p style='color:rgb(100% 100% 100%)'>It is secret.", False),
        ("<p style='color:rgb(0 0 0 / 1%)'>It is secret.", False),
        ("<p style='color:rgb(0 0 0 / 40%)'>It is secret.", True),
        ("<p style='color:lab(100% 0 0)'>It is secret.", True),  # a colour that is not known
        ("<p style='color:/**/white'>It is secret.", False),
        ("<p style='background:#000'>It is secret.", False),  # black, as all of the page
        ("<a href=x style='background:#000'>It is secret.</a>", True),
        ("<div style='color:#fff;background:#036'><p style='background:#fff'>It is secret.", False),
        ("<div style='color:#fff'><table><td>It is secret.</table></div>", True),  # by old rules
        ("<p><font color=FFFFFF>It is secret.</font>", False),
        ("<body text=ffffff bgcolor=000000><p>It is secret.", True),
        ("<p style='height:0;overflow:hidden'>It is secret.", False),
        ("<p style='max-height:1px;overflow-y:clip'>It is secret.", False),
        ("<p style='height:0'>It is secret.", True),
        ("<i style='height:0;overflow:hidden'>It is secret.</i>", True),  # in a line: no effect
        ("<p style='height:0;overflow:hidden;padding:20px'>It is secret.", True),
        ("<p style='height:0%;overflow:hidden'>It is secret.", True),
        (
            "<style>.f{max-height:0;overflow:hidden} .f.on{max-height:9em}</style>"
            "<p class=f>It is secret.",
            True,
        ),
        ("<p style='position:absolute;left:-200vw'>It is secret.", False),
        ("<p style='position:relative;top:-1e4px'>It is secret.", False),
        ("<p style='margin-left:-9999px'>It is secret.", False),
        ("<p style='position:absolute;left:-20vw'>It is secret.", True),
        ("<p style='transform:scaleX(0)'>It is secret.", False),
        ("<p style='transform:rotate(9deg) scale(1, .0)'>It is secret.", False),
        ("<p style='transform:translate3d(-300vw, 0, 0)'>It is secret.", False),
        ("<p style='scale:0'>It is secret.", False),
        ("<p style='opacity:.0'>It is secret.", False),
        ("<p style='opacity:1%'>It is secret.", False),
        ("<p style='filter:opacity(0)'>It is secret.", False),
        ("<p style='font-size:0vmin'>It is secret.", False),
        ("<p style='font-size:.01in'>It is secret.", False),
        ("<p style='font-size:.02rem'>It is secret.", False),
        ("<p style='visibility:hidden'>It is secret.", False),
        ("<p style='visibility:hidden'><b style='visibility:visible'>It is secret.</b>", True),
        ("<p style='content-visibility:hidden'>It is secret.", False),
        ("<p style='display:none'>It is secret.", False),
        ("<p hidden>It is secret.", False),
        ("<body style='display:none'><p>It is secret.", True),
        (
            "<style>.g{display:none!important}</style><p class=g style=display:block>It is secret.",
            False,
        ),
        ("<style>.g{display:none} p{display:block}</style><p class=g>It is secret.", False),
        ("<svg opacity=0><text>It is secret.</text></svg>", False),
        ("<svg><g visibility=hidden><text>It is secret.</text></g></svg>", False),
        ("<svg><text display=none>It is secret.</text></svg>", False),
        ("<svg><text fill=white>It is secret.</text></svg>", False),
        ("<svg><text fill-opacity=0>It is secret.</text></svg>", False),
        ("<svg><text fill=none stroke=black>It is secret.</text></svg>", True),
        ("<svg><rect fill=black /><text fill=white>It is secret.</text></svg>", True),
        ("<div class=panel style='color:#fff'>It is secret.</div>", False),  # no click shows it
        ("<div class=panel style='font-size:0'>It is secret.</div>", False),
        ("<div class=panel style='height:0;overflow:hidden'>It is secret.</div>", True),
        ("<div hidden=until-found>It is secret.</div>", True),
        ("<p hidden style='display:block'>It is secret.", True),
        ("<style>div{display:flex}</style><div hidden>It is secret.</div>", True),
        ("<p aria-hidden=true>It is secret.", True),  # a person sees it
        ("<link rel=stylesheet href=x><p aria-hidden=true>It is secret.", False),
        ("<p style='position:sticky;left:-9999px'>It is secret.", True),
        ("<p style='margin-left:-9999px;padding-left:9999px'>It is secret.", True),
        ("<p style='position:absolute;right:9999px'>It is secret.", False),
        ("<p style='position:absolute;inset:-9999px auto auto -9999px'>It is secret.", False),
        ("<p style='translate:-9999px'>It is secret.", False),
        ("<p style='transform:rotateX(90deg)'>It is secret.", False),
        ("<p style='transform:matrix(0,0,0,0,0,0)'>It is secret.", False),
        ("<p style='transform:matrix(0,1,-1,0,0,0)'>It is secret.", True),
        ("<div style='text-indent:-9999px'><p style='text-indent:0'>It is secret.</div>", True),
        ("<p style='height:0;overflow:hidden;padding:0'>It is secret.", False),
        ("<p style='width:0;overflow:hidden'>It is secret.", False),
        ("<p style='width:0;flex:1;overflow:hidden'>It is secret.", True),
        ("<table><td style='max-width:0;overflow:hidden'>It is secret.</table>", True),
        ("<span style='float:left;height:0;overflow:hidden'>It is secret.</span>", False),
        ("<p style='clip-path:inset(0 100% 0 0)'>It is secret.", False),
        ("<p style='font-size:calc(0px)'>It is secret.", False),
        ("<p style='-webkit-text-fill-color:#fff'>It is secret.", False),
        ("<style>p:first-child{display:none}</style><div><p>It is secret.</div>", False),
        ("<style>p[data-x], div + p{color:white}</style><p data-x>It is secret.", False),
        ("<style>p:hover{display:none}</style><p>It is secret.", True),
        ("<style>1a{color:red} ..p{color:red} p:not(){display:none}</style><p>It is secret.", True),
        ("<style><!-- .g{display:none} --></style><p class=g>It is secret.", False),
        # shown in windows of some sizes
        (
            "<style>i{display:none} @media tv{i{display:inline}}</style><i>It is secret.</i>",
            True,
        ),
        (
            "<style>i{display:none} @media print{i{display:inline}}</style><i>It is secret.</i>",
            False,
        ),
        (
            "<style>.g{color:#fff} @media screen{.g{color:#000}}</style><p class=g>It is secret.",
            True,
        ),
        ("<style>b{color:#fff} div{background:#333</style><div><b>It is secret.</b></div>", True),
        ("<style>b:first-child{color:#000} b{color:#fff}</style><b>It is secret.</b>", True),
        ("<style>b[id]{color:#000} b{color:#fff}</style><b id=k>It is secret.</b>", True),
        # centred, and wide
        ("<p style='position:absolute;left:-9999px;right:-9999px;margin:auto'>It is secret.", True),
        (
            "<p style='position:absolute;left:50%;margin-left:-1100px;width:2200px'>It is secret.",
            True,
        ),
        ("<p style='position:absolute;left:calc(-1200px + 50%)'>It is secret.", True),
        ("<p style='position:absolute;left:-9999px;width:1px'>It is secret.", False),
        # upon something else, or upon a column
        ("<p style='margin-top:-40px;color:#fff'>It is secret.", True),
        ("<p style='grid-area:1/1;color:#fff'>It is secret.", True),
        ("<table><col style='background:#222'><td style='color:#fff'>It is secret.</table>", True),
        ("<p style='color:transparent;background:red;background-clip:text'>It is secret.", True),
        ("<div style='color:#fff'><dialog open>It is secret.</dialog></div>", True),
        ("<span style='text-indent:-9999px'>It is secret.</span>", True),  # it indents blocks
        ("<h4 style='text-indent:-9999px'>It is secret.</h4>", False),
        ("<p style='font-size:-5px'>It is secret.", True),
        ("<p style='clip-path:inset(50% 0 0 0)'>It is secret.", True),
        ("<p style='clip-path:inset(50% 50% 50% 50%)'>It is secret.", False),
        (
            "<i style='float:left;height:0;overflow:hidden'>"
            "<b style='position:absolute'>It is secret.</b></i>",
            True,
        ),
        (
            "<div style='height:0;overflow:hidden;position:relative'>"
            "<p style='position:absolute'>It is secret.</div>",
            False,
        ),
    ],
)
def test_text_that_nobody_sees_is_counted_and_not_read(markup: str, seen: bool) -> None:
    """Where its colour, its size or its place hides it, and what is behind it is known."""
    found = read(f"{markup}</p><p>Text.".encode())
    assert [b.text for b in found.blocks] == ["It is secret."] * seen + ["Text."]
    assert found.skipped == ("" if seen else "3 invisible words")


def test_what_stands_beside_invisible_text_is_read() -> None:
    """A picture or words of another colour in it; navigation is counted as such."""
    page = "<p style='color:#fff'>Hidden <img alt='A pump.'> words <b style='color:red'>Red.</b>"
    found = read(f"{page}</p><nav><p style='font-size:0'>a b c</nav>".encode())
    assert [b.text for b in found.blocks] == ["A pump. Red."]
    assert found.skipped == "3 words outside the main text; 2 invisible words"


def test_the_style_of_a_node_wins_over_the_rules_of_its_page() -> None:
    """And a later rule over one before it."""
    rules = "<style>.a{display:none} .b{color:#fff} .b{color:#000}</style>"
    assert texts(f"{rules}<p class=a style='display:block'>A</p><p class=b>B</p>") == ["A", "B"]


def test_invisible_text_in_invisible_text_takes_no_more_time() -> None:
    """Each is looked at once; of a text in more than 100 parts the background is not known."""
    deep = 2_000
    page = "<div style='color:#fff'>" * deep + "secret" + "</div>" * deep + "<p>Text."
    start = time.process_time()
    found = read(page.encode())
    assert time.process_time() - start < 20
    assert [b.text for b in found.blocks] == ["secret", "Text."]
    assert texts(page.replace("<div style='color:#fff'>" * (deep - 90), "")) == ["Text."]


@pytest.mark.parametrize(
    ("selector", "deep", "wide"),
    [("div div div div p", 400, 1), ("a ~ b ~ b ~ b ~ p", 1, 400), (":nth-child(2n)", 1, 20_000)],
)
def test_a_hostile_selector_is_not_looked_for(selector: str, deep: int, wide: int) -> None:
    """It would take hours; colours are then unknown, so that no text is lost."""
    rules = "".join(f".c{i} {selector}, .q{i} {selector} {{color: #fff}}" for i in range(150))
    page = f"<style>{rules}</style>{'<div>' * deep}{'<b></b>' * wide}<p style='color:#fff'>It."
    assert texts(page) == ["It."]
    assert texts("<style>.c div p {color: #fff}</style><div class=c><div><p>It.") == []


@pytest.mark.parametrize("part", ["@media x ", "a ", "@media x{", "{"])
def test_a_broken_style_sheet_takes_bounded_time(part: str) -> None:
    assert texts(f"<style>{part * 40_000}</style><p>It.") == ["It."]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>At most 10<!-- --><sup>6</sup>, not<!-- c --> 20", "At most 10^6, not 20"),
        ("<tr><td>fee<!-- --><td>$<!-- -->30", "fee | $30"),
        ("<p>The fee is <x-sum>30</x-sum> in <st1:city>Oslo</st1:city>.", "The fee is 30 in Oslo."),
        ("<p>Turn <picture><img alt='the key'></picture> left", "Turn the key left"),
        ("<dt>size<span class=classifier>int, or none</span>", "size : int, or none"),
        ("<p><sup>1</sup>30 days", "1 30 days"),
        ("<p><sup>b</sup>Only in May", "b Only in May"),
        ("<p><sup>14</sup>C, M<sup>c</sup>Donald", "14C, McDonald"),
        ("<p>log<sub>2</sub>8 is 3, C<sub>6</sub>H<sub>6</sub>", "log2 8 is 3, C6H6"),
        ("<p>Bake at 180<sup>o</sup>C or 350<sup>0</sup> F", "Bake at 180°C or 350° F"),
        ("<p>It costs 30<sup>1)</sup>", "It costs 30[1]"),
        ("<p>10<em style='vertical-align:super'>6</em> bytes", "10^6 bytes"),
        ("<ul style='list-style:decimal'><li>Open", "1. Open"),
        ("<ol style='list-style-type:disc'><li>A point", "- A point"),
        ("<input type=datetime-local value=2024-05-01T10:00> is when", "2024-05-01T10:00 is when"),
    ],
)
def test_numbers_and_sentences_are_those_of_the_page(body: str, text: str) -> None:
    """Whatever comments, elements of a page's own, marks of notes and lists are in them."""
    assert texts(f"<table>{body}</table>" if body.startswith("<tr") else body) == [text]


def test_formulas_of_katex_are_read_once() -> None:
    """Where the styles of the page are its own, too."""
    source = "<span class=katex-mathml><math><msup><mn>10</mn><mn>6</mn></msup></math></span>"
    drawn = "<span class=katex-html aria-hidden=true>106</span>"
    assert texts(f"<p>holds <span class=katex>{source}{drawn}</span> bytes") == ["holds 10^6 bytes"]
