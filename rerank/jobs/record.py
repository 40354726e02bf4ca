"""What MLflow is told of a finished model: all of it is read from the model folder.

So a run whose tracking failed loses nothing: the same record can be sent later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibration.store import MANIFEST, sha256_file
from rerank.config import Config
from rerank.evidence import EVIDENCE
from rerank.features import FEATURES
from rerank.jobs.workspace import track
from rerank.learned import DOORS, Calibrators, both_doors
from rerank.model_folder import CALIBRATORS, MEASURED, ModelFolder, open_folder
from rerank.registry import NAME
from rerank.reporting.report import flat
from rerank.sufficiency import INPUTS

if TYPE_CHECKING:
    import pandas as pd

    from calibration.tracking import Flavour, RunRecord, TrackedRun

OURS = ("calibrated", "after")  # the row of this model's confidence: fitted anew, or moved
NEEDED = ("calibrated-rerank", "mlflow", "numpy", "onnxruntime", "pandas", "tokenizers")


def track_model(path: Path, *, work: Path) -> TrackedRun:
    """Write the record of a model folder to MLflow, and note in `work` that it was taken.

    The same model is not sent twice: where `work` or the store knows a run of it, that run is
    returned, `found`.

    Raises:
        InputError: not a whole model folder.
        NotTrackedError: MLflow did not take it.
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
    from calibration.tracking import RunRecord

    kept, measured = folder.json(CALIBRATORS), folder.json(MEASURED)
    doors = both_doors(kept)
    learned, of_given = doors
    certificate = learned.certificate.to_dict()
    named = {f"certificate.{key}": value for key, value in certificate.items()}
    params = {k: v for k, v in folder.manifest.items() if k not in ("files", "digest", "kind")}
    return RunRecord(
        params={
            **flat(params),
            **named,
            "certificate": learned.certificate.sentence,
            "given.certificate": of_given.certificate.sentence,
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
            "certified": str(learned.certificate.threshold is not None).lower(),
        },
        files=tuple(folder.path / name for name in folder.manifest["files"] if name[-4:] == ".png"),
        tables={"comparison": _comparison(measured), "feature_weights": weights(doors)},
        folder=folder.path,
        registered_name=NAME,
        flavour=flavour(Config.from_dict(folder.manifest["config"]).correct_by),
        key=sha256_file(folder.path / MANIFEST),
    )


def metrics_of(measured: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of `reliability.json`: of this model's confidence, other events, the orders."""
    ways = measured.get("confidence") or {}
    ours: Mapping[str, Any] = next((ways[name] for name in OURS if name in ways), {})
    found: dict[str, Any] = {"passages_read": measured.get("passages_read")}
    for key, value in ours.items():
        if isinstance(value, list):
            found |= {f"{key}_low": value[0], f"{key}_high": value[1]}
        else:
            found[key] = value
    for name, values in {**measured.get("events", {}), **measured.get("orders", {})}.items():
        found |= {f"{name}_{key}": value for key, value in values.items()}
    return {k: float(v) for k, v in found.items() if isinstance(v, (int, float))}


def weights(doors: Sequence[Calibrators]) -> pd.DataFrame:
    """What each input weighs, standardised, in each map of each door."""
    import pandas as pd

    rows = []
    for door, learned in zip(DOORS, doors, strict=True):
        maps = (
            ("prior", EVIDENCE, learned.reading.prior),
            ("relevance", EVIDENCE, learned.relevance),
            ("confidence", FEATURES, learned.confidence.first),
            ("hazard", INPUTS, learned.hazard),
        )
        rows += [
            {
                "door": door,
                "map": name,
                "input": column,
                "weight": weight,
                "mean": mean,
                "scale": scale,
            }
            for name, columns, one in maps
            for column, weight, mean, scale in zip(
                columns, one.coef, one.mean, one.scale, strict=True
            )
        ]
    return pd.DataFrame(rows)


def flavour(correct_by: str) -> Flavour:
    """How MLflow runs a model folder that corrects by this metadata: see `rerank.flavour`."""
    from calibration.tracking import Flavour
    from rerank.table import OUTPUT_EXAMPLE, frame, input_example

    code = Path(__file__).parent.parent / "flavour.py"
    return Flavour(
        code, frame(input_example(correct_by)), frame(OUTPUT_EXAMPLE), tuple(_requirements())
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
