"""The mean of fine-tuned cross-encoders: its weights, what it names, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import refused
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_torch
from safetensors.torch import save_file as save_torch

from rerank.cli import main
from rerank.errors import FolderError, InputError
from rerank.inference.cross_encoder import CrossEncoder
from rerank.inference.model_files import BUNDLED, resolve, trained_on, training
from rerank.jobs.average import average

Maker = Callable[..., Path]
FROZEN = "bert.embeddings.word_embeddings.weight"


@pytest.fixture
def two(other_reranker: Maker) -> list[str]:
    """Two cross-encoders with the same word embeddings, as fine-tuning leaves them."""
    folders = [other_reranker(), other_reranker()]
    weights = [load_file(folder / "model.safetensors") for folder in folders]
    weights[1][FROZEN] = weights[0][FROZEN]
    save_file(weights[1], folders[1] / "model.safetensors", metadata={"format": "pt"})
    for number, folder in enumerate(folders):
        (folder / "trained_on.txt").write_text(f"both\nonly{number}\n", encoding="utf-8")
    return [str(folder) for folder in folders]


def test_each_weight_is_the_mean(two: list[str], tmp_path: Path) -> None:
    """Named twice, a model counts twice; what is frozen stays to the bit; the result scores."""
    out = average([two[0], two[1], two[1]], tmp_path / "mean")
    a, b, found = (load_file(Path(f) / "model.safetensors") for f in (*two, out))
    for name, tensor in found.items():
        np.testing.assert_allclose(tensor, (a[name] + 2 * b[name]) / 3, rtol=1e-5, atol=1e-7)
    assert np.array_equal(found[FROZEN], a[FROZEN])
    (logit,) = CrossEncoder(resolve(str(out)), max_length=32).score([("a", "b")])[0]
    assert np.isfinite(logit)


def test_it_names_its_models_and_their_queries(two: list[str], tmp_path: Path) -> None:
    """`calibrate` leaves out what any of them was trained on."""
    files = resolve(str(average(two, tmp_path / "mean")))
    assert trained_on(files) == {"both", "only0", "only1"}
    named = (training(files) or {})["mean_of"]
    assert [one["fingerprint"] for one in named] == [resolve(name).fingerprint for name in two]
    assert str(tmp_path) not in json.dumps(named)


def test_models_that_do_not_fit_are_refused(
    two: list[str], other_reranker: Maker, tmp_path: Path
) -> None:
    """One model, another family, broken weights, a folder that exists."""
    with pytest.raises(InputError, match="at least 2 models to average, got 1"):
        average(two[:1], tmp_path / "mean")
    with pytest.raises(InputError, match="another configuration"):
        average([two[0], str(other_reranker(family="roberta"))], tmp_path / "mean")
    with pytest.raises(InputError, match="minilm is not a cross-encoder"):
        average(["minilm", "minilm"], tmp_path / "mean")
    made = average(two, tmp_path / "mean")
    with pytest.raises(FolderError, match="--overwrite"):
        average(two, made)
    tensors = load_torch(Path(two[1]) / "model.safetensors")
    halved = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    save_torch(halved, Path(two[1]) / "model.safetensors")
    with pytest.raises(InputError, match=r"cannot be read .*bfloat16"):
        average(two, tmp_path / "other")
    (Path(two[1]) / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match="cannot be read"):
        average(two, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_mean_with_the_bundled_model_is_packed(tmp_path: Path) -> None:
    """The command packs it; packed weights name both models and unpack to nearly the same."""
    packed = tmp_path / "packed"
    given = ("average", "minilm-reranker", "minilm-reranker", "--out", str(tmp_path / "mean"))
    assert main([*given, "--pack", str(packed)]) == 0
    manifest = json.loads((packed / "manifest.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in manifest["training"]["mean_of"]] == ["minilm-reranker"] * 2
    own = json.loads((BUNDLED / "minilm-reranker" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["weights_sha256"] == own["weights_sha256"]


def test_the_command_refuses_an_unknown_model(
    two: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and the names that there are."""
    message = refused(capsys, "average", two[0], "no-such-model", "--out", tmp_path / "mean")
    assert "minilm-reranker" in message
