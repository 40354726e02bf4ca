"""Features of turns of a conversation: who speaks, and when, beside whom and when a query names.

They exist where half of the passages or more say it in their metadata. Each is in [-1, 1]: above 0
if a passage agrees with the query, below if not, 0 if one says nothing.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import date

import numpy as np

from rerank.data.words import words
from rerank.types import Floats, Passage, metadata_name

TurnFeature = Callable[[str, Sequence[str], str], Floats]  # query, values of n passages, language
TURN_FEATURES: dict[str, TurnFeature] = {}
KEYS = {  # of the metadata that a feature reads; the first that the passages have
    "asked_speaker": ("speaker", "author", "sender", "from"),
    "asked_time": ("time", "date", "timestamp", "datetime", "date_time", "session_date"),
}
SAY = 0.5  # share of the passages that have the metadata
WEEK = 7.0  # days from what a query names to where a turn agrees no more
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?P<{}>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY, _YEAR = r"(?P<d{0}>\d{{1,2}})(?:st|nd|rd|th)?\b", r"(?P<y{0}>(?:19|20)\d\d)\b"
DATES = re.compile(
    r"\b(?:(?P<y1>\d{4})-(?P<n1>\d\d)(?:-(?P<d1>\d\d))?(?!\d)"
    rf"|{_DAY.format(2)}(?: of)? {_MONTH.format('m2')}(?:,? {_YEAR.format(2)})?"
    rf"|{_MONTH.format('m3')} {_DAY.format(3)}(?:,? {_YEAR.format(3)})?"
    rf"|{_MONTH.format('m4')},? {_YEAR.format(4)}"
    rf"|\b(?:in|of|during|since|last|this|by|early|late|mid) {_MONTH.format('m5')}"
    rf"(?:,? {_YEAR.format(5)})?"
    rf"|{_YEAR.format(6)})",
    re.IGNORECASE,
)


def turn_feature(function: TurnFeature) -> TurnFeature:
    """Register a feature of turns in the table, under its own name."""
    TURN_FEATURES[function.__name__] = function
    return function


def keys_read(passages: Collection[Passage]) -> Iterator[tuple[str, str]]:
    """The features that passages have, each with the key of the metadata that it reads."""
    for name, keys in KEYS.items():
        for key in keys:
            held = (metadata_name(p.metadata, key) for p in passages if key in p.metadata)
            values = list(filter(None, held))
            dated = name != "asked_time" or any(map(_day, values[:10]))
            if len(values) >= max(1.0, SAY * len(passages)) and len(set(values)) > 1 and dated:
                yield name, key
                break


@turn_feature
def asked_speaker(query: str, values: Sequence[str], language: str) -> Floats:
    """Query names the speaker: 1; -1 if it names only other speakers among the passages."""
    asked = f" {' '.join(words(query, language=language))} "
    spoken = {who: " ".join(words(who, language=language)) for who in set(values)}
    named = {who for who, name in spoken.items() if name and f" {name} " in asked}
    return np.array([(1.0 if who in named else -1.0) if named and who else 0.0 for who in values])


@turn_feature
def asked_time(query: str, values: Sequence[str], language: str) -> Floats:
    """Turn is of the time that the query names: 2 / (1 + days between / 7) - 1."""
    named = list(_dates(query))
    days = [_day(value) if named else None for value in values]
    away = [min(_days_away(day, *one) for one in named) if day else WEEK for day in days]
    return 2 / (1 + np.array(away, dtype=np.float64) / WEEK) - 1


def _dates(text: str) -> Iterator[tuple[int, int, int]]:
    """Year, month and day of each date that a text names, 0 where it leaves one out."""
    for match in DATES.finditer(text):
        parts = {name[0]: value for name, value in match.groupdict().items() if value}
        named = MONTHS.index(parts["m"][:3].lower()) + 1 if "m" in parts else 0
        yield int(parts.get("y", 0)), int(parts.get("n", named)), int(parts.get("d", 0))


def _day(text: str) -> date | None:
    """The first day that a text names in full."""
    return next((day for ymd in _dates(text) if all(ymd) and (day := _as_day(*ymd))), None)


def _as_day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _days_away(turn: date, year: int, month: int, day: int) -> float:
    """Days from a turn to the nearest time with these parts; a week, neither here nor there, if
    there is no such day.
    """
    away = []
    for y in [year] if year else [turn.year - 1, turn.year, turn.year + 1]:
        if first := _as_day(y, month or 1, day or 1):
            last = first if day else _as_day(y, month or 12, monthrange(y, month or 12)[1])
            away.append(max((first - turn).days, (turn - (last or first)).days, 0))
    return float(min(away, default=WEEK))
