"""The maps that are fitted on labels, for each mode, and how `calibrators.json` holds them.

Pooled maps, over many labelled sets, are what is known of relevance before the first label.
"""

from __future__ import annotations

import glob
import hashlib
import json
import operator
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration.group_tests import LEVEL
from calibration.maps import LogisticMap, TwoStageMap, map_from_dict
from calibration.recalibration import Segments
from calibration.thresholds import Certificate
from rerank.assessment.list_features import list_passage_features, list_ranking_features
from rerank.assessment.metadata_features import Metadata, metadata_from_dict
from rerank.assessment.model_folder import CALIBRATORS, ModelFolder, fingerprints
from rerank.assessment.passage_features import PASSAGE_FEATURES
from rerank.assessment.pipeline import ReadPolicy
from rerank.assessment.ranking_features import GROUPS, RANKING_FEATURES, Feature
from rerank.assessment.relevance import INPUTS
from rerank.assessment.sources.lists import ScoredLists
from rerank.assessment.sources.other_system import OtherSystem
from rerank.assessment.sources.own_index import OwnIndex
from rerank.config import Config, Thresholds
from rerank.errors import InputError
from rerank.inference.model_files import BUNDLED, Model, ModelFiles
from rerank.storage.files import parse_json
from rerank.types import MODES, OWN_STAGES, Floats, ListKind, Mode, main_mode

FeatureRange = tuple[tuple[float, ...], tuple[float, ...]]  # lowest and highest values, (d,) each
NO_FILTER = frozenset({()})
# keys of a mode's maps on disk; `another` is the hazard after a hit
MAPS = ("prior", "score", "confidence", "hazard", "another")


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


def features_of(kind: ListKind = OWN_STAGES, metadata: Metadata = ()) -> Features:
    """The features of lists of this kind, or of our own stages; those of the metadata come last."""
    last = [feature.name for feature in metadata]
    if kind == OWN_STAGES:
        return Features([*PASSAGE_FEATURES, *last], RANKING_FEATURES, GROUPS)
    return Features([*list_passage_features(kind), *last], *list_ranking_features(kind))


@dataclass(frozen=True, slots=True)
class FittedMaps:
    """All that is fitted on the labels, for one mode: see `rerank.assessment.predictions`."""

    policy: ReadPolicy  # which passages are scored
    score: LogisticMap  # a passage's features to the number that orders the passages
    confidence: TwoStageMap  # a ranking's features to P(its top passage is right)
    hazard: LogisticMap  # P(the k-th passage is right | none above it is)
    hazard_after_hit: LogisticMap  # the same, if one above it is
    certificate: Certificate  # the confidence from which selective accuracy is guaranteed
    segments: Segments = field(default_factory=Segments)  # what each adds to the confidence
    # the same for questions about new documents, each of which counts once; None: not computed
    documents_certificate: Certificate | None = None
    # certifies from which sufficiency the first passages hold an answer; None: not computed
    context_certificate: Certificate | None = None
    # the sufficiency at which to stop handing on passages; None: nothing is guaranteed
    stopping_threshold: float | None = None
    calibrated: bool = True  # False: no label of this corpus was fitted on, so they only order
    kind: ListKind = OWN_STAGES  # the stages that score
    metadata: Metadata = ()  # features of the passages' metadata
    feature_range: FeatureRange | None = None  # of the labelled rankings; None: not kept
    # `Query.filtered_by` of the labelled questions: of others nothing is certified
    filters: frozenset[tuple[str, ...]] = NO_FILTER

    @property
    def features(self) -> Features:
        """The features that the maps were fitted on."""
        return features_of(self.kind, self.metadata)

    def promising_as(self, other: FittedMaps) -> FittedMaps:
        """The same maps with the certificates of others."""
        names = ("certificate", "documents_certificate", "context_certificate")
        promises: dict[str, Any] = {name: getattr(other, name) for name in names}
        return replace(self, **promises, stopping_threshold=other.stopping_threshold)

    def logistic_maps(self) -> Iterator[tuple[str, Sequence[str], LogisticMap]]:
        """Each fitted map by name, with its inputs; of the confidence the first stage."""
        passage = self.features.passage
        yield "prior", passage, self.policy.prior
        yield "score", passage, self.score
        yield "confidence", list(self.features.ranking), self.confidence.first
        yield "hazard", INPUTS, self.hazard
        yield "hazard_after_hit", INPUTS, self.hazard_after_hit

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; `from_dict` restores equal maps, to the bit."""
        return {
            **({"lists": asdict(self.kind)} if self.kind.stages else {}),
            **({"metadata": list(map(asdict, self.metadata))} if self.metadata else {}),
            **({} if self.filters == NO_FILTER else {"filters": sorted(map(list, self.filters))}),
            "passage_features": list(self.features.passage),
            "ranking_features": list(self.features.ranking),
            "prior": self.policy.prior.to_dict(),
            "cutoff": self.policy.cutoff,
            "score": self.score.to_dict(),
            "confidence": self.confidence.to_dict(),
            "hazard": self.hazard.to_dict(),
            "another": self.hazard_after_hit.to_dict(),
            "certificate": self.certificate.to_dict(),
            "documents": self.documents_certificate and self.documents_certificate.to_dict(),
            "segments": self.segments.to_dict(),
            "context": self.context_certificate and self.context_certificate.to_dict(),
            "stopping_threshold": self.stopping_threshold,
            "calibrated": self.calibrated,
            "feature_range": self.feature_range and list(map(list, self.feature_range)),
        }

    @classmethod
    def from_dict(cls, values: Any) -> FittedMaps:
        """Read `to_dict`'s value."""
        if not isinstance(values, dict):
            raise InputError(
                f"calibrators.json should hold maps for each of {MODES}; calibrate again"
            )
        metadata = metadata_from_dict(values.get("metadata", ()))
        context, documents = values.get("context"), values.get("documents")
        stop, of_features = values.get("stopping_threshold"), values.get("feature_range")
        try:
            kind = OWN_STAGES
            if (lists := values.get("lists")) is not None:
                kind = ListKind(tuple(map(str, lists["stages"])), bool(lists["texts"]))
            for key, expected in features_of(kind, metadata).names().items():
                if key != "hazard" and (its := values.get(key)) != expected:
                    names = its if isinstance(its, list) else []
                    lost, new = set(names) - set(expected), set(expected) - set(names)
                    raise InputError(
                        f"the model's {key} differ from those here: only the model has "
                        f"{sorted(lost) or 'none'}, only here are {sorted(new) or 'none'}; import "
                        "what adds those of the model, or calibrate it again"
                    )
            maps: dict[str, Any] = {name: map_from_dict(values[name]) for name in MAPS}
            low, high = ((), ()) if of_features is None else of_features
            bounds = tuple(map(float, low)), tuple(map(float, high))
            fitted = cls(
                policy=ReadPolicy(maps["prior"], float(values["cutoff"])),
                score=maps["score"],
                confidence=maps["confidence"],
                hazard=maps["hazard"],
                hazard_after_hit=maps["another"],
                certificate=Certificate(**values["certificate"]),
                documents_certificate=Certificate(**documents) if documents else None,
                segments=Segments.from_dict(values["segments"]),
                context_certificate=Certificate(**context) if context else None,
                stopping_threshold=None if stop is None else float(stop),
                calibrated=values.get("calibrated", True) is not False,
                kind=kind,
                metadata=metadata,
                feature_range=None if of_features is None else bounds,
                filters=frozenset(tuple(map(str, keys)) for keys in values.get("filters", [()])),
            )
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"calibrators.json cannot be read: {error}") from None
        _check_types(fitted)
        return fitted


def range_of(features: Floats) -> FeatureRange:
    """The lowest and the highest value of each feature (n, d), n >= 1."""
    return tuple(features.min(axis=0).tolist()), tuple(features.max(axis=0).tolist())


def _check_types(fitted: FittedMaps) -> None:
    """Refuse maps, as they were read, of another kind or width, and shares outside [0, 1]."""
    if not isinstance(fitted.confidence, TwoStageMap):
        raise InputError("the confidence map should have two stages")
    for name, inputs, one in fitted.logistic_maps():
        if not isinstance(one, LogisticMap):
            raise InputError(f"the {name} map should be logistic")
        if len(one.coef) != len(inputs):
            raise InputError(f"the {name} map has {len(one.coef)} weights, expected {len(inputs)}")
    for values in fitted.feature_range or ():
        if len(values) != len(fitted.features.ranking) or not np.isfinite(values).all():
            raise InputError("the feature range should have two finite numbers for each feature")
    if any(map(operator.gt, *(fitted.feature_range or ((), ())))):
        raise InputError("the feature range should begin below its end for each feature")
    stop = fitted.stopping_threshold or 0.0
    for name, share in (("cutoff", fitted.policy.cutoff), ("stopping threshold", stop)):
        if not 0 <= share <= 1:
            raise InputError(f"the {name} should be in [0, 1], got {share}")


OpenSource = type[OwnIndex] | type[OtherSystem] | type[ScoredLists]


class MapsByMode(dict[Mode, FittedMaps]):
    """The maps of each mode that a model has, the main one first; they tell its kind."""

    @property
    def source(self) -> OpenSource:
        """The kind of the model, which opens it and answers for it."""
        return _source(self, of_lists=any(maps.kind.stages for maps in self.values()))

    def __missing__(self, mode: Mode) -> FittedMaps:
        raise InputError(self.source.refusal(self.main.kind))

    @property
    def main_mode(self) -> Mode:
        """The mode that the report, the sketch and the certificate of a model are about."""
        return main_mode(self)

    @property
    def main(self) -> FittedMaps:
        """The maps of the main mode."""
        return self[self.main_mode]


def _source(modes: Container[str], *, of_lists: bool) -> OpenSource:
    """The kind of a model with these modes; `of_lists`: its searches have the stages of lists."""
    if "lists" in modes:
        return ScoredLists
    return OtherSystem if of_lists else OwnIndex


def read_maps(folder: ModelFolder) -> MapsByMode:
    """The maps of a model folder."""
    return maps_from_dict(folder.json(CALIBRATORS))


def maps_from_dict(values: Mapping[str, Any]) -> MapsByMode:
    """The maps of each mode, as `calibrators.json` holds them."""
    search = values.get("search")
    of_lists = isinstance(search, Mapping) and bool(search.get("lists"))
    source = _source(values, of_lists=of_lists)
    return MapsByMode({mode: FittedMaps.from_dict(values.get(mode)) for mode in source.modes})


def maps_to_dict(maps: Mapping[Mode, FittedMaps]) -> dict[str, Any]:
    """The maps of each mode as plain JSON values."""
    return {mode: fitted.to_dict() for mode, fitted in maps.items()}


def check_certificates(fitted: FittedMaps, thresholds: Thresholds, path: Path) -> None:
    """Refuse certificates that promise less than `calibrate` would, at these thresholds."""
    promised = (fitted.certificate, thresholds.advisory)
    context = (fitted.context_certificate, thresholds.sufficient)
    for certificate, target in (promised, context):
        if certificate and (certificate.target < target or certificate.level < LEVEL):
            raise InputError(
                f"{path}: a certificate of {certificate.target} at {certificate.level}, expected "
                f"{target} at {LEVEL}; calibrate again"
            )


def check_no_overflow(fitted: FittedMaps, path: Path) -> None:
    """Refuse maps of numbers so large that a probability would not be finite."""
    updates = {f"update of {name!r}": update for name, update in fitted.segments.updates.items()}
    maps: dict[str, LogisticMap | TwoStageMap] = {
        **{name: one_map for name, _, one_map in fitted.logistic_maps()},
        **{"confidence": fitted.confidence, **updates},
    }
    for name, one_map in maps.items():
        first = one_map.first if isinstance(one_map, TwoStageMap) else one_map
        coef, mean = np.array(first.coef), np.array(first.mean)
        low, high = (np.array(b or first.mean) for b in (first.low, first.high))
        most = np.where(coef > 0, high, low)  # the inputs that move the log odds furthest
        try:
            with np.errstate(all="ignore"):
                rows = np.array([mean, most, np.where(coef > 0, low, high)])
                values = np.append(one_map.contributions(rows), one_map.predict(rows))
        except ValueError:
            values = np.array([np.nan])
        if not np.isfinite(values).all():
            raise InputError(f"{path}: the numbers of its {name} map are too large")


FILES = "pooled.json"  # in the folder of bundled weights, and beside any other: NAME.pooled.json
MADE_BY = "`rerank train prior SETS --reranker FOLDER --out FOLDER.pooled.json` makes them"


@dataclass(frozen=True, slots=True)
class PooledMaps:
    """The maps of each mode, the models whose scores they need, and the sets fitted on."""

    maps: Mapping[Mode, FittedMaps]
    fingerprints: Mapping[str, Any]  # see `scored_by`
    sets: Sequence[Mapping[str, Any]]  # name, digest, licence, and counts of each set
    marks: frozenset[str] = frozenset()  # of every query fitted on (`rerank.data.grouping`)

    def described(self) -> dict[str, Any]:
        """The manifest entry of a model that was fitted around these maps."""
        text = json.dumps(maps_to_dict(self.maps), sort_keys=True).encode()
        digest = hashlib.sha256(text).hexdigest()
        return {"sets": [fitted_on["name"] for fitted_on in self.sets], "digest": digest}

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; `from_dict` restores equal maps, to the bit."""
        return {
            "fingerprints": dict(self.fingerprints),
            "sets": list(map(dict, self.sets)),
            "marks": " ".join(sorted(self.marks)),
            **maps_to_dict(self.maps),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PooledMaps:
        """Read `to_dict`'s value."""
        try:
            parts = (values["fingerprints"], values["sets"])
        except (KeyError, TypeError) as error:
            raise InputError(f"pooled maps cannot be read: {error}") from None
        marks = frozenset(str(values.get("marks", "")).split())
        return cls(maps_from_dict(values), *parts, marks)


def scored_by(encoder: Model, reranker: Model, config: Config) -> dict[str, Any]:
    """What determines the scores that pooled maps are fitted on; precision hardly changes them."""
    prints = fingerprints(encoder, reranker, config)
    return {part: value for part, value in prints.items() if part != "precision"}


def pooled_over(models: tuple[Model, Model], config: Config) -> frozenset[str]:
    """The marks of the queries that the pooled maps of these models were fitted on, if any."""
    pooled = pooled_for(*models, config)
    return pooled.marks if pooled else frozenset()


def pooled_for(encoder: Model, reranker: Model, config: Config) -> PooledMaps | None:
    """The pooled maps of exactly these models, bundled or beside the folder; None without any."""
    if not isinstance(reranker, ModelFiles):
        return None
    here, folder = scored_by(encoder, reranker, config), reranker.folder
    beside = folder.parent.glob(f"{glob.escape(folder.name)}.{FILES}")
    for path in [*sorted(BUNDLED.glob(f"*/{FILES}")), *sorted(beside)]:
        values = parse_json(path.read_bytes(), str(path))
        if isinstance(values, dict) and values.get("fingerprints") == here:
            try:
                return PooledMaps.from_dict(values)
            except InputError:
                continue
    return None
