"""Weights small enough to commit: int8 rows of what fine-tuning changed, the rest from the base.

A packed cross-encoder or bi-encoder stores each matrix as int8 with one scale per row (symmetric,
round to nearest) and vectors in fp32. It takes the word embeddings, which fine-tuning leaves
frozen, from its base model; so does a bi-encoder its pooling. Unpacking gives an ordinary fp32
model folder; those fp32 values are the model.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import FolderError, InputError, optional
from rerank.storage.files import clear_away, files_below, sha256_file, write_file
from rerank.storage.folder import MANIFEST, read_manifest, write_folder

logger = logging.getLogger(__name__)

EMBEDDINGS = "embeddings.word_embeddings.weight"
CLASSIFIER = "bert."  # before the names of a cross-encoder's layers; a bi-encoder's have nothing
SCALE = ".scale"
TRAINED_ON = "trained_on.txt"  # written by fine-tuning, one query hash per line
TRAINING = "finetune.json"  # likewise: the sets, the configuration, and those of its base
HASH = "weights_sha256"  # in the manifest
WRITTEN = ("licence", "command")  # likewise, by hand: the licence, and the command to remake them
COPIED = ("config.json", TRAINED_ON)
MODEL = "model"  # the unpacked model, beside the manifest of its hashes
FROM_BASE = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
BI_ENCODER = ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json")  # likewise


def quantise(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int8 values, fp32 scale per row) with `values * scale` within half a step of `matrix`."""
    scale = np.maximum(np.abs(matrix).max(axis=1, keepdims=True), 1e-12) / 127.0
    return np.rint(matrix / scale).astype(np.int8), scale.astype(np.float32)


def pack(folder: Path, out: Path, manifest: dict[str, object], *, base: Path) -> None:
    """Pack the model in `folder` into `out`, with `manifest` and the weights' hash.

    Fields that a person wrote into an earlier manifest there, `WRITTEN`, are kept.

    Raises:
        InputError: the word embeddings differ from those of `base`, which unpacking uses; or `out`
            as `check_can_pack`.
    """
    with optional():
        from safetensors.numpy import save

    earlier = check_can_pack(out)
    tensors = tensors_to_pack(folder, base)
    embeddings = _word_embeddings(tensors)
    stored: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        if name == embeddings or tensor.dtype.kind != "f":
            continue
        if tensor.ndim == 2:
            stored[name], stored[name + SCALE] = quantise(tensor)
        else:
            stored[name] = tensor
    out.mkdir(parents=True, exist_ok=True)
    weights = save(stored)
    write_file(out / "weights.safetensors", weights)
    for name in COPIED:
        write_file(out / name, (folder / name).read_bytes())
    written = {key: earlier[key] for key in WRITTEN if key in earlier}
    content = manifest | written | {HASH: hashlib.sha256(weights).hexdigest()}
    write_file(out / "manifest.json", json.dumps(content, indent=2) + "\n")


def tensors_to_pack(folder: Path, base: Path) -> dict[str, np.ndarray]:
    """The tensors of a model whose word embeddings are those of `base`, as packing needs.

    Raises:
        InputError: they differ, or the folder has no `model.safetensors`.
    """
    with optional():
        from safetensors.numpy import load_file

    path = folder / "model.safetensors"
    tensors: dict[str, np.ndarray] = load_file(path) if path.is_file() else {}
    of_base = load_file(base / "model.safetensors")[EMBEDDINGS]
    name = _word_embeddings(tensors)
    if name not in tensors or not np.array_equal(tensors[name], of_base):
        raise InputError(
            f"{folder} cannot be packed: its word embeddings are not those of minilm; pack models "
            "that were trained from minilm or from a packed model"
        )
    return tensors


def check_can_pack(out: Path) -> dict[str, object]:
    """The manifest of the packed model that will be replaced; empty if there is none.

    Raises:
        InputError: the folder is not empty, and has no manifest with the hash of packed weights.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return {}
    try:
        old = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        old = None
    if not isinstance(old, dict) or HASH not in old:
        raise InputError(f"{out} is not a folder of packed weights, and is not replaced")
    return old


def unpack(
    packed: Path, *, base: Path, cache: Path, sha256: Callable[[Path], str] = sha256_file
) -> Path:
    """The folder under `cache` with the ordinary fp32 model; made once, and again if it changed.

    `sha256` hashes its files; the caller's may cache hashes.

    Raises:
        InputError: the packed weights are not those of the manifest.
        OSError: `cache` cannot be written, or what is there cannot be removed.
    """
    manifest = json.loads((packed / "manifest.json").read_text(encoding="utf-8"))
    content = "".join(sha256_file(packed / name) for name in ("manifest.json", *COPIED))
    home = cache / f"{packed.name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    def fill(new: Path) -> dict[str, Any]:
        _unpack(packed, manifest, base, new / MODEL)
        return {}

    if os.path.lexists(home):
        changed = _changes(home, sha256)
        if not changed:
            return home / MODEL
        logger.warning("%s is unpacked again: %s", home, changed)
        clear_away(home)
    try:
        write_folder(home, fill)
    except FolderError:
        if _changes(home, sha256):  # else another process unpacked it meanwhile
            raise OSError(
                f"{home} was changed by another process while it was being written; try again"
            ) from None
    except OSError as error:
        raise OSError(f"{cache}: no model can be unpacked there: {error}") from error
    return home / MODEL


def _changes(home: Path, sha256: Callable[[Path], str]) -> str:
    """What has changed in an unpacked folder since it was written; empty if nothing has."""
    try:
        written = read_manifest(home)["files"]
        present = files_below(home)
        del present[MANIFEST]
        names = written.keys() | present.keys()
        changed = [
            name
            for name in sorted(names)
            if name not in present or sha256(present[name]) != written.get(name, {}).get("sha256")
        ]
    except (FolderError, OSError, KeyError) as error:
        return str(error)
    return f"{changed[0]} is changed" if changed else ""


def _unpack(packed: Path, manifest: dict[str, Any], base: Path, folder: Path) -> None:
    """Write the model into `folder`, which is created."""
    with optional():
        from safetensors.numpy import load_file, save

    digest = sha256_file(packed / "weights.safetensors")
    if digest != manifest[HASH]:
        raise InputError(
            f"{packed}: weights have sha256 {digest}, the manifest says {manifest[HASH]}"
        )
    stored = load_file(packed / "weights.safetensors")
    embeddings = _word_embeddings(stored)
    tensors = {embeddings: load_file(base / "model.safetensors")[EMBEDDINGS]}
    for name, tensor in stored.items():
        if name.endswith(SCALE):
            continue
        scale = stored.get(name + SCALE)
        tensors[name] = tensor if scale is None else tensor.astype(np.float32) * scale
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    for name in COPIED:
        shutil.copyfile(packed / name, folder / name)
    (folder / TRAINING).write_text(json.dumps(manifest["training"]), encoding="utf-8")
    for name in FROM_BASE if embeddings != EMBEDDINGS else (*FROM_BASE, *BI_ENCODER):
        if (base / name).exists():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(base / name, folder / name)


def _word_embeddings(tensors: Mapping[str, np.ndarray]) -> str:
    """The name of the word embeddings beside these layers."""
    classifies = any(name.startswith(CLASSIFIER) for name in tensors)
    return CLASSIFIER + EMBEDDINGS if classifies else EMBEDDINGS


def pack_finetuned(folder: Path, packed: Path, *, base: Path) -> None:
    """Pack a model folder of `train cross-encoder`; the manifest says how the weights were made."""
    report = json.loads((folder / TRAINING).read_text(encoding="utf-8"))
    if "loss" in report:
        report["loss"] = dict(list(report["loss"].items())[-1:])  # the curve stays in `folder`
    pack(folder, packed, {"name": packed.name, "training": report}, base=base)
