"""SIGKILL while the journal is written: what was confirmed is there, no entry is half or skipped.

    python tests/torture/journal.py --kills 100
    python tests/torture/journal.py --kills 100 --postgres

A process offers entries, slowly or as fast as it can, and dies at a random moment; the next one
goes on with the same journal. After each death the journal must be readable, and must hold the
first m entries that were offered, whole, with m at least what the writer had confirmed. Of slow
ones it is measured how long before the death the first lost entry was offered.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import signal
import sqlite3
import struct
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from journals import make_entry, sqlite_url
from sqlalchemy import select

from rerank.journal.journal import GATHER, Journal
from rerank.journal.store import JOURNAL, Entry, JournalStore

MAX_ENTRIES = 200_000  # entries of one process
HEAD = 16  # bytes: how many were offered, how many confirmed
BOUND = 2.0  # seconds of entries that a death may cost: GATHER, and a commit on a busy machine


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill and look; 0 where nothing was found."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--kills", type=int, default=100)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--postgres", action="store_true", help="in PostgreSQL, not in SQLite")
    o = p.parse_args(arguments)
    draw = random.Random(o.seed)
    if o.postgres:
        from postgres import postgres

        with postgres() as server:
            losses = torture(server.url, o.kills, draw)
    else:
        with tempfile.TemporaryDirectory() as folder:
            losses = torture(sqlite_url(Path(folder)), o.kills, draw)
            check_file(Path(folder) / "journal.db")
    slow = sorted(losses)
    print(
        f"{o.kills} kills: nothing confirmed was lost, no entry was half. Lost of slow writers: "
        f"the last {slow[len(slow) // 2]:.3f} s (median), {slow[-1]:.3f} s (most); stated: "
        f"{GATHER} s and a commit"
    )
    return int(slow[-1] > BOUND)


def torture(url: str, kills: int, draw: random.Random) -> list[float]:
    """Kill so many writers of one journal; the seconds lost by each slow one.

    Raises:
        AssertionError: a confirmed entry is lost, one is half, or one in between is missing.
    """
    JournalStore(url, create=True).close()
    losses = []
    for round_ in range(kills):
        pause = draw.choice([0.0, 0.002])
        with closing(mmap.mmap(-1, HEAD + 8 * MAX_ENTRIES)) as shared:
            child = os.fork()
            if not child:
                write(url, round_, pause, shared)
            enough = draw.randrange(1, 300 if pause else 3000)
            while struct.unpack_from("q", shared, 0)[0] < enough:
                assert os.waitpid(child, os.WNOHANG) == (0, 0), "the writer ended by itself"
                time.sleep(0.001)
            time.sleep(draw.random() * 2 * GATHER)  # now among commits
            died = time.monotonic()
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            offered, confirmed = struct.unpack_from("qq", shared, 0)
            found = survivors(url, round_)
            assert confirmed <= found <= offered + 1, (round_, confirmed, found, offered)
            if pause:
                lost = struct.unpack_from("d", shared, HEAD + 8 * found)[0]
                losses.append(died - lost if found < offered else 0.0)
    return losses or [0.0]


def write(url: str, round_: int, pause: float, shared: mmap.mmap) -> None:
    """Offer entries until killed; what is offered and confirmed stands in `shared`."""
    confirmed = 0

    def count(outcome: str, n: int) -> None:
        nonlocal confirmed
        if outcome == "written":
            confirmed += n
            struct.pack_into("q", shared, 8, confirmed)

    try:
        writer = Journal(JournalStore(url), count=count)
        for i in range(MAX_ENTRIES):
            struct.pack_into("d", shared, HEAD + 8 * i, time.monotonic())
            entry = numbered(round_, i)
            while not writer.offer(entry):
                time.sleep(0.01)
            struct.pack_into("q", shared, 0, i + 1)
            time.sleep(pause)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def numbered(round_: int, i: int) -> Entry:
    """An entry that tells its place, with texts that tell whether they are whole."""
    text = f"{round_} {i} " * (1 + i % 200)
    return {
        **TEMPLATE,
        "entry_id": f"{round_:08}{i:016}",
        "answer_id": f"{round_}-{i}",
        "question": text,
        "passages": f"{zlib.crc32(text.encode())}",
        "model": f"{round_}",
    }


TEMPLATE = make_entry()


def survivors(url: str, round_: int) -> int:
    """How many entries of a round are there: the first ones, each whole."""
    c = JOURNAL.c
    chosen = select(c.answer_id, c.question, c.passages).where(c.model == f"{round_}")
    with JournalStore(url) as store:
        rows = store.rows(chosen.order_by(c.entry_id))
    for i, row in enumerate(rows):
        assert row["answer_id"] == f"{round_}-{i}", f"entry {i} is missing"
        assert int(row["passages"]) == zlib.crc32(row["question"].encode()), f"{i} is half"
    return len(rows)


def check_file(path: Path) -> None:
    """SQLite's own check of the file."""
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


if __name__ == "__main__":
    sys.exit(main())
