"""Fit the confidence of generated answers on the feedback in a journal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import ANSWERS, MODEL_KIND, write_changed
from rerank.rag.answer.quality import fit_answer_confidence
from rerank.rooms import offered
from rerank.storage.files import write_json
from rerank.storage.folder import output_folder


def recalibrate_answers(
    model: CalibratedReranker,
    journal: str,
    out: Path,
    *,
    newest: int | None = None,
    overwrite: bool = False,
) -> tuple[int, int]:
    """Write a copy of a model folder with a fitted confidence of answers: see `AnswerConfidence`.

    For each answer the journal holds the confidence of its retrieval, its attribution coverage, and
    whether it was right. For each question the newest labelled answer counts. Answers of another
    model are left out, as their confidence is another one; those of the model that this one was
    copied from by the same command are not.

    Returns:
        The number of answers that it was fitted on, and how many of them were right.

    Raises:
        InputError: no journal, fewer than 30 labelled answers, or only one outcome among them.
        JournalError: the database cannot be used.
        FolderError: `out` exists, and `overwrite` is False; or another job uses it.
    """
    versions = [*model.manifest.get("answers", {}).get("versions", ()), model.version]
    rows = offered("answers of a journal")(journal, versions, newest)
    right = [int(row["right"]) for row in rows]
    fitted = fit_answer_confidence(
        [row["confidence"] for row in rows], [row["attribution"] for row in rows], right
    )

    def change(folder: Path) -> Mapping[str, Any]:
        write_json(folder / ANSWERS, fitted.to_dict())
        fitted_on = {"labels": len(right), "right": sum(right), "versions": versions}
        return {**model.manifest, "answers": fitted_on}

    with output_folder(out, overwrite=overwrite, kind=MODEL_KIND):
        write_changed(model.files, out, change, without=ANSWERS, overwrite=overwrite)
    return len(right), sum(right)
