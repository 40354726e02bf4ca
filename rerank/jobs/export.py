"""The export job: copy a model folder and add the model's networks to it.

A machine needs only the new folder: no weights, no torch, no cache, no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import MODEL_KIND, write_changed
from rerank.inference.exported_models import NETWORKS, write_exported
from rerank.storage.folder import output_folder


def export(model: CalibratedReranker, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write the model, self-contained, to the folder `out`, whole or not at all; return `out`.

    It predicts exactly what `model` predicts, to the bit.

    Raises:
        InputError: a network cannot be exported, or runs in bf16.
        FolderError: `out` exists and `overwrite` is False, or it is not a model folder.
    """
    out, old = Path(out), model.manifest
    models, precision = model.pipeline.model_files, model.pipeline.config.precision
    made_from = old.get("exported_from") or model.files.sha256()

    def change(folder: Path) -> Mapping[str, Any]:
        return {**old, **write_exported(folder, models, precision), "exported_from": made_from}

    with output_folder(out, overwrite=overwrite, kind=MODEL_KIND):
        write_changed(model.files, out, change, without=NETWORKS, overwrite=overwrite)
    return out
