"""Pages of the site that are written elsewhere: README.md, and the card of the cross-encoder."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "README.md": "index.md",
    "models/minilm-reranker/README.md": "minilm-reranker.md",
    "models/minilm-reranker-small/README.md": "minilm-reranker-small.md",
}
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
FILE_NAME = re.compile(r"\[(?:docs/)?([\w-]+)\.md\]\(")  # as the text of a link


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
