"""A trained model packed to int8: close scores, and no other folder is overwritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from finetuning import LAST, Trained

from rerank.cli import main
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.inference.model_files import resolve, trained_on, training
from rerank.inference.small_weights import pack_finetuned
from rerank.training.finetune import finetune
from rerank.training.mining import TrainingSet


@pytest.fixture(scope="module")
def trained(ten: LabelledSet, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Two training steps from the bundled body, whose word embeddings packed weights refer to."""
    work = tmp_path_factory.mktemp("packed")
    made = finetune([TrainingSet(ten)], work / "models" / "ten", LAST, work=work)
    return Trained(made.folder, made.report, work)


def test_the_trained_model_and_its_packed_form_score_alike(
    trained: Trained, ten: LabelledSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed to int8 and unpacked under a bundled name, logits stay within 0.1."""
    import torch
    from sentence_transformers import CrossEncoder as Oracle

    monkeypatch.setattr("rerank.inference.model_files.BUNDLED", tmp_path)
    pack_finetuned(trained.folder, tmp_path / "tiny-reranker", base=resolve("minilm").folder)
    manifest = json.loads((tmp_path / "tiny-reranker/manifest.json").read_text())
    assert manifest["training"]["sets"][0]["digest"] == ten.digest()
    packed = resolve("tiny-reranker")
    assert training(packed) == manifest["training"]
    assert trained_on(packed) == trained_on(resolve(str(trained.folder)))
    pairs = [
        (q.text, p.full_text)
        for q, p in zip(ten.queries.values(), ten.corpus.values(), strict=False)
    ]
    whole, small_logits = (
        Oracle(str(folder), device="cpu").predict(pairs, activation_fn=torch.nn.Identity())
        for folder in (trained.folder, packed.folder)
    )
    np.testing.assert_allclose(small_logits, whole, rtol=0, atol=0.1)
    assert not np.array_equal(small_logits, whole)


def test_other_word_embeddings_are_refused_before_any_work(
    other_reranker: Callable[..., Path],
    small_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`--pack` of what is trained from such a base would fail at the end."""
    out = tmp_path / "out"
    asked = ["--base", str(other_reranker()), "--pack", str(tmp_path / "packed"), "--out", str(out)]
    assert main(["train", "cross-encoder", str(small_folder), *asked]) == 2
    assert "its word embeddings are not those of minilm" in capsys.readouterr().err
    assert not out.exists()


def test_weights_are_packed_over_packed_weights_alone(trained: Trained, tmp_path: Path) -> None:
    """Any other folder that holds something stays as it is."""
    other = tmp_path / "set"
    other.mkdir()
    (other / "manifest.json").write_text('{"name": "a labelled set"}')
    for taken in (other, trained.folder):
        before = (taken / "manifest.json").read_bytes()
        with pytest.raises(InputError, match="not a folder of packed weights"):
            pack_finetuned(trained.folder, taken, base=resolve("minilm").folder)
        assert (taken / "manifest.json").read_bytes() == before
    for _ in range(2):
        pack_finetuned(trained.folder, tmp_path / "packed", base=resolve("minilm").folder)
