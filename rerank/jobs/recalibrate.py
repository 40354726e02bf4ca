"""Recalibrate a model on a few new labels: the ranking stays, the confidence is calibrated again.

The log odds of the confidence get a slope and an intercept, shrunk towards the old model. The new
folder names its parent, and is measured on the new labels, cross-fitted.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.monitoring.drift import LEAST_ROWS
from calibration.monitoring.recalibration import (
    Recalibration,
    compose_updates,
    fit_recalibration,
    rebase_update,
)
from calibration.segments import Segments
from rerank.assessment.fitted_maps import FittedMaps, MapsByMode, maps_to_dict
from rerank.assessment.index_pipeline import IndexPipeline
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import MODEL_KIND, RETRIEVER, ModelContents, write_model
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.policy import LEAST_LABELS as CALIBRATED_FROM
from rerank.assessment.predictions import Predictions, found_any, predict
from rerank.assessment.ranking import by_prior, prior_score
from rerank.config import Config
from rerank.data.canonical import query_hash
from rerank.data.feedback import (
    Feedback,
    check_known_passages,
    feedback_of,
    group_labels,
    hit_labels,
    labels_of,
    read_feedback,
)
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.fitting.fit import sketch_of_filled
from rerank.fitting.label_checks import (
    NO_LISTS,
    NOT_AT_RANDOM,
    refused,
    require_both_kinds,
    without_certificates,
)
from rerank.fitting.rankings import as_from_caller
from rerank.inference.exported_models import NETWORKS
from rerank.jobs.pipelines import exported_writer, pipeline_over, trained_on_by
from rerank.jobs.track import model_name, track_if_installed
from rerank.report.recalibration import (
    recalibration_page,
    recalibration_pictures,
    recalibration_text,
)
from rerank.storage.locks import output_folder
from rerank.tracking.registry import name_of
from rerank.types import LISTS, Mode, Query, Scored, metadata_name
from rerank.workspace import Workspace

if TYPE_CHECKING:
    from rerank.tracking.runs import TrackedRun

LEAST_LABELS = 10
LEAST_GROUPS = LEAST_ROWS  # for the drift alarm; a correction is measured on other groups, too
NO_LABELS_OF: dict[Mode, str] = {
    "search": "the labels say nothing of searches: that mode stays as it was.",
    "rerank": "the labels say nothing of passages that callers bring: that mode stays as it was.",
    "lists": "the labels say nothing of lists: the model stays as it was.",
}
WORSE_IN = (
    "the new confidence of the mode {mode} is worse than the old one, by more than chance "
    "explains: keep the old model."
)
OTHER_CORPUS = "Nothing is known of these passages: label answers about them and recalibrate."
NOT_INHERITED = (
    "format_version",
    "files",
    "digest",
    "kind",
    "inputs",
    "updated",
    "answers",
    "exported_from",
)
"""Entries of the old model's manifest that do not hold for the new one."""


@dataclass(frozen=True, slots=True)
class RecalibrationRun:
    """The new model's folder, the recalibration, and the run in MLflow (None without MLflow).

    `notes` say which labels were left out, what was not done, and which modes are `worse`: those
    whose new confidence is measurably worse than the old one on labels that it was not fitted on.
    """

    folder: Path
    recalibration: Recalibration
    run: TrackedRun | None
    notes: tuple[str, ...]
    worse: tuple[Mode, ...] = ()


def recalibrate(
    model: CalibratedReranker,
    feedback: Sequence[Feedback] | LabelledSet | str | Path,
    out: str | Path,
    *,
    split: str = "train",
    work: str | Path = "work",
    max_labels: int | None = None,
    overwrite: bool = False,
    name: str = "",
    at_random: bool = True,
) -> RecalibrationRun:
    """Write the model, recalibrated on labels, to `out`, whole or not at all.

    The labels are values, a file of them (see `rerank.data.feedback`), or a `split` of a labelled
    set or of its folder. With a labelled set, the new model searches the corpus of that set. Labels
    of queries that the model was fitted on or one of its models was trained on are left out. At
    most `max_labels` are used, drawn at random.

    `at_random`: whether the labels are of a random sample of the questions. If people chose which
    answers to judge, they are not, and nothing is certified. Labels that say `chosen` never are.

    The model is tracked as by `calibrate`, under `name`: by default the name of `model`, or, if the
    new model searches another corpus, one made from the name of the set.

    Raises:
        InputError: bad labels, fewer than `LEAST_LABELS` different queries, or a name that MLflow
            cannot hold.
        TrackingError: the model is written, but MLflow did not accept its record.
        FolderError: `out` exists, is another model, or `overwrite` is False; or another job uses
            it.
    """
    out, workspace = Path(out), Workspace(Path(work))
    with output_folder(out, overwrite=overwrite, kind=MODEL_KIND):
        feedback, pipeline, corpus = _labels(model, feedback, split, workspace)
        feedback, notes = _usable_labels(model, feedback, max_labels)
        at_random = at_random and not any(f.chosen for f in feedback)
        recalibrated = _recalibrated_modes(model, feedback, pipeline, notes, at_random=at_random)
        contents, recalibration = _model_contents(
            model, feedback, pipeline, corpus, recalibrated, name
        )
        notes += [NO_LABELS_OF[mode] for mode in model.maps if mode not in recalibrated]
        worse = tuple(mode for mode, new in recalibrated.items() if new.recalibration.worse)
        notes += [WORSE_IN.format(mode=mode) for mode in worse]
        write_exported = exported_writer(pipeline) if NETWORKS in model.manifest else None
        write_model(out, contents, overwrite=overwrite, write_exported=write_exported)
        run, untracked = track_if_installed(out, work=workspace)
    return RecalibrationRun(out, recalibration, run, (*notes, *untracked), worse)


def _model_contents(
    model: CalibratedReranker,
    feedback: Sequence[Feedback],
    pipeline: Pipeline,
    corpus: Mapping[str, Any],
    recalibrated: Mapping[Mode, _RecalibratedMode],
    name: str,
) -> tuple[ModelContents, Recalibration]:
    """The contents of the new model folder, and the recalibration that it reports."""
    manifest = {k: v for k, v in model.manifest.items() if k not in NOT_INHERITED}
    manifest = {**manifest, **corpus}
    same = manifest["corpus_digest"] == model.manifest["corpus_digest"]
    of_parent = model_name(model.manifest) if same else ""
    manifest["name"] = name_of(name or of_parent, manifest["dataset"]["name"])
    old: Mapping[Mode, FittedMaps] = model.maps
    if not same:
        old = {mode: without_certificates(maps, OTHER_CORPUS) for mode, maps in old.items()}
    maps = {**old, **{mode: new.maps for mode, new in recalibrated.items()}}
    mode, new = next(iter(recalibrated.items()))
    recalibration = new.recalibration

    # queries of another corpus have another distribution; a few more of the same corpus do not
    features, same_questions = new.predicted.features, same and model.maps[mode].calibrated
    seen = (
        model.sketch
        if same_questions
        else sketch_of_filled(
            features,
            list(new.maps.features.ranking),
            np.asarray(recalibration.groups),
            found_any(new.predicted.rankings),
        )
    )
    pictures = recalibration_pictures(recalibration)
    contents = ModelContents(
        manifest={
            **manifest,
            "parent": model.files.sha256(),
            "parent_version": model.version,
            "recalibrated": {
                "mode": mode,
                "labels": len(recalibration.right),
                "right": int(recalibration.right.sum()),
                "slope": recalibration.update.coef[0],
                "intercept": recalibration.update.intercept,
            },
        },
        maps=maps_to_dict(maps),
        sketch=seen.to_dict(),
        measured={"report_split": "the labels given", "confidence": recalibration.table.to_dict()},
        report=recalibration_text(recalibration),
        page=recalibration_page(recalibration, pictures),
        pictures={name: picture.captioned for name, picture in pictures.items()},
        fitted_on={query_hash(f.query.text) for f in feedback} | model.fitted_on,
        index=pipeline.index.folder if model.index_folder else None,
    )
    return contents, recalibration


def _usable_labels(
    model: CalibratedReranker, feedback: Sequence[Feedback], max_labels: int | None
) -> tuple[list[Feedback], list[str]]:
    """The labels to use, and a note on those that are left out."""
    usable, notes = fresh(model, feedback), []
    if len(usable) < len(feedback):
        notes.append(
            f"left out: {len(feedback) - len(usable)} labels of queries that the model was fitted "
            "on or its cross-encoder trained on."
        )
    return list(subsample(usable, max_labels)), notes


def _recalibrated_modes(
    model: CalibratedReranker,
    feedback: Sequence[Feedback],
    pipeline: Pipeline,
    notes: Sequence[str],
    *,
    at_random: bool,
) -> dict[Mode, _RecalibratedMode]:
    """The new maps of each mode that has enough labels.

    Raises:
        InputError: no mode has enough.
    """
    recalibrated = {
        mode: new if at_random else new.without_certificates(NOT_AT_RANDOM)
        for mode in model.maps
        if (new := _recalibrated_mode(model.maps, mode, feedback, pipeline)) is not None
    }
    if not recalibrated:
        groups = len({f.group for f in feedback})
        raise InputError(
            f"expected labels of at least {LEAST_LABELS} different queries, got "
            + " ".join([str(groups), *(f"({note})" for note in notes)])
        )
    return recalibrated


def _labels(
    model: CalibratedReranker,
    feedback: Sequence[Feedback] | LabelledSet | str | Path,
    split: str,
    work: Workspace,
) -> tuple[Sequence[Feedback], Pipeline, Mapping[str, Any]]:
    """The labels, the pipeline that ranks their queries, and manifest entries of a new corpus."""
    if isinstance(feedback, (str, Path)):
        path = Path(feedback)
        feedback = LabelledSet.read(path) if path.is_dir() else read_feedback(path)
    if isinstance(feedback, LabelledSet):
        if RETRIEVER in model.manifest:  # it is searched, whatever the set's corpus
            return feedback_of(feedback, split), model.pipeline, {}
        corpus = {"dataset": feedback.described(), "corpus_digest": feedback.corpus_digest()}
        return feedback_of(feedback, split), pipeline_over(feedback, model, work), corpus
    if RETRIEVER in model.manifest:
        return feedback, model.pipeline, {}
    index = model.pipeline.index
    check_known_passages(feedback, map(index.passage, range(len(index))))
    return feedback, model.pipeline, {}


def fresh(model: CalibratedReranker, feedback: Sequence[Feedback]) -> list[Feedback]:
    """The labels of queries that neither the maps were fitted on nor the models trained on.

    If one query of a group is known, the whole group is left out, also of one that `metadata.group`
    names: the confidence looks too good there.
    """
    seen = model.fitted_on
    if LISTS not in model.maps:
        seen |= trained_on_by(model.pipeline)
    groups = [{f.group, metadata_name(f.query.metadata, "group")} - {""} for f in feedback]
    rows = list(zip(feedback, groups, strict=True))
    known = {g for f, of_label in rows if query_hash(f.query.text) in seen for g in of_label}
    return [f for f, of_label in rows if known.isdisjoint(of_label)]


def subsample(
    feedback: Sequence[Feedback], most: int | None, *, seed: int = 0
) -> Sequence[Feedback]:
    """At most `most` of the labels, drawn at random, in their old order.

    The first labels of a file are often about one subject, and represent only that.
    """
    if most is None or most >= len(feedback):
        return feedback
    rows = random.Random(seed).sample(range(len(feedback)), most)
    return [feedback[i] for i in sorted(rows)]


@dataclass(frozen=True, slots=True)
class _RecalibratedMode:
    """The recalibration of one mode, and the new maps."""

    recalibration: Recalibration
    maps: FittedMaps
    predicted: Predictions

    def without_certificates(self, reason: str) -> _RecalibratedMode:
        """The same, with all certificates refused for this reason."""
        certificate = refused(self.recalibration.certificate, reason)
        return replace(
            self,
            recalibration=replace(self.recalibration, certificate=certificate),
            maps=without_certificates(self.maps, reason),
        )


def _recalibrated_mode(
    maps: MapsByMode, mode: Mode, feedback: Sequence[Feedback], pipeline: Pipeline
) -> _RecalibratedMode | None:
    """The maps of one mode, recalibrated on labels of its own top passages; None if too few.

    A label is used whatever the other mode ranks first: using only labels on which both agree would
    select easy queries. The mode `rerank` uses labels of lists that callers provided. If these are
    too few, it uses labels with ids of the right passages, on lists cut from our own search, which
    certify nothing.
    """
    old, of_mode = maps[mode], [f for f in feedback if maps.mode_of(f.query) == mode]
    from_search = mode == "rerank" and not _has_least_labels(of_mode)
    labels = (
        [f for f in labels_of(feedback, "search") if f.right is None] if from_search else of_mode
    )
    if not _has_least_labels(labels):
        return None
    queries = [f.query for f in labels]
    if from_search:
        assert isinstance(pipeline, IndexPipeline), "only its models have the mode `rerank`"
        scored = _search_as_from_callers(queries, maps, pipeline)
    else:
        scored = pipeline.run(queries, old.policy, label="scoring candidates")
    predicted = predict(scored, old, pipeline.config)
    index = pipeline.index
    groups, about = group_labels(labels, map(index.passage, range(len(index))))
    if len(set(groups)) < LEAST_GROUPS:
        raise InputError(
            f"expected labels of at least {LEAST_GROUPS} groups, because a correction is measured "
            f"on other groups than it is fitted on; the {len(labels)} labels are of "
            f"{len(set(groups))}: label questions of other groups, too"
        )
    recalibration, new = _update(old, predicted, labels, groups, about, pipeline.config)
    if from_search:
        new = without_certificates(new, NO_LISTS)
    return _RecalibratedMode(recalibration, new, predicted)


def _search_as_from_callers(
    queries: Sequence[Query], maps: Mapping[Mode, FittedMaps], pipeline: IndexPipeline
) -> list[Scored]:
    """The queries as if their callers had provided the likeliest passages of a search."""
    candidates = pipeline.retrieve(queries, label="finding candidates")
    prior = [prior_score(c, maps["search"].policy.prior) for c in candidates]
    likeliest_first = [by_prior(c, p)[0] for c, p in zip(candidates, prior, strict=True)]
    provided = as_from_caller(pipeline, likeliest_first)
    policy = maps["rerank"].policy
    prior = [prior_score(c, policy.prior) for c in provided]
    return pipeline.score(provided, prior, cutoff=policy.cutoff, label="scoring provided passages")


def _has_least_labels(labels: Sequence[Feedback]) -> bool:
    return len({f.group for f in labels}) >= LEAST_LABELS


def _update(
    old: FittedMaps,
    predicted: Predictions,
    feedback: Sequence[Feedback],
    groups: Sequence[str],
    about: str,
    config: Config,
) -> tuple[Recalibration, FittedMaps]:
    """The recalibration by labels of rankings with the probabilities of `old`, and the new maps."""
    recalibration = fit_recalibration(
        predicted.confidence,
        hit_labels(feedback, predicted.rankings),
        groups,
        target=config.thresholds.medium,
        about=about,
        random_state=config.seed,
    )
    if all(f.right is None for f in feedback):  # else a wrong answer may mean that there is none
        answered = [bool(f.relevant) for f in feedback]
        recalibration = replace(
            recalibration, certificate=require_both_kinds(recalibration.certificate, answered)
        )
    updates = {k: rebase_update(u, recalibration.update) for k, u in old.segments.updates.items()}
    new = replace(
        old,
        confidence=replace(
            old.confidence, update=compose_updates(old.confidence.update, recalibration.update)
        ),
        segments=Segments(updates),
        certificate=recalibration.certificate,
        context=None,  # the sufficiency has changed, and these labels are of the top passage
        stopping_threshold=None,
        calibrated=old.calibrated or recalibration.effective >= CALIBRATED_FROM,
    )
    return recalibration, new
