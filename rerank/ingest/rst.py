"""reStructuredText: converted to HTML and read as such; of Sphinx's markup the text is kept."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

from docutils import nodes
from docutils.core import publish_doctree, publish_from_doctree
from docutils.parsers.rst import Directive, Parser, directives, roles
from docutils.parsers.rst.languages import en
from docutils.transforms.references import Substitutions

from rerank.ingest.document import Document, clauses, counted, date_in
from rerank.ingest.encoding import decoded
from rerank.ingest.html import read_markup

ROLE = re.compile(r"(?<![\w`:]):(?:[\w.+-]+:)*([\w.+-]+):`([^`]*)`")
DELETED = ("del", "s", "strike", "strikethrough")
KEPT = {"sup", "superscript", "sub", "subscript", "math", *DELETED}  # docutils reads them
TARGET = re.compile(r"^[~!]?(.*?)(?:\s*<[^<>]*>)?$", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*\.\. ([\w:.+-]+)::", re.MULTILINE)
TABLE = re.compile(r"^( *)\.\. csv-table::.*\n(?:\1 +:.*\n)*?\1 +:(?:file|url):", re.MULTILINE)
NOTHING = {
    *("toctree", "index", "include", "literalinclude", "raw", "highlight"),
    *("automodule", "autoclass", "autofunction", "module", "currentmodule", "py:module"),
    *("py:currentmodule", "tabularcolumns", "graphviz", "plot"),
}
UNREAD = {  # what a directive shows that is elsewhere, and what to call one
    "included file": ("include", "literalinclude"),
    "drawing": ("graphviz", "plot"),
    "part in another format": ("raw",),
}
SAID = {  # what the page says before the arguments of a directive
    **{"versionadded": "Added in version", "versionchanged": "Changed in version"},
    **{"deprecated": "Deprecated since version", "versionremoved": "Removed in version"},
    **{"deprecated-removed": "Deprecated since version", "seealso": "See also:"},
}
AROUND = re.compile(r"^( +:(?:prefix|suffix):.{,20}).*", re.M)  # the number of each section
MOST_SUBSTITUTED = 100_000  # characters that the substitutions of a file print, all together
CONDITIONAL = {"only", "ifconfig"}  # their argument is a condition, no text
SETTINGS = {
    "file_insertion_enabled": False,  # no directive may read a file
    "raw_enabled": False,
    "report_level": 5,
    "halt_level": 5,
    "warning_stream": False,
    "doctitle_xform": True,
    "syntax_highlight": "none",
    "_disable_config": True,
    "line_length_limit": 2**31,  # docutils reads no file with a longer line
    "math_output": "MathML",
}


for _name in DELETED:
    _struck = roles.CustomRole(_name, roles.generic_custom_role, {"class": ["strike"]}, [])
    roles.register_local_role(_name, _struck)


class _AnyOption(dict[str, Any]):
    """The options of an unknown directive: each is text."""

    def __missing__(self, name: str) -> Any:
        return directives.unchanged


class Unknown(Directive):  # type: ignore[misc]
    """A directive of Sphinx or an extension: its arguments and its content, as text."""

    has_content = True
    optional_arguments = 1000
    final_argument_whitespace = True
    option_spec = _AnyOption(klass=directives.unchanged)

    def run(self) -> list[nodes.Node]:
        """The content as a part of the page, unless it is elsewhere."""
        if self.name in NOTHING:
            return []
        found, arguments = nodes.container(), " ".join(self.arguments)
        shown = "" if self.name in CONDITIONAL else f"{SAID.get(self.name, '')} {arguments}"
        if text := " ".join(shown.split()):
            found += nodes.paragraph(text, text)
        self.state.nested_parse(self.content, self.content_offset, found)
        return [found]


class _Bounded(Substitutions):  # type: ignore[misc]
    """Substitutions, of which those after `MOST_SUBSTITUTED` characters print nothing."""

    default_priority = Substitutions.default_priority - 1

    def apply(self) -> None:
        """Substitute, and note how many printed nothing."""
        self.document.printed = self.document.unprinted = 0
        for defined in self.document.substitution_defs.values():
            defined.deepcopy = partial(self._copy, defined)
        super().apply()

    def _copy(self, defined: nodes.Element) -> nodes.Element:
        self.document.printed += len(defined.astext()) + 1
        if self.document.printed <= MOST_SUBSTITUTED:
            return type(defined).deepcopy(defined)
        self.document.unprinted += 1
        return nodes.Element()


class _Parser(Parser):  # type: ignore[misc]
    """Of reStructuredText, with bounded substitutions."""

    def get_transforms(self) -> list[Any]:
        """What is done with the tree before it is read."""
        return [*super().get_transforms(), _Bounded]


def read(data: bytes) -> Document:
    """The document of a reStructuredText file; files that it includes are not read."""
    text, unread = decoded(data)
    text = ROLE.sub(_of_role, AROUND.sub(r"\1", text))
    used = Counter(DIRECTIVE.findall(text))
    used["include"] += len(TABLE.findall(text))
    left_out = [counted(sum(used[n] for n in names), what) for what, names in UNREAD.items()]
    named = {name.lower() for name in used}  # as docutils looks them up
    for name in named.difference(en.directives) | NOTHING:
        directives.register_directive(name, Unknown)
    tree = publish_doctree(text, parser=_Parser(), settings_overrides=SETTINGS)
    left_out.append(counted(tree.unprinted, "repeated substitution"))
    for image in tree.findall(nodes.image):
        image.attributes.setdefault("alt", "")
        image.attributes.pop("scale", None)  # it would open the picture
    dated = next((n.astext() for n in tree.findall(nodes.date)), "")
    markup = publish_from_doctree(tree, writer="html5", settings_overrides=SETTINGS).decode()
    found = read_markup(markup)
    return replace(
        found,
        title=tree.get("title", ""),
        revised=found.revised or date_in(dated),
        skipped=clauses(unread, *left_out, found.skipped),
    )


def _of_role(role: re.Match[str]) -> str:
    name, text = role.groups()
    if name in ("pep", "rfc") and text[:1].isdigit():
        return f"{name.upper()} {text}"
    return f":{name}:`{text}`" if name in KEPT else TARGET.sub(r"\1", text)
