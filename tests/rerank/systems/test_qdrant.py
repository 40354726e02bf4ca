"""`rerank.systems.qdrant`: the sparse query, and a server that is not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rerank.errors import InputError, RetrieverError
from rerank.systems.settings import RetrieverSettings, connect

pytest.importorskip("mmh3")
pytest.importorskip("qdrant_client")

SETTINGS = RetrieverSettings("qdrant", "http://127.0.0.1:9", "c", keyword=("bm25",), timeout=2)


def test_the_sparse_query_is_that_of_fastembed() -> None:
    """The numbers are of fastembed 0.9.1, `Bm25("Qdrant/bm25").query_embed`."""
    from rerank.systems.qdrant import bm25_indices

    assert bm25_indices("Median ignoring NaNs!", language="english") == [
        *(605416826, 1463597126, 2118021738)
    ]
    stop_word = 1132748958  # of "the", which fastembed leaves out
    found = bm25_indices(
        "running the cats' e-mails, na\u00efve fa\u00e7ade_x 3.14", language="english"
    )
    assert [i for i in found if i != stop_word] == [
        116628897,
        243905464,
        264741300,
        756638508,
        1132315169,
        1701593959,
        1749031367,
        1751422759,
    ]


def test_a_server_that_is_not_there() -> None:
    """One sentence with its address."""
    with pytest.raises(RetrieverError, match=r"qdrant at http://127\.0\.0\.1:9.*refused"):
        connect(SETTINGS).keyword("word", 1)


def test_two_sparse_vectors_are_one_too_many() -> None:
    """Scores of two would need to be merged."""
    with pytest.raises(InputError, match="one sparse vector"):
        connect(replace(SETTINGS, keyword=("a", "b")))


def test_a_folder_has_one_client(tmp_path: Path) -> None:
    """It is locked: a second model of the same process shares the client."""
    from rerank.systems.qdrant import open_folder

    assert open_folder(str(tmp_path)) is open_folder(str(tmp_path))
