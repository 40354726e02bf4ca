"""Two calibrated models on one labelled set, measured together, and written as one folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration.selection import NEVER
from rerank.assessment import model_folder
from rerank.assessment.fitted_maps import maps_to_dict
from rerank.assessment.model import CalibratedReranker
from rerank.data.grouping import sampled_units
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import drawn_at_random
from rerank.errors import FolderError, InputError
from rerank.evaluation.cascade import Cascade, Stage, expected_gains, measure_cascade
from rerank.evaluation.measure import OURS, Evaluation
from rerank.fitting.certificates import (
    NOT_AT_RANDOM,
    TRAINED_ON_DOCUMENTS,
    refuse_certificates,
    refused,
    require_both_kinds,
)
from rerank.fitting.plan import unseen
from rerank.jobs.evaluate import evaluate, grouped_as
from rerank.process import one_blas_thread
from rerank.report.calibration import cascade_section
from rerank.report.sections import Section, as_page, as_text
from rerank.storage.files import clear_away, write_json
from rerank.storage.folder import output_folder
from rerank.types import Mode

ONE_MODE = "Two models were measured together, and not on queries of this mode."
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
    out: str | Path | None = None,
    overwrite: bool = False,
    work: str | Path = "work",
) -> tuple[Evaluation, Cascade]:
    """The evaluation of the first model, and what asking the second one, too, would gain.

    The second model answers the queries for which the first one's confidence lies in a band, at
    most a `share` of them, in (0, 1). Both are calibrated by themselves, so the confidence of
    whichever answers is the procedure's. Queries that either must leave out are left out. `price`
    is that of 1,000 queries to the second model. The threshold is the first model's.

    `out` is a folder to write: both models and the band, which `rerank.load` opens as one model.

    Raises: as `rerank.evaluate`; InputError, if a share or price is out of range, both models
        can be measured on no query, or they cannot be one model; FolderError for `out`.
    """
    if out is not None:
        _check_joined(first, second, labelled, Path(out))
        with output_folder(Path(out), overwrite=overwrite, kind=model_folder.MODEL_KIND):
            how: Any = {"share": share, "price": price, "work": work}
            evaluation, cascade = evaluate_cascade(first, second, labelled, split, **how)
            write_joined(first, second, cascade, Path(out), labelled.mode, overwrite=overwrite)
        return evaluation, cascade
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
    if alone := len({*of_first.query_ids, *of_second.query_ids}) - len(ids):
        notes.append(f"left out of the cascade: {alone} queries that only one model is measured on")
    return replace(of_first, notes=tuple(notes)), replace(cascade, certificate=certificate)


def _stage(evaluation: Evaluation, ids: Sequence[str]) -> Stage:
    """What the model answered to these queries."""
    place = {query_id: row for row, query_id in enumerate(evaluation.query_ids)}
    rows = [place[query_id] for query_id in ids]
    return Stage(evaluation.confidences[OURS][rows], evaluation.right[rows])


def _check_joined(
    first: CalibratedReranker, second: CalibratedReranker, labelled: LabelledSet, out: Path
) -> None:
    """Refuse two models that cannot answer as one, or not what is measured here."""
    both, alike = (first, second), ("thresholds", "sufficiency_k", "segment_by")
    for one in both:
        one.files.check_single()
        one.files.sha256()  # refuses a model that has no folder
        if not one.calibrated:
            raise InputError(f"{one.folder} is not calibrated, so it has no confidence to go by")
        if out.resolve() in (place := one.folder.resolve(), *place.parents):
            raise InputError(f"{out} holds {one.folder}, which would be lost; give another --out")
        if one.objects:
            raise InputError(
                f"the {' and '.join(one.objects)} of {one.folder} is an object, which no folder "
                "can hold: join models whose parts have names"
            )
    if first.version == second.version:
        raise InputError(f"{second.folder} is the first model again; expected another one (--then)")
    for name in alike:
        values = [getattr(one.pipeline.config, name) for one in both]
        if values[0] != values[1]:
            raise InputError(
                f"the two models have different {name}: {values[0]} and {values[1]}; calibrate "
                "them with the same, so that they answer as one"
            )
    keys = [one.source.comparison_key(one.manifest, one.maps.main.kind) for one in both]
    if first.maps.source is not second.maps.source or keys[0] != keys[1]:
        raise InputError("the two models rank other passages; calibrate both on the same corpus")
    search = labelled.mode == "search" and first.source.takes_corpus
    if search and labelled.corpus_digest() != first.manifest["corpus_digest"]:
        raise InputError(f"{labelled.name}: its corpus is another than that of the models")


def write_joined(
    first: CalibratedReranker,
    second: CalibratedReranker,
    cascade: Cascade,
    out: Path,
    mode: Mode,
    *,
    overwrite: bool,
) -> None:
    """Write the first model's folder, with the promises of both, and the second one in it.

    `cascade` was measured on these models, on queries of `mode`.

    Raises:
        InputError: the second model is asked for no query.
        FolderError: as `write_folder`.
    """
    if cascade.band == NEVER or not cascade.held.asked:
        raise InputError(
            "the second model is asked for no query, so there is nothing to join: serve the first "
            "one alone; without --out, the same command prints the figures"
        )
    maps = {m: refuse_certificates(of_mode, ONE_MODE) for m, of_mode in first.maps.items()}
    maps[mode] = replace(maps[mode], certificate=cascade.certificate, documents_certificate=None)
    manifest, section = first.manifest, cascade_section(cascade)
    sections = [Section("", section.sentences), replace(section, sentences=())]
    name = f"{manifest['dataset'].get('name')}: two models"

    def change(folder: Path) -> Mapping[str, Any]:
        for picture in folder.glob("*.png"):
            picture.unlink()  # of the first model alone
        clear_away(folder / model_folder.ANSWERS)
        shutil.copytree(second.folder, folder / model_folder.SECOND)
        if model_folder.open_folder(folder / model_folder.SECOND).manifest != second.manifest:
            raise FolderError(f"{second.folder} was changed since it was opened; run it again")
        bound = model_folder.bound_to(manifest["config"], manifest["fingerprints"])
        write_json(folder / model_folder.CALIBRATORS, {"bound_to": bound, **maps_to_dict(maps)})
        write_json(folder / model_folder.MEASURED, {"cascade": cascade.to_dict()})
        lines = "".join(f"{mark}\n" for mark in sorted(first.fitted_on | second.fitted_on))
        texts = {
            model_folder.REPORT: as_text(sections),
            model_folder.PAGE: as_page(name, "", sections),
            model_folder.FITTED_ON: lines,
        }
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
        versions = {"first": first.version, "second": second.version}
        joined = {**versions, "band": list(cascade.band), "most": cascade.most, "mode": mode}
        return {
            **{k: v for k, v in manifest.items() if k != "answers"},
            model_folder.SECOND: joined,
        }

    model_folder.write_changed(
        first.files, out, change, without=model_folder.SECOND, overwrite=overwrite
    )
