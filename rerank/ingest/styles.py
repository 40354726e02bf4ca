"""What the styles in an HTML page say of its parts: what they hide, or show where nobody sees it.

Style sheets elsewhere are not known.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from selectolax.lexbor import LexborHTMLParser, SelectolaxError
from tinycss2.color4 import parse_color

NESTED_RULES = re.compile(r"/\*.*?\*/|<!--|-->|@[^@{};]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", re.DOTALL)
RULE = re.compile(r"(?<![^{}])([^{}]+)\{([^{}]*)\}")
OPENING = re.compile(r"@[^@{};]*\{")
PRINT = re.compile(r"@media\s+print", re.IGNORECASE)
COLOURED = re.compile("color|background", re.IGNORECASE)
SELECTOR = re.compile(  # no state as :hover, and no text that an attribute has
    r"(?:[\w.#*>+~ -]|\[[\w-]+\]|:(?:not|is|first|last|nth|only)[\w-]*(?:\([^():]*\))?){1,200}"
)
STATE = re.compile(r":[\w-]+(?:\([^()]*\))?")
CLASS = re.compile(r"[.\[]|:(?:first|last|nth|only)")  # and what counts as one
TAG = re.compile(r"(?:^|[ >+~])\w")
RULES = 300  # selectors of a page are looked at
STEPS = 100_000_000  # to find their nodes, about two seconds
LONGEST_RULE, LONGEST_STYLE = 200, 1000  # characters of a declaration, and of a node's rules
LOOKED_AT = re.compile(
    r"\s*(?:display|visibility|text-|vertical-align|list-style|opacity|color|background|font|clip"
    r"|position|left|right|top|bottom|inset|transition|animation|transform|scale|translate|filter"
    r"|fill|stroke|overflow|grid-|(?:max-|min-)?(?:height|width)|margin|padding|float|flex|content-v"
    r"|-webkit-text)",
    re.IGNORECASE,
)
HIDDEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|(?:opacity|(?<!line-)height)\s*:\s*(?:0?\.0+|0)(?![\d.])",
    re.I,
)
SHOWN = re.compile(
    r"display\s*:\s*(?!none)\w|visibility\s*:\s*visible|opacity\s*:\s*(?:1|0?\.[1-9])"
    r"|max-height\s*:\s*[^\s0]|height\s*:\s*auto",
    re.I,
)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# of old pages, and of drawings: attributes that are styles
HINTS = {"bgcolor": "background-color", "color": "color", "text": "color"}
HINTS |= {"background": "background-image"}
DRAWN = ["display", "visibility", "opacity", "fill", "fill-opacity", "stroke", "font-size"]
DRAWN += ["transform"]
HINTED = ", ".join([*(f"[{name}]" for name in HINTS), "svg", "svg *"])
SHAPES = {"rect", "path", "circle", "ellipse", "polygon", "polyline", "line", "image", "use"}
SHAPES |= {"foreignobject"}
LENGTH = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)([a-z]*|%)")
PART = re.compile(r"(?:[^\s(]|\([^)]*\))+")  # of a value
UNITS = {"px": 1.0, "pt": 4 / 3, "pc": 16.0, "in": 96.0, "cm": 37.8, "mm": 3.78, "q": 0.94, "": 1.0}
# pixels, at least, of other units; and at most, of letters beside large ones
LENGTHS = UNITS | {"em": 10.0, "rem": 10.0, "ex": 5.0, "ch": 5.0, "vw": 5.0, "vh": 5.0, "%": 2.0}
OF_LETTERS = UNITS | {"em": 40.0, "rem": 16.0, "ex": 20.0, "ch": 20.0, "%": 0.4}
SHARE = {"": 1.0, "%": 0.01}
FAR = -1000.0  # pixels left of the page, or above it
SMALLEST = 2.0  # pixels of letters that are seen, or of the height of what shows them
FAINTEST = 0.1  # share of a colour
SMALL = 0.02  # share of a size
AWAY = ("absolute", "fixed")  # positions that leave the text around
BOXES = {"block", "inline-block", "flex", "grid", "flow-root"}
BLOCKS = {"div", "p", "section", "article", "aside", "ul", "ol", "dl", "li", "pre", "blockquote"}
BLOCKS |= {"h1", "h2", "h3", "h4", "h5", "h6", "main", "header", "form", "figure", "dt", "dd"}
OPACITY = re.compile(r"opacity\(([^)]*)")
TURNED = re.compile(r"rotate[xy]\(\s*[+-]?(?:90|270)deg|matrix\((?:\s*0*\.?0*\s*,){2}")
MOVED = re.compile(r"(scale|translate)(?:[xy]|3d)?\(([^()]*)\)")
CLIPPED = re.compile(
    r"rect\((?:\s*[01](?:px)?[\s,]*){4}\)|inset\((?:(?:\s*50%){1,4}\s*\)|[^)]*\b100%)"
    r"|(?:circle|ellipse)\(\s*0(?:px|%|\s|\))|polygon\((?:\s*0(?:px|%)?[\s,]*)+\)"
)
NO_PAINT = {"", "none", "inherit", "initial", "unset"}  # values that show what lies behind
# properties with which letters look otherwise than their colour says
PAINTS = (
    *("text-shadow", "box-shadow", "-webkit-text-stroke", "mix-blend-mode", "filter", "stroke"),
    *("background-clip", "-webkit-background-clip"),
)
PAGE = ("html", "body")  # which a script shows when it is ready
MEDIA = {"", "all", "screen"}
STRING = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")
IN_RULE = re.compile(r"\{[^{}]*\{")  # a rule within a rule
HIGHEST = 100  # parts around a text, in which a background is looked for
ALIKE = 12  # difference of two colours, of 255, that is not seen
APART = "img, svg, canvas, video, input, select, textarea, button, mark, table, dialog"
GRID = ("grid-area", "grid-row", "grid-col")
FIELDS = ("input", "select", "textarea", "button", "mark")
COLOURS = ("color", "background", "fill", "stroke", "-webkit-text-fill")
HEXADECIMAL = re.compile("[0-9a-f]{6}")  # of old pages
Colour = tuple[float, ...]  # red, green, blue, and how much of it covers what is behind: 0 to 1
WHITE, BLACK, CLEAR = (1.0, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 1.0), (0.0, 0.0, 0.0, 0.0)


def above(node: Any) -> Iterator[Any]:
    """A node and those around it, from the inside."""
    while node is not None:
        yield node
        node = node.parent


def stated(node: Any) -> Mapping[str, str]:
    """The properties that the style of a node states, in lower case; the value that wins of each.

    A background, and the size of a font, are under `background-color` and `font-size`.
    """
    return _properties(node.attributes.get("style") or "")


@lru_cache(maxsize=4096)
def _properties(style: str) -> dict[str, str]:
    pairs = [each.partition(":") for each in COMMENT.sub("", style.lower()).split(";")]
    found = dict[str, str]()
    for before, _, after in sorted(pairs, key=lambda pair: "!" in pair[2]):  # important ones last
        name, value = before.strip(), after.partition("!")[0].strip()
        if name == "font":
            found["font-size"] = _of_font(value)
        found["background-color" if name == "background" else name] = value
    return found


def add_rules(tree: LexborHTMLParser) -> bool:
    """Put what the rules of a page say of its nodes before the style that each has itself.

    Also what other attributes say of their look. Return whether every colour of the page is then
    known. Sheets of other media, and those with rules within rules, are not read.
    """
    on_screen = [s for s in tree.css("style") if _media(s) in MEDIA]
    whole = [_closed(STRING.sub("", style.text())) for style in on_screen]
    flat = {sheet: NESTED_RULES.sub("", sheet) for sheet in whole}
    sheets = [sheet for sheet in whole if not IN_RULE.search(flat[sheet])]
    rules = [rule for sheet in sheets for rule in RULE.findall(flat[sheet])]
    rules += [
        (re.sub("::?before", "", o), "list-style:decimal") for o, w in rules if "counter(" in w
    ]
    nested = [each for sheet in sheets for each in NESTED_RULES.findall(sheet)]
    of_sizes = "".join(each for each in nested if not PRINT.match(each))  # of the window
    at_times = [*rules, *RULE.findall(OPENING.sub("", of_sizes))]
    shown = " ".join(
        which for which, what in at_times if SHOWN.search(what) and not HIDDEN.search(what)
    )
    told = [
        (one, what)
        for which, every in rules
        if (what := ";".join(filter(LOOKED_AT.match, (d[:LONGEST_RULE] for d in every.split(";")))))
        for one in map(str.strip, which.split(","))
        if not (HIDDEN.search(what) and re.split("[ >]", one)[-1] in shown)
    ]
    plain = [rule for rule in told if SELECTOR.fullmatch(rule[0])][:RULES]
    of_node = defaultdict[int, str](str)
    for node in tree.css(HINTED):
        drawn = any(around.tag == "svg" for around in islice(above(node), HIGHEST))
        names = [(name, name) for name in DRAWN] if drawn else HINTS.items()
        hints = [(to, node.attributes.get(name)) for name, to in names]
        of_node[node.mem_id] = "".join(f"{to}:{value};" for to, value in hints if value)
    states = [  # what a click shows, as "#first:checked ~ .panel"
        (STATE.sub("", re.split("[ >+~]", one)[-1]), shows[0])
        for one, what in told
        if not SELECTOR.fullmatch(one) and (shows := SHOWN.search(what))
    ]
    left, extent = STEPS, _extent(tree) if told else (0, 0)
    for one, what in [*sorted(plain, key=_specificity), *states[:RULES]]:
        try:
            left -= _steps(tree, one, extent) if left > 0 else 0
            found = tree.css(one) if left > 0 else []
        except SelectolaxError:  # no selector
            continue
        for node in found:
            if len(of_node[node.mem_id]) <= LONGEST_STYLE:
                of_node[node.mem_id] += f"{what[:LONGEST_STYLE]};"
    for node in tree.css("*") if of_node else ():
        if of_node.get(node.mem_id):
            own = node.attributes.get("style") or ""
            node.attrs["style"] = f"{of_node[node.mem_id]}{own}"
    unknown = {*told} - {*plain}
    is_stated = any("color" in what or "background" in what for _, what in unknown)
    of_others = tree.css("link[rel~=stylesheet i]") or any("@import" in sheet for sheet in whole)
    return left > 0 and not (
        of_others or is_stated or COLOURED.search(of_sizes) or len(sheets) < len(whole)
    )


def _extent(tree: LexborHTMLParser) -> tuple[int, int]:
    """How deep the nodes of a page are nested, and the most that stand in one other."""
    depth, inside = dict[int, int](), Counter[int]()
    for node in tree.css("*"):
        around = node.parent.mem_id if node.parent else 0
        depth[node.mem_id] = depth.get(around, 0) + 1
        inside[around] += 1
    return max(depth.values()), max(inside.values())


def _steps(tree: LexborHTMLParser, selector: str, extent: tuple[int, int]) -> int:
    """About how many steps it takes at most to find the nodes of a selector.

    For each node that its last part may mean, all choices of those around or before it are tried.
    """
    deepest, widest = extent
    joined = re.sub(r"\s*([>+~])\s*", r"\1", selector)
    tried = math.comb(widest if "~" in joined else deepest, len(re.findall("[ ~]", joined)))
    last = re.split("[ >+~]", STATE.sub("", joined))[-1] or "*"
    counted = widest if "nth" in joined or "last" in joined or "only" in joined else 1
    return len(tree.css(last)) * (500 + tried * counted)


def _closed(sheet: str) -> str:
    """A style sheet with the ends of its last rules, which may be missing."""
    return sheet + "}" * min(2, max(0, sheet.count("{") - sheet.count("}")))


def _media(style: Any) -> str:
    return (style.attributes.get("media") or "").strip().lower()


def _specificity(rule: tuple[str, str]) -> tuple[int, int, int]:
    return rule[0].count("#"), len(CLASS.findall(rule[0])), len(TAG.findall(rule[0]))


def is_hidden(node: Any) -> bool:
    """Whether the style of a node takes it off the page."""
    style = stated(node)
    gone = style.get("display") == "none" or style.get("content-visibility") == "hidden"
    return gone and node.tag not in PAGE


def is_struck(node: Any) -> bool:
    """Whether the style of a node strikes its text out."""
    style = stated(node)
    return any("line-through" in style[name] for name in style if name.startswith("text-decor"))


def is_away(node: Any) -> bool:
    """Whether nobody sees the box of a node, unless a script changes its style.

    It is clear, of no height, off the page or clipped.
    """
    style = stated(node)
    if node.tag in PAGE or any(name.startswith(("transi", "anim")) for name in style):
        return False  # it appears
    is_placed = style.get("position") in ("absolute", "fixed", "relative")
    names: tuple[str, ...]
    names, others = (("left", "top", "inset"), ("right", "bottom")) if is_placed else ((), ())
    shifted: tuple[str, ...] = ("margin-left",)
    if (
        _size(style.get("width", ""), LENGTHS) >= -FAR
        or _size(style.get("right", ""), LENGTHS) <= FAR
    ):
        names = shifted = ()  # it begins there, and is wide, as what is centred
    elif any(name.startswith("padding") for name in style):
        shifted = ()
    edges = [
        part
        for name in (*names, *shifted, "translate")
        for part in PART.findall(style.get(name, ""))
    ]
    scales = style.get("scale", "").split()
    for kind, given in MOVED.findall(style.get("transform", "")):
        (scales if kind == "scale" else edges).extend(map(str.strip, given.split(",")[:2]))
    shares = (style.get("opacity", ""), style.get("fill-opacity", ""))
    shares += tuple(OPACITY.findall(style.get("filter", "")))
    return (
        any(_size(share, SHARE) < FAINTEST for share in shares)
        or any(_size(edge, LENGTHS) <= FAR for edge in edges)
        or any(_size(style.get(side, ""), LENGTHS) >= -5 * FAR for side in others)
        or any(abs(_size(scale, SHARE)) < SMALL for scale in scales)
        or TURNED.search(style.get("transform", "")) is not None
        or bool(is_placed and CLIPPED.match(style.get("clip", "")))
        or CLIPPED.match(style.get("clip-path", "")) is not None
        or _is_flat(node, style)
    )


def _is_flat(node: Any, style: Mapping[str, str]) -> bool:
    """Whether a node cuts off what is in it, and has no height or width."""
    padded = (style.get(name, "0") for name in ("padding", "padding-top", "padding-bottom"))
    cuts = {style.get(name) for name in ("overflow", "overflow-y")} & {"hidden", "clip"}
    if not cuts or {*padded} - {"0", "0px"} or any(n.startswith(("min-", "flex")) for n in style):
        return False
    sizes = (
        style.get(f"{most}{side}", "") for most in ("", "max-") for side in ("height", "width")
    )
    return (
        any("%" not in s and _size(s, LENGTHS) < SMALLEST for s in sizes)
        and _is_block(node, style)
        and not (  # which is cut off with what is around
            style.get("position", "static") == "static"
            and any(stated(n).get("position") in AWAY for n in islice(node.traverse(), HIGHEST))
        )
    )


def _is_block(node: Any, style: Mapping[str, str]) -> bool:
    is_floating = style.get("position") in AWAY or "float" in style
    display = style.get("display", "block" if is_floating or node.tag in BLOCKS else "inline")
    return display in BOXES


def _size(text: str, units: Mapping[str, float]) -> float:
    """A length in pixels, or a share; NaN, which is neither less nor more, if it is not known."""
    found = LENGTH.fullmatch(text.removeprefix("calc(").removesuffix(")"))
    number = float(found[1]) if found else math.nan
    return number * units.get(found[2], math.nan) if found and number else number


def unseen(node: Any, *, all_known: bool) -> list[Any]:
    """The texts in a node, if its own style makes that nobody sees them; without others in it.

    They are made invisible, moved away, smaller than two pixels, or of the colour of their
    background, which must be known: stated around, or white if `all_known`.
    """
    style = stated(node)
    if style.get("visibility") in ("hidden", "collapse") and node.tag not in PAGE:
        return _texts(node, "dialog", ("visibility",))
    if _size(style.get("text-indent", ""), LENGTHS) <= FAR and _is_block(node, style):
        return _texts(node, APART, ("text-indent",))
    if 0 <= _size(style.get("font-size", ""), OF_LETTERS) < SMALLEST:
        return _texts(node, APART, ("font",))
    if any(name.startswith(COLOURS) for name in style) and _is_as_ground(node, all_known):
        return _texts(node, f"{APART}, a[href]", COLOURS)
    return []


def _texts(node: Any, apart: str, other: tuple[str, ...]) -> list[Any]:
    """The texts in a node, besides those in parts that look otherwise, or may."""
    texts, inside = list[Any](), [node]
    for around in inside:
        for each in around.iter(include_text=True):
            if each.tag == "-text":
                texts.append(each)
            elif not (
                each.css_matches(apart) or any(name.startswith(other) for name in stated(each))
            ):
                inside.append(each)
    return texts


def _of_font(text: str) -> str:
    """The size in a font such as "bold 12px/1.5 serif"; "" if there is none."""
    sizes = (size for size in re.split(r"[\s/]+", text) if LENGTH.fullmatch(size))
    return next((size for size in sizes if size == "0" or size.endswith(("px", "pt"))), "")


def _is_as_ground(node: Any, all_known: bool) -> bool:
    """Whether the letters of a node have the colour of its known background, or none at all."""
    parts = list(islice(above(node), HIGHEST))
    own = _letters(parts, all_known)
    ground: Colour | None = WHITE if all_known and parts[-1].parent is None else None
    for each in parts if own else ():
        style = stated(each)
        painted = style.get("background-color", "")
        behind = _colour(painted) if painted not in NO_PAINT else CLEAR
        strange = {"background-image", "mix-blend-mode", "filter"} & style.keys()
        if behind is None or strange or _has_more_behind(each):
            return False
        if behind[3] == 1:
            ground = behind
            break
        higher = "-" in style.get("margin-top", "") + style.get("margin", "")
        is_placed = style.get("position", "static") != "static"
        is_placed |= any(name.startswith(GRID) for name in style)
        if behind[3] or each.tag in FIELDS or higher or is_placed:
            return False  # it may lie upon something else
    if own is None or ground is None:
        return own is not None and own[3] == 0
    return 255 * own[3] * max(abs(a - b) for a, b in zip(own[:3], ground, strict=False)) <= ALIKE


def _has_more_behind(node: Any) -> bool:
    """Whether parts of a drawing, or the columns of a table, may lie behind its text."""
    if node.tag == "svg":
        parts = [(part.tag or "").lower() for part in islice(node.traverse(), HIGHEST)]
        return len(parts) == HIGHEST or not SHAPES.isdisjoint(parts)
    columns = [part for part in islice(node.iter(), 2) if part.tag == "colgroup"]
    return any("style" in part.attributes or part.css_first("[style]") for part in columns)


def _letters(parts: list[Any], all_known: bool) -> Colour | None:
    """The colour of the letters in the first of parts that lie in one another, if it is known."""
    name = "fill" if any(each.tag == "svg" for each in parts) else "color"
    for each in parts:
        style = stated(each)
        if any(other.startswith(PAINTS) for other in style):
            return None
        named = style.get("-webkit-text-fill-color") or style.get(name, "inherit")
        if named != "inherit":
            return CLEAR if named == "none" else _colour(named)
        if not all_known or each.tag in ("a", "table", "dialog"):
            return None
    return BLACK


@lru_cache(maxsize=1024)
def _colour(text: str) -> Colour | None:
    """A colour, if it is known."""
    found = parse_color(f"#{text}" if HEXADECIMAL.fullmatch(text) else text)
    if found is None or isinstance(found, str) or found.space not in ("srgb", "hsl", "hwb"):
        return None
    return tuple(found.to("srgb"))
