"""The export job: copy a model folder and add the model's networks to it.

A machine needs only the new folder: no weights, no torch, no cache, no network.
"""

from __future__ import annotations

from pathlib import Path

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import MODEL_KIND, write_self_contained
from rerank.jobs.pipelines import network_writer
from rerank.storage.locks import output_folder


def export(model: CalibratedReranker, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write the model, self-contained, to the folder `out`, whole or not at all; return `out`.

    It predicts exactly what `model` predicts, to the bit.

    Raises:
        InputError: a network cannot be exported, or runs in bf16.
        FolderError: `out` exists, is no model folder, or `overwrite` is False.
    """
    out, carry = Path(out), network_writer(model.pipeline)
    with output_folder(out, overwrite=overwrite, kind=MODEL_KIND):
        write_self_contained(model.files, out, overwrite=overwrite, carry=carry)
    return out
