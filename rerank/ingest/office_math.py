"""Equations of office documents (OMML) as one line of text: `(a+b)/c`, `x_1^2`.

It knows nothing of the document around an equation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
GONE = {"del", "moveFrom"}  # changes that are tracked
ATOM = re.compile(r"[-−]?[\w.]+|\W|\([^()]*\)|\[[^\[\]]*\]")
MADE = {"f", "sSup", "sSub", "sSubSup", "sPre", "rad", "nary", "limLow", "limUpp", "func"}


def kind_of(node: Any) -> str:
    """The name of an element without its namespace; "" for a comment and the like."""
    return node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""


def linear(node: Any) -> str:
    """The parts of an equation, or of a part of one, in a line."""
    text, made_before = "", False
    for child in node:
        part, made = _part(child), kind_of(child) in MADE
        apart = made_before or (made and kind_of(child) in ("f", "sPre"))
        if apart and text[-1:].isalnum() and (part[:1].isalnum() or part[:1] == "("):
            text += " "  # 2 1/2 is not 21/2
        elif made_before and text[-1:] == ")" and part[:1].isalnum():
            text += " "
        text += part
        made_before = made if part else made_before
    return text


def _part(node: Any) -> str:
    kind = kind_of(node)
    if kind == "t":
        return node.text or ""
    if kind in FORMS:
        return FORMS[kind](_Form(node))
    return "" if kind in GONE or kind.endswith("Pr") else linear(node)


class _Form:
    """An element that Word draws in a form of its own, such as a fraction."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def text(self, name: str = "e") -> str:
        """The text of the part of a name; the main one is "e"."""
        found = self._node.find(M + name)
        return "" if found is None else linear(found)

    def all(self, path: str) -> list[str]:
        """The texts of all parts at a path."""
        return [linear(each) for each in self._node.findall(M + path)]

    def one(self, name: str = "e") -> str:
        """The text of a part, in parentheses if it is more than one thing."""
        text = self.text(name)
        return text if ATOM.fullmatch(text) else f"({text})"

    def script(self, mark: str, name: str) -> str:
        """What stands below or above, after its mark; "" if nothing does."""
        return f"{mark}{self.one(name)}" if self.text(name) else ""

    @property
    def scripts(self) -> str:
        """What stands below and above."""
        return self.script("_", "sub") + self.script("^", "sup")

    def value(self, name: str, default: str) -> str:
        """A property of the form."""
        found = self._node.find(f"{M}{kind_of(self._node)}Pr/{M}{name}")
        return default if found is None else str(found.get(f"{M}val", default))

    def rows(self) -> list[str]:
        """The rows of a matrix."""
        return [
            ", ".join(map(linear, row.findall(f"{M}e"))) for row in self._node.findall(f"{M}mr")
        ]


def _fraction(form: _Form) -> str:
    if form.value("type", "bar") == "noBar":
        return f"({form.text('num')}; {form.text('den')})"
    return f"{form.one('num')}/{form.one('den')}"


def _root(form: _Form) -> str:
    return f"{form.one()}^(1/{form.one('deg')})" if form.text("deg") else f"√({form.text()})"


def _bracketed(form: _Form) -> str:
    inner = form.value("sepChr", "|").join(form.all("e"))
    return form.value("begChr", "(") + inner + form.value("endChr", ")")


def _function(form: _Form) -> str:
    space = "" if form.text()[:1] in ("(", "[") else " "
    return form.text("fName") + space + form.text()


FORMS: dict[str, Callable[[_Form], str]] = {
    "f": _fraction,
    "rad": _root,
    "d": _bracketed,
    "func": _function,
    **dict.fromkeys(("sSup", "sSub", "sSubSup"), lambda form: form.one() + form.scripts),
    "sPre": lambda form: f"{form.scripts} {form.text()}",
    "nary": lambda form: f"{form.value('chr', '∫')}{form.scripts} {form.text()}",
    "m": lambda form: f"[{'; '.join(form.rows())}]",
    "eqArr": lambda form: "; ".join(form.all("e")),
    "limLow": lambda form: form.text() + form.script("_", "lim"),
    "limUpp": lambda form: form.text() + form.script("^", "lim"),
    "acc": lambda form: form.text() + form.value("chr", "\u0302"),
    "phant": lambda form: "" if form.value("show", "1") in ("0", "off", "false") else form.text(),
}
