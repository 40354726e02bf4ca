"""New databases of MLflow: migrated once in a run of the tests, and copied from then on."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

MODULE = "mlflow.store.db.utils"  # not imported here: that takes seconds


def migrate_once(kept: Path) -> None:
    """A new SQLite database becomes a copy of `kept`, which is what MLflow's migrations made.

    Does nothing while nobody has imported MLflow.
    """
    utils: Any = sys.modules.get(MODULE)
    if utils is None or utils._initialize_tables.__module__ != MODULE:
        return
    migrate = utils._initialize_tables

    def initialize(engine: Any) -> None:
        made = engine.url.database if engine.url.drivername == "sqlite" else None
        if made and kept.exists():
            _copy(kept, made)
            return
        migrate(engine)
        if made:
            aside = kept.with_name(f"{kept.name}.{os.getpid()}")
            _copy(made, aside)
            aside.replace(kept)

    utils._initialize_tables = initialize


def _copy(source: str | Path, target: str | Path) -> None:
    with closing(sqlite3.connect(source)) as given, closing(sqlite3.connect(target)) as to:
        given.backup(to)
