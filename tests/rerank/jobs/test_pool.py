"""Pooled maps: which sets are refused before any of them is ranked."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.jobs.pool import licence_of, pool_sets


def test_too_few_sets_are_refused_before_the_work(tmp_path: Path) -> None:
    """By their number, before one is looked for."""
    with pytest.raises(InputError, match=r"at least 4 labelled sets.*got 3"):
        pool_sets([tmp_path / name for name in "abc"], tmp_path / "maps.json")


def test_two_sets_of_one_name_are_refused(tmp_path: Path) -> None:
    """Sets are told apart by their names: one would replace the other."""
    folders = [*(tmp_path / name for name in "abcde"), tmp_path / "other" / "c"]
    with pytest.raises(InputError, match="2 labelled sets are named 'c'"):
        pool_sets(folders, tmp_path / "maps.json")


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    """A folder in its place, or no folder to put it into, is said before a set is read."""
    folders = [tmp_path / name for name in "abcde"]
    with pytest.raises(InputError, match="is a folder"):
        pool_sets(folders, tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        pool_sets(folders, tmp_path / "none" / "maps.json")


def test_every_set_is_read_before_one_is_ranked(small: LabelledSet, tmp_path: Path) -> None:
    """A misspelt last folder does not cost the ranking of the first ones."""
    folders = [tmp_path / name for name in "abcd"]
    for folder in folders:
        small.write(folder)
    with pytest.raises(InputError, match="no such folder"):
        pool_sets([*folders, tmp_path / "e"], tmp_path / "maps.json", work=tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_a_licence_is_read_from_any_readme(tmp_path: Path) -> None:
    """In whatever encoding its author wrote."""
    (tmp_path / "README.md").write_bytes("Autor: Jos\u00e9\nLicence: MIT\n".encode("latin-1"))
    assert licence_of(tmp_path) == "MIT"
