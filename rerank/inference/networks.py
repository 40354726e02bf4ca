"""Exported networks that a folder carries, so that it runs without the weights they are made of.

A network is a graph and a tokenizer. Nothing here knows of calibration; who writes the folder
hashes the files, and who opens it has checked them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from rerank.errors import InputError
from rerank.inference.engine import EXPORT_FORMAT, GRAPH, Graphs, Kind, exported_graph
from rerank.inference.int8_weights import TRAINED_ON
from rerank.inference.model_files import ModelFiles
from rerank.inference.tokenizer import TOKENIZER_JSON, tokenizer_json
from rerank.types import Precision

NETWORKS = "networks"  # the folder's part that holds them
ROLES: Mapping[str, Kind] = {"encoder": "bi_encoder", "reranker": "cross_encoder"}
FILES = {GRAPH, TOKENIZER_JSON, TRAINED_ON}  # the last of a reranker that names its training


def described(precision: Precision) -> dict[str, Any]:
    """What a manifest says of the networks in its folder, and must say where they are opened."""
    return {"exporter": EXPORT_FORMAT, "precision": precision}


def exported(files: ModelFiles, role: str, precision: Precision) -> dict[str, bytes]:
    """The files of a model's network, by name; it is exported where it was not yet.

    The cross-encoder is of `precision`, the encoder of fp32.

    Raises:
        InputError: the precision is bf16, or the model does not export.
        MissingExtraError: it is yet to be exported, and torch is not installed.
    """
    if precision == "bf16":
        raise InputError("bf16 runs in torch, which is not exported; expected fp32 or int8")
    of_role: Graphs = precision if role == "reranker" else "fp32"
    found = {
        GRAPH: exported_graph(files, ROLES[role], of_role),
        TOKENIZER_JSON: tokenizer_json(files),
    }
    if (files.folder / TRAINED_ON).is_file():
        found[TRAINED_ON] = (files.folder / TRAINED_ON).read_bytes()
    return found


def write_networks(
    folder: Path, models: Sequence[ModelFiles], precision: Precision
) -> dict[str, Any]:
    """Write the networks of an encoder and a reranker into a folder; what its manifest says of it.

    Raises as `exported`.
    """
    for role, files in zip(ROLES, models, strict=True):
        home = folder / NETWORKS / role
        home.mkdir(parents=True)
        for name, content in exported(files, role, precision).items():
            (home / name).write_bytes(content)
    return {NETWORKS: described(precision)}


def is_network_file(name: str) -> bool:
    """Whether a path within a folder is one where a network's file may lie."""
    parts = PurePosixPath(name).parts
    return len(parts) == 3 and parts[0] == NETWORKS and parts[1] in ROLES and parts[2] in FILES


def carried(folder: Path, manifest: Mapping[str, Any], names: Sequence[str]) -> list[ModelFiles]:
    """The encoder and the reranker whose networks a folder carries, under the `names` given.

    They are taken from their one place in it, whatever else its manifest says.

    Raises:
        InputError: a file of them is missing.
    """
    kept = manifest["fingerprints"]
    found = []
    for role, name in zip(ROLES, names, strict=True):
        start = f"{NETWORKS}/{role}/"
        entries = {
            path.removeprefix(start): entry
            for path, entry in manifest["files"].items()
            if path.startswith(start)
        }
        missing = {GRAPH, TOKENIZER_JSON} - set(entries)
        if missing:
            raise InputError(f"{folder}: {start}{min(missing)} is missing; export the model again")
        weights, tokenizer = (str(kept.get(key)) for key in (role, f"{role}_tokenizer"))
        found.append(ModelFiles(name, folder / start, weights, tokenizer, entries))
    return found
