"""What training changes in the weights, and what it leaves as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finetuning import CHEAP, LAST, Trained, weights
from torch.nn import Identity

from rerank.data.checks import query_hash
from rerank.data.labelled_set import LabelledSet
from rerank.inference.cross_encoder import open_reranker
from rerank.inference.model_files import resolve, trained_on
from rerank.inference.small_weights import pack_finetuned, unpack
from rerank.training.finetune import finetune
from rerank.training.mining import Example, TrainingSet
from rerank.training.settings import FinetuneConfig

pytestmark = pytest.mark.usefixtures("one_list_chooses")


def test_training_moves_the_weights_and_not_the_embeddings(trained: Trained, body: str) -> None:
    """Two steps change the transformer's layers; frozen word embeddings stay the base's."""
    after, before = weights(trained.folder), weights(Path(body))
    shared = [n for n in before if f"bert.{n}" in after and before[n].dtype.kind == "f"]
    same = {n for n in shared if np.array_equal(before[n], after[f"bert.{n}"])}
    assert "embeddings.word_embeddings.weight" in same
    assert len(same) < len(shared) / 2
    assert all(np.isfinite(after[name]).all() for name in after)


def test_training_goes_on_from_a_trained_cross_encoder(
    trained: Trained, small: LabelledSet, tmp_path: Path
) -> None:
    """From another run's model: frozen layers stay its own, its list of queries is carried on."""
    other = replace(small, splits={"train": small.splits["test"][:4]}, name="other")
    config = replace(LAST, base=str(trained.folder), frozen_layers=4)
    made = finetune([TrainingSet(other)], tmp_path / "model", config, work=trained.work)
    assert made.report["base_fingerprint"] == resolve(str(trained.folder)).fingerprint
    assert made.report["base_training"] == json.loads(json.dumps(trained.report))
    assert made.report["best_step"] == 2
    before, after = weights(trained.folder), weights(made.folder)
    same = {name for name in before if np.array_equal(before[name], after[name])}
    assert {f"bert.encoder.layer.{k}.output.dense.weight" for k in range(4)} < same
    assert {f"bert.encoder.layer.{k}.output.dense.weight" for k in (4, 5)}.isdisjoint(same)
    assert "classifier.weight" not in same
    new = {query_hash(small.queries[i].text) for i in other.splits["train"]}
    old = trained_on(resolve(str(trained.folder)))
    assert trained_on(resolve(str(made.folder))) == old | new


def test_a_smaller_model_keeps_layers_evenly_spaced(
    trained: Trained, ten: LabelledSet, body: str, tmp_path: Path
) -> None:
    """Three layers of six are the second, fourth and sixth; packed, it scores as it was trained."""
    config = replace(LAST, base=str(trained.folder), layers=3, frozen_layers=2)
    made = finetune([TrainingSet(ten)], tmp_path / "model", config, work=trained.work)
    before, after = weights(trained.folder), weights(made.folder)
    name = "bert.encoder.layer.{}.output.dense.weight"
    assert {n.split(".")[3] for n in after if ".layer." in n} == {"0", "1", "2"}
    for k in (0, 1):  # these two were frozen
        assert np.array_equal(after[name.format(k)], before[name.format(2 * k + 1)])
    moved, copied = after[name.format(2)], before[name.format(5)]
    assert 0 < np.abs(moved - copied).max() < 0.01
    base = Path(body)
    pack_finetuned(made.folder, tmp_path / "packed", base=base)
    unpacked = unpack(tmp_path / "packed", base=base, cache=tmp_path / "cache")
    pairs = [("median", "Compute the median along the axis."), ("median", "Draw a line.")]
    scores, _ = open_reranker(resolve(str(unpacked)), max_length=64).score(pairs)
    from sentence_transformers import CrossEncoder as Reference

    expected = Reference(str(made.folder), max_length=64).predict(pairs, activation_fn=Identity())
    assert np.ptp(expected) > 0.3
    np.testing.assert_allclose(scores, expected, atol=0.1)


def test_the_mean_of_the_last_checkpoints_is_kept(
    trained: Trained, ten: LabelledSet, other_reranker: Callable[..., Path], tmp_path: Path
) -> None:
    """A weight is the mean of its last three values; frozen ones are the base's to the bit."""
    from rerank.training import trainer

    name = "bert.encoder.layer.1.output.dense.weight"
    last: list[np.ndarray] = []
    original = trainer.load_mean

    def noting(model: Any, checkpoints: Path, count: int) -> None:
        last.extend(weights(folder)[name] for folder in checkpoints.glob("checkpoint-*"))
        original(model, checkpoints, count)

    start = other_reranker()
    config = replace(CHEAP, base=str(start), frozen_layers=0, steps=4, average=3, validation=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "load_mean", noting)
        made = finetune([TrainingSet(ten)], tmp_path / "model", config, work=trained.work)
    found, base = weights(made.folder), weights(start)
    assert len(last) == 3
    np.testing.assert_allclose(found[name], np.mean(last, axis=0), atol=1e-7)
    assert not any(np.array_equal(found[name], value) for value in last)
    key = "bert.embeddings.word_embeddings.weight"
    assert np.array_equal(found[key], base[key])


def test_too_few_validation_lists_choose_no_step(
    trained: Trained,
    ten: LabelledSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    cheap: FinetuneConfig,
) -> None:
    """A few lists tell steps apart by chance alone: the last step is kept, and it is said."""
    from rerank.training import trainer

    monkeypatch.setattr(trainer, "MIN_VALIDATION", 50)
    made = finetune([TrainingSet(ten)], tmp_path / "model", cheap, work=trained.work)
    assert made.report["best_step"] == cheap.steps
    assert "the last step is kept" in caplog.text


def test_a_student_comes_nearer_to_its_teacher(
    ten: LabelledSet, last: FinetuneConfig, tmp_path: Path
) -> None:
    """Taught without labels, the student's softmax over a list comes nearer to the teacher's."""
    import torch
    from scipy.special import softmax
    from scipy.stats import entropy

    from rerank.training.trainer import train

    texts = [p.full_text for p in ten.corpus.values()]
    lists = [
        Example(q.text, tuple(texts[4 * k : 4 * k + 4]), (0,) * 4, (0.0, 3.0, 1.0, -1.0))
        for k, q in enumerate(list(ten.queries.values())[:2])
    ]
    config = replace(last, distil=1.0, steps=12, check_every=12, learning_rate=3e-3)
    model, _ = train(lists, [], resolve(config.base), tmp_path, config)

    def divergence() -> float:
        found = [
            model.predict([(e.query, p) for p in e.passages], activation_fn=torch.nn.Identity())
            for e in lists
        ]
        each = [
            entropy(softmax([0.0, *e.teacher]), softmax([0.0, *logits]))
            for e, logits in zip(lists, found, strict=True)
        ]
        return float(np.mean(each))

    equal = float(entropy(softmax([0.0, *lists[0].teacher]), np.full(5, 0.2)))
    assert divergence() < equal / 2
