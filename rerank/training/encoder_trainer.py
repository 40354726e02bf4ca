"""Train a bi-encoder on questions and their passages, with sentence-transformers' trainer.

Importing this file imports torch. It knows nothing of labelled sets or of how pairs are mined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from datasets import Dataset
from safetensors.torch import load_model
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.training_args import (
    BatchSamplers,
    MultiDatasetBatchSamplers,
    SentenceTransformerTrainingArguments,
)
from transformers import PrinterCallback

from rerank.errors import InputError
from rerank.inference.model_files import LOCAL, ModelFiles
from rerank.training.loop import WEIGHTS, Progress, Resuming, arguments, freeze, load_mean
from rerank.training.mining import Example
from rerank.training.settings import EncoderConfig

SCALE = 20.0  # of cosines in the softmax, as the base was trained


def train_encoder(
    sets: Mapping[str, Sequence[Example]],
    base: ModelFiles,
    checkpoints: Path,
    config: EncoderConfig,
) -> tuple[SentenceTransformer, dict[int, float]]:
    """Train on lists of each set, with a right and a wrong passage each; return also the losses.

    A batch is of one set, so that the other questions' passages, which count as wrong, are from the
    same domain (in-batch negatives, Henderson et al. 2017). Sets take turns in proportion to their
    size. Both directions are learned: the passage among passages, and the question among questions.
    The last `config.average` checkpoints are averaged, and the base's weights are mixed in with
    the share `config.keep`: what that knew of other domains is kept (Wortsman et al. 2022, "Robust
    fine-tuning of zero-shot models"). After an interruption, the same call resumes from the last of
    its `checkpoints`.

    Raises:
        InputError: the base cannot be loaded, has weights behind its transformer, or has fewer
            layers than should be frozen.
    """
    torch.manual_seed(config.seed)
    try:
        model = SentenceTransformer(str(base.folder), **LOCAL)
    except Exception as error:  # broken files fail in many ways
        raise InputError(f"{base.name} cannot be loaded to be trained: {error}") from error
    body = {id(weight) for weight in model[0].auto_model.parameters()}
    others = [name for name, weight in model.named_parameters() if id(weight) not in body]
    if others:  # checkpoints do not hold them
        raise InputError(
            f"{base.name} has weights behind its transformer ({others[0]}), and cannot be trained "
            "further; take a base without them, such as minilm"
        )
    model.float()  # in 16 bits small updates are lost
    model.max_seq_length = config.max_length
    freeze(model[0].auto_model, config.frozen_layers)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    trainer = _Trainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            **arguments(checkpoints, config),
            batch_sampler=BatchSamplers.NO_DUPLICATES,
            multi_dataset_batch_sampler=MultiDatasetBatchSamplers.PROPORTIONAL,
        ),
        train_dataset={n: _dataset(examples) for n, examples in sets.items() if examples},
        loss=MultipleNegativesRankingLoss(
            model, scale=SCALE, directions=("query_to_doc", "doc_to_query")
        ),
        callbacks=[Progress()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.resume(checkpoints)
    if config.average > 1:
        load_mean(model[0].auto_model, checkpoints, config.average)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.lerp_(before[name].to(weight.device), config.keep)
    return model, {r["step"]: r["loss"] for r in trainer.state.log_history if "loss" in r}


def _dataset(examples: Sequence[Example]) -> Dataset:
    """One row per list: the question, its right passage, and the first wrong one."""
    return Dataset.from_dict(
        {
            "anchor": [e.query for e in examples],
            "positive": [e.passages[e.labels.index(1)] for e in examples],
            "negative": [e.passages[e.labels.index(0)] for e in examples],
        }
    )


class _Trainer(Resuming, SentenceTransformerTrainer):  # type: ignore[misc]  # it has no types
    """Loads a checkpoint as it was written, or fails."""

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        load_model(self.model[0].auto_model, Path(checkpoint_path) / WEIGHTS)
