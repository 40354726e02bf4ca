"""From torch weights to modules that score, and to ONNX files: what `engine` does once per model.

A cross-encoder reads its logit from the first token only, so its last layer needs only the keys and
values of the other tokens. Importing this file imports torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx  # torch exports with it, and its error is unclear if it is missing
import torch

from rerank.inference.library import open_model
from rerank.inference.model_files import Kind, ModelFiles

FIRST_TOKEN_FAMILIES = ("bert", "roberta", "xlm-roberta")  # their layers have the parts used below


class Rows(torch.nn.Module):
    """(ids, types), each of shape (1, length), to one output of a sentence-transformers model."""

    def __init__(
        self, model: Any, output: str, *, width: int | None = None, unit: bool = False
    ) -> None:
        super().__init__()
        self.model, self.output, self.width, self.unit = model, output, width, unit

    def forward(self, ids: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        """Rows of shape (1, width), of length 1 if `unit`."""
        features = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "token_type_ids": types,
        }
        output: torch.Tensor = self.model(features)[self.output]
        output = output if output.ndim == 2 else output.unsqueeze(-1)
        output = output if self.width is None else output[:, : self.width]
        return torch.nn.functional.normalize(output) if self.unit else output


class FirstToken(torch.nn.Module):
    """The logits of a BERT-like classifier; its last layer is computed for the first token only."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        """Logits of shape (1, outputs)."""
        body = self.model.base_model
        hidden = body.embeddings(input_ids=ids, token_type_ids=types)
        *layers, last = body.encoder.layer
        for layer in layers:
            hidden = layer(hidden)
        first = last.feed_forward_chunk(_attend(last.attention, hidden))
        if body.pooler is not None:  # RoBERTa's head takes the first token itself
            first = body.pooler(first)
        logits: torch.Tensor = self.model.classifier(first)
        return logits


def _attend(attention: Any, hidden: torch.Tensor) -> torch.Tensor:
    """The attention block's output at the first token, (1, 1, width), from all tokens' `hidden`."""
    layer, first = attention.self, hidden[:, :1]

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.view(1, -1, layer.num_attention_heads, layer.attention_head_size).transpose(1, 2)

    query, key, value = map(heads, (layer.query(first), layer.key(hidden), layer.value(hidden)))
    weights = torch.softmax(query @ key.transpose(2, 3) * layer.attention_head_size**-0.5, dim=-1)
    mixed = (weights @ value).transpose(1, 2).reshape(1, 1, -1)
    out: torch.Tensor = attention.output(mixed, first)
    return out


def load(files: ModelFiles, kind: Kind) -> Rows:
    """The module that gives rows of shape (1, width): a pair's logits, or a text's unit vector."""
    model = open_model(files, kind)
    if kind == "cross_encoder":
        return Rows(model, "scores").eval()
    return Rows(model, "sentence_embedding", width=model.truncate_dim, unit=True).eval()


def forms(module: Rows) -> list[torch.nn.Module]:
    """Modules that give the same rows as `module`, the cheapest first; the last is `module`."""
    classifier = getattr(module.model, "model", None)
    family = getattr(getattr(classifier, "config", None), "model_type", None)
    if module.output == "scores" and family in FIRST_TOKEN_FAMILIES:
        return [FirstToken(classifier).eval(), module]
    return [module]


def to_onnx(module: torch.nn.Module, ids: Sequence[int], types: Sequence[int], path: Path) -> None:
    """Write the module's graph to `path`, traced on one sequence; it accepts any length."""
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (torch.tensor([ids]), torch.tensor([types])),
            str(path),
            input_names=["input_ids", "token_type_ids"],
            output_names=["row"],
            dynamic_axes={"input_ids": {1: "length"}, "token_type_ids": {1: "length"}},
            opset_version=17,
            dynamo=False,
        )


def gather(path: Path, data: str, largest: int) -> None:
    """Put the numbers of a graph that is too large for one file into one other file, not many."""
    if sum(file.stat().st_size for file in path.parent.iterdir()) <= largest:
        return
    graph = onnx.load(str(path))
    if max(len(matrix.raw_data) for matrix in graph.graph.initializer) >= 2**31:
        raise ValueError("one of its matrices has 2 GiB or more")
    for file in path.parent.iterdir():
        file.unlink()
    onnx.save_model(
        graph, str(path), save_as_external_data=True, all_tensors_to_one_file=True, location=data
    )
