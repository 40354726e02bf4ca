"""Features of a passage's metadata: numbers, or a few words; and some of the query beside it.

`query_entities` in the metadata of a query are names in it; the feature is the share of them that a
passage holds. Turns of a conversation have `TURN_FEATURES`, without being asked for: who speaks,
and when, beside whom and when a query names. They exist where half of the passages or more say it;
each is in [-1, 1]: above 0 if a passage agrees with the query, below if not, 0 if one says nothing.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import Any

import numpy as np

from rerank.data.words import PassageWords, read_words, words
from rerank.errors import InputError
from rerank.types import LARGEST_SCORE, Floats, Passage, Query, metadata_name

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
    """Days from a turn to the nearest time with these parts; a week if there is no such day."""
    away = []
    for y in [year] if year else [turn.year - 1, turn.year, turn.year + 1]:
        if first := _as_day(y, month or 1, day or 1):
            last = first if day else _as_day(y, month or 12, monthrange(y, month or 12)[1])
            away.append(max((first - turn).days, (turn - (last or first)).days, 0))
    return float(min(away, default=WEEK))


MAX_WORDS = 20  # different words under one key
DAYS = 365.25  # of a year
QUERY_ENTITIES = "query_entities"


@dataclass(frozen=True, slots=True)
class MetadataFeature:
    """The number under a key; or 1 if the value is `word`, else 0.

    If the key is one of `TURN_FEATURES`, `word` is the key of the metadata that this reads.
    """

    key: str
    word: str | None  # None: the number
    usual: float  # without a value: the median of the numbers, the share of the word

    @property
    def name(self) -> str:
        """Its name among the features of a passage."""
        return f"metadata.{self.key}" + ("" if self.word is None else f"={self.word}")

    def of(self, passage: Passage) -> float:
        """The feature's value for a passage; finite."""
        if self.word is None:
            value = number(passage.metadata.get(self.key))
            return self.usual if value is None else value
        word = metadata_name(passage.metadata, self.key)
        return float(word == self.word) if word else self.usual


Metadata = tuple[MetadataFeature, ...]  # of a model: the last features of its passages


def metadata_features(
    columns: Collection[MetadataFeature],
    passages: Sequence[Passage],
    query: Query | None = None,
    language: str = "english",
) -> Floats:
    """The value of each feature for n passages of a query, (n, d), finite."""
    rows = [[column.of(passage) for column in columns] for passage in passages]
    made = np.array(rows, dtype=np.float64).reshape(len(passages), len(columns))
    for at, column in enumerate(columns):
        if column.key == QUERY_ENTITIES and query and query.metadata.get(QUERY_ENTITIES):
            named = [words(name, language=language) for name in entities_of(query)]
            made[:, at] = [share_held(p, list(filter(None, named)), language) for p in passages]
        elif column.key in TURN_FEATURES and query:
            said = [metadata_name(p.metadata, column.word or "") for p in passages]
            made[:, at] = TURN_FEATURES[column.key](query.text, said, language)
    return made


def share_held(passage: Passage, names: Sequence[Sequence[str]], language: str) -> float:
    """The share of the names, each as its stemmed words, that a passage holds; 1 without names.

    The words of a name stand one after another in its text, or are all in its title.
    """
    found = read_words(passage.title, passage.text, language)
    return sum(_holds(found, name) for name in names) / len(names) if names else 1.0


def _holds(found: PassageWords, name: Sequence[str]) -> bool:
    begins = ({at - i for at in found.places.get(word, ())} for i, word in enumerate(name))
    return all(word in found.title for word in name) or bool(set.intersection(*begins))


def entities_of(query: Query) -> Sequence[str]:
    """The names in a query, by its metadata; an InputError where it does not say."""
    names = query.metadata.get(QUERY_ENTITIES, "")
    if names is None:
        return ()
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise InputError(
            f"the model uses the names in a query; expected a list of texts as {QUERY_ENTITIES!r} "
            f"in its metadata, [] where it has none, got {names or 'none'!r:.80}"
        )
    return names


def choose_metadata_features(
    keys: Sequence[str], passages: Collection[Passage], queries: Collection[Query] = ()
) -> Metadata:
    """The features under these keys: one for a key with numbers, else one for each of its words.

    Last come those of turns. `queries` are all labelled ones; each says its names, if asked for.
    """
    asked_for = (f for key in keys for f in _features_of_key(key, passages, queries))
    return (*asked_for, *(MetadataFeature(*of_turns, 0.0) for of_turns in keys_read(passages)))


def _features_of_key(
    key: str, passages: Collection[Passage], queries: Collection[Query]
) -> list[MetadataFeature]:
    if key == QUERY_ENTITIES:
        if not any(list(map(entities_of, queries))):
            raise InputError(
                f"no query has names as {key!r} in its metadata; leave the feature out"
            )
        return [MetadataFeature(key, None, 1.0)]
    values = [p.metadata[key] for p in passages if metadata_name(p.metadata, key)]
    words = Counter(metadata_name({key: value}, key) for value in values)
    if len(words) < 2:
        values_there = f"all have {next(iter(words))!r}" if words else "no passage has any"
        raise InputError(
            f"expected `metadata_features` (--metadata-features) that differ between passages, got "
            f"{key!r}: {values_there}"
        )
    numbers = [spelled for value in values if (spelled := number(value)) is not None]
    if len(numbers) == len(values):
        return [MetadataFeature(key, None, median(numbers))]
    if len(words) > MAX_WORDS:
        raise InputError(
            f"expected numbers, dates or at most {MAX_WORDS} different words under the metadata "
            f"{key!r} of `metadata_features` (--metadata-features), got {len(words)} words"
        )
    return [MetadataFeature(key, word, words[word] / len(values)) for word in sorted(words)]


def number(value: Any) -> float | None:
    """The number that a value is or spells; of an ISO date or time the years; None for the rest."""
    try:
        spelled = float(value)
    except (TypeError, ValueError, OverflowError):
        try:
            return date.fromisoformat(value.strip()[:10]).toordinal() / DAYS
        except (AttributeError, TypeError, ValueError):
            return None
    return spelled if abs(spelled) <= LARGEST_SCORE else None


def metadata_from_dict(values: Sequence[Mapping[str, Any]]) -> Metadata:
    """Read features that `dataclasses.asdict` made plain."""
    try:
        features = tuple(MetadataFeature(**feature) for feature in values)
        usual = [float(feature.usual) for feature in features]
    except (TypeError, ValueError) as error:
        raise InputError(f"the metadata features cannot be read: {error}") from None
    if not np.isfinite(usual).all():
        raise InputError("expected a finite default value for each metadata feature")
    return features
