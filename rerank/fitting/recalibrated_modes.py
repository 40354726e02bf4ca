"""The maps of a model, mode by mode, recalibrated on labels that it was not fitted on.

The log odds of the confidence get a slope and an intercept, shrunk towards the old model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibration.recalibration import (
    Recalibration,
    Segments,
    compose_updates,
    fit_recalibration,
    rebase_update,
)
from calibration.thresholds import ABOUT
from rerank.assessment.fitted_maps import FittedMaps, MapsByMode, range_of
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.predictions import CALIBRATED_FROM, Predictions, have_passages, predict
from rerank.assessment.ranking import by_prior, prior_score
from rerank.data.feedback import Feedback, group_labels, hit_labels, search_labels
from rerank.data.grouping import NEW_DOCUMENTS, THESE_DOCUMENTS, was_seen
from rerank.data.labelled_set import given_group
from rerank.data.labels import judged_of
from rerank.errors import InputError
from rerank.fitting import certificates
from rerank.fitting.plan import MIN_GROUPS_TO_FIT
from rerank.fitting.scored_plan import as_from_caller
from rerank.types import Bools, Floats, Mode, Scored

MIN_QUESTIONS = 10
NO_LABELS_OF: dict[Mode, str] = {
    "search": "too few labels of searches: the mode `search` is unchanged.",
    "rerank": "too few labels of passages that callers bring: the mode `rerank` is unchanged.",
    "lists": "too few labels of lists that have passages: the mode `lists` is unchanged.",
}
ONE_OUTCOME = (
    "all {n} labels of the mode {mode} are {outcome}: they tell nothing of answers that are "
    "{other}. Label answers of {which} confidence, too."
)


@dataclass(frozen=True, slots=True)
class RecalibratedMode:
    """The recalibration of one mode, and the new maps; notes on its labels."""

    recalibration: Recalibration
    maps: FittedMaps
    predicted: Predictions
    notes: tuple[str, ...] = ()

    def without_certificates(self, reason: str) -> RecalibratedMode:
        """The same, with all certificates refused for this reason."""
        certificate = certificates.refused(self.recalibration.certificate, reason)
        return replace(
            self,
            recalibration=replace(self.recalibration, certificate=certificate),
            maps=certificates.refuse_certificates(self.maps, reason),
            notes=(),
        )


class TooFewGroupsError(InputError):
    """The labels of a mode are of too few groups to fit on some and measure on others."""


def recalibrate_modes(
    maps: MapsByMode,
    feedback: Sequence[Feedback],
    pipeline: Pipeline,
    notes: Sequence[str],
    *,
    fitted_on: frozenset[str] = frozenset(),
    refusal: str = "",
    accepted_from: float | None = None,
) -> tuple[dict[Mode, RecalibratedMode], list[str]]:
    """The new maps of each mode that has enough labels, and notes on the labels.

    The notes say which labels certify nothing, and why a mode is unchanged. The argument `notes`
    explain why the labels may be few. Labels of a `metadata.group` among the marks of `fitted_on`
    are left out of the certificates. With a `refusal`, the reason why, no label certifies. Labels
    of a random sample of the questions that the old maps give at least `accepted_from` leave these
    as they are, and certify them from there up.
    """
    recalibrated, remarks = dict[Mode, RecalibratedMode](), list[str]()
    too_few_groups = None
    for mode in maps:
        try:
            new = _recalibrated_mode(maps, mode, feedback, pipeline, fitted_on, accepted_from)
        except TooFewGroupsError as error:
            too_few_groups = error
            remarks.append(f"the mode `{mode}` is unchanged: {error}.")
            continue
        if new is None:
            remarks.append(NO_LABELS_OF[mode])
        else:
            new = new.without_certificates(refusal) if refusal else new
            recalibrated[mode] = new
            remarks += [*new.notes, *_one_outcome(mode, new.recalibration.right)]
    if not recalibrated and too_few_groups:
        raise too_few_groups
    if not recalibrated:
        mode_of = pipeline.source.mode_of
        groups = {m: len({f.group for f in feedback if mode_of(f.query) == m}) for m in maps}
        got = ", ".join(f"{count} for the mode {mode}" for mode, count in groups.items())
        raise InputError(
            f"expected labels of at least {MIN_QUESTIONS} different queries of one mode for which "
            f"passages were found, got labels of {got}, "
            + " ".join([f"of {len(feedback)} in all", *(f"({note})" for note in notes)])
        )
    return recalibrated, remarks


def _recalibrated_mode(
    maps: MapsByMode,
    mode: Mode,
    feedback: Sequence[Feedback],
    pipeline: Pipeline,
    fitted_on: frozenset[str],
    accepted_from: float | None,
) -> RecalibratedMode | None:
    """The maps of one mode, recalibrated on labels of its own top passages; None if too few."""
    old, config = maps[mode], pipeline.config
    labels, scored, from_search = _scored_labels(maps, mode, feedback, pipeline)
    if not _has_least_labels(labels):
        return None
    predicted = predict(scored, old, config)
    groups, about = group_labels(labels, pipeline.source.passages())
    if accepted_from is not None:  # questions were drawn, not documents
        groups, about = [given_group(f.query) or f.group for f in labels], ABOUT
    if fitted_on and about == NEW_DOCUMENTS:  # it is not known on which documents the model was
        about = THESE_DOCUMENTS
    if len(set(groups)) < MIN_GROUPS_TO_FIT:
        raise TooFewGroupsError(
            f"expected labels of at least {MIN_GROUPS_TO_FIT} groups, because a correction is "
            f"measured on other groups than it is fitted on; the {len(labels)} labels are of "
            f"{len(set(groups))}: label questions of other groups, too"
        )
    new_groups = ~np.array([was_seen(f.query, fitted_on) for f in labels])
    if not new_groups.all():  # what names no group may be about the same as one fitted on
        new_groups &= np.array([bool(given_group(f.query)) for f in labels])
    counts = {"count": int((~new_groups).sum()), "n": len(labels)}
    enough = _has_least_labels(_those_of(labels, new_groups))
    certifying = new_groups if enough else np.ones(len(labels), dtype=np.bool_)
    recalibration = fit_recalibration(
        predicted.confidence,
        hit_labels(labels, predicted.rankings),
        groups,
        target=config.thresholds.advisory,
        about=about,
        certifying=certifying,
        accepted_from=accepted_from,
        judged=judged_of([f.query for f in labels]),
        random_state=config.seed,
    )
    filters = frozenset(f.query.filtered_by for f in _those_of(labels, certifying))
    if accepted_from is not None:  # the certificate of the context stays
        new = replace(old, certificate=recalibration.certificate, filters=filters & old.filters)
    else:
        if all(f.right is None for f in labels):  # else a wrong answer may mean that there is none
            answered = [bool(f.relevant) for f in _those_of(labels, certifying)]
            checked = certificates.require_both_kinds(recalibration.certificate, answered)
            recalibration = replace(recalibration, certificate=checked)
        new = replace(_updated(old, predicted, recalibration), filters=filters)
    left_out = certificates.KNOWN_GROUPS_LEFT_OUT.format(mode=mode, **counts)
    made = RecalibratedMode(recalibration, new, predicted, () if new_groups.all() else (left_out,))
    if not enough:
        made = made.without_certificates(
            certificates.KNOWN_GROUPS.format(least=MIN_QUESTIONS, **counts)
        )
    return made.without_certificates(certificates.CUT_FROM_SEARCH) if from_search else made


def _scored_labels(
    maps: MapsByMode, mode: Mode, feedback: Sequence[Feedback], pipeline: Pipeline
) -> tuple[list[Feedback], list[Scored], bool]:
    """The labels of a mode for which passages were found, these, and whether our search found them.

    A label is used whatever the other mode ranks first. The mode `rerank` uses labels of lists that
    callers provided; if these are too few, labels with ids of the right passages, on lists cut from
    our own search, which certify nothing.
    """
    policy, mode_of = maps[mode].policy, pipeline.source.mode_of
    labels = [f for f in feedback if mode_of(f.query) == mode]
    from_search = mode == "rerank" and not _has_least_labels(labels)
    if from_search:
        labels = [f for f in search_labels(feedback) if f.right is None]
    if not _has_least_labels(labels):
        return [], [], from_search
    queries = [f.query for f in labels]
    if from_search:
        prior = maps["search"].policy.prior
        retrieved = pipeline.retrieve(queries, label="finding candidates")
        likeliest_first = [by_prior(c, prior_score(c, prior))[0] for c in retrieved]
        candidates = as_from_caller(pipeline, likeliest_first)
        scored = pipeline.score_by(candidates, policy, label="scoring callers' passages")
    else:
        scored = pipeline.run(queries, policy, label="scoring candidates")
    with_passages = [i for i, s in enumerate(scored) if len(s.candidates)]  # else: confidence 0
    return [labels[i] for i in with_passages], [scored[i] for i in with_passages], from_search


def _one_outcome(mode: Mode, right: Floats) -> list[str]:
    """A note, if the labels (n,) are all right or all wrong."""
    if 0 < right.sum() < len(right):
        return []
    words = ("right", "wrong", "a low") if right.all() else ("wrong", "right", "a high")
    outcome, other, which = words
    return [ONE_OUTCOME.format(n=len(right), mode=mode, outcome=outcome, other=other, which=which)]


def _those_of(labels: Sequence[Feedback], rows: Bools) -> list[Feedback]:
    return [f for f, yes in zip(labels, rows.tolist(), strict=True) if yes]


def _has_least_labels(labels: Sequence[Feedback]) -> bool:
    return len({f.group for f in labels}) >= MIN_QUESTIONS


def _updated(old: FittedMaps, predicted: Predictions, recalibration: Recalibration) -> FittedMaps:
    """The maps after the update of a recalibration."""
    updates = {k: rebase_update(u, recalibration.update) for k, u in old.segments.updates.items()}
    update = compose_updates(old.confidence.update, recalibration.update)
    features = predicted.features[have_passages(predicted.rankings)]
    ends = np.array(old.feature_range or ()).reshape(-1, features.shape[1])
    rows = np.concatenate([ends, features])  # of the labelled rankings, and of the new ones
    return replace(
        old,
        confidence=replace(old.confidence, update=update),
        segments=Segments(updates),
        certificate=recalibration.certificate,
        # the sufficiency has changed, and these labels are of the top passage
        documents_certificate=None,
        context_certificate=None,
        stopping_threshold=None,
        calibrated=old.calibrated or recalibration.effective >= CALIBRATED_FROM,
        feature_range=range_of(rows) if len(rows) else None,
    )
