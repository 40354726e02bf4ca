"""Ranking to assessment, and the model folder: what production loads.

A model folder holds `manifest.json` (configuration, feature names, fingerprints, the sha256 of
every file), `calibrators.json`, `reliability.json` and its pictures, and `index/`. Nothing in it
can execute. Loading needs no scikit-learn and no MLflow.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from calibration.by_kind import ByKind
from calibration.drift import Sketch
from calibration.maps import LogisticMap, TwoStageMap, map_from_dict
from calibration.store import StoreError, verify_folder
from calibration.thresholds import Certificate
from rerank import policy
from rerank.config import Config
from rerank.evidence import EVIDENCE
from rerank.features import FEATURES, feature_matrix
from rerank.models import ModelFiles, resolve
from rerank.pipeline import Pipeline, Reading, order
from rerank.reranking.score_cache import ScoreCache
from rerank.retrieval.index import Index
from rerank.sufficiency import DEPTH, INPUTS, sufficiencies
from rerank.types import Assessment, Floats, Given, InputError, Passage, Query, Ranking

MODEL_KIND = "a calibrated model"
SKETCH = "sketch.json"  # of the features that the confidence was fitted on
DOORS = ("found", "given")  # in calibrators.json: by whom the passages come, the index or the asker
FITTED_ON = "fitted_on.txt"  # a `query_hash` a line: the queries that the maps were fitted on


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
    return [str(r.query.metadata.get(correct_by, "")) for r in rankings]


class CalibratedReranker:
    """A loaded model: questions in, assessments out.

    Two doors: `search` finds the passages in the model's index, `rerank` takes those that the
    caller brings. Each has maps of its own, fitted on what is visible there.

    >>> model = CalibratedReranker.load("work/model")          # doctest: +SKIP
    >>> found = model.search("median ignoring NaNs")           # doctest: +SKIP
    >>> found.confidence, found.ranking.doc_ids[0]             # doctest: +SKIP
    """

    def __init__(
        self,
        folder: Path,
        manifest: dict[str, Any],
        calibrators: Calibrators,
        given: Calibrators,
        pipeline: Pipeline,
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self.calibrators = calibrators
        self.given = given
        self.pipeline = pipeline

    @classmethod
    def load(cls, folder: str | Path, *, cache: ScoreCache | None = None) -> CalibratedReranker:
        """Open a model folder, after checking every hash and fingerprint.

        Raises:
            InputError: not a model folder, a changed file, or another encoder or reranker than
                the one the model was calibrated with; the message says which part differs.
        """
        path = Path(folder)
        try:
            manifest = verify_folder(path)
            kept = json.loads((path / "calibrators.json").read_text(encoding="utf-8"))
        except (StoreError, OSError, ValueError) as error:
            raise InputError(f"{path} is not a usable model folder: {error}") from None
        if manifest.get("kind") != MODEL_KIND:
            raise InputError(f"{path} is not a model folder; expected one that `calibrate` wrote")
        missing = sorted({"config", "fingerprints", "dataset", "queries"} - set(manifest))
        if missing or not isinstance(kept, dict):
            raise InputError(f"{path}: the manifest lacks {missing}; calibrate again")
        if kept.get("bound_to") != bound_to(manifest["config"], manifest["fingerprints"]):
            raise InputError(
                f"{path}: its calibrators were fitted with another configuration or other models "
                "than its manifest says; calibrate again"
            )
        config = Config.from_dict(manifest["config"])
        here = fingerprints(resolve(config.encoder), resolve(config.reranker), config)
        _compare(manifest["fingerprints"], here, path)
        found, given = (Calibrators.from_dict(kept.get(door)) for door in DOORS)
        pipeline = Pipeline(Index(path / "index"), config, cache=cache)
        return cls(path, manifest, found, given, pipeline)

    @property
    def fitted_on(self) -> frozenset[str]:
        """The `query_hash` of every query that the maps were fitted on."""
        return frozenset((self.folder / FITTED_ON).read_text(encoding="utf-8").split())

    @property
    def sketch(self) -> Sketch:
        """How the features were spread where the confidence was fitted: see `calibration.drift`."""
        return Sketch.from_dict(json.loads((self.folder / SKETCH).read_text(encoding="utf-8")))

    def search(self, question: str) -> Assessment:
        """Rank the index for one question and say how sure to be.

        Raises:
            InputError: the question is empty.
        """
        return self.assess(self.rank([Query("question", _checked(question))]))[0]

    def rerank(self, question: str, passages: Sequence[Passage]) -> Assessment:
        """Rank the passages that the caller brings, and say how sure to be of the first.

        No passage at all gives confidence 0. `ranking.candidates.rows` are positions in `passages`.

        Raises:
            InputError: the question is empty.
        """
        return self.assess_given([Given(Query("question", _checked(question)), tuple(passages))])[0]

    def assess_given(self, given: Sequence[Given], *, label: str | None = None) -> list[Assessment]:
        """`rerank` of many, in their order; `label` names a progress bar."""
        rankings = self.pipeline.rank_given(given, self.given.reading, label=label)
        return self._assess(rankings, self.given)

    def rank(self, queries: Sequence[Query], *, label: str | None = None) -> list[Ranking]:
        """What `assess` judges: a ranking a query, in their order; `label` names a progress bar."""
        return self.pipeline.rank(queries, self.calibrators.reading, label=label)

    def assess(self, rankings: Sequence[Ranking]) -> list[Assessment]:
        """Judge rankings as `rank` gives them; in their order."""
        return self._assess(rankings, self.calibrators)

    def _assess(self, rankings: Sequence[Ranking], learned: Calibrators) -> list[Assessment]:
        config, t = self.pipeline.config, self.pipeline.config.thresholds
        ordered = [order(r, learned.relevance, rank_by=config.rank_by) for r in rankings]
        features = feature_matrix(ordered)
        if not ordered:
            return []
        confidences = learned.confidences(ordered, features, correct_by=config.correct_by)
        sufficient = learned.sufficiencies(ordered, confidences)
        moves = learned.confidence.contributions(features)
        usual = learned.confidence.first.mean
        names = list(FEATURES)
        found = []
        for i, ranking in enumerate(ordered):
            confidence = float(confidences[i])
            sufficiency = float(sufficient[i, config.sufficiency_k - 1])
            why = policy.reasons(names, features[i], usual, moves[i])
            found.append(
                Assessment(
                    ranking=ranking,
                    confidence=confidence,
                    sufficiency=sufficiency,
                    sufficiency_at=tuple(sufficient[i].tolist()),
                    level=policy.level(confidence, t),
                    verdict=policy.verdict(sufficiency, t),
                    accepted=policy.accepted(confidence, t),
                    certified=learned.certificate.promises(confidence),
                    reasons=why if len(ranking) else ("against: no passage was found",),
                )
            )
        return found


def fingerprints(encoder: ModelFiles, reranker: ModelFiles, config: Config) -> dict[str, Any]:
    """What a calibration is bound to: the weights and the cuts of both models."""
    return {
        "encoder": encoder.fingerprint,
        "encoder_max_length": config.encoder_max_length,
        "reranker": reranker.fingerprint,
        "max_length": config.max_length,
    }


def learned_dict(
    config: Mapping[str, Any], prints: Mapping[str, Any], found: Calibrators, given: Calibrators
) -> dict[str, Any]:
    """What `calibrators.json` holds: the maps of both doors, and what they are bound to."""
    doors = {name: maps.to_dict() for name, maps in zip(DOORS, (found, given), strict=True)}
    return {"bound_to": bound_to(config, prints), **doors}


def bound_to(config: Mapping[str, Any], prints: Mapping[str, Any]) -> str:
    """What the calibrators' file holds of the configuration and the models: a sha256 of both."""
    whole = json.dumps([config, prints], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()


def _compare(kept: dict[str, Any], here: dict[str, Any], path: Path) -> None:
    for part, found in here.items():
        if kept.get(part) != found:
            raise InputError(
                f"{path}: its {part} was {str(kept.get(part))[:16]} when it was calibrated and is "
                f"{str(found)[:16]} here; use the same one, or calibrate again"
            )


def _checked(question: str) -> str:
    if not question.strip():
        raise InputError("the question is empty; expected some words")
    try:
        question.encode()
    except UnicodeEncodeError:
        raise InputError("the question is not text: it holds bytes that are no UTF-8") from None
    return question
