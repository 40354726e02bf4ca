"""The features that the maps of a mode are fitted on: those of our own stages, or of a caller's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rerank.assessment.list_features import list_passage_features, list_ranking_features
from rerank.assessment.metadata_features import MetadataFeature
from rerank.assessment.passage_features import PASSAGE_FEATURES
from rerank.assessment.ranking_features import GROUPS, RANKING_FEATURES, Feature
from rerank.assessment.relevance import INPUTS
from rerank.types import OWN_STAGES, ListKind


@dataclass(frozen=True, slots=True)
class Features:
    """The names of a passage's features, the functions of a ranking's by name, and their groups."""

    passage: Sequence[str]
    ranking: Mapping[str, Feature]
    groups: Mapping[str, Sequence[str]]  # of the ranking's features: each is in one

    def names(self) -> dict[str, list[str]]:
        """The inputs of every map, as a manifest keeps them."""
        return {
            "passage_features": list(self.passage),
            "ranking_features": list(self.ranking),
            "hazard": list(INPUTS),
        }


def features_of(
    kind: ListKind = OWN_STAGES, metadata: Sequence[MetadataFeature] = ()
) -> Features:
    """The features of lists of this kind, or those of our own stages.

    The features of the passages' `metadata` come last.
    """
    last = [feature.name for feature in metadata]
    if kind == OWN_STAGES:
        return Features([*PASSAGE_FEATURES, *last], RANKING_FEATURES, GROUPS)
    return Features([*list_passage_features(kind), *last], *list_ranking_features(kind))
