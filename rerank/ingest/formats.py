"""The reader of a file, by its suffix. A new format needs a module and a line here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import PurePosixPath
from typing import cast

from rerank.ingest.document import Document

READERS = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".pdf": "pdf",
    **dict.fromkeys((".docx", ".docm", ".dotx", ".dotm"), "docx"),
    ".rst": "rst",
    ".txt": "plain",
    ".text": "plain",
}
KNOWN = ", ".join(READERS)


def format_of(name: str) -> str | None:
    """The name of a file's format; None if there is no reader for it."""
    return READERS.get(PurePosixPath(name).suffix.lower())


def reader(kind: str) -> Callable[[bytes], Document]:
    """The reader of a format; this imports its library.

    Raises:
        ImportError: the library is not installed.
    """
    return cast(Callable[[bytes], Document], import_module(f"rerank.ingest.{kind}").read)
