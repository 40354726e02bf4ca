"""A working folder on disk: what runs share, and where each part of it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rerank.storage.files import write_file


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite database for SQLAlchemy and MLflow, whatever signs its path has."""
    try:
        from sqlalchemy.engine import URL
    except ImportError:
        return f"sqlite:///{path}"
    return URL.create("sqlite", database=str(path)).render_as_string()


class Workspace:
    """The parts of a working folder, whether they exist yet or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.indexes = path / "index"  # a folder for each indexed corpus
        self.scores = path / "scores.sqlite"  # of the cross-encoder, shared by all runs
        self.checkpoints = path / "checkpoints"  # a folder for each unfinished training run
        self.database = path / "mlflow.db"  # MLflow's, of runs and registered models
        self.artifacts = path / "mlartifacts"  # the files of the runs in it

    @property
    def tracking_uri(self) -> str:
        """MLflow's name for `database`."""
        return sqlite_url(self.database.resolve())

    def tracked(self, key: str) -> dict[str, Any] | None:
        """What `note_tracked` stored for a folder by its manifest's sha256; None if it was not
        tracked.
        """
        try:
            run = json.loads(self._note(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return run if isinstance(run, dict) else None

    def note_tracked(self, key: str, run: Mapping[str, Any]) -> None:
        """Store the MLflow run that has the folder whose manifest has the sha256 `key`."""
        note = self._note(key)
        note.parent.mkdir(parents=True, exist_ok=True)
        write_file(note, json.dumps(dict(run)))

    def _note(self, key: str) -> Path:
        return self.path / "tracked" / f"{key}.json"
