"""Cross-encoder scores on disk, one row per pair: no pair is scored twice.

One SQLite file, shared by all runs of a working folder, for any set, split or order of queries. It
knows keys and numbers, nothing of models or text.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

logger = logging.getLogger(__name__)

Score = tuple[float, bool]  # logit, and whether the pair was cut
Made = TypeVar("Made")

TABLE = """
CREATE TABLE scores (
    age INTEGER PRIMARY KEY,
    pair BLOB NOT NULL UNIQUE,
    logit REAL NOT NULL,
    cut INTEGER NOT NULL
)
"""
WAIT = 10  # seconds to wait for another process that writes
ASKED = 500  # keys in one query
ASIDE = ".aside"  # suffix for a file that is not a cache
FAILING = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM")  # the machine, not the file
NO_CACHE = ("SQLITE_NOTADB", "SQLITE_CORRUPT")


class OtherTablesError(Exception):
    """The file is a database of something else."""


class ScoreCache:
    """Scores by key, in the file `path`; one is dropped after `limit` newer ones (of 80 bytes).

    Logits must be finite. Safe to share between processes and threads. All contents can be
    recomputed, so a problem with the file never ends a run. A broken file, or one that is not a
    cache, is set aside and a new one started. A file that is not this user's own regular file,
    cannot be opened, or stays locked is left alone, and nothing is cached from then on. The log
    says which.
    """

    def __init__(self, path: Path, limit: int = 20_000_000) -> None:
        self.path = path
        self.limit = limit
        self._used = True

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Score]:
        """The cached scores of `keys`.

        Raises:
            OSError: the disk fails.
        """

        def select(db: sqlite3.Connection) -> dict[bytes, Score]:
            found: dict[bytes, Score] = {}
            for start in range(0, len(keys), ASKED):
                part = keys[start : start + ASKED]
                marks = ",".join("?" * len(part))
                wanted = f"SELECT pair, logit, cut FROM scores WHERE pair IN ({marks})"
                rows = db.execute(wanted, part)
                found |= {pair: (logit, bool(cut)) for pair, logit, cut in rows}
            return found

        return (self._tried(select) if os.path.lexists(self.path) else None) or {}

    def put(self, scores: Mapping[bytes, Score]) -> None:
        """Store `scores`: all of them, or none if the process dies meanwhile.

        Raises:
            OSError: the disk fails, or is full.
        """
        rows = [(pair, logit, int(cut)) for pair, (logit, cut) in scores.items()]

        def insert(db: sqlite3.Connection) -> None:
            wanted = "INSERT OR REPLACE INTO scores(pair, logit, cut) VALUES (?, ?, ?)"
            db.executemany(wanted, rows)
            oldest = "DELETE FROM scores WHERE age <= (SELECT max(age) FROM scores) - ?"
            db.execute(oldest, (self.limit,))

        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._tried(insert)

    def _tried(self, work: Callable[[sqlite3.Connection], Made]) -> Made | None:
        """The result of `work`, on an empty file if the first was set aside; None without one."""
        for _ in range(2):
            if not self._used:
                break
            try:
                with closing(self._connect()) as db, db:
                    return work(db)
            except OtherTablesError:
                self._set_aside("it holds other tables")
            except sqlite3.DatabaseError as error:
                name = getattr(error, "sqlite_errorname", "")
                if name.startswith(FAILING):
                    raise OSError(f"{self.path}: {error}") from error
                if name.startswith(NO_CACHE):
                    self._set_aside(str(error))
                else:
                    self._leave(str(error))
            except OSError as error:
                self._leave(str(error))
        return None

    def _connect(self) -> sqlite3.Connection:
        """The open file, with its table.

        Raises:
            OSError: it is not this user's own regular file.
            OtherTablesError: it belongs to something else.
            sqlite3.DatabaseError: it is not a database, or is locked.
        """
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        state = self.path.lstat()
        if not stat.S_ISREG(state.st_mode):
            raise OSError("a link, or no regular file")
        if hasattr(os, "geteuid") and state.st_uid not in (0, os.geteuid()):
            raise OSError("the file of another user")
        db = sqlite3.connect(self.path, timeout=WAIT)
        try:
            if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                db.execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
            made = db.execute("SELECT sql FROM sqlite_master WHERE name = 'scores'").fetchone()
            if made is None or made[0].split() != TABLE.split():
                raise OtherTablesError
        except BaseException:
            db.close()
            raise
        return db

    def _set_aside(self, why: str) -> None:
        aside = self.path.with_name(self.path.name + ASIDE)
        logger.warning("%s is no cache of scores (%s): it is now %s", self.path, why, aside.name)
        with suppress(FileNotFoundError):  # another process was faster
            os.replace(self.path, aside)
        self.path.with_name(f"{self.path.name}-journal").unlink(missing_ok=True)  # of the old file

    def _leave(self, why: str) -> None:
        logger.warning("%s is not used, scores are computed anew: %s", self.path, why)
        self._used = False
