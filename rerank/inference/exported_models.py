"""Models exported to ONNX inside a folder, which then runs without the original weights.

A model is a graph and a tokenizer; the writer of the folder hashes their files, and whoever opens
it has checked them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from rerank.config import Config, Graphs, Precision
from rerank.errors import InputError
from rerank.inference.engine import DATA, EXPORT_FORMAT, GRAPH, PROMPTS, exported_network
from rerank.inference.int8_weights import TRAINED_ON
from rerank.inference.model_files import Kind, Model, ModelFiles
from rerank.inference.tokenizer import TOKENIZER_JSON, tokenizer_json

NETWORKS = "networks"  # their subfolder
ROLES: Mapping[str, Kind] = {"encoder": "bi_encoder", "reranker": "cross_encoder"}
FILES = {GRAPH, TOKENIZER_JSON}
FILES |= {DATA, PROMPTS, TRAINED_ON}  # of a large graph, with prompts, with a list of its training

WriteExported = Callable[[Path], Mapping[str, Any]]  # writes networks; returns manifest entries


def manifest_entry(precision: Precision) -> dict[str, Any]:
    """The manifest's entry for the networks in its folder; it must match when they are opened."""
    return {"exporter": EXPORT_FORMAT, "precision": precision}


def exported_files(files: Model, role: str, config: Config) -> dict[str, bytes]:
    """The files of a model's network, by name; it is exported if it was not yet."""
    if not isinstance(files, ModelFiles):
        raise InputError(
            f"the {role} {files.name!r} {files.place}, so no folder can hold it: it cannot be "
            "self-contained"
        )
    if config.precision == "bf16" or config.precision == "auto":  # noqa: PLR1714, which types need
        raise InputError("bf16 runs in torch, which is not exported; expected fp32 or int8")
    precision: Graphs = config.precision if role == "reranker" else config.encoder_precision
    contents = {
        **exported_network(files, ROLES[role], precision),
        TOKENIZER_JSON: tokenizer_json(files),
    }
    if (files.folder / TRAINED_ON).is_file():
        contents[TRAINED_ON] = (files.folder / TRAINED_ON).read_bytes()
    return contents


def write_exported(folder: Path, models: Sequence[Model], config: Config) -> dict[str, Any]:
    """Write the networks of an encoder and a reranker into a folder; return its manifest's entry.

    Raises as `exported_files`.
    """
    for role, files in zip(ROLES, models, strict=True):
        home = folder / NETWORKS / role
        home.mkdir(parents=True)
        for name, content in exported_files(files, role, config).items():
            (home / name).write_bytes(content)
    return {NETWORKS: manifest_entry(config.precision)}


def check_exportable(models: Sequence[Model], config: Config) -> None:
    """Refuse an encoder and a reranker that `write_exported` could not export, as it does."""
    for role, files in zip(ROLES, models, strict=True):
        exported_files(files, role, config)


def is_exported_file(name: str) -> bool:
    """Whether a network's file may have this path within a folder."""
    parts = PurePosixPath(name).parts
    return len(parts) == 3 and parts[0] == NETWORKS and parts[1] in ROLES and parts[2] in FILES


def open_exported(
    folder: Path, manifest: Mapping[str, Any], names: Sequence[str]
) -> list[ModelFiles]:
    """The encoder and the reranker whose networks are in a folder, under the `names` given.

    They are read from their fixed place in it, whatever else its manifest says.
    """
    prints, files = manifest["fingerprints"], manifest["files"]
    models = []
    for role, name in zip(ROLES, names, strict=True):
        start = f"{NETWORKS}/{role}/"
        entries = {p.removeprefix(start): files[p] for p in files if p.startswith(start)}
        if missing := {GRAPH, TOKENIZER_JSON} - set(entries):
            raise InputError(f"{folder}: {start}{min(missing)} is missing; export the model again")
        weights, tokenizer = (str(prints.get(key)) for key in (role, f"{role}_tokenizer"))
        models.append(ModelFiles(name, folder / start, weights, tokenizer, entries))
    return models
