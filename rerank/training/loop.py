"""What the trainings of both kinds of model share: arguments, checkpoints, frozen layers, the bar.

Importing this file imports torch.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import get_last_checkpoint

from rerank.errors import InputError
from rerank.inference.varlen import multiplies_bf16
from rerank.progress import progress
from rerank.training.settings import EncoderConfig, FinetuneConfig

WEIGHTS = "model.safetensors"  # of a checkpoint
LOGGED = 20  # a logged loss is the mean of at most this many steps
NDCG = "validation_ndcg@10"  # as sentence-transformers' evaluator names it
FIRST_STAGE = "validation_base_ndcg@10"


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


def last_weights(checkpoints: Path, count: int) -> list[Path]:
    """The files of weights of the last `count` checkpoints, in the order of their steps."""
    files = checkpoints.glob(f"checkpoint-*/{WEIGHTS}")
    return sorted(files, key=lambda file: int(file.parent.name.split("-")[1]))[-count:]


class Resuming:
    """A trainer, beside sentence-transformers' own, that goes on from its last checkpoint."""

    args: Any
    state: TrainerState
    train: Callable[..., Any]
    _load_from_checkpoint: Callable[[str], None]

    def resume(self, checkpoints: Path) -> None:
        """Train to the end, from the last complete one of the `checkpoints` if there is one.

        A finished training is only loaded: the library would take one more step.
        """
        last = last_whole(checkpoints)
        state = TrainerState.load_from_json(str(Path(last) / TRAINER_STATE_NAME)) if last else None
        control = state.stateful_callbacks.get(TrainerControl.__name__, {}) if state else {}
        # at this checkpoint all steps were taken, or none had to be taken any more
        finished = control.get("args", {}).get("should_training_stop")
        if last is None or state is None or not finished:
            self.train(resume_from_checkpoint=last)
            return
        self.state = state
        best = state.best_model_checkpoint if self.args.load_best_model_at_end else None
        # by its name: the path in the state is that of the run which wrote it
        self._load_from_checkpoint(str(checkpoints / Path(best).name) if best else last)


def load_mean(model: Any, checkpoints: Path, count: int) -> None:
    """Set the trained weights of the model to their mean in the last `count` of `checkpoints`.

    The mean of late checkpoints is better than any of them (Izmailov et al. 2018). Frozen weights
    stay the same, to the bit: packing needs the base's own word embeddings.
    """
    files = last_weights(checkpoints, count)
    total: dict[str, torch.Tensor] = {}
    for file in files:
        for name, tensor in load_file(file).items():
            total[name] = total[name] + tensor if name in total else tensor.clone()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(total[name] / len(files))


def freeze(model: Any, layers: int) -> None:
    """Freeze the word embeddings, and the lowest `layers` with everything below them."""
    model.get_input_embeddings().weight.requires_grad_(False)
    if not layers:
        return
    stack, embeddings = layers_of(model), getattr(model.base_model, "embeddings", None)
    if layers > len(stack):
        raise InputError(f"the model has {len(stack)} layers, cannot freeze {layers}")
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
