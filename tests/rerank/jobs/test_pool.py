"""Pooled maps: which sets are refused before any of them is ranked."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerank.errors import InputError
from rerank.jobs.pool import pool_sets


def test_each_set_is_measured_by_maps_of_the_others(tmp_path: Path) -> None:
    """So one more is needed than a fit takes."""
    with pytest.raises(InputError, match=r"at least 5 labelled sets.*got 4"):
        pool_sets([tmp_path / name for name in "abcd"], tmp_path / "maps.json")


def test_two_sets_of_one_name_are_refused(tmp_path: Path) -> None:
    """Sets are told apart by their names: one would replace the other."""
    folders = [*(tmp_path / name for name in "abcde"), tmp_path / "other" / "c"]
    with pytest.raises(InputError, match="2 labelled sets are named 'c'"):
        pool_sets(folders, tmp_path / "maps.json")
