"""Packed weights: within half a step of the matrix, and refused when a byte is changed."""

from __future__ import annotations

import errno
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from rerank.errors import InputError
from rerank.inference.model_files import BUNDLED, resolve
from rerank.inference.small_weights import (
    CLASSIFIER,
    EMBEDDINGS,
    SCALE,
    pack,
    quantise,
    unpack,
)

BUNDLED_RERANKER = BUNDLED / "minilm-reranker"
MATRICES = arrays(
    np.float32,
    array_shapes(min_dims=2, max_dims=2, max_side=5),
    elements=st.floats(-1e4, 1e4, width=32),
)


@settings(max_examples=100, deadline=None)
@given(matrix=MATRICES)
def test_every_value_is_within_half_a_step(matrix: np.ndarray) -> None:
    """Each row's error is at most half of its largest value over 127."""
    values, scale = quantise(matrix)
    assert values.dtype == np.int8
    assert scale.shape == (len(matrix), 1)
    step = np.abs(matrix).max(axis=1, keepdims=True) / 127
    error = np.abs(values.astype(np.float64) * scale - matrix)
    assert (error <= step * 0.5 * (1 + 1e-4) + 1e-12).all()


def test_one_row_by_hand() -> None:
    """A row of 127, -63.4, 0 has step 1; a row of zeros stays zeros."""
    values, scale = quantise(np.array([[127.0, -63.4, 0.0], [0.0, 0.0, 0.0]], dtype=np.float32))
    assert values.tolist() == [[127, -63, 0], [0, 0, 0]]
    assert scale[0, 0] == 1.0


def test_the_bundled_manifest_says_how_they_came_to_be() -> None:
    """Licence, command, seed, sets, versions, and what was measured on each set of the card."""
    manifest = json.loads((BUNDLED_RERANKER / "manifest.json").read_text())
    assert manifest["licence"] == "Apache-2.0"
    assert manifest["command"].startswith("make weights")
    training = manifest["training"]
    assert training["config"]["seed"] == 7
    assert training["base_training"]["config"]["seed"] == 11
    assert all(s["digest"] and s["examples"] for s in training["sets"])
    assert set(training["packages"]) >= {"torch", "sentence-transformers"}
    card = (BUNDLED_RERANKER / "README.md").read_text()
    assert manifest["figures"]
    for name, row in manifest["figures"].items():
        measured = {
            order: float(row[f"{order}: hit@1 / MRR@10 / nDCG@10"].split(" / ")[-1])
            for order in ("BM25", "fused")
        }
        better = max(measured, key=lambda order: measured[order])
        gains = [row[f"nDCG@10, {order} less {better}"] for order in ("logit", "relevance")]
        gains = [gain.partition(", too few")[0].replace("0.", ".") for gain in gains]
        told = [line for line in card.splitlines() if line.startswith(f"| {name}")]
        assert any(all(f"({gain})" in line for gain in gains) for line in told), (name, gains)


def test_the_bundled_weights_unpack_to_what_is_packed() -> None:
    """Matrices are int8 times scale, vectors as packed, embeddings the base model's."""
    from safetensors.numpy import load_file

    found = load_file(resolve("minilm-reranker").folder / "model.safetensors")
    packed = load_file(BUNDLED_RERANKER / "weights.safetensors")
    base = load_file(resolve("minilm").folder / "model.safetensors")
    np.testing.assert_array_equal(found[CLASSIFIER + EMBEDDINGS], base[EMBEDDINGS])
    names = [n for n in packed if not n.endswith(SCALE)]
    assert set(found) == {*names, CLASSIFIER + EMBEDDINGS}
    for name in names:
        expected = packed[name].astype(np.float32) * packed.get(name + SCALE, np.float32(1))
        np.testing.assert_array_equal(found[name], expected)


def test_the_bundled_weights_are_small_and_as_the_manifest_says() -> None:
    """What is committed stays under 25 MB and has the manifest's sha256."""
    import hashlib

    weights = (BUNDLED_RERANKER / "weights.safetensors").read_bytes()
    manifest = json.loads((BUNDLED_RERANKER / "manifest.json").read_text())
    assert hashlib.sha256(weights).hexdigest() == manifest["weights_sha256"]
    assert len(weights) < 25e6


def test_packing_again_changes_nothing(tmp_path: Path) -> None:
    """An unpacked model, packed and unpacked again, has the very same weights.

    Where packed weights are replaced, their manifest keeps what a person wrote, and no figures.
    """
    from safetensors.numpy import load_file

    folder = resolve("minilm-reranker").folder
    base = resolve("minilm").folder
    pack(folder, tmp_path / "packed", {"name": "again", "training": {}}, base=base)
    packed = Path(shutil.copytree(BUNDLED_RERANKER, tmp_path / "older"))
    pack(folder, packed, {"name": "again", "training": {}}, base=base)
    assert set(json.loads((packed / "manifest.json").read_text())) == {
        *("name", "licence", "command", "training", "weights_sha256")
    }
    again = unpack(tmp_path / "packed", base=base, cache=tmp_path / "cache")
    one, other = (load_file(f / "model.safetensors") for f in (folder, again))
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        np.testing.assert_allclose(other[name], tensor, rtol=1e-6, atol=1e-9)


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    """One other byte in the packed file, and nothing is unpacked."""
    packed = Path(shutil.copytree(BUNDLED_RERANKER, tmp_path / "packed"))
    content = bytearray((packed / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (packed / "weights.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="weights have sha256"):
        unpack(packed, base=resolve("minilm").folder, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache").iterdir())


def test_unpacking_is_done_once(tmp_path: Path) -> None:
    """A second call gives the folder that is there."""
    base, cache = resolve("minilm").folder, tmp_path / "cache"
    one = unpack(BUNDLED_RERANKER, base=base, cache=cache)
    before = (one / "model.safetensors").stat().st_mtime_ns
    assert unpack(BUNDLED_RERANKER, base=base, cache=cache) == one
    assert (one / "model.safetensors").stat().st_mtime_ns == before
    assert list(cache.iterdir()) == [one.parent]


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "extra"])
def test_an_unpacked_file_that_is_changed_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """One other byte, or a file more: the folder is told of, and unpacked anew."""
    base, cache = resolve("minilm").folder, tmp_path / "cache"
    folder = unpack(BUNDLED_RERANKER, base=base, cache=cache)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    with (folder / name).open("ab") as file:
        file.write(b" ")
    assert unpack(BUNDLED_RERANKER, base=base, cache=cache) == folder
    assert f"is made again: model/{name} is changed" in caplog.text
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


@pytest.mark.parametrize("what", ["file", "link", "link to nothing", "link to a file"])
def test_what_is_no_folder_gives_way_to_the_unpacked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """It is told of and removed, but not what a link points to."""
    base, cache, target = resolve("minilm").folder, tmp_path / "cache", tmp_path / "target"
    home = unpack(BUNDLED_RERANKER, base=base, cache=cache).parent
    shutil.rmtree(home)
    kept = target / "thesis" if what == "link" else target
    if what != "link to nothing":
        kept.parent.mkdir(exist_ok=True)
        kept.write_text("ten years of work")
    if what == "file":
        kept.rename(home)
    else:
        home.symlink_to(target)
    assert unpack(BUNDLED_RERANKER, base=base, cache=cache) == home / "model"
    assert not home.is_symlink()
    assert caplog.messages == [f"{home} is made again: {home} has no manifest.json"]
    assert kept.exists() is (what in ("link", "link to a file"))
    assert list(cache.iterdir()) == [home]


def test_what_cannot_be_removed_is_to_be_removed_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence names the folder, and why it stays."""
    base, cache = resolve("minilm").folder, tmp_path / "cache"
    home = unpack(BUNDLED_RERANKER, base=base, cache=cache).parent
    (home / "model" / "config.json").write_text("changed")

    def stays(_: Path, *, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", stays)
    expected = (
        f"{home} is not usable and cannot be removed ([Errno 13] Permission denied): "
        "remove it by hand, then try again"
    )
    with pytest.raises(OSError, match=re.escape(expected)):
        unpack(BUNDLED_RERANKER, base=base, cache=cache)


def test_other_word_embeddings_cannot_be_packed(tmp_path: Path) -> None:
    """Packing leaves the word embeddings to minilm, so a model with its own is refused."""
    from safetensors.numpy import load_file, save_file

    folder = Path(shutil.copytree(resolve("minilm-reranker").folder, tmp_path / "model"))
    tensors, name = load_file(folder / "model.safetensors"), CLASSIFIER + EMBEDDINGS
    tensors[name] = tensors[name] + np.float32(1e-3)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(InputError, match="word embeddings are not those of minilm"):
        pack(folder, tmp_path / "packed", {}, base=resolve("minilm").folder)
    assert not (tmp_path / "packed").exists()


def test_a_corrected_list_of_trained_queries_is_taken_up(tmp_path: Path) -> None:
    """The same weights with another `trained_on.txt` are unpacked anew."""
    base, cache = resolve("minilm").folder, tmp_path / "cache"
    packed = Path(shutil.copytree(BUNDLED_RERANKER, tmp_path / "packed"))
    before = unpack(packed, base=base, cache=cache)
    (packed / "trained_on.txt").write_text("0123456789abcdef\n")
    after = unpack(packed, base=base, cache=cache)
    assert after != before
    assert (after / "trained_on.txt").read_text() == "0123456789abcdef\n"
