"""Ranking to assessment, and the model folder: what production loads.

A model folder holds `manifest.json` (configuration, feature names, fingerprints, the sha256 of
every file), `calibrators.json`, `reliability.json` and its pictures, and `index/`. Nothing in it
can execute. Loading needs no scikit-learn and no MLflow.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.maps import LogisticMap, TwoStageMap, map_from_dict
from calibration.store import StoreError, verify_folder
from rerank import policy
from rerank.config import Config
from rerank.evidence import EVIDENCE
from rerank.features import FEATURES, feature_matrix
from rerank.models import ModelFiles, resolve
from rerank.pipeline import Pipeline, Reading, order
from rerank.reranking.score_cache import ScoreCache
from rerank.retrieval.index import Index
from rerank.types import Assessment, Floats, InputError, Query, Ranking

MODEL_KIND = "a calibrated model"
FITTED_ON = "fitted_on.txt"  # a `query_hash` a line: the queries that the maps were fitted on


@dataclass(frozen=True, slots=True)
class Calibrators:
    """All that is learned from the labels.

    `reading`: which passages are read. `relevance`: a passage's evidence to P(it is right).
    `confidence`: a ranking's features to P(its top passage is right). `rescue`: the same features
    to P(one of the first k is right, given that the top one is not); so sufficiency =
    c + (1 - c) x rescue never falls below c.
    """

    reading: Reading
    relevance: LogisticMap
    confidence: TwoStageMap
    rescue: TwoStageMap

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; `from_dict` gives equal maps back, to the bit."""
        return {
            "evidence": list(EVIDENCE),
            "features": list(FEATURES),
            "prior": self.reading.prior.to_dict(),
            "floor": self.reading.floor,
            "relevance": self.relevance.to_dict(),
            "confidence": self.confidence.to_dict(),
            "rescue": self.rescue.to_dict(),
        }

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> Calibrators:
        """Read `to_dict`'s value.

        Raises:
            InputError: the evidence or the features are not those of this version.
        """
        for name, ours in (("evidence", EVIDENCE), ("features", FEATURES)):
            if kept.get(name) != list(ours):
                raise InputError(
                    f"the model's {name} differ from this version's: it has {kept.get(name)}, "
                    f"expected {list(ours)}; calibrate it again"
                )
        try:
            prior, relevance = (map_from_dict(kept[n]) for n in ("prior", "relevance"))
            floor = float(kept["floor"])
            confidence, rescue = (map_from_dict(kept[n]) for n in ("confidence", "rescue"))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"calibrators.json cannot be read: {error}") from None
        for name, columns, learned in (
            ("prior", EVIDENCE, prior),
            ("relevance", EVIDENCE, relevance),
            ("confidence", FEATURES, getattr(confidence, "first", None)),
            ("rescue", FEATURES, getattr(rescue, "first", None)),
        ):
            if isinstance(learned, LogisticMap) and len(learned.coef) != len(columns):
                raise InputError(
                    f"the {name} map has {len(learned.coef)} weights, expected {len(columns)}"
                )
        if not isinstance(prior, LogisticMap) or not isinstance(relevance, LogisticMap):
            raise InputError("the prior and relevance maps should be logistic")
        if not isinstance(confidence, TwoStageMap) or not isinstance(rescue, TwoStageMap):
            raise InputError("the confidence and rescue maps should have two stages")
        if not 0 <= floor <= 1:
            raise InputError(f"the floor should be in [0, 1], got {floor}")
        return cls(Reading(prior, floor), relevance, confidence, rescue)

    def probabilities(self, features: Floats) -> tuple[Floats, Floats]:
        """(confidence, sufficiency) for features (n, d), each (n,) in [0, 1]."""
        confidence = self.confidence.predict(features)
        return confidence, confidence + (1 - confidence) * self.rescue.predict(features)


class CalibratedReranker:
    """A loaded model: questions in, assessments out.

    >>> model = CalibratedReranker.load("work/model")          # doctest: +SKIP
    >>> found = model.search("median ignoring NaNs")           # doctest: +SKIP
    >>> found.confidence, found.ranking.doc_ids[0]             # doctest: +SKIP
    """

    def __init__(
        self, pipeline: Pipeline, calibrators: Calibrators, manifest: dict[str, Any] | None = None
    ) -> None:
        self.pipeline = pipeline
        self.calibrators = calibrators
        self.manifest = manifest or {}

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
        calibrators = Calibrators.from_dict(kept)
        return cls(Pipeline(Index(path / "index"), config, cache=cache), calibrators, manifest)

    def search(self, question: str) -> Assessment:
        """Rank the index for one question and say how sure to be.

        Raises:
            InputError: the question is empty.
        """
        return self.assess(self.rank([Query("question", _checked(question))]))[0]

    def rank(self, queries: Sequence[Query], *, label: str | None = None) -> list[Ranking]:
        """What `assess` judges: a ranking a query, in their order; `label` names a progress bar."""
        return self.pipeline.rank(queries, self.calibrators.reading, label=label)

    def assess(self, rankings: Sequence[Ranking]) -> list[Assessment]:
        """Judge rankings as `rank` gives them; in their order."""
        config, t = self.pipeline.config, self.pipeline.config.thresholds
        ordered = [order(r, self.calibrators.relevance, rank_by=config.rank_by) for r in rankings]
        features = feature_matrix(ordered)
        if not ordered:
            return []
        confidences, sufficiencies = self.calibrators.probabilities(features)
        moves = self.calibrators.confidence.contributions(features)
        usual = self.calibrators.confidence.first.mean
        names = list(FEATURES)
        found = []
        for i, ranking in enumerate(ordered):
            confidence = float(confidences[i]) if len(ranking) else 0.0
            sufficiency = float(sufficiencies[i]) if len(ranking) else 0.0
            why = policy.reasons(names, features[i], usual, moves[i])
            found.append(
                Assessment(
                    ranking=ranking,
                    confidence=confidence,
                    sufficiency=sufficiency,
                    level=policy.level(confidence, t),
                    verdict=policy.verdict(sufficiency, t),
                    accepted=policy.accepted(confidence, t),
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
