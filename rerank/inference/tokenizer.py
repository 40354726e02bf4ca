"""Texts to tokens, by the fast tokenizer of a model folder. It knows nothing of the models."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rerank.errors import InputError, MissingExtraError, optional
from rerank.inference.model_files import ModelFiles
from rerank.progress import by_size

TOKENIZER_JSON = "tokenizer.json"  # in a model's folder
TOGETHER = 2**18  # characters tokenised at once: each takes some hundred bytes before truncation
SHIFTED = ("roberta", "mpnet", "camembert")  # families whose positions start after that of padding


@dataclass(frozen=True, slots=True)
class Tokens:
    """One tokenised text or pair; `cut` is True if it was longer than the maximum."""

    ids: tuple[int, ...]
    types: tuple[int, ...]
    cut: bool


class Tokenizer:
    """The fast tokenizer of a model folder, truncating to `max_length` tokens.

    `content` is that of its `tokenizer.json`, if the caller has already read it.
    """

    def __init__(self, folder: Path, *, max_length: int, content: bytes | None = None) -> None:
        longest = positions(folder)
        if max_length > longest:
            raise InputError(f"{folder.name} reads at most {longest} tokens, got {max_length}")
        try:
            self._fast = _fast_tokenizer(folder, content)
        except MissingExtraError:
            raise
        except Exception as error:  # the libraries raise bare exceptions
            raise InputError(f"{folder}: its tokenizer cannot be loaded: {error}") from error
        self.max_length = max_length
        self._fast.no_padding()
        self._fast.enable_truncation(max_length)

    def __call__(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> list[Tokens]:
        """Tokens of texts, or of pairs; a pair's longer side is truncated first."""
        return [
            Tokens(tuple(e.ids), tuple(e.type_ids), bool(e.overflowing))
            for group in by_size(texts, _length, TOGETHER)
            for e in self._fast.encode_batch(group)
        ]

    def spans(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """The characters at which each token begins and ends: one array (n, 2) per text.

        The texts are not truncated; special tokens are left out.
        """
        encoded = (
            e
            for group in by_size(texts, _length, TOGETHER)
            for e in self._fast.encode_batch(group, add_special_tokens=False)
        )
        spans = ([s for part in (e, *e.overflowing) for s in part.offsets] for e in encoded)
        return [np.array(of_text, dtype=np.int64).reshape(-1, 2) for of_text in spans]

    def room(self, *text: str) -> int:
        """How many more tokens than those of a text, or of a pair, can be read; at least 0."""
        return self.max_length - len(self._fast.encode(*text).ids)


def _length(text: Any) -> int:
    """Characters of a text, or of all texts of a pair."""
    return len(text) if isinstance(text, str) else sum(map(len, text))


def open_tokenizer(files: ModelFiles, *, max_length: int) -> Tokenizer:
    """The tokenizer of a model, checked against its hash.

    Raises:
        InputError: it cannot be loaded, or the model reads fewer tokens.
    """
    content = None if files.entries is None else files.read(TOKENIZER_JSON)
    return Tokenizer(files.folder, max_length=max_length, content=content)


def tokenizer_json(files: ModelFiles) -> bytes:
    """A model's tokenizer as one file, `tokenizer.json`, which gives the same tokens."""
    if files.entries is not None:
        return files.read(TOKENIZER_JSON)
    text: str = _fast_tokenizer(files.folder).to_str()
    return text.encode()


def _fast_tokenizer(folder: Path, content: bytes | None = None) -> Any:
    from tokenizers import Tokenizer as Fast

    if content is not None:
        return Fast.from_buffer(content)
    if (folder / TOKENIZER_JSON).is_file():
        return Fast.from_file(str(folder / TOKENIZER_JSON))
    with optional():
        from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(folder), local_files_only=True).backend_tokenizer


def positions(folder: Path) -> int:
    """How many tokens the model has positions for; unlimited if its configuration does not say."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return int(config["max_position_embeddings"]) - first_position(config)
    except (OSError, ValueError, KeyError, TypeError):
        return sys.maxsize


def first_position(config: Mapping[str, Any]) -> int:
    """The position of a sequence's first token, by the model's configuration."""
    shifted = any(family in config.get("model_type", "") for family in SHIFTED)
    return int(config["pad_token_id"]) + 1 if shifted else 0
