"""The score cache: what is put comes back to the bit; old ones go; a broken file is no disaster."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.inference import score_cache
from rerank.inference.score_cache import ScoreCache

SCORES = st.dictionaries(
    st.binary(min_size=16, max_size=16),
    st.tuples(st.floats(allow_nan=False), st.booleans()),
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


def test_a_broken_file_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is no database is told of, read as empty, and written anew."""
    cache = ScoreCache(tmp_path / "scores.sqlite")
    content = b"no database, but long enough to be taken for one" * 99
    cache.path.write_bytes(content)
    assert cache.get([b"k" * 16]) == {}
    assert "starting an empty one" in caplog.text
    cache.path.write_bytes(content)
    cache.put({b"k" * 16: (1.5, True)})
    assert cache.get([b"k" * 16]) == {b"k" * 16: (1.5, True)}


def test_what_another_process_holds_is_waited_for_and_not_destroyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that stays locked is an error that names it; what it holds stays."""
    cache = ScoreCache(tmp_path / "scores.sqlite")
    cache.put({b"k" * 16: (1.5, True)})
    monkeypatch.setattr(score_cache, "WAIT", 0.05)
    other = sqlite3.connect(cache.path)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(OSError, match=r"scores\.sqlite.*locked"):
        cache.put({b"l" * 16: (0.5, False)})
    other.rollback()
    other.close()
    assert set(cache.get([b"k" * 16, b"l" * 16])) == {b"k" * 16}


def test_threads_share_one_file(tmp_path: Path) -> None:
    """Eight writers at once lose nothing."""
    cache = ScoreCache(tmp_path / "scores.sqlite")
    keys = [k.to_bytes(16, "big") for k in range(64)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda k: cache.put({k: (float(k[-1]), False)}), keys))
    assert cache.get(keys) == {k: (float(k[-1]), False) for k in keys}
