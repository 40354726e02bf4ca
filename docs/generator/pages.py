"""The site: pages that are written elsewhere (README.md, the cards of models), and fields' texts.

What the code says of a field becomes its text in the API reference: the comment behind it, or the
help of an `option(default, help)`, whose default is then shown alone. As a script it puts what
`make demo` has printed into README.md: `make readme`.
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from pathlib import Path

from griffe import Attribute, Docstring, Extension
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

OPTIONS = ("option", "share")
ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "README.md": "index.md",
    "models/minilm-reranker/README.md": "minilm-reranker.md",
    "models/minilm-reranker-small/README.md": "minilm-reranker-small.md",
}
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
FILE_NAME = re.compile(r"\[(?:docs/)?([\w-]+)\.md\]\(")  # as the text of a link
SHOWN = re.compile(r"(The demo prints[^\n]*\n\n```text\n).*?(```)", re.DOTALL)
REASONS = re.compile(r"(^ {5}start:.*\n.*\n)(?: {5}.*\n)*", re.MULTILINE)  # the first two are shown


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add these pages to those of docs/."""
    for source, name in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead to the page of the site that is the file in the repository."""
    name = page.file.src_uri
    source = next((s for s, made in ELSEWHERE.items() if made == name), f"docs/{name}")

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        return "](" + ELSEWHERE.get(target, target.removeprefix("docs/"))

    named = FILE_NAME.sub(lambda text: f"[{text[1].replace('-', ' ')}](", markdown)
    return LINK.sub(moved, named)


class Fields(Extension):
    """Texts and defaults of the fields of classes."""

    def on_attribute_instance(self, *, node: object, attr: Attribute, **_: object) -> None:
        """Give an attribute of a class its text, if it has no docstring."""
        if attr.docstring or not isinstance(node, ast.AnnAssign) or not attr.parent.is_class:
            return
        value = node.value
        if isinstance(value, ast.Call) and getattr(value.func, "id", "") in OPTIONS:
            attr.value, text = ast.unparse(value.args[0]), ast.literal_eval(value.args[1])
        else:
            line = attr.lines_collection[attr.filepath][attr.endlineno - 1]
            text = line.partition("  # ")[2]
        if text:
            attr.docstring = Docstring(text, parent=attr)


def with_demo(page: str, printed: str) -> str:
    """The page with the sentences of a run of the demo and its three answers."""
    head, *answers = printed.rstrip().split("\n\n")
    sentences = [line for line in head.splitlines() if line.startswith(("Top passage", "One of"))]
    answered = (REASONS.sub(r"\1", f"{answer}\n") for answer in answers)
    shown = "\n".join(["\n".join((*sentences, "")), *answered])
    return SHOWN.sub(lambda block: f"{block[1]}{shown}{block[2]}", page)


if __name__ == "__main__":
    readme, printed = ROOT / "README.md", Path(sys.argv[1]).read_text(encoding="utf-8")
    readme.write_text(with_demo(readme.read_text(encoding="utf-8"), printed), encoding="utf-8")
