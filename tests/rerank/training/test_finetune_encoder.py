"""The training job of the bi-encoder, on ten real queries: what it writes, keeps and refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finetuning import weights

from rerank.config import Config
from rerank.data.checks import query_hash
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.inference.model_files import resolve, trained_on, training
from rerank.inference.small_weights import pack_finetuned
from rerank.retrieval.dense import Encoder
from rerank.training.finetune import TrainingRun, finetune
from rerank.training.mining import TrainingSet
from rerank.training.settings import EncoderConfig

CHEAP = EncoderConfig(steps=2, batch=4, max_length=48, warmup=0.0, check_every=1, depth=10)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working folder of every run here."""
    return tmp_path_factory.mktemp("encoders")


@pytest.fixture(scope="module")
def cheap(body: str) -> EncoderConfig:
    """Two steps from the small body."""
    return replace(CHEAP, base=body)


@pytest.fixture(scope="module")
def made(cheap: EncoderConfig, ten: LabelledSet, kept: Path) -> TrainingRun:
    """Two training steps, half of which is kept."""
    return finetune([TrainingSet(ten)], kept / "half", cheap, work=kept)


def test_the_folder_is_a_bi_encoder_with_its_record(made: TrainingRun, ten: LabelledSet) -> None:
    """It encodes as sentence-transformers does, and says what it was trained on."""
    from sentence_transformers import SentenceTransformer

    texts = ["median along an axis", "draw a line"]
    found = Encoder(resolve(str(made.folder)), max_length=48).encode(texts)
    expected = SentenceTransformer(str(made.folder)).encode(texts)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    record = training(resolve(str(made.folder)))
    assert record is not None
    assert record["sets"][0]["digest"] == ten.digest()
    answered = {query_hash(ten.queries[i].text) for i in ten.splits["train"] if ten.relevant(i)}
    assert trained_on(resolve(str(made.folder))) == answered
    assert made.report["examples"] == len(answered)
    assert made.run is not None


def test_half_of_the_base_is_kept(
    made: TrainingRun, ten: LabelledSet, kept: Path, cheap: EncoderConfig
) -> None:
    """The weights lie halfway between the base's and those of a run that keeps nothing."""
    whole = finetune([TrainingSet(ten)], kept / "all", replace(cheap, keep=0.0), work=kept)
    base, half, trained = (
        weights(folder) for folder in (Path(cheap.base), made.folder, whole.folder)
    )
    moved = [n for n in half if not np.array_equal(half[n], base[n])]
    assert len(moved) > len(half) / 2
    assert "embeddings.word_embeddings.weight" not in moved
    for name in moved:
        np.testing.assert_allclose(half[name], (base[name] + trained[name]) / 2, atol=1e-5)


def test_packed_it_is_close_to_the_trained_one(
    ten: LabelledSet, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its vectors turn by less than 3 degrees."""
    once = replace(CHEAP, steps=1)  # from the bundled body, which packed weights refer to
    made = finetune([TrainingSet(ten)], kept / "bundled", once, work=kept)
    monkeypatch.setattr("rerank.inference.model_files.BUNDLED", tmp_path)
    pack_finetuned(made.folder, tmp_path / "tiny-encoder", base=resolve("minilm").folder)
    texts = ["median along an axis", "draw a line", "what does a kernel density estimate do"]
    one, other = (
        Encoder(resolve(name), max_length=48).encode(texts)
        for name in (str(made.folder), "tiny-encoder")
    )
    assert (one * other).sum(axis=1).min() > np.cos(np.radians(3))


def test_the_same_call_finds_the_model(
    made: TrainingRun, ten: LabelledSet, kept: Path, cheap: EncoderConfig
) -> None:
    """Nothing is trained again."""
    again = finetune([TrainingSet(ten)], made.folder, cheap, work=kept)
    assert not again.made
    assert again.report == json.loads(json.dumps(made.report))


def test_an_interrupted_run_goes_on_to_the_same_weights(
    made: TrainingRun,
    ten: LabelledSet,
    kept: Path,
    monkeypatch: pytest.MonkeyPatch,
    cheap: EncoderConfig,
) -> None:
    """Stopped after its first checkpoint, the second call ends where an unbroken one ends."""
    from rerank.training import trainer

    original = trainer.Progress.on_step_end

    def stopping(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        original(self, args, state, control)
        if state.global_step == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Progress, "on_step_end", stopping)
        with pytest.raises(KeyboardInterrupt):
            finetune([TrainingSet(ten)], kept / "stopped", cheap, work=kept)
    resumed = finetune([TrainingSet(ten)], kept / "stopped", cheap, work=kept)
    for name, tensor in weights(made.folder).items():
        np.testing.assert_allclose(weights(resumed.folder)[name], tensor, atol=1e-6)


def test_sets_without_an_answer_are_refused(ten: LabelledSet, tmp_path: Path) -> None:
    """A bi-encoder learns from right passages alone."""
    with pytest.raises(InputError, match="no labelled set"):
        finetune([], tmp_path / "m", CHEAP, work=tmp_path)
    unanswered = replace(ten, qrels={})
    with pytest.raises(InputError, match="has a right passage"):
        finetune([TrainingSet(unanswered)], tmp_path / "m", CHEAP, work=tmp_path)
    twice = [TrainingSet(ten), TrainingSet(ten)]
    with pytest.raises(InputError, match="2 sets are named 'ten'"):
        finetune(twice, tmp_path / "m", CHEAP, work=tmp_path)
    crossing, frozen = replace(CHEAP, base="minilm-reranker"), replace(CHEAP, frozen_layers=7)
    with pytest.raises(InputError, match="is a cross-encoder; expected a bi-encoder"):
        finetune([TrainingSet(ten)], tmp_path / "m", crossing, work=tmp_path)
    with pytest.raises(InputError, match="is a cross-encoder; expected a bi-encoder"):
        Encoder.from_config(resolve("minilm-reranker"), Config())
    with pytest.raises(InputError, match="has 6 layers, cannot freeze 7"):
        finetune([TrainingSet(ten)], tmp_path / "m", frozen, work=tmp_path)
    longer = replace(CHEAP, max_length=4096)
    with pytest.raises(InputError, match="reads 512 tokens at most"):
        finetune([TrainingSet(ten)], tmp_path / "m", longer, work=tmp_path)


def test_weights_behind_the_transformer_are_refused(tmp_path: Path) -> None:
    """Checkpoints do not hold them: after an interruption they would be the base's again."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense

    from rerank.training.trainer import train_encoder

    model = SentenceTransformer(str(resolve("minilm").folder))
    model.append(Dense(384, 8))
    model.save(str(tmp_path / "dense"))
    with pytest.raises(InputError, match="has weights behind its transformer"):
        train_encoder({}, resolve(str(tmp_path / "dense")), tmp_path / "checkpoints", CHEAP)
