"""A working folder on disk: what runs share, and where each part of it is.

It knows nothing of the contents of indexes and scores, and nothing of MLflow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rerank.storage.files import write_file


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite database, whatever signs its path has, for SQLAlchemy and so for MLflow.

    Without SQLAlchemy, which then nobody opens it with, no sign is escaped.
    """
    try:
        from sqlalchemy.engine import URL
    except ImportError:
        return f"sqlite:///{path}"
    return URL.create("sqlite", database=str(path)).render_as_string()


@dataclass(frozen=True, slots=True)
class Workspace:
    """The parts of a working folder, whether they exist yet or not."""

    path: Path

    @property
    def indexes(self) -> Path:
        """A folder for each indexed corpus."""
        return self.path / "index"

    @property
    def scores(self) -> Path:
        """The cross-encoder's scores, shared by all runs."""
        return self.path / "scores.sqlite"

    @property
    def checkpoints(self) -> Path:
        """A folder for each unfinished training run."""
        return self.path / "checkpoints"

    @property
    def database(self) -> Path:
        """MLflow's database of runs and registered models."""
        return self.path / "mlflow.db"

    @property
    def tracking_uri(self) -> str:
        """MLflow's name for `database`."""
        return sqlite_url(self.database.resolve())

    @property
    def artifacts(self) -> Path:
        """The files of the runs in `database`."""
        return self.path / "mlartifacts"

    def tracked(self, key: str) -> dict[str, Any] | None:
        """What `note_tracked` stored for the folder whose manifest has the sha256 `key`, or None.

        A job that is interrupted between writing its folder and MLflow's answer leaves nothing.
        """
        try:
            run = json.loads(self._note(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return run if isinstance(run, dict) else None

    def note_tracked(self, key: str, run: Mapping[str, Any]) -> None:
        """Store the MLflow run that has the folder whose manifest has the sha256 `key`.

        Raises:
            OSError: the note cannot be written.
        """
        note = self._note(key)
        note.parent.mkdir(parents=True, exist_ok=True)
        write_file(note, json.dumps(dict(run)))

    def _note(self, key: str) -> Path:
        return self.path / "tracked" / f"{key}.json"
