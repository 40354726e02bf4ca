"""A model folder on disk: which files it has, how it is written, and what is checked before use.

Nothing in a folder is executed or unpickled.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from rerank.config import Config
from rerank.errors import FolderError, InputError, MissingExtraError
from rerank.inference import engine
from rerank.inference.given import Given, is_noted, remote_of_folder
from rerank.inference.model_files import Model, ModelFiles, ModelPair, resolve
from rerank.storage.files import (
    PACKAGE,
    clear_away,
    copy_folder,
    package_version,
    parse_json,
    sha256_file,
    write_json,
)
from rerank.storage.folder import MANIFEST, read_verified, verify_folder, write_folder

MODEL_KIND = "a calibrated model"
CALIBRATORS = "calibrators.json"
MEASURED = "reliability.json"
SKETCH = "sketch.json"  # of the features that the confidence was fitted on
FITTED_ON = "fitted_on.txt"  # a hash per line: `marks_of` the queries that were fitted on
REPORT, PAGE = "report.txt", "report.html"
INDEX = "index"
ANSWERS = "answers.json"  # the fitted confidence of generated answers, where there is one
GIVEN = "given"  # manifest key: the models that were given as objects, and have to be again
SECOND = "second"  # manifest key, and the folder of the second one of two models
RETRIEVER = "retriever"  # manifest key: the search system that finds the candidates
DATA = {".json", ".jsonl", ".npy", ".npz", ".txt", ".html", ".png", ".usearch"}
STORE_KEYS = ("format_version", "files", "digest", "kind")  # manifest keys that are written anew
FIELDS = ("config", "fingerprints", "dataset", "queries")  # of the manifest, each an object
REQUIRED = ("encoder", "encoder_max_length", "reranker", "max_length")


@dataclass(frozen=True, slots=True)
class ModelContents:
    """All that a model folder is written from."""

    manifest: Mapping[str, Any]  # `FIELDS` and more: what the model was made from
    maps: Mapping[str, Any]  # of each mode, as plain JSON
    sketch: Mapping[str, Any]
    measured: Mapping[str, Any]
    report: str
    page: str  # self-contained HTML
    pictures: Mapping[str, bytes]  # PNG by name, without ending
    fitted_on: Iterable[str]  # `marks_of` the queries that the maps were fitted on
    index: Path | None  # folder to copy; None if the model searches no index


def write_model(
    path: Path,
    c: ModelContents,
    *,
    overwrite: bool,
    write_exported: engine.WriteExported | None = None,
) -> None:
    """Write a model folder whole or not at all; `write_exported` adds the networks, if any."""

    def fill(folder: Path) -> Mapping[str, Any]:
        bound = bound_to(c.manifest["config"], c.manifest["fingerprints"])
        if c.index is not None:
            copy_folder(c.index, folder / INDEX)
        write_json(folder / CALIBRATORS, {"bound_to": bound, **c.maps})
        write_json(folder / SKETCH, c.sketch)
        write_json(folder / MEASURED, c.measured)
        lines = "".join(f"{name}\n" for name in sorted(set(c.fitted_on)))
        for name, text in ((REPORT, c.report), (PAGE, c.page), (FITTED_ON, lines)):
            (folder / name).write_text(text, encoding="utf-8")
        for name, picture in c.pictures.items():
            (folder / f"{name}.png").write_bytes(picture)
        exported = write_exported(folder) if write_exported else {}
        return {**c.manifest, "made_by": f"{PACKAGE} {package_version()}", **exported}

    write_folder(path, fill, overwrite=overwrite, kind=MODEL_KIND)


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder whose hashes were all checked, and its manifest."""

    path: Path
    manifest: dict[str, Any]

    def sha256(self) -> str:
        """The hash of its manifest, which has the hash of every other file."""
        try:
            return sha256_file(self.path / MANIFEST)
        except FileNotFoundError:
            raise InputError(
                f"{self.path} is not a model folder; for this, make one with `rerank model init` "
                "or `rerank calibrate`"
            ) from None

    def check_single(self) -> None:
        """Refuse a folder of two models, which can only be measured and changed one by one."""
        if SECOND in self.manifest:
            raise InputError(
                f"{self.path} holds two models: measure and change each of them alone, and then "
                "join them again with `rerank evaluate FIRST SET --then SECOND --out FOLDER`"
            )

    def text(self, name: str) -> str:
        """The text of one of its files, checked against its hash."""
        if name not in self.manifest["files"]:
            raise InputError(
                f"{self.path} has no {name}: it is not calibrated, or an earlier version of this "
                "project wrote it; calibrate it"
            )
        try:
            return read_verified(self.path, name, self.manifest).decode()
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path}: {name} cannot be read: {error}") from None

    def json(self, name: str) -> dict[str, Any]:
        """One of its JSON files, which holds an object. Raises as `text`."""
        try:
            value = parse_json(self.text(name).encode(), name)
        except FolderError as error:
            raise InputError(f"{self.path}: {error}") from None
        if not isinstance(value, dict):
            raise InputError(f"{self.path}: {name} holds no object; calibrate again")
        return value


def write_changed(
    old: ModelFolder,
    path: Path,
    change: Callable[[Path], Mapping[str, Any]],
    *,
    without: str,
    overwrite: bool,
) -> None:
    """Write a copy of a model folder, without its part `without`; `path` may be that of `old`.

    `change` edits the copy and returns the manifest.
    """
    old.check_single()

    def fill(folder: Path) -> Mapping[str, Any]:
        shutil.copytree(old.path, folder, dirs_exist_ok=True)
        if verify_folder(folder)["files"] != old.manifest["files"]:
            raise FolderError(f"{old.path} was changed since it was opened; run it again")
        (folder / MANIFEST).unlink()
        clear_away(folder / without)
        manifest = change(folder)
        return {key: value for key, value in manifest.items() if key not in STORE_KEYS}

    write_folder(path, fill, overwrite=overwrite, kind=MODEL_KIND)


def open_folder(path: Path, *, manifest_sha256: str | None = None) -> ModelFolder:
    """Check that a folder is a complete model folder that holds only data."""
    if not path.exists():
        raise InputError(
            f"there is no folder {path}; `rerank calibrate` or `rerank model init` makes a model "
            "folder"
        )
    try:
        manifest = verify_folder(path, sha256=manifest_sha256)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a usable model folder: {error}") from None
    if manifest.get("kind") != MODEL_KIND:
        raise InputError(f"{path} is not a model folder; expected one that `calibrate` wrote")
    for name in map(PurePosixPath, manifest["files"]):  # plain data, or a network in its place
        if SECOND in manifest and name.parts[0] == SECOND:  # checked as a folder of its own
            continue
        network = engine.NETWORKS in manifest and engine.is_exported_file(str(name))
        if not (network if name.parts[0] == engine.NETWORKS else name.suffix in DATA):
            raise InputError(f"{path} holds {name}, which does not belong in a model folder")
    if wrong := [key for key in FIELDS if not isinstance(manifest.get(key), dict)]:
        raise InputError(f"{path}: the manifest lacks {wrong}; calibrate again")
    folder = ModelFolder(path, manifest)
    expected = bound_to(manifest["config"], manifest["fingerprints"])
    if folder.json(CALIBRATORS).get("bound_to") != expected:
        raise InputError(
            f"{path}: its calibrators were fitted with another configuration or other models than "
            "its manifest says; calibrate again"
        )
    return folder


def fingerprints(encoder: Model, reranker: Model, config: Config) -> dict[str, Any]:
    """What a calibration is bound to: models, tokenizers, maximum lengths, and precision."""
    return {
        "encoder": encoder.fingerprint,
        "encoder_tokenizer": encoder.tokenizer,
        "encoder_max_length": config.encoder_max_length,
        "reranker": reranker.fingerprint,
        "reranker_tokenizer": reranker.tokenizer,
        "max_length": config.max_length,
        "precision": config.precision,
    }


def given_models(models: ModelPair) -> dict[str, Any]:
    """The manifest's entry for those of the encoder and the reranker that are objects, if any."""
    roles = zip(engine.ROLES, models, strict=True)
    found = {role: model.described() for role, model in roles if isinstance(model, Given)}
    return {GIVEN: found} if found else {}


def bound_to(config: Mapping[str, Any], prints: Mapping[str, Any]) -> str:
    """The sha256 of the configuration and the models, which the calibrators' file holds."""
    text = json.dumps([config, prints], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def models_of(
    folder: ModelFolder,
    config: Config,
    *,
    download: bool,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> ModelPair:
    """The encoder and the reranker of a folder: in it, on this machine, or `given` by role."""
    recorded = folder.manifest["fingerprints"]
    names = [str(getattr(config, role)) for role in engine.ROLES]
    objects = [_given(folder, role, given.get(role)) for role in engine.ROLES]
    encoder: Model
    reranker: Model
    if engine.NETWORKS in folder.manifest:
        entry, expected = folder.manifest[engine.NETWORKS], engine.manifest_entry(config.precision)
        if entry != expected:
            raise InputError(
                f"{folder.path}: its networks are {entry}, expected {expected}; export the model "
                "again"
            )
        encoder, reranker = engine.open_exported(folder.path, folder.manifest, names)
    else:
        encoder, reranker = (
            model or _resolve_outside(folder, name, download=download)
            for model, name in zip(objects, names, strict=True)
        )
    here = fingerprints(encoder, reranker, config)
    other = [
        f"its {part.replace('_tokenizer', chr(39) + 's tokenizer')} was "
        f"{str(recorded.get(part))[:16]} when it was calibrated and is {str(here[part])[:16]} here"
        for part in here
        if (part in REQUIRED or part in recorded) and recorded.get(part) != here[part]
    ]
    if other:
        raise InputError(f"{folder.path}: {'; '.join(other)}; use the same, or calibrate again")
    return encoder, reranker


def _given(folder: ModelFolder, role: str, choice: Any) -> Given | None:
    """The object that was given for a folder that needs one; None for one that does not."""
    noted = folder.manifest.get(GIVEN, {}).get(role)
    remote = is_noted(noted)
    fingerprint = str(folder.manifest["fingerprints"].get(role))
    if choice is None and (noted is None or remote):
        return remote_of_folder(noted, fingerprint, role) if remote else None
    if noted is None or remote:
        raise InputError(
            f"{folder.path} has its {role} by name, {folder.manifest['config'][role]!r}: "
            f"leave `{role}` out, or calibrate with the one given"
        )
    if choice is None or isinstance(choice, str):
        raise InputError(
            f"{folder.path} was calibrated with the {role} {noted.get('name')!r}, an object that "
            f"no folder can hold: load it in Python with rerank.load(FOLDER, {role}=...)"
        )
    try:
        return Given.of(choice, role).bound_to(noted, fingerprint, role)
    except InputError as error:
        raise InputError(f"{folder.path}: {error}") from None


def _resolve_outside(folder: ModelFolder, name: str, *, download: bool) -> ModelFiles:
    """A model by its name, refused if it lies in the folder that names it."""
    try:
        files = resolve(name, download=download)
        inside = files.folder.resolve().is_relative_to(folder.path.resolve())
    except MissingExtraError as error:
        raise MissingExtraError(
            f"{folder.path} carries no networks and needs the model {name!r}: {error}; or make it "
            "self-contained with `rerank model export`"
        ) from None
    except (InputError, OSError, ValueError) as error:
        raise InputError(f"{folder.path}: {error}") from None
    if inside:
        raise InputError(
            f"{folder.path} names the model {name!r}, which lies in itself; expected one "
            f"elsewhere, or exported networks in {engine.NETWORKS}/"
        )
    return files
