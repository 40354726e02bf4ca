"""One run of a job in MLflow, with its folder as a model that MLflow can load.

It knows nothing of what the numbers mean, and leaves no global state and no active run. MLflow is
imported when it is used.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.errors import MissingExtraError, TrackingError
from rerank.storage.files import sha256_file
from rerank.storage.folder import MANIFEST, Workspace
from rerank.tracking import client as mlflow_client
from rerank.tracking.client import environment, kept_store, named_store, reason, without_secrets

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run

FOLDER = "model"  # the name of the model that a run logs
ARTIFACT = "folder"  # what the code of a flavour knows the folder as: `context.artifacts[ARTIFACT]`
INNER = f"artifacts/{ARTIFACT}"  # where it lies in the MLflow model that a flavour makes of it
COMMAND, COMMIT = "mlflow.source.name", "mlflow.source.git.commit"  # MLflow's own tags
KEY = "record_key"  # the tag that holds a record's key
LONGEST_PARAM = 6000  # characters that MLflow takes; a longer one is cut, and whole in params.json
LONGEST_TAG, LONGEST_DIGEST = 5000, 36  # likewise


@dataclass(frozen=True, slots=True)
class Flavour:
    """How MLflow runs a folder, by its own rules of models from code."""

    code: Path  # calls `mlflow.models.set_model`; the folder is `context.artifacts["folder"]`
    inputs: pd.DataFrame  # examples for the signature; a column that misses a value is optional
    outputs: pd.DataFrame
    requirements: Sequence[str]  # lines for pip


@dataclass(frozen=True, slots=True)
class DataUsed:
    """A data set that a run used (MLflow input). `counts`, such as queries per split, are shown.

    `columns` are the fields of a label and MLflow's names of their types.
    """

    name: str
    digest: str
    used_for: str
    counts: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What is logged of a run; everything is optional."""

    params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)  # by step
    tags: Mapping[str, str] = field(default_factory=dict)
    inputs: Sequence[DataUsed] = ()
    files: Sequence[Path] = ()  # under their own names
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # by name of the artefact
    folder: Path | None = None  # logged as "model"
    registered_name: str | None = None  # of the folder; the version gets the tags, too
    description: str = ""  # of the version
    flavour: Flavour | None = None  # makes the folder a model that MLflow loads
    key: str | None = None  # at most one finished run of an experiment has it


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """Where a run was written, and what made it: "" and 0 if that is not known."""

    run_id: str
    experiment_id: str
    tracking_uri: str
    model_version: str | None  # registered under `model_name`
    model_name: str | None = None
    found: bool = False  # the store already had a run of this key, and nothing was written
    experiment: str = ""  # its name
    command: str = ""
    commit: str = ""
    started: float = 0.0  # seconds since 1970


def track(
    record: Callable[[], RunRecord],
    *,
    experiment: str,
    run_name: str,
    work: Workspace,
    written: Path,
    again: str,
) -> TrackedRun:
    """Log a run to MLflow, once: to MLFLOW_TRACKING_URI, else to the database in `work`.

    A finished run that the store has of this folder is returned, and nothing is sent. If the store
    does not answer, one that is noted in `work` for it is. `again` is a command that sends it.

    Raises:
        MissingExtraError: MLflow is not installed.
        TrackingError: MLflow did not accept it; what was `written` stays.
    """
    key, named = sha256_file(written / MANIFEST), named_store()
    run_record, noted = record(), read_note(key, work)
    try:
        work.path.mkdir(parents=True, exist_ok=True)
        run = log_run(
            run_record,
            experiment=experiment,
            run_name=run_name,
            tracking_uri=work.tracking_uri,
            artifact_location=work.artifacts.resolve().as_uri(),
        )
        work.note_tracked(key, asdict(run))
    except Exception as error:  # the store is the user's: any client error can come back
        if noted and noted.tracking_uri == kept_store(named or work.tracking_uri):
            return noted
        why: object = error  # ours says what to do
        if not isinstance(error, TrackingError):
            why = f"{reason(error)}; check MLFLOW_TRACKING_URI"
        raise TrackingError(
            f"{written} is written, but MLflow did not take the run: {why}. Send it later with: "
            f"{again}"
        ) from error
    return run


def if_installed(
    send: Callable[[], TrackedRun],
) -> tuple[TrackedRun | None, tuple[str, ...]]:
    """The run that `send` gives; without MLflow, none, and a note that says how to get one."""
    try:
        return send(), ()
    except MissingExtraError as error:
        return None, (f"not tracked: {error}",)


def read_note(key: str, work: Workspace) -> TrackedRun | None:
    """The run noted in `work` for the sha256 of a manifest, of any store; it needs no MLflow."""
    noted = work.tracked(key)
    try:
        return TrackedRun(**{**noted, "found": True}) if noted else None
    except TypeError:  # another version noted it
        return None


def log_run(
    record: RunRecord,
    *,
    experiment: str,
    run_name: str,
    tracking_uri: str,
    artifact_location: str | None = None,
) -> TrackedRun:
    """Write a record as one finished run; a failure on the way marks the run FAILED and is raised.

    The run names the command line and the git commit of the working directory. The environment's
    MLFLOW_TRACKING_URI wins over `tracking_uri`. `artifact_location` is where a new experiment
    keeps its files, unless a server decides.

    Raises:
        MissingExtraError: MLflow is not installed.
        TrackingError: the experiment is deleted.
        mlflow.exceptions.MlflowException: the store refuses, or cannot be reached.
    """
    name = record.registered_name
    uri = named_store() or tracking_uri
    with mlflow_client.store(uri) as client:
        local = uri == tracking_uri or uri.startswith(("sqlite:", "file:"))
        experiment_id = _experiment(client, experiment, artifact_location if local else None, uri)
        if logged := _find_finished_run(client, experiment_id, record):
            run, version = logged
            return tracked_run(client, run, uri, version=version, name=name, found=True)
        tags = {KEY: record.key} if record.key else {}
        run = client.create_run(experiment_id, run_name=run_name, tags={**_source_tags(), **tags})
        run_id, version = run.info.run_id, None
        try:
            _log_values(client, run_id, record)
            for file in record.files:
                client.log_artifact(run_id, str(file))
            for artefact, table in record.tables.items():
                client.log_table(run_id, table, f"{artefact.removesuffix('.json')}.json")
            if record.folder is not None:
                _log_model(client, run_id, record.folder, record)
                version = _register(client, run_id, record)
        except BaseException:
            with suppress(Exception), environment(mlflow_client.HTTP_LIMITS_ON_FAILURE):
                client.set_terminated(run_id, "FAILED")
            raise
        client.set_terminated(run_id, "FINISHED")
        return tracked_run(client, run, uri, version=version, name=name)


def tracked_run(
    client: MlflowClient,
    run: Run,
    uri: str,
    *,
    version: str | None,
    name: str | None,
    found: bool = False,
) -> TrackedRun:
    """What is told of a run in the store at `uri`; its folder is this version of a model."""
    info, tags = run.info, run.data.tags
    return TrackedRun(
        run_id=info.run_id,
        experiment_id=info.experiment_id,
        tracking_uri=kept_store(uri),
        model_version=version,
        model_name=name,
        found=found,
        experiment=str(client.get_experiment(info.experiment_id).name),
        command=tags.get(COMMAND, ""),
        commit=tags.get(COMMIT, ""),
        started=(info.start_time or 0) / 1000,
    )


def logged_models(client: MlflowClient, run_id: str) -> list[LoggedModel]:
    """The models that a run logged."""
    outputs = client.get_run(run_id).outputs
    return [client.get_logged_model(o.model_id) for o in (outputs.model_outputs if outputs else ())]


def _source_tags() -> dict[str, str]:
    """The running command, without secrets, and the git commit where it runs."""
    words = [Path(sys.argv[0]).name, *sys.argv[1:]]
    command = shlex.join(map(without_secrets, words))[:LONGEST_TAG]
    tags = {COMMAND: command, "mlflow.source.type": "LOCAL"}
    with suppress(OSError, subprocess.SubprocessError):  # no git, or no repository
        git = ("git", "rev-parse", "--verify", "HEAD")
        answer = subprocess.run(git, capture_output=True, text=True, timeout=10, check=True)
        tags[COMMIT] = answer.stdout.strip()
    return tags


def _find_finished_run(
    client: MlflowClient, experiment_id: str, record: RunRecord
) -> tuple[Run, str | None] | None:
    """The finished run of the record's key, and its version; if that is gone, it gets one anew."""
    if record.key is None:
        return None
    condition = f"tags.{KEY} = '{record.key}' and attributes.status = 'FINISHED'"
    runs = client.search_runs([experiment_id], condition, max_results=1)
    if not runs:
        return None
    run_id = runs[0].info.run_id
    versions = client.search_model_versions(f"run_id = '{run_id}'")
    return runs[0], str(versions[0].version) if versions else _register(client, run_id, record)


def _log_values(client: MlflowClient, run_id: str, record: RunRecord) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
    from mlflow.types import ColSpec, Schema
    from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT
    from mlflow.utils.time import get_current_time_millis

    now = get_current_time_millis()
    params = {key: str(value) for key, value in record.params.items()}
    curves = [*((key, {0: value}) for key, value in record.metrics.items()), *record.curves.items()]
    points = [(key, *point) for key, curve in curves for point in curve.items()]
    client.log_batch(  # in requests as large as MLflow takes
        run_id,
        metrics=[Metric(key, float(value), now, step) for key, step, value in points],
        params=[
            Param(k, v if len(v) <= LONGEST_PARAM else v[: LONGEST_PARAM - 1] + "…")
            for k, v in params.items()
        ],
        tags=[RunTag(key, str(value)) for key, value in record.tags.items()],
    )
    inputs = []
    for used in record.inputs:
        source = {"tags": {"dataset": used.name, "digest": used.digest}}
        place, counts = json.dumps(source), json.dumps(dict(used.counts))
        digest = used.digest[:LONGEST_DIGEST]
        columns = [ColSpec(kind, name) for name, kind in used.columns.items()]
        schema = json.dumps({"mlflow_colspec": Schema(columns).to_dict()}) if columns else None
        entity = Dataset(used.name, digest, "code", place, schema=schema, profile=counts)
        inputs.append(DatasetInput(entity, [InputTag(MLFLOW_DATASET_CONTEXT, used.used_for)]))
    if inputs:
        client.log_inputs(run_id, inputs)
    if any(len(value) > LONGEST_PARAM for value in params.values()):
        client.log_dict(run_id, params, "params.json")


def _register(client: MlflowClient, run_id: str, record: RunRecord) -> str | None:
    """Register the folder that a run logged, if the record names a model; the version's number."""
    from mlflow.exceptions import MlflowException

    name = record.registered_name
    if not name:
        return None
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    (logged,) = logged_models(client, run_id)
    version = client.create_model_version(
        name,
        logged.artifact_location,
        run_id,
        tags=dict(record.tags),
        description=record.description or None,
        model_id=logged.model_id,
    )
    return str(version.version)


def _log_model(client: MlflowClient, run_id: str, folder: Path, record: RunRecord) -> None:
    """Log the folder as a model of the run, inside an MLflow model if it has a flavour.

    Its files are uploaded once, from where they are.
    """
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import infer_signature
    from mlflow.pyfunc import save_model

    experiment, flavour = client.get_run(run_id).info.experiment_id, record.flavour
    model_id = client.create_logged_model(
        experiment, FOLDER, run_id, tags=dict(record.tags)
    ).model_id
    if flavour:
        with tempfile.TemporaryDirectory() as place:
            stand_in, made = Path(place) / ARTIFACT, str(Path(place) / "model")
            stand_in.mkdir()
            save_model(
                made,
                python_model=str(flavour.code),
                artifacts={ARTIFACT: str(stand_in)},
                signature=infer_signature(flavour.inputs, flavour.outputs),
                input_example=flavour.inputs,
                pip_requirements=list(flavour.requirements),
            )
            client.log_model_artifacts(model_id, made)
    client.log_model_artifacts(model_id, str(folder), INNER if flavour else None)
    client.finalize_logged_model(model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(model_id, 0)])


def _experiment(client: MlflowClient, name: str, place: str | None, uri: str) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return str(client.create_experiment(name, artifact_location=place))
    if experiment.lifecycle_stage != "active":
        restore = f"mlflow experiments restore --experiment-id {experiment.experiment_id}"
        raise TrackingError(
            f"the experiment {name!r} is deleted; restore it (MLFLOW_TRACKING_URI="
            f"{shlex.quote(without_secrets(uri))} {restore}), or give another --name to "
            "calibrate"
        )
    return str(experiment.experiment_id)
