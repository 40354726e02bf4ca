"""Formulas as one line of text, such as `(a+b)/2` and `x_1^2`, from MathML and from Word's OMML.

OMML is translated to MathML, so that one table says how a formula is written.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable
from typing import Any

M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
GONE = {"del", "moveFrom"}  # changes that are tracked
DEEPEST = 50  # of a formula; what is deeper is left out
OPERATORS = {*"=+\u2212-\u00d7\u00b7<>\u2264\u2265\u2260\u2248\u2192\u00b1\u2208"}
UNSEEN = "\u2061\u2062\u2063\u2064"  # signs that say what is multiplied or applied
ATOM = re.compile(r"[-+\u2212]?[\w.,]+|.|\([^()]*\)|\[[^\[\]]*\]")


def linear(node: Any, depth: int = 0) -> str:
    """A formula of MathML, or a part of one, as text."""
    tag = node.tag or ""
    if tag in ("annotation", "annotation-xml") or depth > DEEPEST:
        return ""
    if tag in LEAVES:
        return LEAVES[tag](node)
    if tag in FORMS:
        parts = [linear(child, depth + 1).strip() for child in node.iter()]
        if len(parts) < 4:
            return FORMS[tag](*parts, *[""] * (3 - len(parts)))
    nodes = list(node.iter(include_text=True))
    parts = [linear(child, depth + 1) for child in nodes]
    if tag in ("mtr", "mtable"):
        return (", " if tag == "mtr" else "; ").join(part.strip() for part in parts if part)
    text = _joined(zip((child.tag or "" for child in nodes), parts, strict=True))
    if tag == "msqrt":
        return f"√({text})"
    text = f" {text} " if tag == "mo" and text in OPERATORS else text
    return text if depth else " ".join(text.split())


def _joined(parts: Iterable[tuple[str, str]]) -> str:
    """The parts in a line: 2 before a fraction 1/2 is not 21/2."""
    text, was_form = "", False
    for tag, part in parts:
        is_form = tag in FORMS
        begins = part[:1].isalnum() or (part[:1] == "(" and text[-1:] != ")")
        if begins and (text[-1:].isalnum() or text[-1:] == ")"):
            text += " " if was_form or tag == "mfrac" else ""
        text += part
        was_form = is_form if part else was_form
    return text


def _one(text: str) -> str:
    """The text, in parentheses if it is more than one thing."""
    return text if ATOM.fullmatch(text) or not text else f"({text})"


def _with_scripts(base: str, below: str, above: str) -> str:
    below, above = (f"{mark}{_one(s)}" if s else "" for mark, s in (("_", below), ("^", above)))
    return _one(base) + below + above


LEAVES: dict[str, Callable[[Any], str]] = {
    "-text": lambda node: " ".join((node.text_content or "").split()).strip(UNSEEN),
    "mtext": lambda node: re.sub(r"\s+", " ", node.text()),
    "mspace": lambda node: " ",
}
FORMS: dict[str, Callable[[str, str, str], str]] = {
    "mfrac": lambda above, below, _: f"{_one(above)}/{_one(below)}",
    "mroot": lambda of, root, _: f"{_one(of)}^(1/{_one(root)})" if root else f"√({of})",
    **dict.fromkeys(("msup", "mover"), lambda base, above, _: _with_scripts(base, "", above)),
    **dict.fromkeys(("msub", "munder"), lambda base, below, _: _with_scripts(base, below, "")),
    **dict.fromkeys(("msubsup", "munderover"), _with_scripts),
}
WORD_TO_MATHML = {  # the MathML of Word's forms, with the names of their parts
    "f": "<mfrac>{num}{den}</mfrac>",
    "rad": "<mroot>{e}{deg}</mroot>",
    "sSup": "<msup>{e}{sup}</msup>",
    "sSub": "<msub>{e}{sub}</msub>",
    "sSubSup": "<msubsup>{e}{sub}{sup}</msubsup>",
    "sPre": "<msubsup><mrow></mrow>{sub}{sup}</msubsup><mspace></mspace>{e}",
    "nary": "<munderover>{chr}{sub}{sup}</munderover><mspace></mspace>{e}",
    "limLow": "<munder>{e}{lim}</munder>",
    "limUpp": "<mover>{e}{lim}</mover>",
    "acc": "{e}{chr}",
    "bar": "{e}{pos}",
    "func": "{fName}<mspace></mspace>{e}",
    "noBar": "<mtext>(</mtext>{num}<mtext>; </mtext>{den}<mtext>)</mtext>",
    "d": "{begChr}{all}{endChr}",
    "m": "<mtext>[</mtext><mtable>{all}</mtable><mtext>]</mtext>",
    "eqArr": "<mtable>{all}</mtable>",
    "mr": "<mtr>{all}</mtr>",
    "t": "<mtext>{text}</mtext>",
}
SIGNS = {"acc": "\u0302", "begChr": "(", "endChr": ")", "sepChr": "|", "chr": "∫"}  # by default
PARTS = ("e", "num", "den", "deg", "sub", "sup", "lim", "fName")


def kind_of(node: Any) -> str:
    """The name of an element without its namespace; "" for a comment and the like."""
    return node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""


def mathml(node: Any) -> str:
    """The MathML of an equation of Word, or of a part of one."""
    kind = kind_of(node)
    stated = {kind_of(each): each.get(f"{M}val", "") for each in node.iterfind(f"{M}{kind}Pr/{M}*")}
    is_hidden = kind == "phant" and stated.get("show") in ("0", "off", "false")
    if kind in GONE or kind.endswith("Pr") or is_hidden:
        return ""
    made = [(kind_of(child), mathml(child)) for child in node]
    signs = {**SIGNS, "chr": SIGNS.get(kind, SIGNS["chr"]), **stated}
    parts = {name: _text(signs[name]) for name in ("chr", "begChr", "endChr")}
    parts["pos"] = _text("\u0304" if stated.get("pos") == "top" else "\u0331")
    parts |= dict.fromkeys(PARTS, "<mrow></mrow>")
    parts |= {name: f"<mrow>{part}</mrow>" for name, part in made}
    if kind == "f" and stated.get("type") == "noBar":
        kind = "noBar"
    wrap = {"m": "{}", "mr": "<mtd>{}</mtd>", "eqArr": "<mtr>{}</mtr>"}.get(kind, "{}")
    between = _text(signs["sepChr"]) if kind == "d" else ""
    parts["all"] = between.join(wrap.format(part) for _, part in made if part)
    return WORD_TO_MATHML.get(kind, "{all}").format_map(
        {**parts, "text": html.escape(node.text or "")}
    )


def _text(text: str) -> str:
    return f"<mtext>{html.escape(text)}</mtext>"
