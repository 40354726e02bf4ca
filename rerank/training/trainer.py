"""Train a cross-encoder or a bi-encoder, from a base model, with sentence-transformers' trainers.

Importing this file imports torch. A list is `logits` (n,) and `target` (n, 2): column 0 holds 1 for
a right passage and 0 for a wrong one, column 1 a teacher's logit, or NaN without a teacher. The
losses take lists of one length, (..., n), and give one number per list. Shorter lists are filled up
with the logit `ABSENT`.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import load_model
from sentence_transformers import CrossEncoder, SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.training_args import (
    BatchSamplers,
    MultiDatasetBatchSamplers,
    SentenceTransformerTrainingArguments,
)
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, EarlyStoppingCallback, PrinterCallback

from rerank.errors import InputError
from rerank.inference.model_files import LOCAL, ModelFiles
from rerank.training import loop
from rerank.training.mining import Example, ValidationQuery
from rerank.training.settings import EncoderConfig, FinetuneConfig

logger = logging.getLogger(__name__)

CPU_PAIRS = 8  # per batch on a CPU: padding costs there what a larger batch saves
GPU_PAIRS = 256
ABSENT = -1e4  # the logit of no passage: its probability is 0 in fp32, and its gradient too
MIN_VALIDATION = 50  # to choose the best step; with fewer the choice is chance
SCALE = 20.0  # of cosines in the softmax, as the base was trained


def listwise_or_none(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """-log P(a right candidate), where P is the softmax over `logits` (..., n) and a null logit 0.

    A listwise softmax (ListNet, Cao et al. 2007) learns quickly but leaves the level of its logits
    free. The fixed null candidate, as in the no-answer score of SQuAD 2.0 readers (Devlin et al.
    2019), sets it: a logit above 0 means "better than no answer", and of a query without a right
    passage the null is right. Several right passages share the probability.
    """
    every = _with_none(logits)
    is_right = right > 0
    chosen = torch.cat([~is_right.any(-1, keepdim=True), is_right], -1)
    return torch.logsumexp(every, -1) - torch.logsumexp(every.masked_fill(~chosen, ABSENT), -1)


def distillation(logits: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """KL(softmax(teacher) || softmax(logits)) over each list (Hinton et al. 2015), and the null.

    By the null candidate of `listwise_or_none` the teacher's doubt is learned too. A teacher of one
    passage gives the binary divergence of two sigmoids.
    """
    ours, theirs = (functional.log_softmax(_with_none(x), -1) for x in (logits, teacher))
    return functional.kl_div(ours, theirs, reduction="none", log_target=True).sum(-1)


def _with_none(logits: torch.Tensor) -> torch.Tensor:
    return torch.cat([logits.new_zeros(*logits.shape[:-1], 1), logits], -1)


class ListsLoss(nn.Module):
    """The mean over a batch's lists of (1 - share) x label loss + share x distillation.

    `share` applies only to lists with a teacher.
    """

    def __init__(self, model: Any, *, share: float = 0.5) -> None:
        super().__init__()
        self.model = model
        self.share = share

    def forward(
        self, inputs: Sequence[Any], labels: Sequence[torch.Tensor], **_: Any
    ) -> torch.Tensor:
        """The batch's loss; `inputs` is (queries, passage lists), `labels` a target per query."""
        queries, passage_lists = inputs
        pairs = [(q, p) for q, texts in zip(queries, passage_lists, strict=True) for p in texts]
        parts = torch.split(self._logits(pairs), [len(texts) for texts in passage_lists])
        logits = pad_sequence(list(parts), batch_first=True, padding_value=ABSENT)
        target = pad_sequence(list(labels), batch_first=True).to(logits)
        from_labels = listwise_or_none(logits, target[..., 0])
        untaught = target[..., 1].isnan().any(-1)
        teacher = target[..., 1].nan_to_num().masked_fill(logits <= ABSENT, ABSENT)
        both = (1 - self.share) * from_labels + self.share * distillation(logits, teacher)
        return torch.where(untaught, from_labels, both).mean()

    def _logits(self, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
        """One logit per pair, in their order; pairs of similar length share their padding."""
        device = self.model.device
        order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))
        size = CPU_PAIRS if device.type == "cpu" else GPU_PAIRS
        logits = []
        for start in range(0, len(order), size):
            features = self.model.preprocess([pairs[i] for i in order[start : start + size]])
            there = {k: v.to(device) if torch.is_tensor(v) else v for k, v in features.items()}
            logits.append(self.model(there)["scores"].view(-1).float())
        return torch.cat(logits)[torch.tensor(order).argsort().to(device)]


@dataclass(frozen=True, slots=True)
class Training:
    """The curves of a training run, by step; the weights of `best_step` were kept."""

    loss: dict[int, float]
    ndcg10: dict[int, float]  # on the validation lists; empty without any
    best_step: int
    first_stage_ndcg10: float | None = None


def train(
    examples: Sequence[Example],
    validation: Sequence[ValidationQuery],
    base: ModelFiles,
    checkpoints: Path,
    config: FinetuneConfig,
) -> tuple[CrossEncoder, Training]:
    """Train on `examples`; return the model as it was at the step that is best on `validation`.

    With fewer than `MIN_VALIDATION` validation queries it is that of the last step, or the mean of
    the last `config.average` checkpoints. After an interruption, the same call resumes.
    """
    if not examples:
        raise InputError("no training example; expected at least one query with passages")
    torch.manual_seed(config.seed)
    model = _open_base(base, config)
    n = len(validation)
    chooses = n >= MIN_VALIDATION
    if validation and not chooses:
        logger.warning("the last step is kept: %d validation lists cannot choose one", n)
    evaluator = CrossEncoderRerankingEvaluator(
        [
            {"query": v.query, "positive": list(v.right), "documents": list(v.found)}
            for v in validation
        ],
        at_k=10,
        always_rerank_positives=False,
        name="validation",
        batch_size=config.batch,
        write_csv=False,
    )
    trainer = _Trainer(
        model=model,
        args=CrossEncoderTrainingArguments(
            **loop.arguments(checkpoints, config),
            eval_strategy="steps" if validation else "no",
            eval_steps=config.check_every,
            load_best_model_at_end=chooses,
            restore_callback_states_from_checkpoint=True,  # how long early stopping has waited
            metric_for_best_model=loop.NDCG if validation else None,
            greater_is_better=True if validation else None,
        ),
        train_dataset=_dataset(examples, config.seed),
        loss=ListsLoss(model, share=config.distil),
        evaluator=evaluator if validation else None,
        callbacks=[loop.Progress(), *([EarlyStoppingCallback(config.patience)] if chooses else [])],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.resume(checkpoints)
    if config.average > 1:
        loop.load_mean(model.model, checkpoints, config.average)
    state = trainer.state
    best = state.best_model_checkpoint if chooses else None
    return model, Training(
        loss=_curve(state, "loss"),
        ndcg10=_curve(state, f"eval_{loop.NDCG}"),
        best_step=int(best.rsplit("-", 1)[-1]) if best else state.global_step,
        first_stage_ndcg10=next(iter(_curve(state, f"eval_{loop.FIRST_STAGE}").values()), None),
    )


def _curve(state: Any, name: str) -> dict[int, float]:
    return {row["step"]: row[name] for row in state.log_history if name in row}


def _open_base(base: ModelFiles, config: FinetuneConfig) -> CrossEncoder:
    """The model to train, in fp32, with its layers removed and frozen as configured."""
    try:
        settings = AutoConfig.from_pretrained(str(base.folder), **LOCAL).to_dict()
        names = (k for k, v in settings.items() if "dropout" in k and isinstance(v, float))
        model = CrossEncoder(
            str(base.folder),
            num_labels=1,
            max_length=config.max_length,
            **LOCAL,
            config_kwargs=dict.fromkeys(names, config.dropout),
        )
    except Exception as error:  # broken files fail in many ways
        raise InputError(f"{base.name} cannot be loaded to be trained: {error}") from error
    model.model.float()  # in 16 bits small updates are lost
    if config.layers:  # evenly spaced, the last among them (Sanh et al. 2019: every other)
        stack = loop.layers_of(model.model)
        count, n = config.layers, len(stack)
        if count > n:
            raise InputError(f"the model has {n} layers, cannot keep {count}")
        for number in sorted({*range(n)} - {k * n // count - 1 for k in range(1, count + 1)})[::-1]:
            del stack[number]
        model.model.config.num_hidden_layers = count
    loop.freeze(model.model, config.frozen_layers)
    return model


def _dataset(examples: Sequence[Example], seed: int) -> Dataset:
    """One row per example, shuffled; `label` holds (label, teacher logit) pairs for the losses."""
    shuffled = list(examples)
    random.Random(seed).shuffle(shuffled)
    columns: dict[str, list[Any]] = {"query": [], "passages": [], "label": []}
    for e in shuffled:
        teacher = e.teacher or (math.nan,) * len(e.labels)
        columns["query"].append(e.query)
        columns["passages"].append(list(e.passages))
        columns["label"].append([[float(r), t] for r, t in zip(e.labels, teacher, strict=True)])
    return Dataset.from_dict(columns)


class _Trainer(loop.Resuming, CrossEncoderTrainer):  # type: ignore[misc]  # sentence-transformers has no types
    """Loads a checkpoint as it was written, or fails."""

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        load_model(self.model.model, Path(checkpoint_path) / loop.WEIGHTS)

    def _load_best_model(self) -> None:  # the library's own only logs a failure
        self._load_from_checkpoint(self.state.best_model_checkpoint)


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
    The last `config.average` checkpoints are averaged, and the base's weights mixed in with the
    share `config.keep`, which keeps what that knew of other domains (Wortsman et al. 2022). After
    an interruption, the same call resumes.
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
    loop.freeze(model[0].auto_model, config.frozen_layers)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    trainer = _EncoderTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            **loop.arguments(checkpoints, config),
            batch_sampler=BatchSamplers.NO_DUPLICATES,
            multi_dataset_batch_sampler=MultiDatasetBatchSamplers.PROPORTIONAL,
        ),
        train_dataset={
            name: Dataset.from_dict(
                {  # one row per list: the question, its right passage, and the first wrong one
                    "anchor": [e.query for e in examples],
                    "positive": [e.passages[e.labels.index(1)] for e in examples],
                    "negative": [e.passages[e.labels.index(0)] for e in examples],
                }
            )
            for name, examples in sets.items()
            if examples
        },
        loss=MultipleNegativesRankingLoss(
            model, scale=SCALE, directions=("query_to_doc", "doc_to_query")
        ),
        callbacks=[loop.Progress()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.resume(checkpoints)
    if config.average > 1:
        loop.load_mean(model[0].auto_model, checkpoints, config.average)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.lerp_(before[name].to(weight.device), config.keep)
    return model, _curve(trainer.state, "loss")


class _EncoderTrainer(loop.Resuming, SentenceTransformerTrainer):  # type: ignore[misc]  # it has no types
    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        load_model(self.model[0].auto_model, Path(checkpoint_path) / loop.WEIGHTS)
