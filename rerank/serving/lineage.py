"""What a served model was made from, as the Reliability page shows it: names and values by part."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rerank.config import Config
from rerank.tracking.client import shown_command, shown_store
from rerank.tracking.runs import KEY, TrackedRun

Rows = dict[str, Any]
NOT_RECORDED = "not recorded"
UNKNOWN = (
    "not known here: the folder of --work has no note of it. If the model was logged to MLflow, "
    "its run has the tag"
)


def lineage(
    manifest: Mapping[str, Any], measured: Mapping[str, Any], run: TrackedRun | None, *, key: str
) -> dict[str, Rows]:
    """The parts that are recorded, each with at least one row. No value holds a secret.

    `run` is the MLflow run that logged the model, and `key` the sha256 of its manifest.
    """
    dataset = manifest["dataset"]
    around, moved, updated, answers, calibrator = (
        found if isinstance(found := manifest.get(name), Mapping) else {}
        for name in ("fitted_around", "recalibrated", "updated", "answers", "calibrator")
    )
    parts: dict[str, Rows] = {
        "Labels": {
            "labelled set": dataset.get("name"),
            "its sha256": dataset.get("digest"),
            "the corpus's sha256": manifest.get("corpus_digest"),
            "queries fitted on": manifest["queries"].get("fit"),
            "measured": measured.get("reported"),
            "calibrator": calibrator.get("name", "none: not calibrated"),
        },
        "Models that score": _networks(manifest),
        "Fitted around other labelled sets": {
            "sets": ", ".join(map(str, around.get("sets", ()))),
            "the maps' sha256": around.get("digest"),
        },
        "Made from another model": {
            "recalibrated from version": manifest.get("parent_version"),
            "sha256 of its manifest": manifest.get("parent"),
            "on labels": f"{moved['labels']}, {moved['right']} of them right" if moved else "",
            "exported from the manifest with sha256": manifest.get("exported_from"),
            "corpus updated from the manifest with sha256": updated.get("parent"),
            "passages since then": updated.get("passages"),
            "confidence of answers fitted on labels": answers.get("labels"),
        },
        "Made by": _made_by(manifest, run),
        "MLflow run": _tracked(run, key, manifest.get("exported_from")),
    }
    shown = {
        part: {name: value for name, value in rows.items() if value not in (None, "")}
        for part, rows in parts.items()
    }
    return {part: rows for part, rows in shown.items() if rows}


def network_name(name: str) -> str:
    """The name of a network; of a path only its last part."""
    return Path(name).name if "/" in name else name


def _networks(manifest: Mapping[str, Any]) -> Rows:
    config, prints = Config.from_dict(manifest["config"]), manifest["fingerprints"]
    found: Rows = {}
    for name, value in prints.items():
        shown = name.replace("_", " ")
        if name in ("encoder", "reranker"):
            found[shown] = network_name(getattr(config, name))
        hashed = isinstance(value, str) and name != "precision"
        found[f"{shown}'s sha256" if hashed else shown] = value
    return found


def _made_by(manifest: Mapping[str, Any], run: TrackedRun | None) -> Rows:
    command, commit, started = (run.command, run.commit, run.started) if run else ("", "", 0)
    when = datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%d %H:%M UTC") if started else ""
    return {
        "package": manifest.get("made_by", NOT_RECORDED),
        "command": shown_command(command) or NOT_RECORDED,
        "git commit": commit or NOT_RECORDED,
        "time": when or NOT_RECORDED,
    }


def _tracked(run: TrackedRun | None, key: str, exported_from: str | None) -> Rows:
    if run is None:
        also = f", or {exported_from} before it was exported" if exported_from else ""
        return {"run": f"{UNKNOWN} {KEY} = {key}{also}"}
    name, version = run.model_name, run.model_version
    return {
        "run": run.run_id,
        "experiment": run.experiment or f"number {run.experiment_id}",
        "registered as": f"{name}, version {version}" if version else "",
        "store": shown_store(run.tracking_uri),
    }
