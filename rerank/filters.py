"""Which passages a search may find: conditions on their metadata, decided here for all systems.

    {"language": "en", "source": ["manual", "faq"], "year": {"gte": 2020, "lt": 2024}}

Every condition must hold: equal, one of, or in a range of numbers or of texts (dates of ISO 8601).
A number never equals a text. Of several values in a list one must fit; a passage without the key
does not.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rerank.errors import FilterError, nearest
from rerank.storage.files import RepeatedKeyError, loads

Value = str | int | float | bool
BOUNDS = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
EXPECTED = 'such as {"language": "en", "source": ["manual", "faq"], "year": {"gte": 2020}}'


def kind_of(value: object) -> str:
    """`text`, `number` or `true or false`, which are never compared with each other; else ""."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "number" if abs(value) <= sys.float_info.max else ""
    return "text" if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Condition:
    """What the value of one key must be: one of `values`, or within `bounds` (a key of BOUNDS)."""

    key: str
    values: tuple[Value, ...] = ()
    bounds: tuple[tuple[str, Value], ...] = ()
    _known: frozenset[tuple[str, Value]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = frozenset((kind_of(value), value) for value in self.values)
        object.__setattr__(self, "_known", known)

    @property
    def kind(self) -> str:
        """The kind of its bounds."""
        return kind_of(self.bounds[0][1])

    def holds(self, value: Any) -> bool:
        """Whether a value of the metadata fits."""
        if isinstance(value, (list, tuple)):
            return any(map(self.holds, value))
        kind = kind_of(value)
        if self.bounds:
            return kind == self.kind and all(BOUNDS[n](value, b) for n, b in self.bounds)
        return bool(kind) and (kind, value) in self._known


@dataclass(frozen=True, slots=True)
class Where:
    """Conditions, all of which must hold."""

    conditions: tuple[Condition, ...]

    @classmethod
    def read(cls, given: object) -> Where | None:
        """The conditions of a mapping, or of its JSON; None without any, else a FilterError."""
        if isinstance(given, Where):
            return given
        if given is None or given == "":
            return None
        if isinstance(given, str):
            try:
                given = loads(given)
            except RepeatedKeyError as error:
                raise FilterError(f"filter: {error}; give it once") from None
            except (ValueError, RecursionError):
                raise FilterError(f"a filter is no JSON, expected {EXPECTED}") from None
        if not isinstance(given, Mapping):
            raise FilterError(f"a filter should be an object, {EXPECTED}, got {given!r:.100}")
        return cls(tuple(_condition(key, value) for key, value in given.items())) if given else None

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the metadata that it asks for, sorted."""
        return tuple(sorted(condition.key for condition in self.conditions))

    def to_dict(self) -> dict[str, Any]:
        """The mapping that `read` takes."""
        return {c.key: dict(c.bounds) or list(c.values) for c in self.conditions}

    def holds(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a passage with this metadata may be found."""
        return all(c.holds(metadata.get(c.key)) for c in self.conditions)


def _condition(key: object, given: object) -> Condition:
    if not isinstance(key, str) or not key:
        raise FilterError(f"a filter has the key {key!r:.80}; expected the name of metadata")
    if isinstance(given, Mapping):
        for name in given:
            if name not in BOUNDS:
                hint = nearest(str(name), BOUNDS)
                raise FilterError(f"filter {key!r} has {name!r:.80}{hint}; expected {list(BOUNDS)}")
        if {kind_of(bound) for bound in given.values()} not in ({"number"}, {"text"}):
            expected = f"expected bounds, numbers or texts, got {dict(given)!r:.80}"
            raise FilterError(f"filter {key!r}: {expected}")
        return Condition(key, bounds=tuple(given.items()))
    values = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if not values or not all(map(kind_of, values)):
        expected = f"expected texts, numbers, or true or false, got {given!r:.80}"
        raise FilterError(f"filter {key!r}: {expected}")
    return Condition(key, values)
