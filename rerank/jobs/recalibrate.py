"""Recalibrate a model on a few new labels: the ranking stays, the confidence changes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.recalibration import Recalibration
from rerank.assessment.fitted_maps import maps_to_dict, pooled_over
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import MODEL_KIND, ModelContents, write_model
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.predictions import have_passages
from rerank.data.checks import query_hash
from rerank.data.feedback import (
    LATER,
    Feedback,
    check_known_passages,
    feedback_of,
    newest_of_each,
    read_feedback,
    without_moved,
)
from rerank.data.grouping import marks_of
from rerank.data.labelled_set import LabelledSet, given_group, grouped_query
from rerank.data.labels import ACCEPTED_FROM, DRAWN_BY, JUDGED, WEIGHT
from rerank.errors import InputError
from rerank.fitting.certificates import NOT_AT_RANDOM, refuse_certificates
from rerank.fitting.fit import sketch_with_passages
from rerank.fitting.recalibrated_modes import RecalibratedMode, recalibrate_modes
from rerank.inference.engine import NETWORKS, write_exported
from rerank.inference.model_files import trained_on
from rerank.jobs.pipelines import pipeline_over
from rerank.jobs.track import model_name, track_if_installed
from rerank.process import one_blas_thread
from rerank.report.calibration import recalibration_pictures, recalibration_sections
from rerank.report.sections import as_page, as_text
from rerank.storage.folder import Workspace, output_folder
from rerank.tracking.registry import name_of
from rerank.types import Mode

if TYPE_CHECKING:
    from rerank.tracking.runs import TrackedRun

WEIGHTED = (
    "labels with a weight, which is not used: {count}. A correction of the confidence takes none, "
    "which is right for labels that were drawn by the confidence of this model. The figures are of "
    "the labelled answers, not of all that they were drawn from; `rerank evaluate` of a labelled "
    "set weighs them."
)
WORSE_IN = (
    "the new confidence of the mode {mode} is worse than the old one, by more than chance "
    "explains: keep the old model."
)
OTHER_CORPUS = "Nothing is known of these passages: label answers about them and recalibrate."
# entries of the old model's manifest that do not hold for the new one
NOT_INHERITED = {"format_version", "files", "digest", "kind", "inputs", "updated", "answers"}
NOT_INHERITED |= {"exported_from", "calibrated"}


@dataclass(frozen=True, slots=True)
class RecalibrationRun:
    """The new model's folder, the first recalibrated mode, and the run (None without MLflow).

    `notes` say which labels were left out, what was not done, and which modes are `worse`:
    measurably, on labels that the new confidence was not fitted on.
    """

    folder: Path
    recalibration: Recalibration
    run: TrackedRun | None
    notes: tuple[str, ...]
    worse: tuple[Mode, ...] = ()


@one_blas_thread()
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
) -> RecalibrationRun:
    """Write the model, recalibrated on labels, to `out`, whole or not at all.

    The labels are values, a file of them (see `rerank.data.feedback`), or a `split` of a labelled
    set or of its folder, whose corpus the new model then searches. Labels of queries that the model
    was fitted on or one of its models was trained on are left out, and so are labels of a question
    that a later one is about. At most `max_labels` are used, drawn at random.

    Labels of a random sample of what the model accepts (`rerank label --draw accepted`) leave the
    confidence as it is, and certify it from there up by one exact test.

    Nothing is certified if people chose which answers to judge (`chosen` of a label). Labels of a
    `metadata.group` that the model was fitted or recalibrated on correct the confidence, but
    certify nothing, because it looks better there: the certificate rests on the other labels.

    The model is tracked as by `calibrate`, under `name`: by default the name of `model`, or, if the
    new model searches another corpus, one made from the name of the set.

    Raises:
        InputError: bad labels, too few different queries or groups, or a name that MLflow cannot
            hold; or the model has no folder.
        TrackingError, FolderError: as `calibrate`.
    """
    model.files.check_single()
    model.files.sha256()  # only a model that has a folder can be a parent
    out, workspace = Path(out), Workspace(Path(work))
    with output_folder(out, overwrite=overwrite, kind=MODEL_KIND):
        labels, pipeline, corpus = labels_and_pipeline(model, feedback, split, workspace)
        accepted_from = drawn_from(model, labels) if pipeline is model.pipeline else None
        used, notes = usable_labels(model, labels, max_labels)
        picked = accepted_from is None and any(f.chosen for f in used)
        recalibrated, remarks = recalibrate_modes(
            model.maps,
            used,
            pipeline,
            notes,
            fitted_on=model.fitted_on,
            refusal=NOT_AT_RANDOM if picked else "",
            accepted_from=accepted_from,
        )
        notes += remarks
        contents, first = _model_contents(model, used, pipeline, corpus, recalibrated, notes, name)
        worse = tuple(mode for mode, new in recalibrated.items() if new.recalibration.worse)
        notes += [WORSE_IN.format(mode=mode) for mode in worse]
        write_networks = None
        if NETWORKS in model.manifest:
            models, config = pipeline.model_files, pipeline.config
            write_networks = partial(write_exported, models=models, config=config)
        write_model(out, contents, overwrite=overwrite, write_exported=write_networks)
        run, untracked = track_if_installed(out, work=workspace)
    return RecalibrationRun(out, first, run, (*notes, *untracked), worse)


def labels_and_pipeline(
    model: CalibratedReranker,
    feedback: Sequence[Feedback] | LabelledSet | str | Path,
    split: str,
    work: Workspace,
) -> tuple[Sequence[Feedback], Pipeline, Mapping[str, Any]]:
    """The labels, the pipeline that ranks their queries, and manifest entries of a new corpus.

    A model of lists, or over another search system, has no corpus that labels could change.
    """
    if isinstance(feedback, (str, Path)):
        path = Path(feedback)
        feedback = LabelledSet.read(path) if path.is_dir() else read_feedback(path)
    group_by = model.group_by
    if isinstance(feedback, LabelledSet):
        feedback = feedback.grouped_by(group_by) if group_by else feedback
        labels = feedback_of(feedback, split)
        if not model.source.takes_corpus:
            return labels, model.pipeline, {}
        dataset = dict(feedback.described())
        if group_by:
            dataset["group_by"] = group_by  # also if none of these has the key
        corpus = {"dataset": dataset, "corpus_digest": feedback.corpus_digest()}
        return labels, pipeline_over(feedback, model, work), corpus
    if group_by:
        feedback = [replace(f, query=grouped_query(f.query, group_by)) for f in feedback]
    if model.source.takes_corpus:
        check_known_passages(feedback, model.source.passages())
    return feedback, model.pipeline, {}


def drawn_from(model: CalibratedReranker, feedback: Sequence[Feedback]) -> float | None:
    """The confidence from which up the labels are a random sample of questions; None: no such one.

    Raises InputError: another model drew them, or another version of this one.
    """
    metadata, start = (
        [f.query.metadata for f in feedback],
        model.pipeline.config.thresholds.advisory,
    )
    if {m.get(ACCEPTED_FROM) for m in metadata} != {start}:
        return None
    if len({JUDGED in m for m in metadata}) > 1:
        raise InputError(
            "some of these questions were drawn by what a judge says, and others evenly: give each "
            "kind on its own"
        )
    if drawn := sorted({str(m.get(DRAWN_BY)) for m in metadata} - {model.version}):
        raise InputError(
            f"these questions were drawn of what the model {drawn[0]!r:.80} accepts, and "
            f"{model.folder} is {model.version!r}: recalibrate the model that drew them, or draw "
            "again (rerank label --next --draw accepted)"
        )
    return start


def usable_labels(
    model: CalibratedReranker, feedback: Sequence[Feedback], max_labels: int | None
) -> tuple[list[Feedback], list[str]]:
    """The labels to use, one per question, and notes on those left out, and on their weights."""
    usable, notes = fresh(model, feedback), list[str]()
    if known := len(feedback) - len(usable):
        notes.append(
            f"left out: {known} labels of queries that the model was fitted or recalibrated on, "
            "or its networks trained on."
        )
    usable, moved = without_moved(usable, model.assess)
    newest = newest_of_each(usable)
    notes += moved
    if again := len(usable) - len(newest):
        notes.append(f"left out: {again} labels, because {LATER}.")
    labels = list(subsample(newest, max_labels))
    if weighted := sum({WEIGHT, JUDGED} & f.query.metadata.keys() == {WEIGHT} for f in labels):
        notes.append(WEIGHTED.format(count=weighted))
    return labels, notes


def fresh(model: CalibratedReranker, feedback: Sequence[Feedback]) -> list[Feedback]:
    """The labels of queries that no map, a pooled one included, and no model was fitted on.

    If one query of a group is known, the whole group is left out: it looks too good there.
    """
    seen = model.fitted_on
    if model.source.scores_passages:
        models, config = model.pipeline.model_files, model.pipeline.config
        seen |= trained_on(*models) | pooled_over(models, config)
    groups = [{f.group, given_group(f.query)} - {""} for f in feedback]
    rows = list(zip(feedback, groups, strict=True))
    known = {g for f, of_label in rows if query_hash(f.query.text) in seen for g in of_label}
    return [f for f, of_label in rows if known.isdisjoint(of_label)]


def subsample(feedback: Sequence[Feedback], max_labels: int | None) -> Sequence[Feedback]:
    """At most `max_labels` of the labels, drawn at random, in their old order."""
    if max_labels is None or max_labels >= len(feedback):
        return feedback
    rows = random.Random(0).sample(range(len(feedback)), max_labels)
    return [feedback[i] for i in sorted(rows)]


def _model_contents(
    model: CalibratedReranker,
    feedback: Sequence[Feedback],
    pipeline: Pipeline,
    corpus: Mapping[str, Any],
    recalibrated: Mapping[Mode, RecalibratedMode],
    notes: Sequence[str],
    name: str,
) -> tuple[ModelContents, Recalibration]:
    kept = {k: v for k, v in model.manifest.items() if k not in NOT_INHERITED}
    manifest = {**kept, **corpus}
    same = manifest["corpus_digest"] == model.manifest["corpus_digest"]
    of_parent = model_name(model.manifest) if same else ""
    maps = {  # what is known of another corpus certifies nothing
        mode: old if same else refuse_certificates(old, OTHER_CORPUS)
        for mode, old in model.maps.items()
    } | {mode: new.maps for mode, new in recalibrated.items()}
    recalibrations = {mode: new.recalibration for mode, new in recalibrated.items()}
    tables = {mode: {"confidence": r.table.to_dict()} for mode, r in recalibrations.items()}
    main: Mode = model.maps.main_mode
    mode, first = next(iter(recalibrations.items()))
    pictures = recalibration_pictures(recalibrations)
    sections = recalibration_sections(recalibrations, notes, pictures)
    contents = ModelContents(
        manifest={
            **manifest,
            "name": name_of(name or of_parent, manifest["dataset"]["name"]),
            "parent": model.files.sha256(),
            "parent_version": model.version,
            "recalibrated": {
                "mode": mode,
                "labels": len(first.right),
                "right": int(first.right.sum()),
                "slope": first.update.coef[0],
                "intercept": first.update.intercept,
            },
        },
        maps=maps_to_dict(maps),
        sketch=_sketch(model, recalibrated.get(main), same_corpus=same),
        measured={
            "report_split": "the labels given",
            **tables.get(main, {}),
            **{mode: table for mode, table in tables.items() if mode != main},
        },
        report=as_text(sections),
        page=as_page("A recalibrated model", first.sentences()[0], sections),
        pictures={name: picture.captioned for name, picture in pictures.items()},
        fitted_on=marks_of(f.query for f in feedback) | model.fitted_on,
        index=pipeline.source.folder,
    )
    return contents, first


def _sketch(
    model: CalibratedReranker, main: RecalibratedMode | None, *, same_corpus: bool
) -> Mapping[str, Any]:
    """The sketch of the new main mode; empty if nothing is known of it, as of another corpus."""
    if same_corpus and model.calibrated:
        return model.sketch.to_dict()
    if main is None:
        return {}
    groups, predicted = np.asarray(main.recalibration.groups), main.predicted
    names, found = list(main.maps.features.ranking), have_passages(predicted.rankings)
    return sketch_with_passages(predicted.features, names, groups, found).to_dict()
