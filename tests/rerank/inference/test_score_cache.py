"""The score cache: what is put comes back to the bit; old ones go; a broken file is no disaster."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.inference import score_cache
from rerank.inference.score_cache import ScoreCache

SCORES = st.dictionaries(
    st.binary(min_size=16, max_size=16),
    st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.booleans()),
    max_size=20,
)


@settings(max_examples=40, deadline=None)
@given(first=SCORES, second=SCORES)
def test_the_last_score_of_a_key_comes_back(
    tmp_path_factory: pytest.TempPathFactory, first: dict, second: dict
) -> None:
    """Two puts are read as one dict after the other; keys never put are not there."""
    cache = ScoreCache(tmp_path_factory.mktemp("cache") / "scores.sqlite")
    cache.put(first)
    cache.put(second)
    assert cache.get([*first, *second, b"another"]) == first | second


def test_more_keys_than_one_query_takes(tmp_path: Path) -> None:
    """Thousands of keys are asked for in parts."""
    scores = {k.to_bytes(16, "big"): (k / 7, k % 2 == 0) for k in range(3 * score_cache.ASKED + 1)}
    cache = ScoreCache(tmp_path / "scores.sqlite")
    cache.put(scores)
    assert cache.get(list(scores)) == scores


def test_beyond_the_limit_the_oldest_go(tmp_path: Path) -> None:
    """Of six scores in a cache of four, the last four stay; one put again is young again."""
    cache = ScoreCache(tmp_path / "scores.sqlite", limit=4)
    keys = [bytes([k]) * 16 for k in range(6)]
    for key in keys[:4]:
        cache.put({key: (0.5, False)})
    cache.put({keys[0]: (0.5, True)})
    for key in keys[4:]:
        cache.put({key: (0.5, False)})
    assert set(cache.get(keys)) == {keys[0], keys[3], keys[4], keys[5]}


def _no_database(path: Path) -> None:
    path.write_bytes(b"no database, but long enough to be taken for one" * 99)


def _other_columns(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE scores (key TEXT, value REAL)")


def _other_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE thesis (chapter TEXT)")


def _older_columns(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TABLE scores (age INTEGER PRIMARY KEY, pair BLOB NOT NULL UNIQUE, "
            "logit REAL NOT NULL, cut INTEGER NOT NULL)"
        )


def _trigger(path: Path) -> None:
    ScoreCache(path).put({})
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TRIGGER turned AFTER INSERT ON scores BEGIN "
            "UPDATE scores SET logit = -logit WHERE age = new.age; END"
        )


NO_CACHES = [_no_database, _other_columns, _older_columns, _other_table, _trigger]


@pytest.mark.parametrize("make", NO_CACHES)
@pytest.mark.parametrize("read_first", [True, False])
def test_a_file_that_is_no_cache_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], None], read_first: bool
) -> None:
    """It is told of, kept under another name, and an empty cache begun."""
    cache = ScoreCache(tmp_path / "scores.sqlite")
    make(cache.path)
    content = cache.path.read_bytes()
    if read_first:
        assert cache.get([b"k" * 16]) == {}
    cache.put({b"k" * 16: (1.5, True)})
    assert cache.get([b"k" * 16]) == {b"k" * 16: (1.5, True)}
    assert (tmp_path / "scores.sqlite.aside").read_bytes() == content
    assert caplog.text.count("is not a cache of scores") == 1


def test_an_earlier_file_that_was_set_aside_stays(tmp_path: Path) -> None:
    """The second has a number, the third the next one."""
    for content in (b"one" * 999, b"two" * 999, b"three" * 999):
        (tmp_path / "scores.sqlite").write_bytes(content)
        assert ScoreCache(tmp_path / "scores.sqlite").get([b"k" * 16]) == {}
    endings = ("aside", "aside-2", "aside-3")
    kept = [(tmp_path / f"scores.sqlite.{ending}").read_bytes()[:3] for ending in endings]
    assert kept == [b"one", b"two", b"thr"]


def test_a_database_that_is_set_aside_is_whole(tmp_path: Path) -> None:
    """What another program has written, and SQLite still keeps beside the file, goes with it."""
    cache = ScoreCache(tmp_path / "scores.sqlite")
    with closing(sqlite3.connect(cache.path)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        with other:
            other.execute("CREATE TABLE thesis (chapter TEXT)")
            other.execute("INSERT INTO thesis VALUES ('ten years of work')")
        cache.put({b"k" * 16: (1.5, True)})
        with closing(sqlite3.connect(tmp_path / "scores.sqlite.aside")) as aside:
            assert aside.execute("SELECT chapter FROM thesis").fetchall() == [
                ("ten years of work",)
            ]
    assert cache.get([b"k" * 16]) == {b"k" * 16: (1.5, True)}


@pytest.mark.parametrize("make", NO_CACHES)
def test_what_cannot_be_set_aside_is_left_alone(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
) -> None:
    """The run goes on without a cache, and one line says so and nothing else."""
    cache = ScoreCache(tmp_path / "scores.sqlite")
    make(cache.path)
    content = cache.path.read_bytes()

    def closed(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", closed)
    assert cache.get([b"k" * 16]) == {}
    cache.put({b"k" * 16: (1.5, True)})
    assert cache.get([b"k" * 16]) == {}
    assert cache.path.read_bytes() == content
    (line,) = caplog.messages
    assert "scores.sqlite is not used, scores are computed anew: it is not a cache" in line
    assert line.endswith("and cannot be set aside: [Errno 13] Permission denied")


@pytest.mark.parametrize(
    "change",
    [
        "logit = -logit",
        "logit = logit + 1e-15",
        "logit = 9e999",
        "logit = 'one and a half'",
        "logit = CAST(x'ff' AS TEXT)",
        "logit = x'3ff8000000000000'",
        "cut = 0",
        "cut = 2",
        "cut = 'yes'",
        "digest = x'00'",
        "digest = 7",
        "digest = (SELECT digest FROM scores WHERE age = 2)",
    ],
)
def test_a_score_that_was_changed_on_the_disk_counts_as_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    """It is told of once a reading, the others are read, and what is stored anew is read again."""
    cache = ScoreCache(tmp_path / "scores.sqlite")
    scores = {b"k" * 16: (1.5, True), b"l" * 16: (-0.5, False), b"m" * 16: (-0.0, True)}
    cache.put(scores)
    with closing(sqlite3.connect(cache.path)) as db, db:
        db.execute(f"UPDATE scores SET {change} WHERE age = 1")
    assert cache.get(list(scores)) == {key: scores[key] for key in (b"l" * 16, b"m" * 16)}
    assert caplog.messages == [f"{cache.path}: 1 scores are damaged, and are computed anew"]
    cache.put({b"k" * 16: (1.5, True)})
    assert cache.get(list(scores)) == scores
    assert len(caplog.messages) == 1


def _link(path: Path) -> None:
    _other_table(path.with_name("of others"))
    path.symlink_to("of others")


def _lost_link(path: Path) -> None:
    path.symlink_to("nothing")


def _folder(path: Path) -> None:
    path.mkdir()


def _another_users(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    ScoreCache(path).put({})
    os.chown(path, 12345, -1)


@pytest.mark.parametrize("make", [_link, _lost_link, _folder, _another_users])
def test_without_a_file_of_its_own_nothing_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], None]
) -> None:
    """It is told of once, nothing is written, and scoring goes on."""
    cache = ScoreCache(tmp_path / "scores.sqlite")
    make(cache.path)
    before = sorted(os.listdir(tmp_path))
    cache.put({b"k" * 16: (1.5, True)})
    assert cache.get([b"k" * 16]) == {}
    assert caplog.text.count("is not used, scores are computed anew") == 1
    assert sorted(os.listdir(tmp_path)) == before


def test_the_file_is_its_users_alone(tmp_path: Path) -> None:
    """Nobody else reads or writes it."""
    cache = ScoreCache(tmp_path / "scores.sqlite")
    cache.put({b"k" * 16: (1.5, True)})
    assert cache.path.stat().st_mode & 0o777 == 0o600


def test_what_another_process_holds_is_waited_for_and_not_destroyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that stays locked is told of, and not waited for again; what it holds stays."""
    cache = ScoreCache(tmp_path / "scores.sqlite")
    cache.put({b"k" * 16: (1.5, True)})
    monkeypatch.setattr(score_cache, "WAIT", 0.05)
    other = sqlite3.connect(cache.path)
    other.execute("BEGIN EXCLUSIVE")
    cache.put({b"l" * 16: (0.5, False)})
    assert "scores.sqlite is not used, scores are computed anew: database is locked" in caplog.text
    other.rollback()
    other.close()
    assert cache.get([b"k" * 16]) == {}
    assert set(ScoreCache(cache.path).get([b"k" * 16, b"l" * 16])) == {b"k" * 16}


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours of scores should not be lost without a word, so the run stops."""
    cache = ScoreCache(tmp_path / "scores.sqlite")
    cache.put({b"k" * 16: (1.5, True)})
    real = sqlite3.connect

    def small(path: Path, timeout: float) -> sqlite3.Connection:
        db = real(path, timeout=timeout)
        db.execute("PRAGMA max_page_count = 4")
        return db

    monkeypatch.setattr(sqlite3, "connect", small)
    with pytest.raises(OSError, match="database or disk is full") as caught:
        cache.put({k.to_bytes(16, "big"): (0.5, True) for k in range(999)})
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(cache.path))


def test_threads_share_one_file(tmp_path: Path) -> None:
    """Eight writers at once lose nothing."""
    cache = ScoreCache(tmp_path / "scores.sqlite")
    keys = [k.to_bytes(16, "big") for k in range(64)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda k: cache.put({k: (float(k[-1]), False)}), keys))
    assert cache.get(keys) == {k: (float(k[-1]), False) for k in keys}
