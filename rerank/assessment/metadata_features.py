"""Features of a passage's metadata: numbers, or a few words; and some of the query beside it.

`query_entities` in the metadata of a query are names in it; the feature is the share of them that a
passage holds. Turns of a conversation have `TURN_FEATURES`, without being asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import Any

import numpy as np

from rerank.assessment.turn_features import TURN_FEATURES, keys_read
from rerank.data.words import PassageWords, read_words, words
from rerank.errors import InputError
from rerank.types import LARGEST_SCORE, Floats, Passage, Query, metadata_name

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
