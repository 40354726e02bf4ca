"""Train a cross-encoder or a bi-encoder, from a base model, with sentence-transformers' trainers.

Importing this file imports torch. A list is `logits` (n,) and `target` (n, 2): column 0 holds 1 for
a right passage and 0 for a wrong one, column 1 a teacher's logit, or NaN without a teacher. The
losses take lists of one length, (..., n), and give one number per list. Shorter lists are filled up
with the logit `ABSENT`.
"""

from __future__ import annotations

import json
import logging
import math
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import load_file, load_model
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
from transformers import (
    AutoConfig,
    EarlyStoppingCallback,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
)
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import get_last_checkpoint

from rerank.errors import InputError
from rerank.inference.model_files import LOCAL, ModelFiles
from rerank.inference.varlen import multiplies_bf16
from rerank.progress import progress
from rerank.training.mining import Example, ValidationQuery
from rerank.training.settings import EncoderConfig, FinetuneConfig

logger = logging.getLogger(__name__)

CPU_PAIRS = 8  # per batch on a CPU: padding costs there what a larger batch saves
GPU_PAIRS = 256
ABSENT = -1e4  # the logit of no passage: its probability is 0 in fp32, and its gradient too
MIN_VALIDATION = 50  # to choose the best step; with fewer the choice is chance
SCALE = 20.0  # of cosines in the softmax, as the base was trained
WEIGHTS = "model.safetensors"  # of a checkpoint
LOGGED = 20  # a logged loss is the mean of at most this many steps
NDCG = "validation_ndcg@10"  # as sentence-transformers' evaluator names it
FIRST_STAGE = "validation_base_ndcg@10"


def listwise_or_none(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """-log P(a right candidate), where P is the softmax over `logits` (..., n) and a null logit 0.

    A listwise softmax (ListNet, Cao et al. 2007) leaves the level of its logits free. The fixed
    null candidate, as in the no-answer score of SQuAD 2.0 readers (Devlin et al. 2019), sets it: of
    a query without a right passage the null is right. Several right passages share the probability.
    """
    every = _with_none(logits)
    is_right = right > 0
    chosen = torch.cat([~is_right.any(-1, keepdim=True), is_right], -1)
    return torch.logsumexp(every, -1) - torch.logsumexp(every.masked_fill(~chosen, ABSENT), -1)


def distillation(logits: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """KL(softmax(teacher) || softmax(logits)) over each list (Hinton et al. 2015), with the null
    candidate of `listwise_or_none`: the teacher's doubt is learned too.
    """
    ours, theirs = (functional.log_softmax(_with_none(x), -1) for x in (logits, teacher))
    return functional.kl_div(ours, theirs, reduction="none", log_target=True).sum(-1)


def _with_none(logits: torch.Tensor) -> torch.Tensor:
    return torch.cat([logits.new_zeros(*logits.shape[:-1], 1), logits], -1)


class ListsLoss(nn.Module):
    """The mean over lists of (1 - share) x label loss + share x distillation, where taught."""

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


def arguments(folder: Path, config: FinetuneConfig | EncoderConfig) -> dict[str, Any]:
    """Arguments of a trainer of sentence-transformers, with its checkpoints in `folder`."""
    on_gpu = torch.cuda.is_available()
    # a resumed run starts a new mean: no checkpoint may fall between two logged losses
    logged = math.gcd(LOGGED, config.check_every)
    return {
        "output_dir": str(folder),
        "max_steps": config.steps,
        "per_device_train_batch_size": config.batch,
        "learning_rate": config.learning_rate,
        "warmup_steps": config.warmup,  # a share, below 1
        "bf16": torch.cuda.is_bf16_supported() if on_gpu else multiplies_bf16(),
        "use_cpu": not on_gpu,
        "logging_steps": min(logged, config.steps),
        "logging_nan_inf_filter": False,  # it would wait for the GPU at every step
        "save_steps": config.check_every,
        "save_total_limit": config.average,
        "seed": config.seed,
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }


def last_whole(checkpoints: Path) -> str | None:
    """The last complete checkpoint, or None; incomplete ones are deleted."""
    for folder in checkpoints.glob("checkpoint-*"):
        try:  # the last file written; it may remain if the process was killed while deleting
            json.loads((folder / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
            whole = (folder / WEIGHTS).exists()
        except (OSError, ValueError):
            whole = False
        if not whole:
            shutil.rmtree(folder)
    return get_last_checkpoint(str(checkpoints)) if checkpoints.is_dir() else None


class _Resuming:
    """A trainer, beside sentence-transformers' own, that goes on from its last checkpoint.

    It loads a checkpoint as it was written, or fails, where the library only logs that.
    """

    args: Any
    model: Any
    state: TrainerState
    train: Callable[..., Any]
    remove_callback: Callable[..., None]

    def resume(self, checkpoints: Path, average: int) -> None:
        """Train to the end, from the last complete one of the `checkpoints` if there is one.

        A finished training is only loaded: the library would take one more step. Of `average` > 1
        checkpoints the mean is taken.
        """
        self.remove_callback(PrinterCallback)
        last = last_whole(checkpoints)
        state = TrainerState.load_from_json(str(Path(last) / TRAINER_STATE_NAME)) if last else None
        control = state.stateful_callbacks.get(TrainerControl.__name__, {}) if state else {}
        # at this checkpoint all steps were taken, or none had to be taken any more
        if last and state and control.get("args", {}).get("should_training_stop"):
            self.state = state
            best = state.best_model_checkpoint if self.args.load_best_model_at_end else None
            # by its name: the path in the state is that of the run which wrote it
            self._load_from_checkpoint(str(checkpoints / Path(best).name) if best else last)
        else:
            self.train(resume_from_checkpoint=last)
        if average > 1:
            load_mean(_transformer(self.model), checkpoints, average)

    def curve(self, name: str) -> dict[int, float]:
        """What was logged under a name, by step."""
        return {row["step"]: row[name] for row in self.state.log_history if name in row}

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        load_model(_transformer(self.model), Path(checkpoint_path) / WEIGHTS)

    def _load_best_model(self) -> None:
        self._load_from_checkpoint(str(self.state.best_model_checkpoint))


class _Trainer(_Resuming, CrossEncoderTrainer):  # type: ignore[misc]  # sentence-transformers has no types
    pass


class _EncoderTrainer(_Resuming, SentenceTransformerTrainer):  # type: ignore[misc]  # it has no types
    pass


def _transformer(model: Any) -> Any:
    return model.model if isinstance(model, CrossEncoder) else model[0].auto_model


def load_mean(model: Any, checkpoints: Path, count: int) -> None:
    """Set the trained weights of the model to their mean in the last `count` of `checkpoints`
    (Izmailov et al. 2018). Frozen weights stay the same, to the bit.
    """
    files = checkpoints.glob(f"checkpoint-*/{WEIGHTS}")
    last = sorted(files, key=lambda file: int(file.parent.name.split("-")[1]))[-count:]
    total: dict[str, torch.Tensor] = {}
    for file in last:
        for name, tensor in load_file(file).items():
            total[name] = total[name] + tensor if name in total else tensor.clone()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(total[name] / len(last))


def freeze(model: Any, layers: int) -> None:
    """Freeze the word embeddings, and the lowest `layers` with everything below them."""
    model.get_input_embeddings().weight.requires_grad_(False)
    if not layers:
        return
    stack, embeddings = layers_of(model), getattr(model.base_model, "embeddings", None)
    if embeddings is None:
        raise InputError(f"{type(model).__name__} has no embeddings below its layers to freeze")
    for module in (embeddings, *stack[:layers]):
        module.requires_grad_(False)


def layers_of(model: Any) -> torch.nn.ModuleList:
    """The model's layers, lowest first."""
    lists = [m for m in model.base_model.modules() if isinstance(m, torch.nn.ModuleList)]
    if not lists:
        raise InputError(f"{type(model).__name__} has no list of layers to freeze or to keep")
    return max(lists, key=len)


class Progress(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """The project's own progress bar, which also shows the last loss and the last check."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._done = 0  # steps that the bar shows
        self._shown: dict[str, str] = {}

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Open the bar at the step of a resumed run."""
        self._done = state.global_step
        bar = progress(state.max_steps, "training", unit="step", done=self._done)
        self._bar = self._stack.enter_context(bar)

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Move the bar."""
        self._bar.update(state.global_step - self._done)
        self._done = state.global_step

    def on_log(self, _args: Any, _state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        """Show the loss, and the nDCG@10 of a check beside the first stage's."""
        if "loss" in logs:
            self._shown["loss"] = f"loss {float(logs['loss']):.3f}"
        if f"eval_{NDCG}" in logs:
            ours, first = logs[f"eval_{NDCG}"], logs[f"eval_{FIRST_STAGE}"]
            self._shown["check"] = f"nDCG@10 {ours:.3f}, first stage {first:.3f}"
        self._bar.set_postfix_str(", ".join(self._shown.values()))

    def on_train_end(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        """Close the bar."""
        self._stack.close()


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
    chooses = len(validation) >= MIN_VALIDATION
    if validation and not chooses:
        count = len(validation)
        logger.warning("the last step is kept: %d validation lists cannot choose one", count)
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
            **arguments(checkpoints, config),
            eval_strategy="steps" if validation else "no",
            eval_steps=config.check_every,
            load_best_model_at_end=chooses,
            restore_callback_states_from_checkpoint=True,  # how long early stopping has waited
            metric_for_best_model=NDCG if validation else None,
            greater_is_better=True if validation else None,
        ),
        train_dataset=_dataset(examples, config.seed),
        loss=ListsLoss(model, share=config.distil),
        evaluator=evaluator if validation else None,
        callbacks=[Progress(), *([EarlyStoppingCallback(config.patience)] if chooses else [])],
    )
    trainer.resume(checkpoints, config.average)
    best = trainer.state.best_model_checkpoint if chooses else None
    first_stage = trainer.curve(f"eval_{FIRST_STAGE}")
    return model, Training(
        loss=trainer.curve("loss"),
        ndcg10=trainer.curve(f"eval_{NDCG}"),
        best_step=int(best.rsplit("-", 1)[-1]) if best else trainer.state.global_step,
        first_stage_ndcg10=next(iter(first_stage.values()), None),
    )


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
        stack = layers_of(model.model)
        count, n = config.layers, len(stack)
        for number in sorted({*range(n)} - {k * n // count - 1 for k in range(1, count + 1)})[::-1]:
            del stack[number]
        model.model.config.num_hidden_layers = count
    freeze(model.model, config.frozen_layers)
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


def train_encoder(
    sets: Mapping[str, Sequence[Example]],
    base: ModelFiles,
    checkpoints: Path,
    config: EncoderConfig,
) -> tuple[SentenceTransformer, dict[int, float]]:
    """Train on lists of each set, with a right and a wrong passage each; return also the losses.

    A batch is of one set, so that the other questions' passages, which count as wrong, are from the
    same domain (in-batch negatives, Henderson et al. 2017). Sets take turns in proportion to their
    size. The base's weights are mixed in with the share `config.keep`, which keeps what they knew
    of other domains (Wortsman et al. 2022). After an interruption, the same call resumes.
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
    trainer = _EncoderTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            **arguments(checkpoints, config),
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
        callbacks=[Progress()],
    )
    trainer.resume(checkpoints, config.average)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.lerp_(before[name].to(weight.device), config.keep)
    return model, trainer.curve("loss")
