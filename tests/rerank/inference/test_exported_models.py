"""Exported networks in a folder give the numbers of the weights that they were made of."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from rerank.config import Config, Precision
from rerank.errors import InputError
from rerank.inference import engine
from rerank.inference.cross_encoder import open_reranker
from rerank.inference.engine import (
    DATA,
    GRAPH,
    NETWORKS,
    is_exported_file,
    open_exported,
    write_exported,
)
from rerank.inference.model_cache import made_once
from rerank.inference.model_files import ModelFiles, resolve, trained_on
from rerank.inference.small_weights import TRAINED_ON
from rerank.retrieval.dense import Encoder, PassageText
from rerank.storage.files import files_below, sha256_file

PAIRS = [("median", "The middle of a sample."), ("sort", "Ordered. " * 40), ("mean", "")]


@pytest.fixture(scope="module")
def files(other_reranker: Callable[..., Path]) -> ModelFiles:
    """A small model, which serves as both, and says what it was trained on."""
    folder = other_reranker()
    (folder / TRAINED_ON).write_text("0123456789abcdef\n")
    return resolve(str(folder))


def opened(folder: Path, files: ModelFiles) -> Sequence[ModelFiles]:
    """The models in the folder, by a manifest such as a store writes."""
    entries = {
        name: {"sha256": sha256_file(path), "size": path.stat().st_size}
        for name, path in files_below(folder).items()
    }
    prints = {
        f"{role}{part}": value
        for role in ("encoder", "reranker")
        for part, value in (("", files.fingerprint), ("_tokenizer", files.tokenizer))
    }
    return open_exported(folder, {"files": entries, "fingerprints": prints}, ("one", "other"))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_networks_give_the_numbers_of_the_weights(
    files: ModelFiles, precision: Precision, tmp_path: Path
) -> None:
    """Logits, cuts and vectors, to the bit; and their fingerprints are those of the weights."""
    write_exported(tmp_path, (files, files), Config(precision=precision))
    assert all(map(is_exported_file, files_below(tmp_path)))
    encoder, reranker = opened(tmp_path, files)
    assert (encoder.fingerprint, reranker.tokenizer) == (files.fingerprint, files.tokenizer)
    assert trained_on(reranker) == trained_on(files) != frozenset()
    scores = [
        open_reranker(each, max_length=32, precision=precision).score(PAIRS)
        for each in (files, reranker)
    ]
    for here, there in zip(*scores, strict=True):
        np.testing.assert_array_equal(here, there)
    body = shutil.copytree(files.folder, tmp_path / "body")  # the same weights, as a bi-encoder
    config = json.loads((body / "config.json").read_text())
    (body / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    vectors = [
        Encoder(each, max_length=32).encode([t for p in PAIRS for t in p if t])
        for each in (resolve(str(body)), encoder)
    ]
    np.testing.assert_array_equal(*vectors)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_numbers_of_a_large_graph_are_in_a_file_of_their_own(
    files: ModelFiles, precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same scores to the bit, from the cache and from a folder; no other file is named."""
    expected = open_reranker(files, max_length=32, precision=precision).score(PAIRS)[0]
    monkeypatch.setattr(engine, "LARGEST", 1000)
    monkeypatch.setenv("RERANK_CACHE", str(tmp_path / "cache"))
    for _ in range(2):
        found = open_reranker(files, max_length=32, precision=precision).score(PAIRS)[0]
        np.testing.assert_array_equal(found, expected)
    (home,) = (tmp_path / "cache" / "models").glob(
        "cross*-int8" if precision == "int8" else "cross*[0-9a-f]"
    )
    assert {path.name for path in home.iterdir()} == {GRAPH, DATA, "manifest.json"}
    folder = tmp_path / "folder"
    write_exported(folder, (files, files), Config(precision=precision))
    _, reranker = opened(folder, files)
    found = open_reranker(reranker, max_length=32, precision=precision).score(PAIRS)[0]
    np.testing.assert_array_equal(found, expected)
    graph = folder / NETWORKS / "reranker" / GRAPH
    graph.write_bytes(graph.read_bytes().replace(DATA.encode(), b"../../secret/da"))
    with pytest.raises(InputError, match="data in a file that is not"):
        open_reranker(opened(folder, files)[1], max_length=32).score(PAIRS)


def test_a_large_graph_whose_numbers_are_too_few_is_refused(
    files: ModelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read beyond the end of what was checked."""
    monkeypatch.setattr(engine, "LARGEST", 1000)
    monkeypatch.setenv("RERANK_CACHE", str(tmp_path / "cache"))
    write_exported(tmp_path / "folder", (files, files), Config(precision="fp32"))
    data = tmp_path / "folder" / NETWORKS / "reranker" / DATA
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(InputError, match="does not run here"):
        open_reranker(opened(tmp_path / "folder", files)[1], max_length=32).score(PAIRS)


def test_what_cannot_be_opened_does_not_stay_in_the_cache(tmp_path: Path) -> None:
    """Gigabytes of it would, and each run would add to them."""

    def fill(folder: Path) -> dict[str, str]:
        (folder / GRAPH).write_bytes(b"no graph")
        return {}

    def fail(_: Path) -> None:
        raise ValueError("no graph")

    with pytest.raises(OSError, match="cannot be opened"):
        made_once(tmp_path / "home", fill, fail)
    assert not list(tmp_path.iterdir())


def test_a_folder_holds_the_prompts(files: ModelFiles, tmp_path: Path) -> None:
    """A deployed encoder puts them before its texts, without the weights."""
    from sentence_transformers import SentenceTransformer

    body = shutil.copytree(files.folder, tmp_path / "body")
    config = json.loads((body / "config.json").read_text())
    (body / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    model = SentenceTransformer(str(body), device="cpu")
    model.save_pretrained(str(tmp_path / "plain"))
    model.prompts = {"query": "query: ", "passage": "passage: "}
    model.save_pretrained(str(tmp_path / "prompted"))
    made, with_prompts = (resolve(str(tmp_path / name)) for name in ("plain", "prompted"))
    write_exported(tmp_path / "folder", (with_prompts, files), Config(precision="fp32"))
    encoder, _ = opened(tmp_path / "folder", with_prompts)
    texts = ["a text", PassageText("a text")]
    found, expected, without = (
        Encoder(each, max_length=32).encode(texts) for each in (encoder, with_prompts, made)
    )
    np.testing.assert_array_equal(found, expected)
    prompted = Encoder(made, max_length=32).encode(["query: a text", "passage: a text"])
    np.testing.assert_array_equal(found, prompted)
    assert (found != without).any(axis=1).all()


def test_bf16_is_not_exported(files: ModelFiles, tmp_path: Path) -> None:
    """The sentence says which precisions are."""
    with pytest.raises(InputError, match="expected fp32 or int8"):
        write_exported(tmp_path, (files, files), Config(precision="bf16"))


def test_a_graph_that_does_not_run_is_told(files: ModelFiles, tmp_path: Path) -> None:
    """A graph of ONNX that ONNX Runtime has no means to run: an operator that it does not know."""
    from onnx import helper

    write_exported(tmp_path, (files, files), Config(precision="fp32"))
    node = helper.make_node("EPContext", [], ["row"], domain="com.microsoft", embed_mode=0)
    made = helper.make_model(helper.make_graph([node], "graph", [], []))
    (tmp_path / NETWORKS / "reranker" / GRAPH).write_bytes(made.SerializeToString())
    _, reranker = opened(tmp_path, files)
    with pytest.raises(InputError, match="does not run here"):
        open_reranker(reranker, max_length=32).score(PAIRS)
