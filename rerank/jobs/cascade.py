"""Would a second, dearer model be worth asking? Two calibrated models on one labelled set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rerank.assessment.model import CalibratedReranker
from rerank.cores import one_blas_thread
from rerank.data.grouping import sampled_units
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import drawn_at_random
from rerank.errors import InputError
from rerank.evaluation.cascade import Cascade, Stage, expected_gains, measure_cascade
from rerank.evaluation.measure import OURS, Evaluation
from rerank.fitting.certificates import (
    NOT_AT_RANDOM,
    TRAINED_ON_DOCUMENTS,
    refused,
    require_both_kinds,
)
from rerank.fitting.plan import unseen
from rerank.jobs.evaluate import evaluate, grouped_as

FITTED_HERE = "A model was fitted on some of these queries, or on their groups: measure on others."


@one_blas_thread()
def evaluate_cascade(
    first: CalibratedReranker,
    second: CalibratedReranker,
    labelled: LabelledSet,
    split: str = "test",
    *,
    share: float = 0.4,
    price: float | None = None,
    work: str | Path = "work",
) -> tuple[Evaluation, Cascade]:
    """The evaluation of the first model, and what asking the second one, too, would gain.

    The second model answers the queries for which the first one's confidence lies in a band, at
    most a `share` of them, in (0, 1). Both are calibrated by themselves, so the confidence of
    whichever answers is the procedure's. Queries that either must leave out are left out. `price`
    is that of 1,000 queries to the second model. The threshold is the first model's.

    Raises: as `rerank.evaluate`; InputError, if a share or price is out of range, or both models
        can be measured on no query.
    """
    if not 0 < share < 1:
        raise InputError(f"`share` (--then-share) should be above 0 and below 1, got {share:g}")
    if price is not None and not 0 <= price < np.inf:
        raise InputError(f"`price` (--price-per-1000) should be 0 or more, got {price:g}")
    labelled, models = grouped_as(labelled, first), (first, second)
    of_first, of_second = (evaluate(model, labelled, split, work=work) for model in models)
    gains = expected_gains(of_first, of_second)
    ids = list(gains)
    if not ids:
        raise InputError(f"{labelled.name}: no query of {split!r} is new to both models")
    both = np.isin(np.array(of_first.query_ids), ids)
    measured, config = of_first.labelled.where(both), first.pipeline.config
    cascade = measure_cascade(
        _stage(of_first, ids),
        _stage(of_second, ids),
        np.array(list(gains.values())),
        groups=measured.groups.tolist(),
        units=sampled_units(r.query for r in measured.items).tolist(),
        most=share,
        threshold=config.thresholds.advisory,
        folds=config.folds,
        seed=config.seed,
        price=price,
    )
    fitted_here = any(len(unseen(labelled, ids, one.fitted_on)) < len(ids) for one in models)
    of_models = [one.manifest.get("queries", {}) for one in models]
    reasons = {
        FITTED_HERE: fitted_here,
        TRAINED_ON_DOCUMENTS: any(counts.get("beside_training") for counts in of_models),
        NOT_AT_RANDOM: not drawn_at_random(labelled.queries[i] for i in ids),
    }
    certificate = require_both_kinds(cascade.certificate, list(map(bool, measured.grades)))
    if refusal := " ".join(reason for reason, holds in reasons.items() if holds):
        certificate = refused(certificate, refusal)
    known, more = of_first.notes, of_second.notes
    notes = [*known, *(f"second model: {one}" for one in more if one not in known)]
    if others := len({*of_first.query_ids, *of_second.query_ids}) - len(ids):
        notes.append(
            f"left out of the cascade: {others} queries that only one model is measured on"
        )
    return replace(of_first, notes=tuple(notes)), replace(cascade, certificate=certificate)


def _stage(evaluation: Evaluation, ids: Sequence[str]) -> Stage:
    """What the model answered to these queries."""
    place = {query_id: row for row, query_id in enumerate(evaluation.query_ids)}
    rows = [place[query_id] for query_id in ids]
    return Stage(evaluation.confidences[OURS][rows], evaluation.right[rows])
