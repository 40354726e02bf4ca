"""Ranking to assessment, and the model folder: what production loads.

A model folder holds `manifest.json` (configuration, feature names, fingerprints, the sha256 of
every file), `calibrators.json`, `reliability.json` and its pictures, and `index/`. Nothing in it
can execute. Loading needs no scikit-learn and no MLflow.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from calibration.by_kind import ByKind
from calibration.drift import Sketch
from calibration.maps import LogisticMap, TwoStageMap, map_from_dict
from calibration.thresholds import Certificate
from rerank import policy
from rerank.config import Config
from rerank.evidence import EVIDENCE
from rerank.features import FEATURES, feature_matrix
from rerank.model_folder import (
    CALIBRATORS,
    FITTED_ON,
    SKETCH,
    ModelFolder,
    bound_to,
    models_of,
    open_folder,
)
from rerank.pipeline import Pipeline, Reading, order
from rerank.registry import fetch, is_uri
from rerank.reranking.score_cache import ScoreCache
from rerank.retrieval.index import Index
from rerank.sufficiency import DEPTH, INPUTS, sufficiencies
from rerank.types import Assessment, Floats, Given, InputError, Passage, Query, Ranking

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
    def load(
        cls,
        path_or_uri: str | Path,
        *,
        cache: ScoreCache | None = None,
        allow_download: bool = False,
        tracking_uri: str | None = None,
    ) -> CalibratedReranker:
        """Open a model folder, after checking every hash and fingerprint.

        `models:/name@champion`, `models:/name/3` or `runs:/id/model` is fetched from MLflow, at
        MLFLOW_TRACKING_URI, else `tracking_uri`, else the database in `work`; a copy of it is
        removed with the model. A folder needs neither MLflow nor a network: a hub id of its
        configuration is looked for on this machine, unless `allow_download`.

        The model is safe to use from many threads; what it answers does not depend on them.

        Raises:
            InputError: not a model folder, a changed file, or another encoder, reranker, tokenizer,
                cut, precision or index than the one the model was calibrated with; the message
                says which part differs. Or MLflow does not give the model.
        """
        if is_uri(path_or_uri):
            place, temporary = fetch(path_or_uri, tracking_uri=tracking_uri)
        else:
            place, temporary = Path(path_or_uri), None
        try:
            model = cls._open(place, cache=cache, allow_download=allow_download)
        except BaseException:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        if temporary is not None:
            weakref.finalize(model, shutil.rmtree, temporary, ignore_errors=True)
        return model

    @classmethod
    def _open(
        cls, path: Path, *, cache: ScoreCache | None, allow_download: bool
    ) -> CalibratedReranker:
        folder = open_folder(path)
        manifest, kept = folder.manifest, folder.json(CALIBRATORS)
        if kept.get("bound_to") != bound_to(manifest["config"], manifest["fingerprints"]):
            raise InputError(
                f"{path}: its calibrators were fitted with another configuration or other models "
                "than its manifest says; calibrate again"
            )
        config = Config.from_dict(manifest["config"])
        models = models_of(folder, config, download=allow_download)
        found, given = both_doors(kept)
        for learned in (found, given):
            _refuse_overflow(learned, path)
        try:
            index = Index(path / "index")
            index.check()
            pipeline = Pipeline(index, config, cache=cache, models=models)
        except Exception as error:  # a broken array shows in as many ways as there are formats
            raise InputError(f"{path}: its index cannot be used: {error}") from None
        return cls(path, manifest, found, given, pipeline)

    @property
    def fitted_on(self) -> frozenset[str]:
        """The `query_hash` of every query that the maps were fitted on.

        Raises:
            InputError: the folder does not hold them, or was changed since it was loaded.
        """
        return frozenset(ModelFolder(self.folder, self.manifest).text(FITTED_ON).split())

    @property
    def sketch(self) -> Sketch:
        """How the features were spread where the confidence was fitted: see `calibration.drift`.

        Raises:
            InputError: the folder does not hold it, or was changed since it was loaded.
        """
        kept = ModelFolder(self.folder, self.manifest).json(SKETCH)
        try:
            return Sketch.from_dict(kept)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{self.folder}: {SKETCH} cannot be read: {error}") from None

    def search(self, question: str, metadata: Mapping[str, Any] | None = None) -> Assessment:
        """Rank the index for one question and say how sure to be.

        Of `metadata` counts what the model corrects by, such as the question's language, if it was
        calibrated to correct by anything.

        Raises:
            InputError: the question is empty.
        """
        return self.assess(self.rank([_query(question, metadata)]))[0]

    def rerank(
        self, question: str, passages: Sequence[Passage], metadata: Mapping[str, Any] | None = None
    ) -> Assessment:
        """Rank the passages that the caller brings, and say how sure to be of the first.

        No passage at all gives confidence 0. `ranking.candidates.rows` are positions in `passages`;
        `metadata` is that of the question, as `search` takes it.

        Raises:
            InputError: the question is empty.
        """
        return self.assess_given([Given(_query(question, metadata), tuple(passages))])[0]

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


def _refuse_overflow(calibrators: Calibrators, path: Path) -> None:
    """Refuse maps of numbers so large that a probability would be none."""
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


def _query(question: str, metadata: Mapping[str, Any] | None) -> Query:
    """The question as a query, if it is one.

    Raises:
        InputError: it is empty, or no text.
    """
    if not question.strip():
        raise InputError("the question is empty; expected some words")
    try:
        question.encode()
    except UnicodeEncodeError:
        raise InputError("the question is not text: it holds bytes that are no UTF-8") from None
    return Query("question", question, metadata or {})
