"""From torch weights to modules that score, and to ONNX files: what `engine` does once per model.

A cross-encoder reads its logit from the first token only, so its last layer needs only the keys and
values of the other tokens. Importing this file imports torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import onnx  # noqa: F401  # torch exports with it, and its error is unclear if it is missing
import torch

from rerank.errors import InputError, RerankError, optional
from rerank.inference.model_files import LOCAL, ModelFiles

FIRST_TOKEN_FAMILIES = ("bert", "roberta", "xlm-roberta")  # their layers have the parts used below

FP32 = {"dtype": torch.float32}  # whatever the file has: a CPU is slow at 16 bits


class Rows(torch.nn.Module):
    """(ids, types), each of shape (1, length), to one output of a sentence-transformers model."""

    def __init__(self, model: Any, output: str, *, unit: bool = False) -> None:
        super().__init__()
        self.model, self.output, self.unit = model, output, unit

    def forward(self, ids: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        """Rows of shape (1, width), of length 1 if `unit`."""
        features = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "token_type_ids": types,
        }
        output: torch.Tensor = self.model(features)[self.output]
        output = output if output.ndim == 2 else output.unsqueeze(-1)
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
        if body.pooler is None:  # RoBERTa's head takes the first token itself
            logits: torch.Tensor = self.model.classifier(first)
        else:
            logits = self.model.classifier(body.pooler(first))
        return logits


def _attend(attention: Any, hidden: torch.Tensor) -> torch.Tensor:
    """The attention block's output at the first token, (1, 1, width), from all tokens' `hidden`."""
    layer, first = attention.self, hidden[:, :1]

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.view(1, -1, layer.num_attention_heads, layer.attention_head_size).transpose(1, 2)

    query, key, value = (
        heads(layer.query(first)),
        heads(layer.key(hidden)),
        heads(layer.value(hidden)),
    )
    weights = torch.softmax(query @ key.transpose(2, 3) * layer.attention_head_size**-0.5, dim=-1)
    mixed = (weights @ value).transpose(1, 2).reshape(1, 1, -1)
    out: torch.Tensor = attention.output(mixed, first)
    return out


def load(files: ModelFiles, kind: Literal["cross_encoder", "bi_encoder"]) -> Rows:
    """The module that gives rows of shape (1, width).

    Raises:
        InputError: the model cannot be loaded as this kind.
    """
    try:
        with optional():
            return (cross_encoder if kind == "cross_encoder" else bi_encoder)(files.folder)
    except RerankError:
        raise
    except Exception as error:  # each library reports a broken file in its own way
        raise InputError(f"{files.name} cannot be loaded as a {kind}: {error}") from error


def cross_encoder(folder: Path) -> Rows:
    """A pair's logits, without any activation.

    Raises:
        InputError: the folder has no trained classification head.
    """
    from sentence_transformers import CrossEncoder
    from transformers import AutoModelForSequenceClassification

    loaded = AutoModelForSequenceClassification.from_pretrained(
        str(folder), output_loading_info=True, **LOCAL
    )[1]
    if loaded["missing_keys"]:
        raise InputError(
            f"{folder} is not a cross-encoder: it lacks {sorted(loaded['missing_keys'])}, which "
            "would be drawn at random; give a reranker, or train one with "
            "`rerank train cross-encoder`"
        )
    model = CrossEncoder(str(folder), device="cpu", model_kwargs=FP32, **LOCAL)
    return Rows(model, "scores").eval()


def bi_encoder(folder: Path) -> Rows:
    """A text's unit vector."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", model_kwargs=FP32, **LOCAL)
    return Rows(model, "sentence_embedding", unit=True).eval()


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
