"""Few new labels to a moved model: the same ranking, a confidence that is true again.

The log odds of the confidence get a slope and an intercept, shrunk towards the model as it was. The
new folder names its parent, and measures itself on the labels it was given, cross-fitted.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibration.monitoring.drift import sketch
from calibration.monitoring.recalibration import (
    Recalibration,
    compose_updates,
    fit_recalibration,
    rebase_update,
)
from calibration.segments import Segments
from calibration.thresholds import Certificate
from rerank.assessment.fitted_maps import FittedMaps, maps_to_dict
from rerank.assessment.judge import Judged, judge
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import MODEL_KIND, ModelContents, write_model
from rerank.assessment.pipeline import Pipeline, prior_score
from rerank.assessment.ranking_features import RANKING_FEATURES
from rerank.config import Config
from rerank.data.feedback import (
    Feedback,
    feedback_of,
    hit_labels,
    read_feedback,
    refuse_unknown,
)
from rerank.data.labelled_set import LabelledSet
from rerank.data.text import query_hash
from rerank.errors import InputError
from rerank.fitting.label_checks import refuse_one_sided
from rerank.fitting.rankings import as_brought
from rerank.inference.model_files import trained_on
from rerank.inference.networks import NETWORKS
from rerank.jobs.pipelines import pipeline_over
from rerank.jobs.track import model_name, track_if_installed
from rerank.report.recalibration import (
    recalibration_page,
    recalibration_pictures,
    recalibration_text,
)
from rerank.storage.folder import MANIFEST, sha256_file
from rerank.storage.locks import output_folder
from rerank.tracking.registry import name_of
from rerank.types import Mode, Scored
from rerank.workspace import Workspace

if TYPE_CHECKING:
    from rerank.tracking.runs import TrackedRun

LEAST_LABELS = 10
OF_THE_PARENT = ("format_version", "files", "digest", "kind", "inputs")  # not handed down


@dataclass(frozen=True, slots=True)
class RecalibrationRun:
    """Where the new model is, what the labels said, and MLflow's run of it: None without MLflow.

    `notes` say which labels were left out, and what was not done.
    """

    folder: Path
    recalibration: Recalibration
    run: TrackedRun | None
    notes: tuple[str, ...]


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
    """Write the model, moved by labels, to `out`, whole or not at all.

    The labels come as values, as a file of them (see `rerank.data.feedback`), or as a `split` of a
    labelled set or of its folder: then the new model searches the corpus of that set. Labels of
    queries that the model or its cross-encoder knows are left out. At most `max_labels` are taken,
    drawn at random.

    The model is tracked as `calibrate` does it, under `name`: by default that of `model`, or, where
    the new model searches another corpus, one that is made from the name of the set.

    Raises:
        InputError: bad labels, fewer than `LEAST_LABELS` different queries, or a name that MLflow
            cannot hold.
        TrackingError: the model is written, and MLflow did not take its record.
        FolderError: `out` exists, is another model, or `overwrite` is False; or another job uses
            it.
    """
    out, workspace = Path(out), Workspace(Path(work))
    with output_folder(out, overwrite=overwrite, kind=MODEL_KIND):
        feedback, pipeline, corpus = _labels(model, feedback, split, workspace)
        contents, found, notes = _moved(model, feedback, pipeline, corpus, max_labels, name)
        write_model(out, contents, overwrite=overwrite)
        run, untracked = track_if_installed(out, work=workspace)
    return RecalibrationRun(out, found, run, (*notes, *untracked))


def _moved(
    model: CalibratedReranker,
    feedback: Sequence[Feedback],
    pipeline: Pipeline,
    corpus: Mapping[str, Any],
    max_labels: int | None,
    name: str,
) -> tuple[ModelContents, Recalibration, list[str]]:
    """The model moved by the labels, what they said, and which of them were left out."""
    manifest = {k: v for k, v in model.manifest.items() if k not in OF_THE_PARENT}
    manifest = {**manifest, **corpus}
    same = manifest["corpus_digest"] == model.manifest["corpus_digest"]
    of_parent = model_name(model.manifest) if same else ""
    manifest["name"] = name_of(name or of_parent, manifest["dataset"]["name"])
    usable = fresh(model, feedback)
    notes = []
    if len(usable) < len(feedback):
        notes.append(
            f"left out: {len(feedback) - len(usable)} labels of queries that the model was fitted "
            "on or its cross-encoder trained on."
        )
    feedback = subsample(usable, max_labels)
    groups = [f.group for f in feedback]
    if len(set(groups)) < LEAST_LABELS:
        raise InputError(
            f"expected labels of at least {LEAST_LABELS} different queries, got "
            + " ".join([str(len(set(groups))), *(f"({note})" for note in notes)])
        )
    config, old = pipeline.config, model.maps["search"]
    scored = pipeline.run([f.query for f in feedback], old.policy, label="scoring candidates")
    judged = judge(scored, old, config)
    found, new = _update(old, judged, feedback, config)
    maps: dict[Mode, FittedMaps] = {
        "search": new,
        "rerank": _update_rerank(model.maps["rerank"], scored, judged, feedback, pipeline),
    }
    right = hit_labels(feedback, judged.rankings)

    # the queries of another corpus are another distribution; those few of the same are not
    seen = sketch(judged.features, list(RANKING_FEATURES), groups) if corpus else model.sketch
    pictures = recalibration_pictures(found)
    contents = ModelContents(
        manifest={
            **manifest,
            "parent": sha256_file(model.folder / MANIFEST),
            "recalibrated": {
                "labels": len(right),
                "right": int(right.sum()),
                "slope": found.update.coef[0],
                "intercept": found.update.intercept,
            },
        },
        maps=maps_to_dict(maps),
        sketch=seen.to_dict(),
        measured={"report_split": "the labels given", "confidence": found.table.to_dict()},
        report=recalibration_text(found),
        page=recalibration_page(found, pictures),
        pictures={name: picture.whole for name, picture in pictures.items()},
        fitted_on={query_hash(f.query.text) for f in feedback} | model.fitted_on,
        index=pipeline.index.folder,
        networks=(pipeline.encoder.files, pipeline.reranker.files)
        if NETWORKS in model.manifest
        else None,
    )
    return contents, found, notes


def _labels(
    model: CalibratedReranker,
    feedback: Sequence[Feedback] | LabelledSet | str | Path,
    split: str,
    work: Workspace,
) -> tuple[Sequence[Feedback], Pipeline, Mapping[str, Any]]:
    """The labels, the pipeline that ranks their queries, and what is new about its corpus."""
    if isinstance(feedback, (str, Path)):
        path = Path(feedback)
        feedback = LabelledSet.read(path) if path.is_dir() else read_feedback(path)
    if isinstance(feedback, LabelledSet):
        corpus = {"dataset": feedback.described(), "corpus_digest": feedback.corpus_digest()}
        return feedback_of(feedback, split), pipeline_over(feedback, model, work), corpus
    index = model.pipeline.index
    refuse_unknown(feedback, map(index.passage, range(len(index))))
    return feedback, model.pipeline, {}


def fresh(model: CalibratedReranker, feedback: Sequence[Feedback]) -> list[Feedback]:
    """The labels of queries that neither the maps were fitted on nor the cross-encoder trained on.

    A group of which one query is known is known whole: on such queries the confidence flatters
    itself.
    """
    known = model.fitted_on | trained_on(model.pipeline.reranker.files)
    groups = {f.group for f in feedback if query_hash(f.query.text) in known}
    return [f for f in feedback if f.group not in groups]


def subsample(
    feedback: Sequence[Feedback], most: int | None, *, seed: int = 0
) -> Sequence[Feedback]:
    """At most so many of the labels, drawn at random, in their old order.

    The first ones of a file are often of one subject, and tell of that alone.
    """
    if most is None or most >= len(feedback):
        return feedback
    kept = random.Random(seed).sample(range(len(feedback)), most)
    return [feedback[i] for i in sorted(kept)]


def _update_rerank(
    old: FittedMaps,
    scored: Sequence[Scored],
    judged: Judged,
    feedback: Sequence[Feedback],
    pipeline: Pipeline,
) -> FittedMaps:
    """The maps for passages that callers bring, moved as far as the labels tell of such lists.

    The labelled queries are taken as if their callers had brought passages. A label without passage
    ids tells of that ranking too where its top passage is the same: such a selection moves the
    maps, and certifies nothing. Without ids no certificate is left, and with fewer than
    `LEAST_LABELS` that tell, nothing moves.
    """
    brought = as_brought(pipeline, list(scored))
    prior = [prior_score(c, old.policy.prior) for c in brought]
    again = pipeline.score(
        brought, prior, cutoff=old.policy.cutoff, label="scoring brought passages"
    )
    told = [
        (s, f)
        for s, r, first, f in zip(
            again,
            judge(again, old, pipeline.config).rankings,
            judged.rankings,
            feedback,
            strict=True,
        )
        if f.right is None or r.doc_ids[:1] == first.doc_ids[:1]
    ]
    moved = old
    if len({f.group for _, f in told}) >= LEAST_LABELS:
        selected = judge([s for s, _ in told], old, pipeline.config)
        _, moved = _update(old, selected, [f for _, f in told], pipeline.config)
        if all(f.right is None for f in feedback):
            return moved
    kept = moved.certificate
    return replace(moved, certificate=Certificate(None, kept.target, kept.level, 0, 0, 0, None))


def _update(
    old: FittedMaps, judged: Judged, feedback: Sequence[Feedback], config: Config
) -> tuple[Recalibration, FittedMaps]:
    """What the labels say of rankings judged by `old`, and the maps that follow it."""
    found = fit_recalibration(
        judged.confidence,
        hit_labels(feedback, judged.rankings),
        [f.group for f in feedback],
        target=config.thresholds.medium,
        random_state=config.seed,
    )
    if all(f.right is None for f in feedback):  # else what was wrong may have had no answer
        answered = [bool(f.relevant) for f in feedback]
        found = replace(found, certificate=refuse_one_sided(found.certificate, answered))
    updates = {k: rebase_update(u, found.update) for k, u in old.segments.updates.items()}
    moved = replace(
        old,
        confidence=replace(
            old.confidence, update=compose_updates(old.confidence.update, found.update)
        ),
        segments=Segments(updates),
        certificate=found.certificate,
    )
    return found, moved
