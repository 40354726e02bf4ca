"""The export job: a model folder in; out the same model with its networks inside.

Such a folder is all that a machine needs: no weights, no torch, no cache, no network.
"""

from __future__ import annotations

from pathlib import Path

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import MODEL_KIND, write_self_contained
from rerank.jobs.pipelines import network_writer
from rerank.storage.locks import output_folder


def export(model: CalibratedReranker, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write the model, self-contained, to the folder `out`, whole or not at all; and return it.

    Its predictions are those of `model`, to the bit.

    Raises:
        InputError: a network does not export, or runs in bf16.
        FolderError: `out` exists, is no model folder, or `overwrite` is False.
    """
    out, carry = Path(out), network_writer(model.pipeline)
    with output_folder(out, overwrite=overwrite, kind=MODEL_KIND):
        write_self_contained(model.files, out, overwrite=overwrite, carry=carry)
    return out
