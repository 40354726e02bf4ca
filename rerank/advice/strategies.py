"""How many passages to return: settings, and strategies from a file. It imports nothing heavy."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from rerank.config import check_options, option, share
from rerank.errors import InputError, nearest

DEEPEST = 10  # largest k that sufficiency is known for
FLOOR = 0.2  # relevance from which a passage is worth using
BUNDLED = Path(__file__).with_name("strategies.toml")


@dataclass(frozen=True, slots=True)
class Strategy:
    """How many passages to return."""

    min_k: int = option(1, "passages that are handed on at least", ge=1, le=DEEPEST)
    max_k: int = option(8, "passages that are handed on at most", ge=1, le=DEEPEST)
    sufficiency_threshold: float = share(
        0.0, "no passage is added once the sufficiency reaches this; 0: the model's own threshold"
    )
    similarity_floor: float = option(
        0.2,
        "if no passage has a cosine of at least this, none is handed on; -1: no floor",
        ge=-1,
        le=1,
    )
    least_gain: float = share(
        0.02, "where the threshold is not reached, the last passages that add less are left out"
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.min_k > self.max_k:
            raise InputError(f"expected `min_k` <= `max_k`, got {self.min_k} and {self.max_k}")


def read_strategies(path: Path = BUNDLED) -> dict[str, Strategy]:
    """The strategies of a TOML file, by table name; what a table leaves out has its default."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {error}") from None
    known = [f.name for f in fields(Strategy)]
    strategies = {}
    for name, values in tables.items():
        if not isinstance(values, dict):
            raise InputError(f"{path}: {name} should be a table, such as [{name}], got {values!r}")
        if strange := next((key for key in values if key not in known), ""):
            raise InputError(
                f"{path}: [{name}] has no setting {strange!r}; they are {', '.join(known)}"
                f"{nearest(strange, known)}"
            )
        try:
            strategies[name] = Strategy(**values)
        except InputError as error:
            raise InputError(f"{path}: [{name}]: {error}") from None
    return strategies


def strategy(name: str, path: Path = BUNDLED) -> Strategy:
    """The strategy of that name."""
    known = read_strategies(path)
    if name not in known:
        names = ", ".join(known) or "none"
        raise InputError(f"{path}: no strategy {name!r}; it has {names}{nearest(name, known)}")
    return known[name]
