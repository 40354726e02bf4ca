"""Settings of very short trainings, and the result of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rerank.inference.model_files import resolve
from rerank.training.settings import FinetuneConfig

TEN = 10
CHEAP = FinetuneConfig(steps=2, batch=2, max_length=48, warmup=0.0, check_every=1, validation=2)
LAST = replace(CHEAP, check_every=2, validation=0)  # one checkpoint, at the end


@dataclass(frozen=True)
class Trained:
    """A finished job: its model folder, its report, and the working folder."""

    folder: Path
    report: Mapping[str, Any]
    work: Path


def write_body(folder: Path) -> None:
    """A body of six narrow layers with drawn weights: a training step of it takes no time."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    shape = AutoConfig.for_model(
        "bert",
        vocab_size=30522,
        hidden_size=32,
        num_hidden_layers=6,
        num_attention_heads=2,
        intermediate_size=64,
        initializer_range=0.2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModel.from_config(shape).save_pretrained(folder)
    AutoTokenizer.from_pretrained(resolve("minilm").folder).save_pretrained(folder)
    parts = [Transformer(str(folder)), Pooling(32), Normalize()]
    SentenceTransformer(modules=parts).save(str(folder))


def weights(folder: Path) -> dict[str, np.ndarray]:
    """The tensors of a model folder."""
    from safetensors.numpy import load_file

    return dict(load_file(folder / "model.safetensors"))
