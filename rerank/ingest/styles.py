"""What the styles in an HTML page say of its parts: what they hide, or show where nobody sees it.

Style sheets elsewhere are not known.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Any

from selectolax.lexbor import LexborHTMLParser

NESTED_RULES = re.compile(r"/\*.*?\*/|@[^{};]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", re.DOTALL)
RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
SELECTOR = re.compile(r"[\w.#-]*[\w-](?:(?: +| *> *)[\w.#-]*[\w-]){0,2}")  # no state as :hover
RULES = 300  # selectors of a page are looked at
LONGEST_RULE, LONGEST_STYLE = 200, 1000  # characters of a declaration, and of a node's rules
LOOKED_AT = re.compile(
    r"\s*(?:display|visibility|text-|vertical-align|list-style|opacity|color|background|font|clip"
    r"|position|left|right|top|bottom|transition|animation|transform)",
    re.IGNORECASE,
)
HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|opacity\s*:\s*0(?!\.[1-9])", re.I)
SHOWN = re.compile(
    r"display\s*:\s*(?!none)\w|visibility\s*:\s*visible|opacity\s*:\s*(?:1|0?\.[1-9])", re.I
)
NOTHING = re.compile(r"0?(?:\.0\d*)?%?")  # an opacity
SIZE = re.compile(r"(\d+\.?\d*|\.\d+)(px|pt|r?em|%|)")
PIXELS = {"px": 1.0, "pt": 4 / 3, "em": 40.0, "rem": 16.0, "%": 0.4, "": 1.0}  # beside large text
SMALLEST = 2.0  # pixels of letters that are seen
FAR = re.compile(r"-\d{4,}(?:\.\d+)?p[xt]|-\d{3,}r?em")
GONE = re.compile(r"translate\w*\([^)]*-\d{4,}px|scale\(\s*0\s*[,)]")
CLIPPED = re.compile(
    r"rect\((?:\s*[01](?:px)?[\s,]*){4}\)|inset\(\s*(?:50|100)%|circle\(\s*0(?:px|%|\s|\))"
)
COLOUR = re.compile(
    r"#([0-9a-f]{6}|[0-9a-f]{3})|rgba?\(\s*(\d+)[\s,]+(\d+)[\s,]+(\d+)\s*(?:[,/]\s*1\s*)?\)"
    "|white|black"
)
DIGIT = re.compile(".")
CLEAR = re.compile(r"transparent|rgba\([^)]*[,/]\s*0?\.?0*\s*\)|#[0-9a-f]{6}00")
NO_PAINT = {"", "none", "inherit", "initial", "unset"}  # values that show what lies behind
# properties with which letters look otherwise than their colour says
PAINTS = (
    "text-shadow",
    "-webkit-text",
    "mix-blend-mode",
    "filter",
    "backdrop-filter",
    "box-shadow",
)
MEDIA = {"", "all", "screen"}
STRING = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")
IN_RULE = re.compile(r"\{[^{}]*\{")  # a rule within a rule
OWN = "own:;"  # before the style that a node has itself, after the rules of the page
HIGHEST = 100  # parts around a text, in which a background is looked for
ALIKE = 12  # difference of two colours, of 255, that is not seen
PICTURES = "img, svg, canvas, video, input, select, textarea, button, mark"
Colour = tuple[int, ...]  # of three numbers


def above(node: Any) -> Iterator[Any]:
    """A node and those around it, from the inside."""
    while node is not None:
        yield node
        node = node.parent


def stated(node: Any) -> dict[str, str]:
    """The properties that the style of a node states, in lower case; the last value of each."""
    style = (node.attributes.get("style") or "").lower().replace("!important", "")
    pairs = (each.partition(":") for each in style.split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def said(node: Any, *names: str) -> str | None:
    """The value of a property that a node has, "" for none; None if that is not known.

    Of the rules of a page, which one wins is known only if all say the same.
    """
    text = (node.attributes.get("style") or "").lower()
    rules, _, own = text.rpartition(OWN)
    values = [
        [value.strip() for name, _, value in pairs if name.strip() in names]
        for pairs in ([each.partition(":") for each in part.split(";")] for part in (rules, own))
    ]
    if values[1] and not any("!" in value for value in values[0]):
        return values[1][-1].replace("!important", "").strip()
    found = {value.replace("!important", "").strip() for value in (*values[0], *values[1])}
    return found.pop() if len(found) == 1 else None if found else ""


def add_rules(tree: LexborHTMLParser) -> bool:
    """Put what the rules of a page say of its nodes before the style that each has itself.

    Return whether every background of the page is then known. Sheets of other media, and those
    with rules within rules, are not read.
    """
    on_screen = [s for s in tree.css("style") if _media(s) in MEDIA]
    whole = [STRING.sub("", style.text()) for style in on_screen]
    flat = {sheet: NESTED_RULES.sub("", sheet) for sheet in whole}
    sheets = [sheet for sheet in whole if not IN_RULE.search(flat[sheet])]
    rules = [rule for sheet in sheets for rule in RULE.findall(flat[sheet])]
    shown = " ".join(which for which, what in rules if SHOWN.search(what))
    told = [
        (one, what)
        for which, every in rules
        if (what := ";".join(filter(LOOKED_AT.match, (d[:LONGEST_RULE] for d in every.split(";")))))
        for one in map(str.strip, which.split(","))
        if not (HIDDEN.search(what) and re.split("[ >]", one)[-1] in shown)
    ]
    plain = [rule for rule in told if SELECTOR.fullmatch(rule[0])]
    of_node = defaultdict[int, str](str)
    for one, what in plain[:RULES]:
        for node in tree.css(one):
            if len(of_node[node.mem_id]) <= LONGEST_STYLE:
                of_node[node.mem_id] += f"{what[:LONGEST_STYLE]};"
    for node in tree.css("*") if of_node else ():
        if node.mem_id in of_node:
            own = node.attributes.get("style") or ""
            node.attrs["style"] = f"{of_node[node.mem_id]}{OWN}{own}"
    unknown = {*told} - {*plain[:RULES]}
    nested = "".join(each for sheet in sheets for each in NESTED_RULES.findall(sheet))
    is_stated = any("color" in what or "background" in what for _, what in unknown)
    of_others = tree.css("link[rel~=stylesheet i]") or any("@import" in sheet for sheet in whole)
    return not (of_others or is_stated or "background" in nested or len(sheets) < len(whole))


def _media(style: Any) -> str:
    return (style.attributes.get("media") or "").strip().lower()


def is_hidden(node: Any) -> bool:
    """Whether the style of a node takes it off the page."""
    style = stated(node)
    return style.get("display") == "none" or style.get("visibility") == "hidden"


def is_struck(node: Any) -> bool:
    """Whether the style of a node strikes its text out."""
    style = stated(node)
    return any("line-through" in style[name] for name in style if name.startswith("text-decor"))


def unseen(node: Any, *, all_known: bool) -> list[Any]:
    """The node, or texts in it that look as it does, if its own style makes that nobody sees them.

    They are clear, smaller than two pixels, off the page, clipped, or of the colour of their
    background, which must be known: stated around, or white if `all_known`.
    """
    style = stated(node)
    moves = any(name.startswith(("transition", "animation")) for name in style)
    is_placed = style.get("position") in ("absolute", "fixed")
    edges = (style.get(edge, "") for edge in ("left", "top"))
    is_page = node.tag in ("html", "body")  # which a script shows when it is ready
    if (
        ("opacity" in style and NOTHING.fullmatch(style["opacity"]) and not moves and not is_page)
        or (is_placed and (any(map(FAR.match, edges)) or CLIPPED.match(style.get("clip", ""))))
        or CLIPPED.match(style.get("clip-path", ""))
        or FAR.match(style.get("text-indent", ""))
        or GONE.search(style.get("transform", ""))
    ):
        return [node]
    size = SIZE.fullmatch(said(node, "font-size") or _of_font(said(node, "font") or ""))
    stated_colour = said(node, "color")
    named = stated_colour or (node.attributes.get("color") or "").lower()
    plain = stated_colour is not None and not any(name.startswith(PAINTS) for name in style)
    if size and float(size[1]) * PIXELS[size[2]] < SMALLEST:
        apart, other = PICTURES, ("font", "font")
    elif named and plain and _is_as_ground(node, named, all_known):
        apart, other = f"{PICTURES}, a[href]", ("color", "background")
    else:
        return []
    texts, inside = list[Any](), [node]
    for around in inside:
        for each in around.iter(include_text=True):
            if each.tag == "-text":
                texts.append(each)
            elif not each.css_matches(apart) and not any(
                name.startswith(other) for name in (*stated(each), *each.attributes)
            ):
                inside.append(each)
    return texts


def _of_font(text: str) -> str:
    """The size in a font such as "bold 12px/1.5 serif"; "" if there is none."""
    sizes = (size for size in re.split(r"[\s/]+", text) if SIZE.fullmatch(size))
    return next((size for size in sizes if size == "0" or size.endswith(("px", "pt"))), "")


def _is_as_ground(node: Any, named: str, all_known: bool) -> bool:
    """Whether a colour is that of the known background of a node, or none at all."""
    ground: Colour | None = (255, 255, 255) if all_known else None
    for around in islice(above(node), HIGHEST):
        style = stated(around)
        painted = said(around, "background-color", "background")
        if painted == "":
            painted = (around.attributes.get("bgcolor") or "").lower()
        strange = {"background-image", "mix-blend-mode", "filter"} & style.keys()
        if painted is None or strange or "background" in around.attributes or around.tag == "svg":
            return False
        if painted not in NO_PAINT and not CLEAR.fullmatch(painted):
            ground = _colour(painted)
            if ground is None:
                return False
            break
        if style.get("position", "static") != "static":
            return False  # it may lie upon something else
    else:
        ground = ground if around.parent is None else None
    own = _colour(named)
    alike = own and ground and max(abs(a - b) for a, b in zip(own, ground, strict=True)) <= ALIKE
    return CLEAR.fullmatch(named) is not None or bool(alike)


def _colour(text: str) -> Colour | None:
    """Red, green and blue of a colour, if it is known."""
    found = COLOUR.fullmatch(text)
    if found is None:
        return None
    if found[1]:
        return tuple(
            bytes.fromhex(found[1] if len(found[1]) == 6 else DIGIT.sub(r"\g<0>" * 2, found[1]))
        )
    red, green, blue = found.groups("0" if found[0] == "black" else "255")[1:]
    return int(red), int(green), int(blue)
