"""Strategies of adaptive retrieval, one per kind of task, read from a file that users can edit."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from rerank.errors import InputError, nearest
from rerank.rag.settings import Strategy

BUNDLED = Path(__file__).with_name("strategies.toml")


def read_strategies(path: Path = BUNDLED) -> dict[str, Strategy]:
    """The strategies of a TOML file, by table name.

    A setting that is missing in a table has the default of `Strategy`.

    Raises:
        InputError: the file cannot be read, or a table is not a strategy.
    """
    try:
        kept = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {error}") from None
    return {name: _strategy(path, name, values) for name, values in kept.items()}


def strategy(name: str, path: Path = BUNDLED) -> Strategy:
    """The strategy of that name.

    Raises:
        InputError: the file has none of that name, or cannot be used.
    """
    known = read_strategies(path)
    if name not in known:
        names = ", ".join(known) or "none"
        raise InputError(f"{path}: no strategy {name!r}; it has {names}{nearest(name, known)}")
    return known[name]


def _strategy(path: Path, name: str, values: Any) -> Strategy:
    names = [f.name for f in fields(Strategy)]
    if not isinstance(values, dict):
        raise InputError(f"{path}: {name} should be a table, such as [{name}], got {values!r}")
    for key in values:
        if key not in names:
            raise InputError(
                f"{path}: [{name}] has no setting {key!r}; they are {', '.join(names)}"
                f"{nearest(key, names)}"
            )
    try:
        return Strategy(**values)
    except InputError as error:
        raise InputError(f"{path}: [{name}]: {error}") from None
