"""Packing of trained weights, so small that they can be committed: see `inference.model_cache`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from rerank.errors import InputError, optional
from rerank.inference.model_cache import (
    COPIED,
    EMBEDDINGS,
    HASH,
    SCALE,
    TRAINING,
    word_embeddings,
)
from rerank.storage.files import write_file

WRITTEN = ("licence", "command")  # of a manifest, by hand: the licence, and how to make it again


def quantise(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int8 values, fp32 scale per row) with `values * scale` within half a step of `matrix`."""
    scale = np.maximum(np.abs(matrix).max(axis=1, keepdims=True), 1e-12) / 127.0
    return np.rint(matrix / scale).astype(np.int8), scale.astype(np.float32)


def pack(folder: Path, out: Path, manifest: dict[str, object], *, base: Path) -> None:
    """Pack the model in `folder` into `out`, with `manifest` and the weights' hash.

    Fields that a person wrote into an earlier manifest there, `WRITTEN`, are kept.
    """
    with optional():
        from safetensors.numpy import save

    earlier = check_can_pack(out)
    tensors = tensors_to_pack(folder, base)
    embeddings = word_embeddings(tensors)
    stored = {n: t for n, t in tensors.items() if n != embeddings and t.dtype.kind == "f"}
    for name, tensor in list(stored.items()):
        if tensor.ndim == 2:
            stored[name], stored[name + SCALE] = quantise(tensor)
    out.mkdir(parents=True, exist_ok=True)
    weights = save(stored)
    write_file(out / "weights.safetensors", weights)
    for name in COPIED:
        write_file(out / name, (folder / name).read_bytes())
    written = {key: earlier[key] for key in WRITTEN if key in earlier}
    content = manifest | written | {HASH: hashlib.sha256(weights).hexdigest()}
    write_file(out / "manifest.json", json.dumps(content, indent=2) + "\n")


def tensors_to_pack(folder: Path, base: Path) -> dict[str, np.ndarray]:
    """The tensors of a model whose word embeddings are those of `base`, as packing needs."""
    with optional():
        from safetensors.numpy import load_file

    path = folder / "model.safetensors"
    tensors: dict[str, np.ndarray] = load_file(path) if path.is_file() else {}
    of_base = load_file(base / "model.safetensors")[EMBEDDINGS]
    name = word_embeddings(tensors)
    if name not in tensors or not np.array_equal(tensors[name], of_base):
        raise InputError(
            f"{folder} cannot be packed: its word embeddings are not those of minilm; pack models "
            "that were trained from minilm or from a packed model"
        )
    return tensors


def check_can_pack(out: Path) -> dict[str, object]:
    """The manifest of the packed model that will be replaced; empty if there is none."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return {}
    try:
        old = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        old = None
    if not isinstance(old, dict) or HASH not in old:
        raise InputError(f"{out} is not a folder of packed weights, and is not replaced")
    return old


def pack_finetuned(folder: Path, packed: Path, *, base: Path) -> None:
    """Pack a model folder of `train cross-encoder`; the manifest says how the weights were made."""
    report = json.loads((folder / TRAINING).read_text(encoding="utf-8"))
    if "loss" in report:
        report["loss"] = dict(list(report["loss"].items())[-1:])  # the curve stays in `folder`
    pack(folder, packed, {"name": packed.name, "training": report}, base=base)
