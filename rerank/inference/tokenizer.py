"""Texts to tokens, by the fast tokenizer of a model folder. It knows nothing of the models."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rerank.errors import InputError, MissingExtraError, optional
from rerank.inference.model_files import ModelFiles
from rerank.normal_form import APART, IGNORED, beginning
from rerank.process import cores, local
from rerank.progress import by_size

TOKENIZER_JSON = "tokenizer.json"  # in a model's folder
TOGETHER = 2**18  # characters tokenised at once
FIRST = 16  # characters of a long text that are tokenised first, for each token that is wanted
READ = 2**16  # characters in which the first tokens of a text are looked for
COMPARED = 2**13  # tokens: of two longer sides of a pair, the one of more characters is longer
LAST = 128  # tokens at the end of a beginning; those of the text may differ
SHIFTED = ("roberta", "mpnet", "camembert")  # families whose positions start after that of padding


@dataclass(frozen=True, slots=True)
class Tokens:
    """One tokenised text or pair; `cut` is True if it was longer than the maximum."""

    ids: tuple[int, ...]
    types: tuple[int, ...]
    cut: bool


class Tokenizer:
    """The fast tokenizer of a model folder, or of the `content` of its `tokenizer.json`."""

    def __init__(self, folder: Path, *, max_length: int, content: bytes | None = None) -> None:
        check_length(folder.name, folder, max_length)
        try:
            self._fast = _fast_tokenizer(folder, content)
        except MissingExtraError:
            raise
        except Exception as error:  # the libraries raise bare exceptions
            raise InputError(f"{folder}: its tokenizer cannot be loaded: {error}") from error
        self.max_length = max_length
        from tokenizers import Regex, normalizers

        # after `normal_form`, so that nothing changes for a text that is in it already; spans
        # still count the given characters
        replaced = (Regex(IGNORED), ""), (Regex(APART), "^")
        steps = [*(normalizers.Replace(*pair) for pair in replaced), normalizers.NFKC()]
        own = self._fast.normalizer
        self._fast.normalizer = normalizers.Sequence(steps if own is None else [*steps, own])
        self._fast.no_padding()
        self._fast.no_truncation()
        self._frames = [_frame(self._fast.encode(*sides)) for sides in (("a",), ("a", "a"))]

    def __call__(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> list[Tokens]:
        """Tokens of texts, or of pairs; a pair's longer side is truncated first."""
        given = [(text,) if isinstance(text, str) else text for text in texts]
        different = list(dict.fromkeys(side for sides in given for side in sides))
        found = self._beginnings(different, self.max_length)
        ids = dict(zip(different, found, strict=True))
        return [self._tokens(sides, [ids[side] for side in sides]) for sides in given]

    def spans(self, texts: Sequence[str], *, most: int = sys.maxsize) -> list[NDArray[np.int64]]:
        """The characters at which the first `most` tokens and the next begin and end, (n, 2)."""
        found = self._beginnings(texts, most, "offsets")
        return [np.array(spans, dtype=np.int64).reshape(-1, 2) for spans in found]

    def room(self, *text: str) -> int:
        """How many more tokens than those of a text, or of a pair, can be read; at least 0."""
        tokens = self._tokens(text, self._beginnings(text, self.max_length))
        return self.max_length - len(tokens.ids)

    def parts(
        self, texts: Sequence[str], rooms: Sequence[int], most: int
    ) -> list[tuple[list[str], bool]]:
        """The first `most` windows of each text, of `rooms` tokens, and whether it goes on."""
        spans = self.spans(texts, most=(most + 2) * self.max_length)  # what follows moves no window
        found = []
        for text, of_tokens, room in zip(texts, spans, rooms, strict=True):
            if len(of_tokens) <= room or room < MIN_ROOM:
                found.append(([text], len(of_tokens) > room))
            else:
                found.append(windows_of(text, of_tokens, room, most=most))
        return found

    def _beginnings(
        self, texts: Sequence[str], most: int, part: str = "ids", *, first: int = FIRST
    ) -> list[Any]:
        """A `part` of the encoding of each text: that of its first `most` tokens, and one more.

        A beginning has the tokens of the text but for the `LAST` ones, which may belong to a word
        that goes on. Beginnings grow from `first` characters a token, at most to `READ`, as some
        characters give no tokens.
        """
        found: dict[str, Any] = {}
        left, size = list(dict.fromkeys(texts)), first * most
        longest = max(size, READ)
        while left:
            longer: list[str] = []
            begun = ((text, beginning(text, size)) for text in left)
            for group in by_size(begun, lambda both: len(both[1]), TOGETHER):
                begins, plain = [b for _, b in group], {"add_special_tokens": False}
                if cores() < (os.cpu_count() or 1):  # the library's threads are as many as all
                    encoded = [self._fast.encode(begin, **plain) for begin in begins]
                else:
                    encoded = self._fast.encode_batch(begins, **plain)
                for (text, begin), e in zip(group, encoded, strict=True):
                    if begin == text or len(e) > most + LAST or size == longest:
                        found[text] = getattr(e, part)[: most + 1]
                    else:
                        longer.append(text)
            left, size = longer, min(4 * size, longest)
        return [found[text] for text in texts]

    def _tokens(self, sides: Sequence[str], ids: Sequence[list[int]]) -> Tokens:
        """The tokens of a text, or of a pair, of whose sides `ids` are the first ones."""
        special, types = self._frames[len(sides) - 1]
        room = self.max_length - sum(map(len, special))
        lengths = [len(of_side) for of_side in ids]
        cut = sum(lengths) > room
        if cut and len(sides) == 1:
            lengths = [room]
        elif cut:  # if both are too long, each gets half; the longer one the larger half
            shorter = min(*lengths, room // 2)
            longer_first = lengths[0] > lengths[1]
            if room % 2 and min(lengths) > self.max_length:
                longer_first = self._is_longer(*sides)
            lengths = [room - shorter, shorter] if longer_first else [shorter, room - shorter]
        rows = list(special[0])
        for i, of_side in enumerate(ids):
            rows += [(token, types[i]) for token in of_side[: lengths[i]]] + special[i + 1]
        return Tokens(tuple(token for token, _ in rows), tuple(kind for _, kind in rows), cut)

    def _is_longer(self, first: str, second: str) -> bool:
        most = self.max_length
        while most < COMPARED:
            most *= 4
            lengths = list(map(len, self._beginnings((first, second), most, first=1)))
            if lengths[0] != lengths[1] or lengths[0] <= most:
                return lengths[0] > lengths[1]
        return len(first) > len(second)


MIN_ROOM = 32  # tokens; with fewer beside the title or query, only the beginning is read


def _frame(encoding: Any) -> tuple[list[list[tuple[int, int]]], list[int]]:
    """The special tokens before, between and after the sides, with their types; a side's types."""
    special: list[list[tuple[int, int]]] = [[]]
    types: list[int] = []
    parts = (encoding.ids, encoding.type_ids, encoding.sequence_ids)
    for token, kind, side in zip(*parts, strict=True):
        if side is None:
            special[-1].append((token, kind))
        elif side == len(types):
            types.append(kind)
            special.append([])
    return special, types


def windows_of(
    text: str, spans: NDArray[np.int64], room: int, *, most: int
) -> tuple[list[str], bool]:
    """The first `most` parts of a text, about `room` tokens each, and whether more follow.

    `spans` (n, 2), n > room, are the characters of its tokens. A part begins with a word, if one
    begins near: not every language has spaces. The last one has `room` tokens, up to the end.
    """
    after_space = np.flatnonzero(np.r_[True, spans[1:, 0] > spans[:-1, 1]])
    wanted = np.r_[np.arange(0, len(spans) - room, room), len(spans) - room]
    nearest = np.minimum(np.searchsorted(after_space, wanted), len(after_space) - 1)
    later = after_space[nearest] - wanted
    starts = np.unique(wanted + np.where((later >= 0) & (later <= room // 4), later, 0))
    begins = spans[starts, 0]
    ends = spans[np.minimum(starts + room, len(spans)) - 1, 1]
    parts = [text[begin:end] for begin, end in zip(begins, ends, strict=True)]
    return parts[:most], len(parts) > most


def open_tokenizer(files: ModelFiles, *, max_length: int) -> Tokenizer:
    """The tokenizer of a model, truncating to `max_length` tokens; checked against its hash."""
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

    return AutoTokenizer.from_pretrained(str(folder), **local()).backend_tokenizer


def positions(folder: Path) -> int:
    """How many tokens the model has positions for; unlimited if its configuration does not say."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return int(config["max_position_embeddings"]) - first_position(config)
    except (OSError, ValueError, KeyError, TypeError):
        return sys.maxsize


def check_length(name: str, folder: Path, max_length: int) -> None:
    """Refuse a length that a model has no positions for."""
    longest = positions(folder)
    if max_length > longest:
        raise InputError(f"{name} reads at most {longest} tokens, got {max_length}")


def first_position(config: Mapping[str, Any]) -> int:
    """The position of a sequence's first token, by the model's configuration."""
    shifted = any(family in config.get("model_type", "") for family in SHIFTED)
    return int(config["pad_token_id"]) + 1 if shifted else 0
