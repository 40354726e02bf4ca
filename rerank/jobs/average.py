"""Average the weights of several fine-tuned cross-encoders into one.

Models that were fine-tuned from one base often lie in one valley of the loss: their mean is better
than each of them, and the mean with their base keeps what the base knew (Wortsman et al. 2022,
"Model soups"; "Robust fine-tuning of zero-shot models"). Nothing is trained here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import InputError, optional
from rerank.inference.int8_weights import TRAINED_ON, TRAINING
from rerank.inference.model_files import ModelFiles, resolve, trained_on, training
from rerank.inference.tokenizer import tokenizer_json
from rerank.jobs.finetune import KIND
from rerank.storage.folder import MANIFEST, write_folder
from rerank.storage.locks import output_folder

WEIGHTS = "model.safetensors"
NOT_COPIED = {WEIGHTS, TRAINED_ON, TRAINING, MANIFEST}
FEWEST = 2
SHAPE = (
    "model_type",
    "architectures",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "hidden_act",
    "layer_norm_eps",
)


def average(names: Sequence[str], out: Path, *, overwrite: bool = False) -> Path:
    """Write the model folder `out`, whose weights are the mean of those of the models `names`.

    A model that is named twice counts twice. The folder names all of them in `finetune.json`, and
    `trained_on.txt` has every query that one of them was trained on.

    Raises:
        InputError: fewer than two models, one that does not exist, is no cross-encoder or has no
            weights in fp32 or fp16, or models of different shapes, configurations or tokenizers.
        FolderError: `out` exists and `overwrite` is False, or another job writes it.
    """
    if len(names) < FEWEST:
        raise InputError(f"expected at least {FEWEST} models to average, got {len(names)}")
    models = [resolve(name) for name in names]
    first, *others = models
    if not any("SequenceClassification" in a for a in _shape(first)["architectures"] or ()):
        raise InputError(
            f"{first.name} is not a cross-encoder; expected models of `rerank finetune`"
        )
    for other in others:
        if _shape(other) != _shape(first):
            raise InputError(f"{other.name} has another configuration than {first.name}")
        if _vocabulary(other) != _vocabulary(first):
            raise InputError(f"{other.name} has another tokenizer than {first.name}")
    with optional():
        from safetensors.numpy import save_file
    with output_folder(out, overwrite=overwrite, kind=KIND):
        weights = mean([_weights(files) for files in models])

        def fill(folder: Path) -> dict[str, Any]:
            for path in first.folder.iterdir():
                if path.is_file() and path.name not in NOT_COPIED:
                    shutil.copyfile(path, folder / path.name)
            save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
            seen = sorted(trained_on(*models))
            (folder / TRAINED_ON).write_text("\n".join(seen) + "\n", encoding="utf-8")
            report = {"mean_of": [_about(files) for files in models]}
            (folder / TRAINING).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
            return {"mean_of": [files.fingerprint for files in models]}

        write_folder(out, fill, overwrite=overwrite, kind=KIND)
    return out


def mean(weights: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The mean of each tensor, in its own type; if all are equal, it is the same to the bit.

    Raises:
        InputError: the models do not have the same tensors.
    """
    first, *others = weights
    shapes = {name: tensor.shape for name, tensor in first.items()}
    for other in others:
        if {name: tensor.shape for name, tensor in other.items()} != shapes:
            raise InputError("models of different layers cannot be averaged")
    means = {}
    for name, tensor in first.items():
        same = all(np.array_equal(tensor, other[name]) for other in others)
        if same or tensor.dtype.kind != "f":
            means[name] = tensor
        else:
            exact = np.mean([tensors[name] for tensors in weights], axis=0, dtype=np.float64)
            means[name] = exact.astype(tensor.dtype)
    return means


def _weights(files: ModelFiles) -> dict[str, np.ndarray]:
    with optional():
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    try:
        weights: dict[str, np.ndarray] = load_file(files.folder / WEIGHTS)
    except (OSError, SafetensorError, TypeError) as error:  # numpy knows no bf16
        raise InputError(f"{files.name}: {WEIGHTS} cannot be read ({error})") from None
    if any(tensor.dtype.name == "bfloat16" for tensor in weights.values()):  # with ml_dtypes
        raise InputError(f"{files.name}: {WEIGHTS} cannot be read (bfloat16, not fp32 or fp16)")
    return weights


def _shape(files: ModelFiles) -> dict[str, Any]:
    """The part of the configuration that decides how the weights are used."""
    try:
        settings = json.loads((files.folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{files.name}: config.json cannot be read ({error})") from None
    if not isinstance(settings, dict):
        raise InputError(f"{files.name}: config.json cannot be read (it holds no object)")
    return {key: settings.get(key) for key in SHAPE}


def _vocabulary(files: ModelFiles) -> dict[str, Any]:
    """How the tokenizer cuts a text; who wrote its file, and how, does not matter."""
    try:
        tokenizer = json.loads(tokenizer_json(files))
    except InputError:
        raise
    except Exception as error:  # of the tokenizers, which have no other
        raise InputError(f"{files.name}: its tokenizer cannot be read ({error})") from None
    return {part: tokenizer.get(part) for part in ("model", "normalizer", "pre_tokenizer")}


def _about(files: ModelFiles) -> dict[str, Any]:
    return {
        "name": Path(files.name).name,
        "fingerprint": files.fingerprint,
        "training": training(files),
    }
