"""HTML: its main part, without scripts, navigation and hidden text. Other formats use it too."""

from __future__ import annotations

import re
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from rerank.ingest.document import Block, Document, Headings, date_in, one_line
from rerank.ingest.encoding import decoded

NO_TEXT = (
    "script, style, noscript, template, svg, canvas, iframe, object, select, button, dialog, "
    "aside:has(nav, [role=navigation]), nav, footer, [role=navigation], [role=search], "
    "[role=banner], [role=contentinfo], [role=complementary], [hidden], [aria-hidden=true], "
    "a.headerlink, .toc, .toctree, .toctree-wrapper, .topic.contents, .sphinxsidebar, "
    ".related, .docnav, table.header, .nav-panel, .navheader, .navfooter, .breadcrumb, "
    ".breadcrumbs, .linenos, .backrefs, .footnote-backref, .system-message"
)
MAIN = "main, [role=main]"
HEADING = re.compile(r"h([1-6])")
INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|img|ins|kbd|label|mark|q|ruby|s|"
    "samp|small|span|strike|strong|sub|sup|time|tt|u|var|wbr"
)
LABELS = {"note", "notes", "tip", "hint", "important", "warning", "caution", "danger", "example"}
"""What DocBook and others print above a box as if it were a heading."""

REVISED = (
    'meta[name="dcterms.modified" i], meta[name="dc.date.modified" i], '
    'meta[property="article:modified_time" i], meta[name="last-modified" i], '
    'meta[name="revised" i], meta[name="revision" i], meta[name="date" i]'
)
PILCROW = re.compile(r"\s*¶\s*$")


def read(data: bytes) -> Document:
    """The document of an HTML file."""
    return read_markup(decoded(data))


def read_markup(markup: str) -> Document:
    """The document of HTML markup, a whole page or a fragment."""
    tree = LexborHTMLParser(markup)
    named = tree.css_first("head > title")
    title = one_line(named.text()) if named else ""
    dates = (node.attributes.get("content") or "" for node in tree.css(REVISED))
    revised = next(filter(None, map(date_in, dates)), "")
    for node in tree.css(NO_TEXT):
        if node.tag not in ("html", "body"):
            node.decompose()
    for node in tree.css("aside:not(.admonition, .footnote, .footnote-list)"):
        if _is_navigation(node):
            node.decompose()
    for node in tree.css("a.anchor"):
        if not any(map(str.isalnum, node.text())):  # a mark such as "#", not the heading itself
            node.decompose()
    highest = tree.css("h1")
    if len(highest) == 1:
        title = _heading(highest[0]) or title
    return Document(tuple(_blocks(_main(tree))), title, revised)


def _main(tree: LexborHTMLParser) -> Any:
    """The element marked as the main part, if there is exactly one; else the body, or None."""
    found = [node for node in tree.css(MAIN) if node.text(strip=True)]
    return found[0] if len(found) == 1 else tree.body


def _blocks(root: Any) -> list[Block]:
    """The blocks below a node, in document order; without recursion, as tags may nest deeply."""
    walk = _Walk()
    node, last = root, root and root.mem_id  # `==` of two nodes compares all of their content
    while node is not None:
        below = node.child if walk.enter(node) else None
        if below is not None:
            node = below
            continue
        walk.leave(node)
        while node.mem_id != last and node.next is None:
            node = node.parent
            walk.leave(node)
        node = None if node.mem_id == last else node.next
    walk.flush()
    walk.headings.enter(1, "")
    return walk.blocks


class _Walk:
    """Collects text until a block begins or ends."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.headings = Headings(self.blocks)
        self._text: list[str] = []
        self._row = False  # whether the text is in a table row
        self._first = True  # whether no cell has begun since the last block

    def enter(self, node: Any) -> bool:
        """Enter a node; return whether to visit its children."""
        tag = node.tag or ""
        if tag == "-text":
            self._text.append(node.text_content or "")
            return False
        level = HEADING.fullmatch(tag)
        if level:
            self.flush()
            text = _heading(node)
            if text.lower().rstrip(":") in LABELS:
                self._add(text, leads=True)
            else:
                self.headings.enter(int(level[1]), text)
            for part in _line(node):
                part.decompose()
            return True
        if tag == "pre":
            self.flush()
            self._add(node.text().strip("\n"), code=True)
            return False
        if tag in ("td", "th"):
            self._text.append("" if self._first and not "".join(self._text).strip() else " | ")
            self._first = False
        elif tag == "br":
            self._text.append("\n")
        elif not INLINE.fullmatch(tag) and not (self._row and tag in ("p", "div")):
            self.flush()
            self._row = tag == "tr"
            if tag in ("li", "tr"):
                self._text = ["- "] if tag == "li" else []
        return True

    def leave(self, node: Any) -> None:
        """Leave a node."""
        tag = node.tag or ""
        if tag == "tr":
            self._row = False
        if _is_block(tag) and not self._row:
            self.flush(leads=tag == "dt")

    def flush(self, *, leads: bool = False) -> None:
        """Make a block of the collected text; a bare list mark waits for its item's text."""
        text = one_line("".join(self._text))
        self._add(text, leads=leads)
        self._text = ["- "] if text == "-" else []
        self._first = True

    def _add(self, text: str, *, code: bool = False, leads: bool = False) -> None:
        if text.strip(" -|\n"):
            self.blocks.append(Block(text, self.headings.path, code=code, leads=leads))


def _is_navigation(node: Any) -> bool:
    """Whether most of the text is links."""
    linked = sum(len(one_line(link.text())) for link in node.css("a[href]"))
    return linked > len(one_line(node.text())) / 2


def _is_block(tag: str) -> bool:
    """Whether an element with this tag ends the text before it."""
    return tag[:1] != "-" and tag not in ("td", "th", "br") and not INLINE.fullmatch(tag)


def _line(heading: Any) -> list[Any]:
    """The nodes of a heading before the first block in it, as below one that is not closed.

    All of its nodes, if there is no word before it.
    """
    nodes = list(heading.iter(include_text=True))
    first = next((i for i, node in enumerate(nodes) if _is_block(node.tag or "")), len(nodes))
    named = any(map(str.isalpha, "".join(node.text() for node in nodes[:first])))
    return nodes[:first] if named else nodes


def _heading(node: Any) -> str:
    """The text of a heading without a link to itself, which is shown as "#" or a pilcrow."""
    for link in node.css("a"):
        if one_line(link.text()) == "#":
            link.decompose()
    text = "".join("\n" if part.tag == "br" else part.text() for part in _line(node))
    return PILCROW.sub("", one_line(text))
