"""Checks where a command may write its files. It knows no formats."""

from __future__ import annotations

from pathlib import Path

from rerank.errors import InputError


def check_places(model: Path, queries: Path, *outputs: Path) -> None:
    """Refuse outputs that would replace the queries, or lie in no folder or in the model's.

    Raises:
        InputError: naming the output.
    """
    for path in outputs:
        if path.resolve() == queries.resolve() or (path.exists() and path.samefile(queries)):
            raise InputError(f"{path}: this would replace the queries; give another --out")
        if queries.is_dir() and path.resolve().is_relative_to(queries.resolve()):
            raise InputError(f"{path}: lies in the folder of the queries; give another --out")
        if not path.parent.is_dir():
            raise InputError(f"{path}: there is no folder {path.parent}; make it, or give another")
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is a folder, or no ordinary file; expected a file's name")
        if path.resolve().is_relative_to(model.resolve()):
            raise InputError(f"{path}: lies in the model's folder, which no file is added to")
