"""What a working folder keeps between runs: indexes, cross-encoder scores, and tracked runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import Pipeline
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import FolderError, TrackingError
from rerank.inference.model_files import ModelFiles, resolve
from rerank.inference.score_cache import ScoreCache
from rerank.retrieval.dense import Encoder
from rerank.retrieval.given_index import given_index
from rerank.retrieval.index import LAYOUT, Index, build_index
from rerank.storage.folder import MANIFEST, sha256_file, verify_folder, write_file
from rerank.tracking.uris import NAME, store_of

if TYPE_CHECKING:
    from rerank.tracking.runs import RunRecord, TrackedRun


def open_pipeline(
    labelled: LabelledSet,
    config: Config,
    work: Path,
    *,
    index: Path | None = None,
    models: tuple[ModelFiles, ModelFiles] | None = None,
) -> Pipeline:
    """A pipeline over a set's corpus whose index and scores are kept under `work`.

    `models` are the encoder and the reranker, where they are not to be found by their names.

    Raises:
        InputError: `index`, a folder to take instead, is of something else.
    """
    models = models or (resolve(config.encoder), resolve(config.reranker))
    encoder = Encoder(models[0], max_length=config.encoder_max_length)
    opened = (
        open_index(labelled, config, work, models[0])
        if index is None
        else given_index(index, labelled.corpus_digest(), encoder, config)
    )
    return Pipeline(opened, config, cache=score_cache(work), models=models)


def pipeline_over(labelled: LabelledSet, model: CalibratedReranker, work: Path) -> Pipeline:
    """The model's pipeline; over the set's corpus where that is another than the model's."""
    if labelled.corpus_digest() == model.manifest["corpus_digest"]:
        return model.pipeline
    own = model.pipeline
    models = (own.encoder.files, own.reranker.files)
    return open_pipeline(labelled, own.config, work, models=models)


def score_cache(work: Path) -> ScoreCache:
    """The scores that runs in `work` share."""
    return ScoreCache(work / "scores.sqlite")


def open_index(
    labelled: LabelledSet, config: Config, work: Path, files: ModelFiles | None = None
) -> Index:
    """The index of a set's corpus under `work/index`: built once, reused when nothing changed.

    `files` are the encoder's, where it is not to be found by its name.
    """
    encoder = Encoder(files or resolve(config.encoder), max_length=config.encoder_max_length)
    key = "-".join(
        [
            labelled.name,
            labelled.corpus_digest()[:16],
            encoder.files.fingerprint[:16],
            str(encoder.max_length),
            config.language,
            *(["approximate"] if config.dense == "approximate" else []),
            f"layout{LAYOUT}",
        ]
    )
    home = work / "index" / key
    try:
        verify_folder(home)
    except FolderError:
        if home.exists():  # damaged; where it was not there, another run may be about to finish it
            shutil.rmtree(home)
        try:
            build_index(
                labelled.corpus.values(),
                home,
                encoder,
                language=config.language,
                approximate=config.dense == "approximate",
            )
        except FolderError:
            verify_folder(home)  # another run built it meanwhile
    return Index(home)


def track(
    record: Callable[[], RunRecord], *, run_name: str, work: Path, written: Path, again: str
) -> TrackedRun:
    """Log a run to MLflow, once: to MLFLOW_TRACKING_URI, else to a database in `work`.

    That it was taken is noted in `work`, for `tracked_run`. Where that note is there already, and
    of the same store, the run it names is returned, and nothing is sent. `again` is the command
    that sends it later.

    Raises:
        TrackingError: MLflow did not take it; what was `written` stays.
    """
    known = noted_run(written, work)
    if known is not None:
        return known
    made = record()
    try:
        from rerank.tracking.runs import log_run

        work.mkdir(parents=True, exist_ok=True)
        run = log_run(
            made,
            experiment=NAME,
            run_name=run_name,
            tracking_uri=store_of(work),
            artifact_location=(work / "mlartifacts").resolve().as_uri(),
        )
        note = _note(written, work)
        note.parent.mkdir(parents=True, exist_ok=True)
        noted = {name: getattr(run, name) for name in NOTED}
        write_file(note, json.dumps(noted))
    except Exception as error:  # the store is the user's: any client error can come back
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TrackingError(
            f"{written} is written, but MLflow did not take the run ({reason[:300]}); check "
            f"MLFLOW_TRACKING_URI, and send it later with: {again}"
        ) from error
    return run


def noted_run(folder: Path, work: Path) -> TrackedRun | None:
    """The run that `tracked_run` knows of, `found`, if it is in the store that is meant now."""
    known = tracked_run(folder, work)
    if known is None:
        return None
    from rerank.tracking.client import named_store
    from rerank.tracking.runs import TrackedRun

    if known["tracking_uri"] != (named_store() or store_of(work)):
        return None
    return TrackedRun(**{"experiment_id": "", "model_version": None, **known}, found=True)


NOTED = ("run_id", "tracking_uri", "experiment_id", "model_version")


def tracked_run(folder: Path, work: Path) -> dict[str, Any] | None:
    """`NOTED` of the run that logged this very folder, as noted in `work`.

    None where `work` knows of none: a job that is interrupted between writing its folder and
    MLflow's answer leaves none.
    """
    try:
        found: dict[str, Any] = json.loads(_note(folder, work).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or not {"run_id", "tracking_uri"} <= set(found):
        return None
    return {name: found[name] for name in NOTED if name in found}


def _note(folder: Path, work: Path) -> Path:
    return work / "tracked" / f"{sha256_file(folder / MANIFEST)}.json"
