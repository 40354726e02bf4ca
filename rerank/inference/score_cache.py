"""Cross-encoder scores on disk, a row a pair: what was once scored is not scored again.

One SQLite file, shared by every run of a working folder, whatever the set, the split or the order
of its queries. It knows keys and numbers, nothing of models or text.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

Score = tuple[float, bool]  # logit, and whether the pair was cut

TABLE = """
CREATE TABLE IF NOT EXISTS scores (
    age INTEGER PRIMARY KEY,
    pair BLOB NOT NULL UNIQUE,
    logit REAL NOT NULL,
    cut INTEGER NOT NULL
)
"""
WAIT = 60  # seconds to wait for another process that writes
ASKED = 500  # keys in one query


@dataclass(frozen=True, slots=True)
class ScoreCache:
    """Scores by key, in the file `path`; one goes when `limit` others (of 80 bytes) came after it.

    Logits must be finite. Safe to share between processes and threads. A file that is no cache, or
    a broken one, is replaced by an empty one: what it held can be computed again.
    """

    path: Path
    limit: int = 20_000_000

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Score]:
        """The scores of those `keys` that are kept.

        Raises:
            OSError: the file cannot be opened, or stays locked for a minute.
        """
        found: dict[bytes, Score] = {}
        if not self.path.exists():
            return found
        try:
            with closing(self._connect()) as db:
                for start in range(0, len(keys), ASKED):
                    part = keys[start : start + ASKED]
                    marks = ",".join("?" * len(part))
                    wanted = f"SELECT pair, logit, cut FROM scores WHERE pair IN ({marks})"
                    rows = db.execute(wanted, part)
                    found |= {pair: (logit, bool(cut)) for pair, logit, cut in rows}
        except sqlite3.DatabaseError as error:
            self._give_up(error)
            return {}
        return found

    def put(self, scores: Mapping[bytes, Score]) -> None:
        """Keep `scores`, all or none of them if the process dies meanwhile.

        Raises:
            OSError: as `get`, or the disk is full.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rows = [(pair, logit, int(cut)) for pair, (logit, cut) in scores.items()]
        try:
            self._write(rows)
        except sqlite3.DatabaseError as error:
            self._give_up(error)
            self._write(rows)

    def _write(self, rows: Iterable[tuple[bytes, float, int]]) -> None:
        with closing(self._connect()) as db, db:
            db.executemany("INSERT OR REPLACE INTO scores(pair, logit, cut) VALUES (?, ?, ?)", rows)
            db.execute(
                "DELETE FROM scores WHERE age <= (SELECT max(age) FROM scores) - ?", (self.limit,)
            )

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=WAIT)
        db.execute(TABLE)
        return db

    def _give_up(self, error: sqlite3.DatabaseError) -> None:
        """Remove a broken file; one that is only busy, say, or cannot be opened, stays."""
        if type(error) is not sqlite3.DatabaseError:  # that of "malformed" and "not a database"
            raise OSError(f"{self.path}: {error}") from error
        logger.warning("%s cannot be read (%s): starting an empty one", self.path, error)
        self.path.unlink(missing_ok=True)
