"""Features of a passage's metadata: numbers, or one of a few words.

The weight of each is fitted on the labels like any other. No label is used here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import Any

import numpy as np

from rerank.errors import InputError
from rerank.types import LARGEST_SCORE, Floats, Passage, metadata_name

MAX_WORDS = 20  # different words under one key
DAYS = 365.25  # of a year


@dataclass(frozen=True, slots=True)
class MetadataFeature:
    """The number under a key; or 1 if the value is `word`, else 0."""

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


def metadata_features(columns: Collection[MetadataFeature], passages: Sequence[Passage]) -> Floats:
    """The value of each feature for n passages, (n, d), finite."""
    rows = [[column.of(passage) for column in columns] for passage in passages]
    return np.array(rows, dtype=np.float64).reshape(len(passages), len(columns))


def choose_metadata_features(keys: Sequence[str], passages: Collection[Passage]) -> Metadata:
    """The features under these keys: one for a key with numbers, else one for each of its words."""
    return tuple(feature for key in keys for feature in _features_of_key(key, passages))


def _features_of_key(key: str, passages: Collection[Passage]) -> list[MetadataFeature]:
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
