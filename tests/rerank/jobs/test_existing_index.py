"""An index that the user names: taken if it is what the run would build, else refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rerank.config import Config
from rerank.data.labelled_set import corpus_digest
from rerank.errors import InputError
from rerank.inference.model_files import resolve
from rerank.jobs.pipelines import existing_index
from rerank.retrieval.dense import Encoder
from rerank.retrieval.index import build_index
from rerank.storage.folder import write_folder
from rerank.types import Passage

PASSAGES = [
    Passage("a", "median", "The middle value.", {"library": "numpy"}),
    Passage("b", "", "The mean, of all values."),
]
CONFIG = Config(encoder_max_length=32)
ENCODER = Encoder.from_config(resolve("minilm"), CONFIG)
DIGEST = corpus_digest(PASSAGES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of two passages."""
    return build_index(PASSAGES, tmp_path_factory.mktemp("indexes") / "two", ENCODER).folder


def test_the_index_of_this_corpus_is_taken(folder: Path) -> None:
    """In whatever order the corpus lists its passages."""
    index = existing_index(folder, corpus_digest(PASSAGES[::-1]), ENCODER, CONFIG)
    assert [p.doc_id for p in index.corpus] == ["a", "b"]


@pytest.mark.parametrize(
    ("changes", "passages", "named"),
    [
        ({"language": "german"}, PASSAGES, "--language english instead of german"),
        ({"dense": "approximate"}, PASSAGES, "--dense exact instead of approximate"),
        ({"encoder_max_length": 64}, PASSAGES, "--encoder-max-length 32 instead of 64"),
        ({"encoder_windows": 2}, PASSAGES, "--encoder-windows 1 instead of 2"),
        ({}, PASSAGES[:1], "another corpus"),
        ({}, [replace(PASSAGES[0], text="Another."), PASSAGES[1]], "another corpus"),
        ({}, [replace(PASSAGES[0], metadata={}), PASSAGES[1]], "another corpus"),
    ],
)
def test_an_index_of_something_else_is_refused(
    folder: Path, changes: dict[str, Any], passages: list[Passage], named: str
) -> None:
    """The sentence names what differs, and nothing else."""
    config = replace(CONFIG, **changes)
    encoder = Encoder.from_config(ENCODER.model, config)
    with pytest.raises(InputError, match=f"has {named};"):
        existing_index(folder, corpus_digest(passages), encoder, config)


def test_what_is_no_index_is_refused(folder: Path, tmp_path: Path) -> None:
    """No folder, a folder of another kind, a damaged index."""
    write_folder(tmp_path / "other", lambda _: {}, kind="a calibrated model")
    for place, reason in (("nowhere", "no manifest"), ("other", "is not an index")):
        with pytest.raises(InputError, match=f"--index: .*{reason}"):
            existing_index(tmp_path / place, DIGEST, ENCODER, CONFIG)
    damaged = build_index(PASSAGES, tmp_path / "damaged", ENCODER).folder
    (damaged / "terms.txt").write_text("other\n")
    with pytest.raises(InputError, match=r"--index: .*terms\.txt"):
        existing_index(damaged, DIGEST, ENCODER, CONFIG)
