"""The files below a folder, sorted by name; links are not followed."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from rerank.data.checks import is_encodable
from rerank.storage.folder import is_ours

GENERATED = re.compile(r"_sources|_static|genindex.*\.html|.*modindex\.html")
"""Names of what Sphinx writes beside the pages: copies and lists of links."""


class Found(NamedTuple):
    """What is below a folder: files by path with slashes, and the reasons for skipped ones."""

    files: dict[str, Path]
    skipped: dict[str, str]


def walk(folder: Path, *, leave_out: Path) -> Found:
    """Every regular file below `folder`, except hidden and `GENERATED` ones and `leave_out`.

    Folders that this package wrote, such as models, are skipped. Both folders are absolute.

    Raises:
        OSError: the folder itself cannot be read.
    """
    files: dict[str, Path] = {}
    skipped: dict[str, str] = {}
    below = [folder]
    while below:
        here = below.pop()
        try:
            with os.scandir(here) as entries:
                found = list(entries)
        except OSError as error:
            if here == folder:
                raise
            skipped[here.relative_to(folder).as_posix()] = f"cannot be read: {error.strerror}"
            continue
        for entry in found:
            path = Path(entry.path)
            name = path.relative_to(folder).as_posix()
            ours = path == leave_out or GENERATED.fullmatch(entry.name)
            if ours or entry.name.startswith("."):
                continue
            if not is_encodable(name):
                skipped[name.encode(errors="backslashreplace").decode()] = "its name is not UTF-8"
            elif entry.is_symlink():
                skipped[name] = "a link, which is not followed"
            elif entry.is_dir() and _is_written_by_us(path):
                skipped[name] = "a model or an index, not documents"
            elif entry.is_dir():
                below.append(path)
            elif entry.is_file():
                files[name] = path
            else:
                skipped[name] = "neither a file nor a folder"
    return Found(dict(sorted(files.items())), dict(sorted(skipped.items())))


def _is_written_by_us(folder: Path) -> bool:
    try:
        return is_ours(folder)
    except OSError:  # an unreadable folder is skipped later, with its reason
        return False
