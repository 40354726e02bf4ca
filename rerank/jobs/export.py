"""The export job: a model folder in; out the same model with its networks inside.

Such a folder is all that a machine needs: no weights, no torch, no cache, no network.
"""

from __future__ import annotations

from pathlib import Path

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import write_self_contained


def export(model: CalibratedReranker, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write the model, self-contained, to the folder `out`, whole or not at all; and return it.

    Its predictions are those of `model`, to the bit.

    Raises:
        InputError: a network does not export, or runs in bf16.
        FolderError: `out` exists, is no model folder, or `overwrite` is False.
    """
    models = (model.pipeline.encoder.files, model.pipeline.reranker.files)
    write_self_contained(model.files, models, Path(out), overwrite=overwrite)
    return Path(out)
