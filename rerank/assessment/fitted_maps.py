"""What was learned from labels: the maps of each door, and how `calibrators.json` holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from calibration.maps import LogisticMap, TwoStageMap, map_from_dict
from calibration.segments import ByKind
from calibration.thresholds import Certificate
from rerank.assessment.model_folder import bound_to
from rerank.assessment.passage_features import EVIDENCE
from rerank.assessment.pipeline import Reading
from rerank.assessment.ranking_features import FEATURES
from rerank.assessment.sufficiency import DEPTH, INPUTS, sufficiencies
from rerank.errors import InputError
from rerank.types import Floats, Ranking

DOORS = ("found", "given")  # in calibrators.json: by whom the passages come, the index or the asker


@dataclass(frozen=True, slots=True)
class Calibrators:
    """All that is learned from the labels.

    `reading`: which passages are read. `relevance`: a passage's evidence to P(it is right).
    `confidence`: a ranking's features to P(its top passage is right). `hazard`: P(the k-th passage
    is right, given that none above it is), from which sufficiency is computed. `certificate`: the
    confidence from which selective accuracy is promised. `kinds`: what each kind of query adds to
    the confidence.
    """

    reading: Reading
    relevance: LogisticMap
    confidence: TwoStageMap
    hazard: LogisticMap
    certificate: Certificate
    kinds: ByKind = field(default_factory=ByKind)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; `from_dict` gives equal maps back, to the bit."""
        return {
            "evidence": list(EVIDENCE),
            "features": list(FEATURES),
            "prior": self.reading.prior.to_dict(),
            "floor": self.reading.floor,
            "relevance": self.relevance.to_dict(),
            "confidence": self.confidence.to_dict(),
            "hazard": self.hazard.to_dict(),
            "certificate": self.certificate.to_dict(),
            "kinds": self.kinds.to_dict(),
        }

    @classmethod
    def from_dict(cls, kept: Any) -> Calibrators:
        """Read `to_dict`'s value.

        Raises:
            InputError: the evidence or the features are not those of this version.
        """
        if not isinstance(kept, dict):
            raise InputError(
                f"calibrators.json should hold maps for each of {DOORS}; calibrate again"
            )
        for name, ours in (("evidence", EVIDENCE), ("features", FEATURES)):
            if kept.get(name) != list(ours):
                raise InputError(
                    f"the model's {name} differ from this version's: it has {kept.get(name)}, "
                    f"expected {list(ours)}; calibrate it again"
                )
        try:
            floor = float(kept["floor"])
            certificate = Certificate(**kept["certificate"])
            kinds = ByKind.from_dict(kept["kinds"])
            confidence = map_from_dict(kept["confidence"])
            logistic = {n: map_from_dict(kept[n]) for n in ("prior", "relevance", "hazard")}
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"calibrators.json cannot be read: {error}") from None
        if not isinstance(confidence, TwoStageMap):
            raise InputError("the confidence map should have two stages")
        columns = {"prior": EVIDENCE, "relevance": EVIDENCE, "hazard": INPUTS}
        for name, learned in {**logistic, "confidence": confidence.first}.items():
            if not isinstance(learned, LogisticMap):
                raise InputError(f"the {name} map should be logistic")
            expected = len(columns.get(name, FEATURES))
            if len(learned.coef) != expected:
                raise InputError(
                    f"the {name} map has {len(learned.coef)} weights, expected {expected}"
                )
        if not 0 <= floor <= 1:
            raise InputError(f"the floor should be in [0, 1], got {floor}")
        prior, relevance, hazard = (cast(LogisticMap, m) for m in logistic.values())
        return cls(Reading(prior, floor), relevance, confidence, hazard, certificate, kinds)

    def confidences(
        self, rankings: Sequence[Ranking], features: Floats, *, correct_by: str = ""
    ) -> Floats:
        """P(the top passage is right), shape (n,); 0 where there is none.

        `features` (n, len(FEATURES)) are those of the rankings, judged and in order; `correct_by`
        names the metadata of the queries that tells their kind.
        """
        filled = np.array([len(r) > 0 for r in rankings], dtype=np.bool_)
        p = self.confidence.predict(features)
        if self.kinds.updates:
            p = self.kinds.apply(p, kinds_of(rankings, correct_by))
        return np.where(filled, p, 0.0)

    def sufficiencies(self, rankings: Sequence[Ranking], confidences: Floats) -> Floats:
        """P(one of the first k is right) for k = 1 to 10, shape (n, 10), never falling in k.

        `rankings` are judged and in order, `confidences` (n,) their own; without passages it is 0.
        """
        rows = [
            sufficiencies(r, c, self.hazard) if len(r) else np.zeros(DEPTH)
            for r, c in zip(rankings, confidences.tolist(), strict=True)
        ]
        return np.array(rows).reshape(len(rankings), DEPTH)


def kinds_of(rankings: Sequence[Ranking], correct_by: str) -> list[str]:
    """The kind of each query: what its metadata says under `correct_by`, or nothing."""
    return [r.query.named(correct_by) for r in rankings]


def both_doors(kept: Mapping[str, Any]) -> tuple[Calibrators, Calibrators]:
    """The maps that `calibrators.json` holds: for passages that are found, and for given ones.

    Raises:
        InputError: they are not maps that this version can use.
    """
    found, given = (Calibrators.from_dict(kept.get(door)) for door in DOORS)
    return found, given


def learned_dict(
    config: Mapping[str, Any], prints: Mapping[str, Any], found: Calibrators, given: Calibrators
) -> dict[str, Any]:
    """What `calibrators.json` holds: the maps of both doors, and what they are bound to."""
    doors = {name: maps.to_dict() for name, maps in zip(DOORS, (found, given), strict=True)}
    return {"bound_to": bound_to(config, prints), **doors}


def refuse_overflow(calibrators: Calibrators, path: Path) -> None:
    """Refuse maps of numbers so large that a probability would be none.

    Raises:
        InputError: naming the map and `path`, where it was read.
    """
    maps: dict[str, LogisticMap | TwoStageMap] = {
        "prior": calibrators.reading.prior,
        "relevance": calibrators.relevance,
        "confidence": calibrators.confidence,
        "hazard": calibrators.hazard,
        **{f"update of {kind!r}": one for kind, one in calibrators.kinds.updates.items()},
    }
    for name, learned in maps.items():
        first = learned.first if isinstance(learned, TwoStageMap) else learned
        coef, mean = np.array(first.coef), np.array(first.mean)
        low, high = (np.array(b or first.mean) for b in (first.low, first.high))
        most = np.where(coef > 0, high, low)  # the inputs that move the log odds furthest
        try:
            with np.errstate(all="ignore"):
                rows = np.array([mean, most, np.where(coef > 0, low, high)])
                values = np.append(learned.contributions(rows), learned.predict(rows))
        except ValueError:
            values = np.array([np.nan])
        if not np.isfinite(values).all():
            raise InputError(f"{path}: the numbers of its {name} map are too large")
