"""Models by MLflow's URIs: which store is meant, and the folder that it gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rerank.errors import InputError

NAME = "calibrated-rerank"  # of the MLflow experiment and of the registered model
SCHEMES = ("models:/", "runs:/")


def is_uri(place: str | Path) -> bool:
    """Whether a model is asked for by MLflow's name for it and not by its folder."""
    return str(place).startswith(SCHEMES)


def store_of(work: Path) -> str:
    """The tracking URI of the database that a working folder keeps."""
    return f"sqlite:///{(work / 'mlflow.db').resolve()}"


def fetch(uri: str | Path, *, tracking_uri: str | None = None) -> tuple[Path, Path | None]:
    """The model folder at a URI; and the temporary folder that holds it, where it is a copy.

    It is asked of MLFLOW_TRACKING_URI, else of `tracking_uri`, else of the database in `work`.

    Raises:
        InputError: MLflow is not installed, there is no store, or it does not give the model.
    """
    return folder_at(locate(uri, tracking_uri=tracking_uri), tracking_uri=tracking_uri)


def locate(uri: str | Path, *, tracking_uri: str | None = None) -> str:
    """Where the files are that a URI stands for now: another place for another version.

    Raises:
        InputError: as `fetch`.
    """
    with _store(uri, tracking_uri) as store:
        from rerank.tracking import registry

        return registry.locate(str(uri), tracking_uri=store)


def folder_at(source: str, *, tracking_uri: str | None = None) -> tuple[Path, Path | None]:
    """The model folder at a place that `locate` gave, as `fetch` does.

    Raises:
        InputError: as `fetch`.
    """
    with _store(source, tracking_uri) as store:
        from rerank.tracking import registry

        return registry.folder_at(source, tracking_uri=store)


@contextmanager
def _store(what: str | Path, tracking_uri: str | None) -> Iterator[str]:
    """The URI of the store that is meant; what fails while it is asked comes out in a sentence."""
    try:
        from rerank.tracking.client import named_store
    except ImportError as error:
        raise InputError(f"{what} needs MLflow ({error}); give a folder, or install it") from None
    place = named_store() or tracking_uri or store_of(Path("work"))
    database = Path(place.removeprefix("sqlite:///"))
    if place.startswith("sqlite:///") and not database.is_file():
        raise InputError(f"{what}: there is no {database}; set MLFLOW_TRACKING_URI")
    try:
        yield place
    except Exception as error:  # the store is the user's: any client error can come back
        raise InputError(f"{place} does not give {what}: {error}") from error
