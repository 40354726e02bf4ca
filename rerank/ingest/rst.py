"""reStructuredText: converted to HTML and read as such; of Sphinx's markup the text is kept."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from docutils import nodes
from docutils.core import publish_doctree, publish_from_doctree
from docutils.parsers.rst import Directive, directives
from docutils.parsers.rst.languages import en

from rerank.ingest.document import Document, date_in
from rerank.ingest.encoding import decoded
from rerank.ingest.html import read_markup

ROLE = re.compile(r"(?<![\w`:]):(?:[\w.+-]+:)*[\w.+-]+:`([^`]*)`")
TARGET = re.compile(r"^[~!]?(.*?)(?:\s*<[^<>]*>)?$", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*\.\. ([\w:.+-]+)::", re.MULTILINE)
NOTHING = {
    *("toctree", "index", "include", "literalinclude", "raw", "image", "math", "highlight"),
    *("automodule", "autoclass", "autofunction", "module", "currentmodule", "py:module"),
    *("py:currentmodule", "tabularcolumns", "graphviz", "plot"),
}
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
}


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
        """The content as a part of the page."""
        found = nodes.container()
        if self.arguments and self.name not in CONDITIONAL:
            text = " ".join(" ".join(self.arguments).split())
            found += nodes.paragraph(text, text)
        self.state.nested_parse(self.content, self.content_offset, found)
        return [found]


class Nothing(Unknown):
    """A directive whose content is elsewhere, and is left out."""

    def run(self) -> list[nodes.Node]:
        """Nothing."""
        return []


def read(data: bytes) -> Document:
    """The document of a reStructuredText file; files that it includes are not read."""
    text = ROLE.sub(lambda role: TARGET.sub(r"\1", role[1]), decoded(data))
    for name in NOTHING:
        directives.register_directive(name, Nothing)
    named = {name.lower() for name in DIRECTIVE.findall(text)}  # as docutils looks them up
    for name in named.difference(en.directives, NOTHING):
        directives.register_directive(name, Unknown)
    tree = publish_doctree(text, settings_overrides=SETTINGS)
    dated = next((n.astext() for n in tree.findall(nodes.date)), "")
    markup = publish_from_doctree(tree, writer="html5", settings_overrides=SETTINGS).decode()
    found = read_markup(markup)
    return replace(found, title=tree.get("title", ""), revised=found.revised or date_in(dated))
