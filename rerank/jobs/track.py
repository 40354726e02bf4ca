"""The MLflow record of a finished model, read entirely from its folder, so it can be sent later."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibration.thresholds import Certificate
from rerank.assessment.fitted_maps import FittedMaps, read_maps
from rerank.assessment.metadata_features import QUERY_ENTITIES
from rerank.assessment.model_folder import MEASURED, PAGE, ModelFolder, open_folder
from rerank.config import Config
from rerank.errors import command_line
from rerank.evaluation.measure import SUFFICIENCY
from rerank.report.measured import flatten
from rerank.storage.folder import Workspace
from rerank.tracking.registry import name_of
from rerank.tracking.runs import DataUsed, Flavour, RunRecord, TrackedRun, if_installed, track
from rerank.types import Mode

if TYPE_CHECKING:
    import pandas as pd

OWN_CONFIDENCES = ("calibrated", "after")  # the model's own, calibrated or recalibrated
COMPARED_METRICS = {  # metrics by which models are compared, and their names in `measured`
    **{name: name for name in ("auroc", "smece", "brier", "log_loss")},
    "hit_at_1": "base_accuracy",
    "accepted_share": "coverage",
    "accepted_right": "accuracy_accepted",
    "accepted_right_lower95": "accuracy_accepted_lower95",
}
SHOWN = ("auroc", "smece", "brier")  # in the tags of a version
LABELS = {"query_id": "string", "query": "string", "doc_id": "string", "relevance": "long"}
SUFFICIENCY_AT = 5
NEEDED = ("calibrated-rerank", "mlflow", "numpy", "onnxruntime", "pandas", "tokenizers")


def track_model(path: Path, *, work: Workspace) -> TrackedRun:
    """Send the record of a model folder to MLflow, and note its run in `work`.

    A model is not sent twice: its run that `work` or the store knows is returned, as `found`.
    """
    folder = open_folder(path)
    named = folder.manifest["dataset"].get("name", path.name)
    return track(
        lambda: record_of(folder),
        experiment=model_name(folder.manifest),
        run_name=f"{named}-{_calibrator(folder)}",
        work=work,
        written=path,
        again=command_line("model", "track", path, "--work", work.path),
    )


def track_if_installed(path: Path, *, work: Workspace) -> tuple[TrackedRun | None, tuple[str, ...]]:
    """Like `track_model`; without MLflow, no run and a note that says how to get one."""
    return if_installed(lambda: track_model(path, work=work))


def model_name(manifest: Mapping[str, Any]) -> str:
    """The name of a model's experiment and of its registered model."""
    return name_of(manifest.get("name", ""), str(manifest["dataset"].get("name")))


def record_of(folder: ModelFolder) -> RunRecord:
    """Parameters, metrics, data, pictures, tables, certificate and the folder as a model."""
    maps, config = read_maps(folder), Config.from_dict(folder.manifest["config"])
    measured = folder.json(MEASURED)
    dataset, queries = folder.manifest["dataset"], folder.manifest["queries"]
    name, certificate = str(dataset.get("name")), maps.main.certificate
    context = maps.main.context_certificate
    params = {k: v for k, v in folder.manifest.items() if k not in ("files", "digest", "kind")}
    params, parts = flatten(params), dict[Mode, Any]()
    metrics: dict[str, float] = {}
    for mode, of_mode in maps.items():
        main = mode == maps.main_mode
        params["certificate" if main else f"{mode}.certificate"] = of_mode.certificate.sentence
        parts[mode] = measured.get("rerank", {}) if mode == "rerank" else measured
        of_part = metrics_of(parts[mode], of_mode.certificate)
        metrics |= {k if main else f"{mode}_{k}": value for k, value in of_part.items()}
    counts = {k: v for k, v in dataset.items() if k not in ("name", "digest")}
    counts |= {f"used_to_{k}": queries[k] for k in ("fit", "report") if k in queries}
    return RunRecord(
        params=params,
        metrics=metrics,
        tags={
            "dataset": name,
            "calibrator": _calibrator(folder),
            "certified": str(certificate.threshold is not None).lower(),
            "certificate": certificate.sentence,
            "context_certificate": context.sentence if context else "",
            "confidence": ", ".join(f"{k} {metrics[k]:.3f}" for k in SHOWN if k in metrics),
        },
        inputs=(DataUsed(name, str(dataset.get("digest")), "calibration", counts, LABELS),),
        files=tuple(
            folder.path / file
            for file in folder.manifest["files"]
            if file == PAGE or file.endswith(".png")
        ),
        tables={"measurements": measurements(parts, maps), "feature_weights": weights(maps)},
        folder=folder.path,
        registered_name=model_name(folder.manifest),
        description=f"Confidence calibrated on {queries.get('fit', 0)} queries of {name}. "
        f"{certificate.sentence}",
        # a table of queries cannot hold the scored lists that such a model takes
        flavour=flavour(config.segment_by, entities=QUERY_ENTITIES in config.metadata_keys)
        if maps.source.scores_passages
        else None,
        key=folder.sha256(),
    )


def metrics_of(measured: Mapping[str, Any], certificate: Certificate) -> dict[str, float]:
    """The few metrics of a mode by which models are compared; unknown ones are left out.

    Shares are of the measured queries; `certified_share` is of the certificate's.
    """
    said = measured.get("confidence") or {}
    ours: Mapping[str, Any] = next((said[n] for n in OWN_CONFIDENCES if n in said), {})
    low, high = ours.get("smece_interval") or (None, None)
    sufficiency = measured.get("events", {}).get(SUFFICIENCY.format(SUFFICIENCY_AT), {})
    certified = certificate.accepted / certificate.queries if certificate.queries else 0.0
    metrics = {
        **{name: ours.get(key) for name, key in COMPARED_METRICS.items()},
        "smece_low": low,
        "smece_high": high,
        "certified_threshold": certificate.threshold,
        "certified_share": 0.0 if certificate.threshold is None else certified,
        "passages_scored": measured.get("passages_scored"),
        **{
            f"sufficiency_at_{SUFFICIENCY_AT}_{key}": sufficiency.get(key)
            for key in ("auroc", "smece", "brier", "log_loss")
        },
        **{f"ndcg_at_10_{k}": v.get("ndcg10") for k, v in measured.get("orders", {}).items()},
    }
    return {key: float(value) for key, value in metrics.items() if value is not None}


def measurements(
    measured: Mapping[Mode, Mapping[str, Any]], maps: Mapping[Mode, FittedMaps]
) -> pd.DataFrame:
    """Everything that was measured, one number per row: mode, part, name, metric, value."""
    import pandas as pd

    rows = []
    for mode, part in measured.items():
        tables = {key: part.get(key) or {} for key in ("confidence", "events", "orders")}
        tables["certificate"] = {"": maps[mode].certificate.to_dict()}
        for kind, table in tables.items():
            for name, row in table.items():
                for key, value in row.items():
                    ends = {key: value}
                    if isinstance(value, list):  # an interval
                        ends = {f"{key}_low": value[0], f"{key}_high": value[1]}
                    numbers = {k: float(v) for k, v in ends.items() if isinstance(v, (int, float))}
                    rows += [(mode, kind, name, *number) for number in numbers.items()]
    return pd.DataFrame(rows, columns=["mode", "part", "name", "metric", "value"])


def weights(maps: Mapping[Mode, FittedMaps]) -> pd.DataFrame:
    """The standardised weight of each input in each map of each mode."""
    import pandas as pd

    rows = [
        (mode, name, *of_input)
        for mode, of_mode in maps.items()
        for name, columns, fitted in of_mode.logistic_maps()
        for of_input in zip(columns, fitted.coef, fitted.mean, fitted.scale, strict=True)
    ]
    return pd.DataFrame(rows, columns=["mode", "map", "input", "weight", "mean", "scale"])


def flavour(segment_by: str, *, entities: bool = False) -> Flavour:
    """How MLflow runs a model folder by `mlflow_model`; arguments as of `input_example`."""
    from rerank.batch.table import OUTPUT_EXAMPLE, frame, input_example

    code = Path(__file__).parent.parent / "batch" / "mlflow_model.py"
    requirements = []
    for name in NEEDED:
        with suppress(PackageNotFoundError):  # run from a tree that is not installed
            requirements.append(f"{name}=={version(name)}")
    examples = frame(input_example(segment_by, entities=entities)), frame(OUTPUT_EXAMPLE)
    return Flavour(code, *examples, tuple(requirements))


def _calibrator(folder: ModelFolder) -> str:
    return str((folder.manifest.get("calibrator") or {}).get("name", "unknown"))
