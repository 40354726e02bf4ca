"""Few new labels to a moved model: the same ranking, a confidence that is true again.

The log odds of the confidence get a slope and an intercept, shrunk towards the model as it was. The
new folder names its parent, and measures itself on the labels it was given, cross-fitted.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration.arrays import log_odds
from calibration.by_kind import ByKind
from calibration.drift import sketch
from calibration.maps import LogisticMap
from calibration.metrics import log_loss
from calibration.reliability import Comparison, comparison
from calibration.selection import cross_fit
from calibration.sequential import Watch
from calibration.store import MANIFEST, refuse_to_replace, sha256_file, write_folder, write_json
from calibration.thresholds import Certificate, certify
from rerank.assessor import (
    FITTED_ON,
    MODEL_KIND,
    SKETCH,
    CalibratedReranker,
    Calibrators,
    learned_dict,
)
from rerank.config import Config
from rerank.features import FEATURES, feature_matrix
from rerank.feedback import Feedback, says
from rerank.labels import Labels
from rerank.pipeline import Pipeline, order
from rerank.ranked import as_given
from rerank.text import query_hash
from rerank.types import Floats, InputError, Ranking

LEAST_LABELS = 10


@dataclass(frozen=True, slots=True)
class Recalibration:
    """The update, the certificate that the labels give, and how they fare with and without it."""

    update: LogisticMap
    certificate: Certificate
    table: Comparison  # "before", and "after" by updates that had not seen the query's group
    watch: Watch  # the old confidences against the labels, one a group
    gain: float  # nats of log loss, before less after

    def text(self) -> str:
        """What a run prints."""
        slope, intercept = self.update.coef[0], self.update.intercept
        before = self.table["before"]
        return (
            f"{before.n} labels: {before.base_accuracy:.1%} of the top passages are right.\n"
            f"Log odds times {slope:.2f}, {intercept:+.2f}; log loss {self.gain:+.4f} nats better, "
            f"cross-fitted.\n{self.watch.sentence}\n{self.certificate.sentence}\n\n"
            f"{self.table.table()}\n"
        )


def fit_recalibration(
    confidences: Floats, right: Labels, groups: Sequence[str], *, target: float, seed: int
) -> Recalibration:
    """Learn from labels (n,) of confidences (n,) that maps gave which had not seen them.

    The certificate rests on the old confidences, which no label here has moved, and its threshold
    is carried through the update, which keeps their order.
    """
    from calibration.score_fitting import fit_update

    scores = log_odds(confidences)
    update = fit_update(scores, right)
    held_out = cross_fit(
        lambda X, y, _: fit_update(X, y), scores, right, groups, folds=10, random_state=seed
    )
    found = certify(right, confidences, groups=groups, target=target)
    if found.threshold is not None:
        moved = float(update.predict(log_odds([found.threshold]))[0])
        found = replace(found, threshold=moved)
    table = comparison(
        {"before": confidences, "after": held_out},
        right,
        groups=groups,
        threshold=target,
        random_state=seed,
    )
    first = np.unique(np.array(groups), return_index=True)[1]
    first.sort()
    watch = Watch.start().update(right[first], confidences[first])
    gain = log_loss(right, confidences) - log_loss(right, held_out)
    return Recalibration(update, found, table, watch, gain)


def then(first: LogisticMap | None, second: LogisticMap) -> LogisticMap:
    """One update of log odds that does what two in a row do."""
    if first is None:
        return second
    a, b = first.coef[0], first.intercept
    c, d = second.coef[0], second.intercept
    return LogisticMap((a * c,), b * c + d, (0.0,), (1.0,))


def carried(kind: LogisticMap, update: LogisticMap) -> LogisticMap:
    """The update of a kind for log odds that `update` has moved before it.

    Both in a row do what `kind` and then `update` do.
    """
    a, b = kind.coef[0], kind.intercept
    c, d = update.coef[0], update.intercept
    return LogisticMap((a,), c * b + d - a * d, (0.0,), (1.0,))


def recalibrate(
    model: CalibratedReranker,
    feedback: Sequence[Feedback],
    out: Path,
    *,
    pipeline: Pipeline,
    corpus: Mapping[str, Any],
    overwrite: bool = False,
) -> Recalibration:
    """Write the model, moved by labels, to `out`, whole or not at all.

    `pipeline` ranks the labels' queries and goes into the new model; `corpus` is what the manifest
    says of its passages: `dataset` and `corpus_digest`. Both are the model's own, or, where the
    labels are of another corpus, that corpus'.

    Raises:
        InputError: fewer than `LEAST_LABELS` different queries.
        StoreError: `out` exists, is another model, and `overwrite` is False.
    """
    refuse_to_replace(out, overwrite=overwrite, kind=MODEL_KIND)
    groups = [f.group for f in feedback]
    if len(set(groups)) < LEAST_LABELS:
        raise InputError(
            f"expected labels of at least {LEAST_LABELS} different queries, got {len(set(groups))}"
        )
    read = pipeline.rank(
        [f.query for f in feedback], model.calibrators.reading, label="reranking queries"
    )
    ordered = _ordered(read, model.calibrators, pipeline.config)
    found, new = _moved(model.calibrators, ordered, feedback, pipeline.config)
    given, known = _as_given(model, read, ordered, feedback, pipeline)
    moved = _moved(model.given, given, known, pipeline.config)[1] if known else model.given
    features, right = feature_matrix(ordered), says(feedback, ordered)

    def fill(folder: Path) -> dict[str, Any]:
        shutil.copytree(pipeline.index.folder, folder / "index")
        made_with = model.manifest["config"], model.manifest["fingerprints"]
        write_json(folder / "calibrators.json", learned_dict(*made_with, new, moved))
        write_json(folder / SKETCH, sketch(features, list(FEATURES), groups).to_dict())
        measured = {"report_split": "the labels given", "confidence": found.table.to_dict()}
        write_json(folder / "reliability.json", measured)
        (folder / "report.txt").write_text(found.text(), encoding="utf-8")
        asked = {query_hash(f.query.text) for f in feedback} | set(model.fitted_on)
        (folder / FITTED_ON).write_text("\n".join(sorted(asked)) + "\n", encoding="utf-8")
        ours = ("format_version", "files", "kind", "inputs")  # `calibrate` knows its own by inputs
        kept = {key: value for key, value in model.manifest.items() if key not in ours}
        return {
            **kept,
            **corpus,
            "parent": sha256_file(model.folder / MANIFEST),
            "recalibrated": {
                "labels": len(right),
                "right": int(right.sum()),
                "slope": found.update.coef[0],
                "intercept": found.update.intercept,
            },
        }

    write_folder(out, fill, overwrite=overwrite, kind=MODEL_KIND)
    return found


def _ordered(rankings: Sequence[Ranking], learned: Calibrators, config: Config) -> list[Ranking]:
    return [order(r, learned.relevance, rank_by=config.rank_by) for r in rankings]


def _as_given(
    model: CalibratedReranker,
    read: Sequence[Ranking],
    ordered: Sequence[Ranking],
    feedback: Sequence[Feedback],
    pipeline: Pipeline,
) -> tuple[list[Ranking], list[Feedback]]:
    """The labelled queries as their askers might bring passages, as far as the labels tell of them.

    A label without passage ids tells of another ranking where its top passage is the same. Nothing
    where fewer than `LEAST_LABELS` tell.
    """
    brought = as_given(pipeline, read)
    likely = [order(r, model.given.reading.prior) for r in brought]
    scored = pipeline.read(likely, model.given.reading.floor, label="reranking given passages")
    told = [
        (again, f)
        for again, first, f in zip(
            _ordered(scored, model.given, pipeline.config), ordered, feedback, strict=True
        )
        if f.right is None or again.doc_ids[:1] == first.doc_ids[:1]
    ]
    if len({f.group for _, f in told}) < LEAST_LABELS:
        return [], []
    return [r for r, _ in told], [f for _, f in told]


def _moved(
    old: Calibrators, ordered: Sequence[Ranking], feedback: Sequence[Feedback], config: Config
) -> tuple[Recalibration, Calibrators]:
    """What the labels teach of rankings in the order of `old`, and the maps that follow it."""
    found = fit_recalibration(
        old.confidences(ordered, feature_matrix(ordered), correct_by=config.correct_by),
        says(feedback, ordered),
        [f.group for f in feedback],
        target=config.thresholds.medium,
        seed=config.seed,
    )
    moved = replace(
        old,
        confidence=replace(old.confidence, update=then(old.confidence.update, found.update)),
        kinds=ByKind({k: carried(u, found.update) for k, u in old.kinds.updates.items()}),
        certificate=found.certificate,
    )
    return found, moved
