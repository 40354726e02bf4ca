"""HTML: what a person reads on a page, without navigation. Other formats use it too."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from rerank.ingest import styles
from rerank.ingest.document import Block, Document, Headings, clauses, counted, date_in, one_line
from rerank.ingest.encoding import decoded
from rerank.ingest.formulas import linear
from rerank.ingest.styles import above
from rerank.ingest.word_lists import formatted, whole

NO_TEXT = (
    "script:not([type^='math/tex']), span.MathJax, span.MathJax_SVG, .MathJax_Display, "
    ".MathJax_SVG_Display, .MathJax_Preview, style, noscript, template, datalist, svg title, "
    "svg desc, svg style, a.headerlink, .ttc, .linenos, .backrefs, .footnote-backref, "
    ".system-message, .katex-mathml ~ .katex-html"
)
AROUND = (  # the text
    "aside:has(nav, [role=navigation]), nav, footer:not(blockquote footer), [role=navigation], "
    "[role=search], [role=banner], [role=contentinfo], "
    ".toc, .toctree, .toctree-wrapper, .topic.contents, .sphinxsidebar, .related, .docnav, "
    "table.header, .nav-panel, .navheader, .navfooter, .breadcrumb, .breadcrumbs"
)
NEVER = ":is([hidden], dialog:not([open])):not(html, body)"
ICONS = ":is(i, a, svg)[aria-hidden=true]"  # others are seen, but if a script hides them
INSTEAD = "video, audio, canvas, iframe, noembed, meter, progress"  # with text that is not shown
DELETED = "del, s, strike, .strike, .strikethrough, .line-through"
ASIDE = ":is(aside, [role=complementary]):not(.admonition, .footnote, .footnote-list)"
MAIN = "main, [role=main]"
HEADING = re.compile(r"h([1-6])")
INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|data|dfn|em|font|i|img|input|ins|kbd|label|mark|math|"
    "meter|nobr|output|picture|progress|q|rb|rp|rt|rtc|ruby|samp|select|small|span|strong|sub|sup|"
    "svg|time|tt|u|var|wbr"
)
RAISED = ":is(a, b, code, em, font, i, mark, small, span, strong, u, var)[style]"  # perhaps
UNREAD = (  # parts that show what is not in the page, and what to call one
    ("canvas", "drawing by a script"),
    ("iframe[src], iframe[srcdoc]", "embedded page"),
    ("object, embed", "embedded file"),
    ("video, audio", "recording"),
)
NO_SIZE = "[width='0'], [width='1'], [height='0'], [height='1']"
IN_ORDER = 100  # panels of a page, at most, that get their tabs by their order
PANEL = re.compile(  # classes of what is shown by a click
    r"(?:^|[\s_-])(?:tab|tabs|tabbed|tab-?(?:pane|panel|content|item|link)s?|pane|panel|accordion|"
    r"collaps\w*|expand\w*|spoiler|slide|carousel|faq|answer)(?=$|[\s_-])",
    re.IGNORECASE,
)
POPUP = re.compile(r"menu|modal|dropdown|offcanvas|dialog|popup|cookie|consent", re.IGNORECASE)
TOGGLES = "[aria-controls], [aria-expanded], [data-toggle], [data-bs-toggle], [onclick]"
TABS = (
    "[role=tab], [data-toggle=tab], [data-toggle=pill], [data-bs-toggle=tab], "
    "[data-bs-toggle=pill], .tablinks, .tabbed-labels > label"
)
PANELS = "[role=tabpanel], .tab-pane, .tabcontent, .tabbed-block"
QUOTED = re.compile(r"""["']([^"']+)["']""")
AS_TEXT = (
    "script, sup, sub, math, img, input, select, q, rt, a[role=doc-noteref], a.footnote-reference"
)
TYPED = {"", "text", "search", "number", "email", "tel", "url", "date", "time", "month", "week"}
TYPED |= {"datetime-local"}
TICKED = {"checkbox", "radio"}
SWITCH = re.compile(rf"{PANEL.pattern}|toggle|drawer|menu|nav", re.IGNORECASE)
CHOICES = 20  # of a list; a longer one is counted, not read
SPANNING, MOST_ROWS, MOST_COLUMNS = 500, 50, 20  # cells that are repeated in the rows they span
MAX_REPEATED = 200  # characters of one
NOTE = re.compile(r"[\[(]?(\w+)[\])]?")
ORDINALS = {"a", "e", "o", "d", "m", "st", "nd", "rd", "th", "er", "re", "ème", "eme", "ère", "os"}
TRADE = {"tm": "™", "sm": "℠"}
CHARGE = re.compile(r"\d*[+\u2212\u2013-]")
DEGREES = re.compile(r"\s?[CF]\b")
OWN_TAG = re.compile(r"<[\w.]+[:-]")  # as <o:p> and <my-price>
TERM = re.compile(r"[+-]?[\w.,^/]+")
PRICE = re.compile(r"[$€£¥]\s?\d[\d,]*$")
RISE = re.compile(r"(-?)[\d.]*[1-9].*")  # of a style
LIFTS = dict.fromkeys(("super", "top", "text-top"), "super") | {"sub": "sub", "text-bottom": "sub"}
LETTERS = re.compile(r"[^\W\d_]*$")
FORMS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
NUMBERED = re.compile(  # how a list says so, in its classes (docutils) or its style
    r"(lower|upper)-?(alpha|latin|roman)|list-style: (?:none|disc|circle|square)", re.IGNORECASE
)
COUNTED = re.compile("decimal|alpha|latin|roman")  # what makes numbers of bullets
LABELS = {"note", "notes", "tip", "hint", "important", "warning", "caution", "danger", "example"}
"""What DocBook and others print above a box as if it were a heading."""
REVISED = (
    'meta[name="dcterms.modified" i], meta[name="dc.date.modified" i], '
    'meta[property="article:modified_time" i], meta[name="last-modified" i], '
    'meta[name="revised" i], meta[name="revision" i], meta[name="date" i]'
)
MARK = re.compile(r"\[[^\W\d_]+\]")
NOTE_MARK = re.compile(r"\[\w{1,4}\]")
PILCROW = re.compile(r"\s*¶\s*$")


def read(data: bytes) -> Document:
    """The document of an HTML file."""
    text, unread = decoded(data)
    found = read_markup(text)
    return replace(found, skipped=clauses(unread, found.skipped))


def read_markup(markup: str) -> Document:
    """The document of HTML markup, a whole page or a fragment.

    What a page shows after a click is read too, such as tabs; what it never shows is not, nor is
    deleted text.
    """
    tree = LexborHTMLParser(markup)
    named = tree.css_first("head > title")
    title = one_line(named.text()) if named else ""
    dates = (node.attributes.get("content") or "" for node in tree.css(REVISED))
    revised = next(filter(None, map(date_in, dates)), "")
    nodes = tree.root.traverse(include_text=True) if tree.root else ()
    for node in [node for node in nodes if node.is_comment_node]:
        node.decompose()
    own = filter(_is_own, tree.css("*") if OWN_TAG.search(markup) else ())
    for node in filter(_is_word, [*tree.css("button"), *own]):
        node.unwrap()
    for node in tree.css(".classifier"):  # of a term
        node.insert_before(" : ")
    labels, tabs = _panels(tree)
    left_out = _cut(tree, tabs)
    root: Any = tree.body
    unread = [
        counted(sum(not node.css_matches(NO_SIZE) for node in root.css(which)), name)
        for which, name in (UNREAD if root else ())
    ]
    long = 0
    lifted = [node for node in tree.css(RAISED) if _lift(node)]
    for node in [*lifted, *reversed(_once(tree.css(AS_TEXT)))]:  # the innermost first
        text = SHOW.get(node.tag, _raised)(node)
        long += text is None
        if text:
            node.replace_with(text)
        else:
            node.decompose()
    deque(map(_repeat, islice(tree.css("td[rowspan], th[rowspan]"), SPANNING)), maxlen=0)
    highest = tree.css("h1")
    if len(highest) == 1:
        title = _heading(highest[0]) or title
    choices = counted(long, "long list of choices", "long lists of choices")
    skipped = clauses(*unread, left_out, choices)
    return Document(tuple(_Walk(labels).blocks_of(root)), title, revised, skipped)


def _cut(tree: LexborHTMLParser, tabs: list[Any]) -> str:
    """Take out what is not read, besides these tabs; what of it holds words is told."""
    all_known = styles.add_rules(tree)
    clicked = tree.css(f"{TABS}, {TOGGLES}, button, a[href^='#']")
    opened = {name for node in clicked for name in _opens(node)} - {""}
    buttons = [button for button in tree.css("button") if not _is_label(button)]
    instead = [part for node in tree.css(INSTEAD) for part in node.iter(include_text=True)]
    for node in _once([*instead, *tree.css(NO_TEXT), *tabs]):
        if node.tag not in ("html", "body"):
            node.decompose()
    outside = _cut_words([*tree.css(AROUND), *buttons])
    struck = filter(styles.is_struck, tree.css("[style]"))
    deleted = _cut_words([*tree.css(DELETED), *struck])
    invisible = _cut_invisible(tree, opened, all_known)
    outside += _cut_words(filter(_is_navigation, tree.css(ASIDE)))
    outside += _cut_words(_around_main(tree))
    for node in tree.css("a.anchor"):
        if not any(map(str.isalnum, node.text())):  # a mark such as "#", not the heading itself
            node.decompose()
    return clauses(
        counted(outside, "word outside the main text", "words outside the main text"),
        counted(deleted, "deleted word"),
        counted(invisible, "invisible word"),
    )


def _cut_words(nodes: Iterable[Any]) -> int:
    """Take out these nodes; return how many words they have."""
    words = 0
    for node in reversed(_once(nodes)):  # the innermost first
        words += sum(any(map(str.isalnum, w)) for w in node.text(separator=" ").split())
        node.decompose()
    return words


def _is_own(node: Any) -> bool:
    """Whether HTML does not know the name of a node."""
    return OWN_TAG.match(f"<{node.tag}") is not None


def _is_word(node: Any) -> bool:
    """Whether a button, or a node of a name that HTML does not know, stands among words."""
    if node.tag == "button":
        return bool(node.parent.tag == "p")
    beside = (each for each in (node.prev, node.next) if each is not None)
    among = any(each.tag == "-text" and each.text().strip() for each in beside)
    return bool(among or node.parent.tag == "p")


def _is_navigation(node: Any) -> bool:
    linked = sum(len(one_line(link.text())) for link in node.css("a[href]"))
    return linked > len(one_line(node.text())) / 2


def _around_main(tree: LexborHTMLParser) -> list[Any]:
    """What stands beside the only `main` of a page, besides a header with its title."""
    marked = {node.mem_id: node for node in tree.css(MAIN) if node.text(strip=True)}
    outer = [n for n in marked.values() if not any(a.mem_id in marked for a in above(n.parent))]
    path = list(above(outer[0]))[:-2] if len(outer) == 1 else []  # up to the body
    inside = {node.mem_id for node in path}
    beside = [n for node in path[1:] for n in node.iter(include_text=True)]
    beside = [node for node in beside if node.mem_id not in inside]
    titled = "h1" if path and not path[0].css_first("h1") else "none"
    return [node for node in beside if not node.css_first(titled) or _is_navigation(node)]


def _cut_invisible(tree: LexborHTMLParser, opened: set[str], all_known: bool) -> int:
    """Take out the words that nobody sees, unless a node with an id in `opened` shows them."""
    words = 0
    never = f"{ICONS if all_known else '[aria-hidden=true]'}, {NEVER}"
    for node in reversed(_once(tree.css(f"{never}, [style]"))):  # the innermost first
        shown = "display" in styles.stated(node)
        gone = styles.is_hidden(node) or (node.css_matches(never) and not shown)
        if not gone and not styles.is_away(node):
            words += _cut_words(styles.unseen(node, all_known=all_known))
        elif not _is_panel(node, opened):
            words += _cut_words([node])
    return words


def _once(nodes: Iterable[Any]) -> list[Any]:
    """Each node once: a selector finds one again for each of its parts."""
    return list({node.mem_id: node for node in nodes}.values())


def _given(node: Any, *names: str) -> list[str]:
    """The attributes of a node; "" for one that it does not have."""
    return [node.attributes.get(name) or "" for name in names]


def _is_panel(node: Any, opened: set[str]) -> bool:
    """Whether a hidden node is shown by a click, or holds a formula beside its picture."""
    role, kind, hidden, name = _given(node, "role", "class", "hidden", "id")
    if role == "tabpanel" or hidden == "until-found" or node.css_matches("[x-show], [ng-show]"):
        return True
    if node.tag == "dialog" or POPUP.search(f"{role} {kind} {name}"):
        return False
    (around,) = _given(node.parent, "class") if node.parent else ("",)
    inside = re.search("tabs?-content|tabbed|accordion|switcher", around, re.IGNORECASE)
    formula = node.tag != "math" and node.css_first("math") is not None
    return name in opened or bool(PANEL.search(f"{node.tag} {kind}") or inside) or formula


def _is_label(button: Any) -> bool:
    """Whether a button is a heading, or opens what is below it."""
    tags = [around.tag or "" for around in islice(above(button), 4)]
    heads = any(HEADING.fullmatch(tag) or tag in ("dt", "summary") for tag in tags)
    return bool(heads or button.css_matches(TOGGLES) or PANEL.search(_given(button, "class")[0]))


def _opens(node: Any) -> Iterator[str]:
    """The ids of what a click on a node shows."""
    controls, clicked = _given(node, "aria-controls", "onclick")
    yield from controls.split()
    yield from (given[1:] for given in node.attributes.values() if given and given[0] == "#")
    yield from QUOTED.findall(clicked)


def _panels(tree: LexborHTMLParser) -> tuple[dict[int, str], list[Any]]:
    """The label of each panel of tabs, by `mem_id`; and the tabs that are labels of panels."""
    tabs, panels = tree.css(TABS), tree.css(PANELS)
    by_id = {panel.attributes.get("id"): panel for panel in panels}
    of_tab = {tab.mem_id: next((by_id[i] for i in _opens(tab) if i in by_id), None) for tab in tabs}
    strips = tree.css("[role=tablist], .tabbed-labels") if len(panels) <= IN_ORDER else []
    for strip in strips:
        inside = strip.css(TABS)
        below = strip.parent.css(PANELS) if strip.parent else []
        ids = {panel.mem_id for panel in below}
        below = [p for p in below if all(n.mem_id not in ids for n in above(p.parent))]
        if len(inside) == len(below) and not any(of_tab.get(tab.mem_id) for tab in inside):
            of_tab |= {tab.mem_id: panel for tab, panel in zip(inside, below, strict=True)}
    labels, used = dict[int, str](), []
    for tab in tabs:
        panel, text = of_tab[tab.mem_id], one_line(tab.text())
        if panel is not None and text:
            labels[panel.mem_id] = text
            used.append(tab)
    return labels, used


def _picture(node: Any) -> str:
    """The alternative text, unless it names a mark such as "[Note]", or a link such as "Next"."""
    alt, source = _given(node, "alt", "src")
    alt = one_line(alt)
    mark = MARK.fullmatch(alt) or alt.lower() in LABELS or "badge" in source
    mark = mark or (node.parent.css_matches("a[href]") and " " not in alt)
    mark = mark or alt == source.rpartition("/")[2].rpartition(".")[0]  # the name of its file
    return f" {alt} " if alt and not mark else ""


def _field(node: Any) -> str:
    kind, written = _given(node, "type", "value")
    if kind.lower() not in TICKED:
        return f" {written} " if kind.lower() in TYPED else ""
    named = " ".join([*_given(node.parent, "class"), *_given(node, "class", "id", "name")])
    return "" if SWITCH.search(named) else " [x] " if "checked" in node.attributes else " [ ] "


def _choices(node: Any) -> str | None:
    choices = [one_line(choice.text()) for choice in node.css("option")]
    return f" {' / '.join(filter(None, choices))} " if len(choices) <= CHOICES else None


def _reading(node: Any) -> str:
    """How East Asian characters are read, in parentheses."""
    text = one_line(node.text())
    return text if node.parent.css_first("rp") else f"({text})"


def _repeat(cell: Any) -> None:
    """Set the text of a cell that spans rows into each of them, as text between the cells."""
    text, row = one_line(cell.text()), cell.parent
    column = next((at for at, each in _cells(row) if each.mem_id == cell.mem_id), 0)
    if column > MOST_COLUMNS:
        return
    for _ in range(min(whole(_given(cell, "rowspan")[0].strip(), 1), MOST_ROWS) - 1):
        row = row.next
        while row is not None and row.tag != "tr":
            row = row.next
        if row is None or not 0 < len(text) <= MAX_REPEATED:
            return
        there = next((each for at, each in _cells(row) if at >= column), None)
        shown = f" | {text}" if column else text
        (row.insert_child if there is None else there.insert_before)(shown)


def _cells(row: Any) -> Iterator[tuple[int, Any]]:
    """The cells of a row with their columns; text in it is that of a cell that spans it."""
    column = 0
    for each in row.iter(include_text=True):
        if each.tag in ("td", "th") or each.text().strip():
            yield column, each
            column += max(1, whole((each.attributes.get("colspan") or "").strip(), 1))


def _raised(node: Any) -> str:
    """A raised or lowered text, or the mark of a note."""
    text = one_line(node.text())
    alone = node.parent.tag == "a" and one_line(node.parent.text()) == text
    marks = node.tag == "a" or alone or node.css_first("a[href]") is not None
    note = NOTE.fullmatch(text) if marks else None
    if note:
        return f"[{note[1]}]"
    before, after, bar = _beside(node), _beside(node, "next"), node.next
    is_bar = bar is not None and _end_of(bar, "next").strip() in ("/", "\u2044")
    below = _end_of(bar.next, "next") if is_bar and bar.next is not None else ""
    if all(part[:1].isdigit() for part in (before[-1:], text, below)):
        return f" {text}"  # 1 1/2, a whole number and a fraction
    low = "sub" in (node.tag, _lift(node))
    if text in ("o", "0") and not low and before[-1:].isdigit() and DEGREES.match(after):
        return "°"
    apart = text[-1:].isdigit() and after[:1].isdigit()  # as log₂8, and the mark of a note
    apart |= not before and not low and re.match(r"[^\W\d_]{3}", after) is not None
    return raised(before, text, low=low) + " " * apart


def _lift(node: Any) -> str:
    """How the style of a node moves its text alone: as "super" or "sub"; "" if it does not."""
    style = styles.stated(node)
    look = style.get("vertical-align", "")
    if style.get("position") == "relative" and ("top" in style or "bottom" in style):
        look = style.get("bottom") or f"-{style['top']}".removeprefix("--")
    look = RISE.sub(lambda by: "sub" if by[1] else "super", look)
    return LIFTS.get(look, "") if len(node.css("*")) == 1 else ""


def _beside(node: Any, side: str = "prev") -> str:
    """The text in the line of a node, at the end of what stands before it, or is "next"."""
    while getattr(node, side) is None and INLINE.fullmatch(node.parent.tag or ""):
        node = node.parent
    other = getattr(node, side)
    known = other is not None and (other.tag == "-text" or INLINE.fullmatch(other.tag or ""))
    return _end_of(other, side) if known else ""


def _end_of(node: Any, side: str = "prev") -> str:
    """The last characters of a node's text, some 40; the first ones, if it stands after others."""
    text, parts = "", [node]
    for _ in range(100):
        if not parts or len(text) >= 40:
            break
        part = parts.pop()
        if part.tag == "-text":
            text = text + part.text() if side == "next" else part.text() + text
        else:
            inside = list(part.iter(include_text=True))
            parts += inside[::-1] if side == "next" else inside
    return text[:40] if side == "next" else text[-40:]


def raised(before: str, text: str, *, low: bool = False) -> str:
    """A raised or lowered text in a line after `before`: 10⁶ is 10^6, m² is m2, H₂O is H2O.

    It never becomes a part of the number, or of the longer word, before it.
    """
    text = text.replace("\u2212", "-")
    last, word = before[-1:], LETTERS.search(before)
    letters = len(word[0]) if word else 0
    signs, charge = not any(map(str.isalnum, text)), CHARGE.fullmatch(text) is not None
    if letters == 0 and re.fullmatch(r"\w+\)", text):  # the mark of a note
        return f"[{text[:-1]}]"
    if low or signs or text[0] in "[(":
        if low and last.isalnum() and not TERM.fullmatch(text):
            return f"_{_one(text)}"
        mark = ("_" if low and not signs else "^" if charge else "") if last.isdigit() else ""
        return mark + text
    if last.isdigit():
        price = PRICE.search(before) and len(text) == 2 and text.isdigit()
        mark = "." if price else "" if text.casefold() in ORDINALS else "^"
    elif letters and text.isalpha():
        text = TRADE.get(text.lower(), text)
        mark = "^" if letters == len(text) == 1 and last.islower() else ""
    elif letters:
        mark = "" if charge or (text.isdigit() and letters < 3) else "^"
    else:
        mark = "^" if last and last in ")]}|" else ""
    return f"^{_one(text)}" if mark == "^" and not charge else mark + text


def _one(text: str) -> str:
    return text if TERM.fullmatch(text) else f"({text})"


def _formula(node: Any) -> str:
    """A formula in its line, apart from the words around it."""
    sides = _beside(node)[-1:], _beside(node, "next")[:1]
    spaces = (" " if side.isalnum() else "" for side in sides)
    return linear(node).join(spaces)


SHOW: dict[str, Callable[[Any], str | None]] = {
    "script": lambda node: f" {one_line(node.text())} ",
    "math": _formula,
    "img": _picture,
    "input": _field,
    "select": _choices,
    "q": lambda node: f"“{one_line(node.text())}”",
    "rt": _reading,
}


def _list_style(node: Any) -> str:
    style = styles.stated(node)
    return style.get("list-style-type") or style.get("list-style", "")


class _List:
    """A list with numbers: which one its next item has, and how it is written."""

    def __init__(self, node: Any) -> None:
        start, kind, named = _given(node, "start", "type", "class")
        named += f" list-style: {_list_style(node)}"
        backwards = "reversed" in node.attributes
        items = sum(child.tag == "li" for child in node.iter())
        self.number = whole(start.strip(), items if backwards else 1)
        self.step = -1 if backwards else 1
        self.kind = kind or "1"
        item = node.css_first("li")
        counted_by_style = item and styles.stated(item).get("list-style") == "decimal"
        if (form := NUMBERED.search(named)) and not counted_by_style:
            kinds = {"alpha": "a", "latin": "a", "roman": "i"}
            kind = kinds.get((form[2] or "").lower(), "")
            self.kind = kind.upper() if (form[1] or "").lower() == "upper" else kind

    def mark(self, item: Any) -> str:
        """The number before an item, as "2. "."""
        stated, kind = _given(item, "value", "type")
        number, kind = whole(stated.strip(), self.number), kind or self.kind
        self.number = number + self.step
        if not kind:
            return "- "
        form = "decimal" if kind in "aA" and number > 26 else FORMS.get(kind, "decimal")
        return f"{formatted(number, form)}. "


class _Walk:
    def __init__(self, labels: dict[int, str]) -> None:
        self._blocks: list[Block] = []
        self._headings = Headings(self._blocks)
        self._labels = labels  # of panels
        self._level = 0  # of the last heading, in tens: a label stands between two levels
        self._inside: list[int] = []  # the levels of the labels of the panels around
        self._lists: list[_List | None] = []  # those around; None for one without numbers
        self._mark = ""  # of an item, and waits for its text
        self._text: list[str] = []
        self._row = False  # whether the text is in a table row
        self._first = True  # whether no cell has begun since the last block

    def blocks_of(self, root: Any) -> list[Block]:
        """The blocks below a node, in order; without recursion, as tags may nest deeply."""
        node, last = root, root and root.mem_id  # `==` of two nodes compares all of their content
        while node is not None:
            below = node.child if self._enter(node) else None
            if below is not None:
                node = below
                continue
            self._leave(node)
            while node.mem_id != last and node.next is None:
                node = node.parent
                self._leave(node)
            node = None if node.mem_id == last else node.next
        self._flush()
        self._headings.enter(1, "")
        return self._blocks

    def _enter(self, node: Any) -> bool:
        """Enter a node; return whether to visit its children."""
        tag = node.tag or ""
        if tag == "-text":
            self._text.append(node.text_content or "")
            return False
        if node.mem_id in self._labels:
            self._flush()
            self._inside.append(self._level + min(9, 1 + len(self._inside)))
            self._headings.enter(self._inside[-1], self._labels[node.mem_id])
        if HEADING.fullmatch(tag):
            self._heading(node)
            return True
        if tag in ("pre", "svg"):
            self._whole(node)
            return False
        if tag in ("td", "th"):
            self._text.append("" if self._first and not "".join(self._text).strip() else " | ")
            self._first = False
        elif tag == "br":
            self._text.append("\n")
        elif not INLINE.fullmatch(tag) and not (self._row and tag in ("p", "div")):
            self._flush()
            self._row = tag == "tr"
            if tag in ("ol", "ul", "menu"):
                numbers = tag == "ol" or COUNTED.search(_list_style(node))
                self._lists.append(_List(node) if numbers else None)
            elif tag == "li":
                around = self._lists[-1] if self._lists else None
                self._mark = around.mark(node) if around else "- "
        return True

    def _heading(self, node: Any) -> None:
        """Enter a heading, or a label of what is below it; what is left of it is text."""
        self._flush()
        text, self._mark = self._mark.removeprefix("- ") + _heading(node), ""
        if text.lower().rstrip(":") in LABELS:
            self._add(text, leads=True)
        else:
            self._level = 10 * int(node.tag[1])
            self._headings.enter(self._level, text)
        for part in _line(node):
            part.decompose()

    def _whole(self, node: Any) -> None:
        """A block of code, after the number of its step; or the words of a drawing."""
        if node.tag == "svg":
            drawn = (one_line(part.text()) for part in node.css("text, foreignObject"))
            if text := "; ".join(filter(None, drawn)):
                self._flush()
                self._add(text)
            return
        self._flush()
        self._add(self._mark.strip(" -"), leads=True)
        self._mark = ""
        for part in node.css("br"):
            part.replace_with("\n")
        self._add(node.text().strip("\n"), code=True)

    def _leave(self, node: Any) -> None:
        tag = node.tag or ""
        if tag == "tr":
            self._row = False
        if _is_block(tag) and not self._row:
            self._flush(leads=tag in ("dt", "summary"))
        if tag == "li":
            self._mark = ""
        elif tag in ("ol", "ul", "menu") and self._lists:
            self._lists.pop()
        if node.mem_id in self._labels:
            self._headings.enter(self._inside.pop(), "")

    def _flush(self, *, leads: bool = False) -> None:
        """Make a block of the collected text; the mark of an item or a note waits for its text."""
        text = one_line("".join(self._text))
        self._text, self._first = [], True
        if NOTE_MARK.fullmatch(text):
            self._mark += f"{text} "
        elif text.strip(" -|"):
            self._add(self._mark + text, leads=leads)
            self._mark = ""

    def _add(self, text: str, *, code: bool = False, leads: bool = False) -> None:
        if text.strip(" -|\n"):
            self._blocks.append(Block(text, self._headings.path, code=code, leads=leads))


def _is_block(tag: str) -> bool:
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
