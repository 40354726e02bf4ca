"""Few new labels to a moved model: the same ranking, a confidence that is true again.

The log odds of the confidence get a slope and an intercept, shrunk towards the model as it was. The
new folder names its parent, and measures itself on the labels it was given, cross-fitted.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from calibration.by_kind import ByKind
from calibration.drift import sketch
from calibration.recalibration import Recalibration, carried, fit_recalibration, then
from calibration.store import MANIFEST, refuse_to_replace, sha256_file, write_folder, write_json
from calibration.thresholds import Certificate
from rerank.assessor import CalibratedReranker
from rerank.config import Config
from rerank.features import FEATURES, feature_matrix
from rerank.fitting.labels_taught import refuse_untaught
from rerank.fitting.ranked import as_given
from rerank.learned import Calibrators, learned_dict
from rerank.model_folder import CALIBRATORS, FITTED_ON, MEASURED, MODEL_KIND, SKETCH
from rerank.pipeline import Pipeline, order
from rerank.reporting.recalibration_page import (
    recalibration_page,
    recalibration_pictures,
    recalibration_text,
)
from rerank.sets.feedback import Feedback, says
from rerank.text import query_hash
from rerank.transformer.models import trained_on
from rerank.types import InputError, Ranking

LEAST_LABELS = 10


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

    Labels of queries that the model or its cross-encoder knows are left out: see `fresh`.

    Raises:
        InputError: fewer than `LEAST_LABELS` different queries.
        StoreError: `out` exists, is another model, and `overwrite` is False.
    """
    refuse_to_replace(out, overwrite=overwrite, kind=MODEL_KIND)
    given_labels = len(feedback)
    feedback = fresh(model, feedback)
    groups = [f.group for f in feedback]
    if len(set(groups)) < LEAST_LABELS:
        known = given_labels - len(feedback)
        raise InputError(
            f"expected labels of at least {LEAST_LABELS} different queries, got {len(set(groups))}"
            + (f" and {known} that the model knows already" if known else "")
        )
    read = pipeline.rank(
        [f.query for f in feedback], model.calibrators.reading, label="reranking queries"
    )
    ordered = _ordered(read, model.calibrators, pipeline.config)
    found, new = _moved(model.calibrators, ordered, feedback, pipeline.config)
    moved = _moved_given(model, read, ordered, feedback, pipeline)
    features, right = feature_matrix(ordered), says(feedback, ordered)

    def fill(folder: Path) -> dict[str, Any]:
        shutil.copytree(pipeline.index.folder, folder / "index")
        made_with = model.manifest["config"], model.manifest["fingerprints"]
        write_json(folder / CALIBRATORS, learned_dict(*made_with, new, moved))
        # the queries of another corpus are another distribution; those few of the same are not
        seen = sketch(features, list(FEATURES), groups) if corpus else model.sketch
        write_json(folder / SKETCH, seen.to_dict())
        measured = {"report_split": "the labels given", "confidence": found.table.to_dict()}
        write_json(folder / MEASURED, measured)
        (folder / "report.txt").write_text(recalibration_text(found), encoding="utf-8")
        pictures = recalibration_pictures(found)
        page = recalibration_page(found, pictures)
        (folder / "report.html").write_text(page, encoding="utf-8")
        for name, picture in pictures.items():
            (folder / f"{name}.png").write_bytes(picture.whole)
        asked = {query_hash(f.query.text) for f in feedback} | set(model.fitted_on)
        (folder / FITTED_ON).write_text("\n".join(sorted(asked)) + "\n", encoding="utf-8")
        # the folder's own fields, and the one by which `calibrate` knows its own models
        ours = ("format_version", "files", "digest", "kind", "inputs")
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


def fresh(model: CalibratedReranker, feedback: Sequence[Feedback]) -> list[Feedback]:
    """The labels of queries that neither the maps were fitted on nor the cross-encoder trained on.

    A group of which one query is known is known whole: on such queries the confidence flatters
    itself.
    """
    known = model.fitted_on | trained_on(model.pipeline.reranker.files)
    groups = {f.group for f in feedback if query_hash(f.query.text) in known}
    return [f for f in feedback if f.group not in groups]


def drawn(feedback: Sequence[Feedback], most: int | None, *, seed: int = 0) -> Sequence[Feedback]:
    """At most so many of the labels, drawn at random, in their old order.

    The first ones of a file are often of one subject, and tell of that alone.
    """
    if most is None or most >= len(feedback):
        return feedback
    kept = random.Random(seed).sample(range(len(feedback)), most)
    return [feedback[i] for i in sorted(kept)]


def _ordered(rankings: Sequence[Ranking], learned: Calibrators, config: Config) -> list[Ranking]:
    return [order(r, learned.relevance, rank_by=config.rank_by) for r in rankings]


def _moved_given(
    model: CalibratedReranker,
    read: Sequence[Ranking],
    ordered: Sequence[Ranking],
    feedback: Sequence[Feedback],
    pipeline: Pipeline,
) -> Calibrators:
    """The maps for passages that askers bring, moved as far as the labels tell of such lists.

    The labelled queries are taken as if their askers had brought passages. A label without passage
    ids tells of that ranking too where its top passage is the same: such a selection moves the
    maps, and certifies nothing. Without ids no certificate is left, and with fewer than
    `LEAST_LABELS` that tell, nothing moves.
    """
    likely = [order(r, model.given.reading.prior) for r in as_given(pipeline, read)]
    scored = pipeline.read(likely, model.given.reading.floor, label="reranking given passages")
    again = _ordered(scored, model.given, pipeline.config)
    told = [
        (r, f)
        for r, first, f in zip(again, ordered, feedback, strict=True)
        if f.right is None or r.doc_ids[:1] == first.doc_ids[:1]
    ]
    moved = model.given
    if len({f.group for _, f in told}) >= LEAST_LABELS:
        _, moved = _moved(model.given, [r for r, _ in told], [f for _, f in told], pipeline.config)
        if all(f.right is None for f in feedback):
            return moved
    old = moved.certificate
    return replace(moved, certificate=Certificate(None, old.target, old.level, 0, 0, 0, None))


def _moved(
    old: Calibrators, ordered: Sequence[Ranking], feedback: Sequence[Feedback], config: Config
) -> tuple[Recalibration, Calibrators]:
    """What the labels teach of rankings in the order of `old`, and the maps that follow it."""
    found = fit_recalibration(
        old.confidences(ordered, feature_matrix(ordered), correct_by=config.correct_by),
        says(feedback, ordered),
        [f.group for f in feedback],
        target=config.thresholds.medium,
        random_state=config.seed,
    )
    if all(f.right is None for f in feedback):  # else what was wrong may have had no answer
        answered = [bool(f.relevant) for f in feedback]
        found = replace(found, certificate=refuse_untaught(found.certificate, answered))
    moved = replace(
        old,
        confidence=replace(old.confidence, update=then(old.confidence.update, found.update)),
        kinds=ByKind({k: carried(u, found.update) for k, u in old.kinds.updates.items()}),
        certificate=found.certificate,
    )
    return found, moved
