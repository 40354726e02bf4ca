"""Ranking to assessment, and the model folder: what production loads.

A model folder holds `manifest.json` (configuration, feature names, fingerprints, the sha256 of
every file), `calibrators.json`, `reliability.json` and its pictures, and `index/`. Nothing in it
can execute. Loading needs no scikit-learn and no MLflow.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibration.drift import Sketch
from rerank import policy
from rerank.config import Config
from rerank.features import FEATURES, feature_matrix
from rerank.learned import Calibrators, both_doors, refuse_overflow
from rerank.model_folder import (
    CALIBRATORS,
    FITTED_ON,
    SKETCH,
    ModelFolder,
    bound_to,
    models_of,
    open_folder,
)
from rerank.pipeline import Pipeline, order
from rerank.registry import fetch, is_uri
from rerank.reranking.score_cache import ScoreCache
from rerank.retrieval.index import Index
from rerank.text import can_be_written
from rerank.types import Assessment, Given, InputError, Passage, Query, Ranking


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
            refuse_overflow(learned, path)
        try:
            index = Index(path / "index")
            index.check()
            pipeline = Pipeline(index, config, cache=cache, models=models)
        except Exception as error:  # a broken array shows in as many ways as there are formats
            raise InputError(f"{path}: its index cannot be used: {error}") from None
        return cls(path, manifest, found, given, pipeline)

    @property
    def correct_by(self) -> str:
        """The metadata of a query whose kinds the model corrects its confidence by; "" for none."""
        return self.pipeline.config.correct_by

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
            accepted = policy.accepted(confidence, t)
            why = policy.reasons(names, features[i], usual, moves[i])
            found.append(
                Assessment(
                    ranking=ranking,
                    confidence=confidence,
                    sufficiency=sufficiency,
                    sufficiency_at=tuple(sufficient[i].tolist()),
                    level=policy.level(confidence, t),
                    verdict=policy.verdict(sufficiency, t),
                    accepted=accepted,
                    certified=accepted and learned.certificate.promises(confidence),
                    reasons=why if len(ranking) else ("against: no passage was found",),
                )
            )
        return found


def _query(question: str, metadata: Mapping[str, Any] | None) -> Query:
    """The question as a query, if it is one.

    Raises:
        InputError: it is empty, or no text.
    """
    if not question.strip():
        raise InputError("the question is empty; expected some words")
    if not can_be_written(question):
        raise InputError("the question is not text: it holds bytes that are no UTF-8")
    return Query("question", question, metadata or {})
