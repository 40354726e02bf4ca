"""Markdown (CommonMark with tables): converted to HTML and read as such."""

from __future__ import annotations

import re
from dataclasses import replace

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline

from rerank.ingest.document import Document, clauses, date_in
from rerank.ingest.encoding import decoded
from rerank.ingest.html import read_markup

FRONT = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
KEY = re.compile(r"[^\s#-].*?:(?:[ \t]|$)")
YAML = re.compile(rf"{KEY.pattern}|[-?](?:[ \t]|$)|[ \t#\]}}]|$")  # how each line begins
FIELD = re.compile(r"^(\w[\w -]*?)[ \t]*:[ \t]*(?![|>][\d+-]*[ \t]*$)(\S.*?)[ \t]*$", re.MULTILINE)
REVISED = ("revised", "updated", "last_updated", "lastmod", "last_modified", "modified", "date")

NOTE = re.compile(
    r"^( {0,3})(?=\[\^[^\]\s]+\]:)", re.MULTILINE
)  # else it defines a link, and is lost

MATH = re.compile(r"\$\$[^$]{1,2000}\$\$|\$(?![\s$])(?:\\.|[^$\\\n]){1,1000}(?<!\s)\$(?!\d)")

DEEPEST = 100  # text below is left out; a list in a list is 2 deeper; at 400 Python's stack ends
INLINE = {"maxNesting": 20}  # the usual one: images in images take time that doubles with the depth


def read(data: bytes) -> Document:
    """The document of a Markdown file; `title` and `date` are read from its front matter."""
    text, unread = decoded(data)
    front = FRONT.match(text)
    lines = front[1].split("\n") if front else []
    if not (any(map(KEY.match, lines)) and all(map(YAML.match, lines))):
        front = None  # text between two rules
    fields = {k.lower(): v.strip("\"'") for k, v in FIELD.findall(front[1])} if front else {}
    body = text[front.end() :] if front else text
    parser = MarkdownIt("commonmark", {"maxNesting": DEEPEST}).enable(["table", "strikethrough"])
    parser.inline.ruler.before("escape", "math", _math)
    parser.core.ruler.before(
        "inline", "inline_depth", lambda state: state.md.options.update(INLINE)
    )
    found = read_markup(parser.render(NOTE.sub(r"\1\\", body)))
    revised = next((fields[name] for name in REVISED if name in fields), "")
    return replace(
        found,
        title=fields.get("title") or found.title,
        revised=date_in(revised) or found.revised,
        skipped=clauses(unread, found.skipped),
    )


def _math(state: StateInline, silent: bool) -> bool:
    """Keep a formula as it is: $2*3*4$ is not 234."""
    found = MATH.match(state.src, state.pos)
    if found and not silent:
        state.push("text", "", 0).content = found[0]
    state.pos = found.end() if found else state.pos
    return found is not None
