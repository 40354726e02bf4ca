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
STATE = re.compile(r":(?:hover|focus|active|visited|before|after|:)")
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
PIXELS = {"px": 1.0, "pt": 4 / 3, "em": 16.0, "rem": 16.0, "%": 0.16, "": 1.0}
SMALLEST = 2.0  # pixels of letters that are seen
FAR = re.compile(r"-(?:[5-9]\d\d|\d{4,})p[xt]|-\d{3,}r?em|(?:[5-9]\d{3}|\d{5,})p[xt]")
GONE = re.compile(r"translate\w*\([^)]*-\d{4,}px|scale\(0")
CLIPPED = re.compile(r"rect\((?:\s*[01](?:px)?[\s,]*){4}\)|inset\(\s*(?:50|100)%|circle\(\s*0")
COLOUR = re.compile(
    r"#([0-9a-f]{6}|[0-9a-f]{3})\b|rgba?\(\s*(\d+)[\s,]+(\d+)[\s,]+(\d+)[\s,/)]|white|black"
)
DIGIT, PAINTED = re.compile("."), re.compile(r"url\(|gradient|var\(")
CLEAR = re.compile(r"transparent|rgba\([^)]*[,/]\s*0?\.?0*\s*\)|#[0-9a-f]{6}00\b")
HIGHEST = 100  # parts around a text, in which a background is looked for
ALIKE = 12  # difference of two colours, of 255, that is not seen
PICTURES = "img, svg, canvas, video, input, select, textarea, button"
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


def add_rules(tree: LexborHTMLParser) -> bool:
    """Put what the rules of a page say of its nodes before the style that each has itself.

    Return whether every background of the page is then known.
    """
    sheets = [style.text() for style in tree.css("style:not([media=print])")]
    rules = [rule for sheet in sheets for rule in RULE.findall(NESTED_RULES.sub("", sheet))]
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
            node.attrs["style"] = of_node[node.mem_id] + (node.attributes.get("style") or "")
    unknown = {*told} - {*plain[:RULES]}
    nested = "".join(each for sheet in sheets for each in NESTED_RULES.findall(sheet))
    is_stated = any("background" in what and not STATE.search(one) for one, what in unknown)
    return not (tree.css("link[rel~=stylesheet i]") or is_stated or "background" in nested)


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
    edges = (style.get(edge, "") for edge in ("left", "right", "top", "bottom"))
    if (
        ("opacity" in style and NOTHING.fullmatch(style["opacity"]) and not moves)
        or (is_placed and (any(map(FAR.match, edges)) or CLIPPED.match(style.get("clip", ""))))
        or CLIPPED.match(style.get("clip-path", ""))
        or FAR.match(style.get("text-indent", ""))
        or GONE.search(style.get("transform", ""))
    ):
        return [node]
    size = SIZE.match(style.get("font-size") or style.get("font", ""))
    named = (style.get("color") or (node.attributes.get("color") or "")).lower()
    if size and float(size[1]) * PIXELS[size[2]] < SMALLEST:
        apart, other = PICTURES, ("font", "font")
    elif named and "text-shadow" not in style and _is_as_ground(node, named, all_known):
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


def _is_as_ground(node: Any, named: str, all_known: bool) -> bool:
    """Whether a colour is that of the known background of a node, or none at all."""
    ground: Colour | None = (255, 255, 255) if all_known else None
    for around in islice(above(node), HIGHEST):
        style = stated(around)
        behind = style.get("background-color", ""), style.get("background", "")
        painted = " ".join([*behind, around.attributes.get("bgcolor") or ""]).lower()
        if (
            PAINTED.search(painted)
            or "background" in around.attributes
            or "background-image" in style
        ):
            return False
        if (colour := _colour(painted)) and not CLEAR.search(painted):
            ground = colour
            break
        if style.get("position", "static") != "static":
            return False  # it may lie upon something else
    else:
        ground = ground if around.parent is None else None
    own = _colour(named)
    alike = own and ground and max(abs(a - b) for a, b in zip(own, ground, strict=True)) <= ALIKE
    return CLEAR.fullmatch(named) is not None or bool(alike)


def _colour(text: str) -> Colour | None:
    """Red, green and blue of the first colour that a text names, if it is known."""
    found = COLOUR.search(text)
    if found is None:
        return None
    if found[1]:
        return tuple(
            bytes.fromhex(found[1] if len(found[1]) == 6 else DIGIT.sub(r"\g<0>" * 2, found[1]))
        )
    red, green, blue = found.groups("0" if found[0] == "black" else "255")[1:]
    return int(red), int(green), int(blue)
