"""What the training jobs share: checks, checkpoints, the model folder, and the run in MLflow."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rerank.data.checks import query_hash
from rerank.errors import InputError
from rerank.inference.int8_weights import TRAINED_ON, TRAINING
from rerank.inference.model_files import ModelFiles, trained_on, training
from rerank.storage.files import sha256_file
from rerank.storage.folder import MANIFEST, is_made_from, output_folder, write_folder
from rerank.tracking.records import DataUsed, RunRecord, TrackedRun
from rerank.tracking.registry import name_of
from rerank.tracking.runs import if_installed, track
from rerank.training.settings import TrainingConfig
from rerank.training.training_sets import TrainingSet
from rerank.workspace import Workspace

LIBRARIES = ("sentence-transformers", "transformers", "torch")
JOBS = {"cross-encoder": "finetune", "bi-encoder": "finetune-encoder"}  # their names in MLflow


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """The model folder, its report (`finetune.json`), and its run (None without MLflow)."""

    folder: Path
    report: Mapping[str, Any]
    run: TrackedRun | None
    made: bool  # by this call; False if it existed already
    notes: tuple[str, ...] = ()  # what was not done, and what to do


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained model of sentence-transformers, and what its report says."""

    model: Any
    checkpoints: Path
    queries: Sequence[str]  # that it was trained or validated on
    counts: Sequence[Mapping[str, int]]  # of the lists of each set
    figures: Mapping[str, Any]  # such as the loss by step


def run_training(
    kind: str,
    sets: Sequence[TrainingSet],
    base: ModelFiles,
    config: TrainingConfig,
    out: Path,
    work: Workspace,
    *,
    fingerprints: Mapping[str, str | None],
    train: Callable[[Mapping[str, Any]], Trained],
    overwrite: bool,
) -> TrainingRun:
    """`train` and write the model folder `out`, whole or not at all, unless it is there already.

    `train` is called with all that the model is made from; `fingerprints` are those of the models
    in it.

    Raises:
        InputError: there is no set, or the training diverged.
        FolderError: `out` exists, is another model, and `overwrite` is False; or another job uses
            it.
        TrackingError: the model is written, but MLflow did not accept its record.
    """
    if not sets:
        raise InputError("no labelled set to train on; expected at least one")
    made_from: dict[str, Any] = {
        "config": asdict(config),
        "fingerprints": dict(fingerprints),
        "sets": [
            {
                "name": one.labelled.name,
                "digest": one.labelled.digest(),
                "split": one.split,
                "limit": one.limit,
                "within": one.within,
            }
            for one in sets
        ],
    }
    if not overwrite and is_made_from(out, made_from):
        report = json.loads((out / TRAINING).read_text(encoding="utf-8"))
        return _tracked(kind, out, report, work, made=False)
    with output_folder(out, overwrite=overwrite, kind=kind):
        trained = train(made_from)
        report = {
            "config": made_from["config"],
            "examples": sum(count["examples"] for count in trained.counts),
            "sets": [a | {**c} for a, c in zip(made_from["sets"], trained.counts, strict=True)],
            **trained.figures,
            "packages": {name: version(name) for name in LIBRARIES},
            "base_fingerprint": base.fingerprint,
            "base_training": training(base),
        }
        seen = trained_on(base) | frozenset(map(query_hash, trained.queries))
        write_network(out, trained.model, seen, report, made_from, overwrite=overwrite, kind=kind)
        shutil.rmtree(trained.checkpoints, ignore_errors=True)
        return _tracked(kind, out, report, work, made=True)


def write_network(
    out: Path,
    model: Any,
    seen: frozenset[str],
    report: Mapping[str, Any],
    made_from: Mapping[str, Any],
    *,
    overwrite: bool,
    kind: str,
) -> None:
    """Write the folder of a trained model, with the hashes of the queries that it has `seen`.

    `model` is a model of sentence-transformers.

    Raises:
        InputError: the training diverged: a weight is not a finite number.
    """
    if not all(bool(weight.isfinite().all()) for weight in model.parameters()):
        raise InputError(
            "the training diverged: its weights are not numbers any more; nothing is written; take "
            "a lower --learning-rate"
        )

    def fill(folder: Path) -> Mapping[str, Any]:
        model.save_pretrained(str(folder), create_model_card=False)  # it would quote the queries
        (folder / TRAINED_ON).write_text("\n".join(sorted(seen)) + "\n", encoding="utf-8")
        (folder / TRAINING).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        return made_from

    write_folder(out, fill, overwrite=overwrite, kind=kind)


def _tracked(
    kind: str, out: Path, report: Mapping[str, Any], work: Workspace, *, made: bool
) -> TrainingRun:
    """The training run of a written model folder, sent to MLflow if that is installed."""
    job = JOBS[kind]

    def record() -> RunRecord:
        return RunRecord(
            params={
                **report["config"],
                "sets": [s["name"] for s in report["sets"]],
                **{key: report[key] for key in ("examples", "base_fingerprint", "best_step")},
            },
            curves={
                name: {int(step): value for step, value in report.get(key, {}).items()}
                for name, key in (("loss", "loss"), ("validation_ndcg10", "ndcg10"))
            },
            tags={"job": job},
            inputs=[
                DataUsed(name, digest, "training", counts)
                for name, digest, counts in (
                    (s["name"], s["digest"], {k: s[k] for k in s.keys() - {"name", "digest"}})
                    for s in report["sets"]
                )
            ],
            folder=out,
            key=sha256_file(out / MANIFEST),
        )

    run, notes = if_installed(
        lambda: track(
            record,
            experiment=name_of("", job),
            run_name=f"{job}-{out.name}",
            work=work,
            written=out,
            again=f"the same `rerank train {kind}` command, with "
            + shlex.join(["--out", str(out), "--work", str(work.path)]),
        )
    )
    return TrainingRun(out, report, run, made, notes)
