"""A cross-encoder in bf16 on concatenated sequences: for a GPU, or a CPU with bf16 instructions.

Attention stays within a sequence: on a GPU by Flash Attention's kernel for variable-length
sequences (Dao 2023), on a CPU one after the other. Importing this file imports torch, and opening a
model on the CPU sets the process's torch to one thread per operator.
"""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention

from rerank.errors import RerankError, one_line
from rerank.inference import torch_models
from rerank.inference.engine import SAMPLE_LENGTH, SAMPLES, NoExportError, check_gap
from rerank.inference.model_files import ModelFiles
from rerank.inference.tokenizer import Tokenizer, Tokens, first_position
from rerank.process import cores, device, in_threads
from rerank.progress import by_size

logger = logging.getLogger(__name__)

BUDGET = {"cuda": 65_536, "cpu": 1_024}  # tokens per batch
FLASH = (8, 0)  # lowest compute capability for the kernel
KERNEL = "torch.nn.attention.varlen"  # of torch 2.10 and later
BF16 = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # instructions, as torch names them


@dataclass(frozen=True, slots=True)
class Spans:
    """Where sequences are among rows: the i-th from `bounds[i]` to `bounds[i + 1]`."""

    bounds: tuple[int, ...]
    on_device: torch.Tensor  # the same as int32, on the device of the rows
    longest: int

    @classmethod
    def of(cls, lengths: Sequence[int], device: str) -> Spans:
        """The spans of concatenated sequences of these lengths."""
        bounds = (0, *accumulate(lengths))
        there = _to_device(torch.tensor(bounds, dtype=torch.int32), device)
        return cls(bounds, there, max(lengths))


def _to_device(numbers: torch.Tensor, device: str) -> torch.Tensor:
    if device.startswith("cuda"):
        numbers = numbers.pin_memory()
    return numbers.to(device, non_blocking=True)


class Unpadded(torch.nn.Module):
    """The logits of a BERT-like classifier for concatenated sequences."""

    def __init__(self, classifier: Any) -> None:
        super().__init__()
        self.classifier = classifier
        self.first_position = first_position(classifier.config.to_dict())

    def forward(self, sequences: Sequence[Tokens], device: str) -> torch.Tensor:
        """Logits of shape (sequences, outputs) in fp32, of at least one sequence, on the device."""
        lengths = [len(t.ids) for t in sequences]
        spans, firsts = Spans.of(lengths, device), Spans.of([1] * len(lengths), device)
        total, starts = sum(lengths), np.repeat(spans.bounds[:-1], lengths)
        columns = (
            np.fromiter(chain.from_iterable(t.ids for t in sequences), np.int64, total),
            np.fromiter(chain.from_iterable(t.types for t in sequences), np.int64, total),
            np.arange(total, dtype=np.int64) - starts + self.first_position,
        )
        ids, types, positions = _to_device(torch.from_numpy(np.stack(columns)), device)[:, None]
        body = self.classifier.base_model
        hidden = body.embeddings(input_ids=ids, token_type_ids=types, position_ids=positions)[0]
        *layers, last = body.encoder.layer
        for layer in layers:
            attended = _attend(layer.attention, hidden, hidden, spans, spans)
            hidden = layer.feed_forward_chunk(attended)
        first = hidden[spans.on_device[:-1]]
        attended = _attend(last.attention, hidden, first, spans, firsts)
        first = last.feed_forward_chunk(attended)
        first = first.float()[:, None]  # the head stays in fp32: bf16 would tie close logits
        if body.pooler is not None:  # RoBERTa's head takes the first token itself
            first = body.pooler(first)
        logits: torch.Tensor = self.classifier.classifier(first)
        return logits


def _attend(
    attention: Any, hidden: torch.Tensor, asking: torch.Tensor, spans: Spans, asking_spans: Spans
) -> torch.Tensor:
    """The attention block's output at `asking`: all tokens, or the first of each sequence."""
    layer = attention.self

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, layer.num_attention_heads, layer.attention_head_size)

    query, key, value = map(heads, (layer.query(asking), layer.key(hidden), layer.value(hidden)))
    mix = mix_by_kernel if hidden.is_cuda else mix_in_turn
    mixed = mix(query, key, value, asking_spans, spans).reshape(len(asking), -1)
    out: torch.Tensor = attention.output(mixed, asking)
    return out


def mix_in_turn(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, asking_spans: Spans, spans: Spans
) -> torch.Tensor:
    """Attention of (rows, heads, size) within each sequence, one after the other."""
    mixed = []
    for (a, b), (start, end) in zip(
        pairwise(asking_spans.bounds), pairwise(spans.bounds), strict=True
    ):
        q, k, v = (x.transpose(0, 1)[None] for x in (query[a:b], key[start:end], value[start:end]))
        mixed.append(scaled_dot_product_attention(q, k, v)[0].transpose(0, 1))
    return torch.cat(mixed)


def mix_by_kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, asking_spans: Spans, spans: Spans
) -> torch.Tensor:
    """The result of `mix_in_turn`, by one call of the kernel, only on a GPU and in 16 bits."""
    from torch.nn.attention.varlen import varlen_attn

    ends = asking_spans.on_device, spans.on_device
    mixed = varlen_attn(query, key, value, *ends, asking_spans.longest, spans.longest)
    assert isinstance(mixed, torch.Tensor)  # not a pair, as with log-sum-exp
    return mixed


class UnpaddedEngine:
    """A model in bf16 ready to run, on its device."""

    def __init__(self, model: Unpadded, device: str, *, workers: int | None = None) -> None:
        body = model.classifier.base_model
        body.embeddings.to(torch.bfloat16)
        body.encoder.to(torch.bfloat16)
        self._model, self.device = model.to(device), device
        self._workers = 1
        if device == "cpu":
            torch.set_num_threads(1)  # one batch per core, instead of all cores in each operator
            self._workers = workers or cores()

    def __call__(self, sequences: Sequence[Tokens]) -> NDArray[np.float32]:
        """Rows of shape (n, outputs), in the order of `sequences`; n >= 1."""

        @torch.inference_mode()
        def rows(batch: Sequence[Tokens]) -> torch.Tensor:
            found: torch.Tensor = self._model(batch, self.device)
            return found

        most = BUDGET[self.device.partition(":")[0]]
        batches = list(by_size(sequences, lambda t: len(t.ids), most))
        outputs: NDArray[np.float32]
        outputs = torch.cat(in_threads(rows, batches, self._workers)).cpu().numpy()
        return outputs


def open_unpadded(files: ModelFiles, *, workers: int | None = None) -> UnpaddedEngine:
    """An engine for a pair's logits in bf16, close to those in fp32, on the device that was chosen.

    Raises:
        InputError: the model cannot be loaded.
        NoExportError: sequences cannot be concatenated, the device lacks the kernel, or the library
            gives other numbers.
    """
    try:
        family = json.loads((files.folder / "config.json").read_bytes())["model_type"]
        if family not in torch_models.FIRST_TOKEN_FAMILIES:
            raise ValueError(f"a {family} is not run without padding")
        place = device()
        on_cuda = place.startswith("cuda") and torch.cuda.get_device_capability(place) >= FLASH
        if place != "cpu" and not (on_cuda and importlib.util.find_spec(KERNEL)):
            raise ValueError(f"{place} has no attention for sequences without padding")
        whole = torch_models.open_model(files, "cross_encoder")
        tokenizer = Tokenizer(files.folder, max_length=SAMPLE_LENGTH)
        model = Unpadded(whole.model).eval()

        def in_fp32(tokens: Sequence[Tokens]) -> NDArray[np.float32]:
            with torch.inference_mode():
                rows: NDArray[np.float32] = model(tokens, "cpu").numpy()
            return rows

        check_gap(torch_models.largest_gap(whole, "cross_encoder", in_fp32, tokenizer, SAMPLES))
        engine = UnpaddedEngine(model, place, workers=workers)
        engine(tokenizer(SAMPLES))  # the kernel refuses some sizes of heads
    except (RerankError, OSError, MemoryError):
        raise
    except Exception as error:  # parts that work differently, or a prompt
        raise NoExportError(one_line(error)) from error
    if engine.device == "cpu" and not multiplies_bf16():
        logger.warning("This processor has no instructions for bf16: fp32 would be faster")
    return engine


def multiplies_bf16() -> bool:
    """Whether the CPU has instructions for bf16; True if torch is too old to tell."""
    if not hasattr(torch.cpu, "get_capabilities"):
        return True
    has = torch.cpu.get_capabilities()
    return any(has.get(name) for name in BF16)
