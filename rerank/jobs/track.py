"""What MLflow is told of a finished model: all of it is read from the model folder.

So a run whose tracking failed loses nothing: the same record can be sent later.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.assessment.fitted_maps import FittedMaps, maps_from_dict
from rerank.assessment.model_folder import CALIBRATORS, MEASURED, ModelFolder, open_folder
from rerank.assessment.passage_features import PASSAGE_FEATURES
from rerank.assessment.ranking_features import RANKING_FEATURES
from rerank.assessment.sufficiency import INPUTS
from rerank.config import Config
from rerank.report.report import flat
from rerank.storage.folder import MANIFEST, sha256_file
from rerank.tracking.uris import NAME
from rerank.types import Mode
from rerank.workspace import track

if TYPE_CHECKING:
    import pandas as pd

    from rerank.tracking.runs import Flavour, RunRecord, TrackedRun

OURS = ("calibrated", "after")  # the row of this model's confidence: fitted anew, or moved
NEEDED = ("calibrated-rerank", "mlflow", "numpy", "onnxruntime", "pandas", "tokenizers")


def track_model(path: Path, *, work: Path) -> TrackedRun:
    """Write the record of a model folder to MLflow, and note in `work` that it was taken.

    The same model is not sent twice: where `work` or the store knows a run of it, that run is
    returned, `found`.

    Raises:
        InputError: not a whole model folder.
        TrackingError: MLflow did not take it.
    """
    folder = open_folder(path)
    named = folder.manifest["dataset"].get("name", path.name)
    return track(
        lambda: record_of(folder),
        run_name=f"{named}-{_calibrator(folder)}",
        work=work,
        written=path,
        again=f"rerank track {path} --work {work}",
    )


def record_of(folder: ModelFolder) -> RunRecord:
    """Parameters, metrics, pictures, tables, certificate and the folder as an MLflow model."""
    from rerank.tracking.runs import RunRecord

    kept, measured = folder.json(CALIBRATORS), folder.json(MEASURED)
    maps = maps_from_dict(kept)
    certificate = maps["search"].certificate.to_dict()
    named = {f"certificate.{key}": value for key, value in certificate.items()}
    params = {k: v for k, v in folder.manifest.items() if k not in ("files", "digest", "kind")}
    return RunRecord(
        params={
            **flat(params),
            **named,
            "certificate": maps["search"].certificate.sentence,
            "rerank.certificate": maps["rerank"].certificate.sentence,
        },
        metrics={
            **metrics_of(measured),
            **{f"given_{k}": v for k, v in metrics_of(measured.get("given") or {}).items()},
            **{
                f"certificate_{key}": float(value)
                for key, value in certificate.items()
                if isinstance(value, (int, float))
            },
        },
        tags={
            "dataset": str(folder.manifest["dataset"].get("name")),
            "calibrator": _calibrator(folder),
            "certified": str(maps["search"].certificate.threshold is not None).lower(),
        },
        files=tuple(folder.path / name for name in folder.manifest["files"] if name[-4:] == ".png"),
        tables={"comparison": _comparison(measured), "feature_weights": weights(maps)},
        folder=folder.path,
        registered_name=NAME,
        flavour=flavour(Config.from_dict(folder.manifest["config"]).segment_by),
        key=sha256_file(folder.path / MANIFEST),
    )


def metrics_of(measured: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of `reliability.json`: of this model's confidence, other events, the orders."""
    ways = measured.get("confidence") or {}
    ours: Mapping[str, Any] = next((ways[name] for name in OURS if name in ways), {})
    found: dict[str, Any] = {"passages_scored": measured.get("passages_scored")}
    for key, value in ours.items():
        if isinstance(value, list):
            found |= {f"{key}_low": value[0], f"{key}_high": value[1]}
        else:
            found[key] = value
    for name, values in {**measured.get("events", {}), **measured.get("orders", {})}.items():
        found |= {f"{name}_{key}": value for key, value in values.items()}
    return {k: float(v) for k, v in found.items() if isinstance(v, (int, float))}


def weights(maps: Mapping[Mode, FittedMaps]) -> pd.DataFrame:
    """What each input weighs, standardised, in each map of each mode."""
    import pandas as pd

    rows = []
    for mode, fitted in maps.items():
        parts = (
            ("prior", PASSAGE_FEATURES, fitted.policy.prior),
            ("relevance", PASSAGE_FEATURES, fitted.relevance),
            ("confidence", RANKING_FEATURES, fitted.confidence.first),
            ("hazard", INPUTS, fitted.hazard),
        )
        rows += [
            {
                "mode": mode,
                "map": name,
                "input": column,
                "weight": weight,
                "mean": mean,
                "scale": scale,
            }
            for name, columns, one in parts
            for column, weight, mean, scale in zip(
                columns, one.coef, one.mean, one.scale, strict=True
            )
        ]
    return pd.DataFrame(rows)


def flavour(segment_by: str) -> Flavour:
    """How MLflow runs a model folder that corrects by this metadata: `mlflow_model`."""
    from rerank.batch.table import OUTPUT_EXAMPLE, frame, input_example
    from rerank.tracking.runs import Flavour

    code = Path(__file__).parent.parent / "batch" / "mlflow_model.py"
    return Flavour(
        code, frame(input_example(segment_by)), frame(OUTPUT_EXAMPLE), tuple(_requirements())
    )


def _requirements() -> list[str]:
    found = []
    for name in NEEDED:
        try:
            found.append(f"{name}=={version(name)}")
        except PackageNotFoundError:  # run from a tree that is not installed
            continue
    return found


def _comparison(measured: Mapping[str, Any]) -> pd.DataFrame:
    import pandas as pd

    ways = measured.get("confidence") or {}
    return pd.DataFrame([{"way": name, **row} for name, row in ways.items()])


def _calibrator(folder: ModelFolder) -> str:
    return str((folder.manifest.get("calibrator") or {}).get("name", "unknown"))
