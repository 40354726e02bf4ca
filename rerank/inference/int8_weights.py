"""Weights small enough to commit: int8 rows of what fine-tuning changed, the rest from the base.

A packed model stores each matrix as int8 with one scale per row (symmetric, round to nearest) and
vectors in fp32. It takes the word embeddings, which fine-tuning leaves frozen, from its base model;
so does a bi-encoder its pooling. Unpacking gives an ordinary fp32 model folder.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import FolderError, InputError, optional
from rerank.inference.model_cache import made_once
from rerank.storage.files import files_below, sha256_file
from rerank.storage.folder import MANIFEST, read_manifest

EMBEDDINGS = "embeddings.word_embeddings.weight"
CLASSIFIER = "bert."  # before the names of a cross-encoder's layers; a bi-encoder's have nothing
SCALE = ".scale"
TRAINED_ON = "trained_on.txt"  # written by fine-tuning, one query hash per line
TRAINING = "finetune.json"  # likewise: the sets, the configuration, and those of its base
HASH = "weights_sha256"  # in the manifest
COPIED = ("config.json", TRAINED_ON)
MODEL = "model"  # the unpacked model, beside the manifest of its hashes
FROM_BASE = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
BI_ENCODER = ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json")  # likewise


def unpack(
    packed: Path, *, base: Path, cache: Path, sha256: Callable[[Path], str] = sha256_file
) -> Path:
    """The folder under `cache` with the ordinary fp32 model; made once, and again if it changed.

    `sha256` hashes its files; the caller's may cache hashes.
    """
    manifest = json.loads((packed / "manifest.json").read_text(encoding="utf-8"))
    content = "".join(sha256_file(packed / name) for name in ("manifest.json", *COPIED))
    home = cache / f"{packed.name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    return unpacked_once(home, partial(_unpack, packed, manifest, base), sha256)


def unpacked_once(
    home: Path, fill: Callable[[Path], None], sha256: Callable[[Path], str] = sha256_file
) -> Path:
    """The model folder in `home` that `fill` writes; made once, and again if it changed."""

    def opened(folder: Path) -> Path:
        written, present = read_manifest(folder)["files"], files_below(folder)
        del present[MANIFEST]
        for name in sorted(written.keys() | present.keys()):
            entry = written.get(name, {})
            if name not in present or sha256(present[name]) != entry.get("sha256"):
                raise FolderError(f"{name} is changed")
        return folder / MODEL

    def made(new: Path) -> dict[str, Any]:
        fill(new / MODEL)
        return {}

    return made_once(home, made, opened)


def _unpack(packed: Path, manifest: dict[str, Any], base: Path, folder: Path) -> None:
    with optional():
        from safetensors.numpy import load_file, save

    digest = sha256_file(packed / "weights.safetensors")
    if digest != manifest[HASH]:
        raise InputError(
            f"{packed}: weights have sha256 {digest}, the manifest says {manifest[HASH]}"
        )
    stored = load_file(packed / "weights.safetensors")
    embeddings = word_embeddings(stored)
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


def word_embeddings(tensors: Mapping[str, np.ndarray]) -> str:
    """The name of the word embeddings beside these layers."""
    classifies = any(name.startswith(CLASSIFIER) for name in tensors)
    return CLASSIFIER + EMBEDDINGS if classifies else EMBEDDINGS
