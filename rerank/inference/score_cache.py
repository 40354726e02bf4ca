"""Cross-encoder scores in one SQLite file of a working folder: no pair is scored twice."""

from __future__ import annotations

import errno
import hashlib
import logging
import math
import os
import sqlite3
import stat
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

Score = tuple[float, bool]  # logit, and whether the pair was cut
Result = TypeVar("Result")

TABLE = """
CREATE TABLE scores (
    age INTEGER PRIMARY KEY,
    pair BLOB NOT NULL UNIQUE,
    logit REAL NOT NULL,
    cut INTEGER NOT NULL,
    digest BLOB NOT NULL
)
"""
INSERT = "INSERT OR REPLACE INTO scores(pair, logit, cut, digest) VALUES (?, ?, ?, ?)"
DIGEST = 8  # bytes
MADE = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_stat%'"
PARTS = ("", "-journal", "-wal", "-shm")  # endings of the files of one database
WAIT = 10  # seconds to wait for another process that writes
ASKED = 500  # keys in one query
ASIDE = ".aside"  # suffix for a file that is not a cache; ".aside-2" for the next one
FULL = "SQLITE_FULL"
FAILING = (FULL, "SQLITE_IOERR", "SQLITE_NOMEM")  # the machine, not the file
NO_CACHE = ("SQLITE_NOTADB", "SQLITE_CORRUPT")
OTHER_TABLES = "it holds other tables"


@dataclass(eq=False)
class ScoreCache:
    """Scores by key, in the file `path`; one is dropped after `limit` newer ones (of 90 bytes).

    Logits must be finite. Safe to share between processes and threads. A problem with the file
    never ends a run; the log says which. A score changed on the disk counts as missing. A file that
    is broken, or not a cache, is set aside and a new one started; one that is not this user's own
    regular file, cannot be opened or set aside, or stays locked is left alone.
    """

    path: Path
    limit: int = 20_000_000
    _used: bool = True

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Score]:
        """The cached scores of `keys`."""

        def select(db: sqlite3.Connection) -> list[tuple[bytes, Any, Any, bytes]]:
            rows = []
            for start in range(0, len(keys), ASKED):
                chunk = keys[start : start + ASKED]
                marks = ",".join("?" * len(chunk))
                query = f"SELECT pair, logit, cut, digest FROM scores WHERE pair IN ({marks})"
                rows += db.execute(query, chunk).fetchall()
            return rows

        rows = (self._tried(select) if os.path.lexists(self.path) else None) or []
        scores = {
            pair: (logit, bool(cut))
            for pair, logit, cut, digest in rows
            if (type(logit), type(cut)) == (float, int)
            and math.isfinite(logit)
            and cut in (0, 1)
            and digest == _digest(pair, logit, cut)
        }
        if damaged := len(rows) - len(scores):
            logger.warning("%s: %d scores are damaged, and are computed anew", self.path, damaged)
        return scores

    def put(self, scores: Mapping[bytes, Score]) -> None:
        """Store `scores`: all of them, or none if the process dies meanwhile."""
        rows = [
            (pair, logit, int(cut), _digest(pair, logit, int(cut)))
            for pair, (logit, cut) in scores.items()
        ]

        def insert(db: sqlite3.Connection) -> None:
            db.executemany(INSERT, rows)
            oldest = "DELETE FROM scores WHERE age <= (SELECT max(age) FROM scores) - ?"
            db.execute(oldest, (self.limit,))

        self._tried(insert)

    def _tried(self, work: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """The result of `work`, on an empty file if the first was set aside; None without one."""
        for _ in range(2):
            if not self._used:
                break
            try:
                with closing(self._connect()) as db, db:
                    return work(db)
            except sqlite3.DatabaseError as error:
                name = getattr(error, "sqlite_errorname", "")
                if name.startswith(FAILING):
                    number = errno.ENOSPC if name.startswith(FULL) else errno.EIO
                    raise OSError(number, str(error), str(self.path)) from error
                if name.startswith(NO_CACHE) or str(error) == OTHER_TABLES:
                    self._set_aside(str(error))
                else:
                    self._leave(str(error))
            except OSError as error:
                self._leave(str(error))
        return None

    def _connect(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        state = self.path.lstat()
        if not stat.S_ISREG(state.st_mode):
            raise OSError("a link, or no regular file")
        if hasattr(os, "geteuid") and state.st_uid not in (0, os.geteuid()):
            raise OSError("the file of another user")
        db = sqlite3.connect(self.path, timeout=WAIT)
        try:
            db.text_factory = bytes  # text that is not UTF-8 is read too
            if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                db.execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
            if [statement.split() for (statement,) in db.execute(MADE)] != [TABLE.encode().split()]:
                raise sqlite3.DatabaseError(OTHER_TABLES)
        except BaseException:
            db.close()
            raise
        return db

    def _set_aside(self, why: str) -> None:
        """Rename the file to a name that is free, or leave it where it is if that fails."""
        if not self.path.exists():  # another process was faster
            return
        first = f"{self.path}{ASIDE}"
        names = chain([first], (f"{first}-{n}" for n in count(2)))
        aside = Path(next(name for name in names if not os.path.lexists(name)))
        try:
            for ending in PARTS:
                with suppress(FileNotFoundError):
                    os.replace(f"{self.path}{ending}", f"{aside}{ending}")
        except OSError as error:
            self._leave(f"it is not a cache of scores ({why}), and cannot be set aside: {error}")
            return
        logger.warning("%s is not a cache of scores (%s): it is now %s", self.path, why, aside.name)

    def _leave(self, why: str) -> None:
        logger.warning("%s is not used, scores are computed anew: %s", self.path, why)
        self._used = False


def _digest(pair: bytes, logit: float, cut: int) -> bytes:
    """A short hash of a row's values; SQLite keeps no sign of a zero, so it has none here."""
    values = pair + struct.pack("<d?", logit + 0.0, cut)
    return hashlib.blake2b(values, digest_size=DIGEST).digest()
