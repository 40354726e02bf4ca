"""Rerankers: pairs of query and passage to scores, and whether a pair was truncated.

A `Reranker` keeps the scores of any `Scorer`. `CrossEncoder` is the scorer of a model on this
machine: any with one output that sentence-transformers' CrossEncoder loads, without a sigmoid.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rerank.config import Computed, Precision
from rerank.errors import InputError, optional
from rerank.inference.engine import (
    EXPORT_FORMAT,
    NoExportError,
    check_reads_pairs,
    open_engine,
    runs_in_library,
    stand_aside,
)
from rerank.inference.given import Checked, Given, scores_of
from rerank.inference.model_files import ModelFiles, check_cross_encoder, interacts_late
from rerank.inference.score_cache import ScoreCache
from rerank.inference.tokenizer import READ, Tokenizer, Tokens, open_tokenizer
from rerank.normal_form import normal_form
from rerank.protocols import Instructed, Request, Scorer, Scores, Traits
from rerank.types import Bools, Floats, Ints

if TYPE_CHECKING:
    from rerank.inference.library import LibraryScorer

    PairScorer: TypeAlias = "EngineScorer | LibraryScorer"

Pair = tuple[str, str]
Rows = Callable[[Sequence[Tokens]], NDArray[np.float32]]  # an engine
TOGETHER = 2**20  # pairs in one call: the engine divides them itself


class EngineScorer:
    """Our own tokens, and an engine that runs them; it reads no instruction."""

    def __init__(self, tokenizer: Tokenizer, engine: Rows) -> None:
        self._tokenizer, self._engine = tokenizer, engine

    def __call__(
        self, pairs: Sequence[Pair], instruction: str = ""
    ) -> tuple[NDArray[np.float32], list[bool]]:
        """Rows of shape (n, outputs), and whether each pair was truncated."""
        tokens = self._tokenizer(pairs)
        return self._engine(tokens), [t.cut for t in tokens]

    def room(self, query: str, instruction: str = "") -> int:
        """How many tokens of a passage are read with a query."""
        return self._tokenizer.room(query, "")


class CrossEncoder:
    """The `Scorer` of a cross-encoder's files; the network is loaded at the first call.

    A pair's logit depends on the pair alone, not on its neighbours, their number or order, except
    for the rounding of bf16. Of a longer passage the best of `windows` parts counts. Safe to call
    from many threads; only one of them loads the network.
    """

    def __init__(
        self,
        files: ModelFiles,
        *,
        max_length: int,
        precision: Precision,
        windows: int = 1,
        instruction: str = "",
    ) -> None:
        check_cross_encoder(files, precision, instruction)
        if precision == "auto":
            raise InputError("`precision` (--precision) auto is for a calibration; name one here")
        self.files = files
        self.max_length = max_length
        self.precision: Computed = precision
        self.windows = windows
        self.instruction = instruction
        identity = f"{files.fingerprint}\0{precision}\0{max_length}\0{EXPORT_FORMAT}"
        if windows > 1 or instruction:
            identity += f"\0{windows}\0{instruction}"
        self.traits = Traits(files.name, identity, batch=TOGETHER)
        self._tokenizer: Tokenizer | None = None
        self._opened_by: dict[bool, PairScorer] = {}  # by whether an instruction is read
        self._loading = Lock()

    def with_instruction(self, instruction: str) -> CrossEncoder:
        """The same network with another instruction, which it must have a place for."""
        check_cross_encoder(self.files, self.precision, instruction)
        made = CrossEncoder(
            self.files,
            max_length=self.max_length,
            precision=self.precision,
            windows=self.windows,
            instruction=instruction,
        )
        made._opened_by, made._loading = self._opened_by, self._loading
        made._tokenizer = self.tokenizer() if self.windows > 1 else None
        return made

    def score(self, requests: Sequence[Request]) -> list[Scores]:
        """Logits, and whether each pair was truncated to `max_length` tokens."""
        pairs = [(query, text) for query, texts in requests for text in texts]
        scorer = self._opened()
        read, starts, more = self._windows(pairs, scorer.room)
        rows, cut = scorer(read, self.instruction)
        if rows.shape[1] != 1:
            raise InputError(
                f"{self.files.name} has {rows.shape[1]} outputs; expected one, as rerankers have"
            )
        if not np.isfinite(rows).all():
            raise InputError(
                f"{self.files.name} gives logits that are not finite; its weights are broken"
            )
        best = np.maximum.reduceat(rows[:, 0], starts) if read else rows[:, 0]
        cut = _of_pairs(cut, starts, more)
        both = zip(best.tolist(), cut, strict=True)
        by_request = ([next(both) for _ in texts] for _, texts in requests)
        return [Scores(*zip(*scores, strict=True)) for scores in by_request]

    def truncates(self, pairs: Sequence[Pair]) -> list[bool]:
        """Whether each pair is truncated, without the network where our own tokens are its."""
        if self.precision != "bf16" and not (
            self.instruction or runs_in_library(self.files, self.precision)
        ):
            tokenizer = self.tokenizer()
            read, starts, more = self._windows(pairs, lambda query, _: tokenizer.room(query, ""))
            return _of_pairs([t.cut for t in tokenizer(read)], starts, more)
        scorer = self._opened()
        read, starts, more = self._windows(pairs, scorer.room)
        return _of_pairs(scorer(read, self.instruction)[1], starts, more)

    def _windows(
        self, pairs: Sequence[Pair], room: Callable[[str, str], int]
    ) -> tuple[list[Pair], Ints, list[bool]]:
        """Each window as a pair, where those of each pair start, and whether its text goes on."""
        if self.windows == 1:
            return list(pairs), np.arange(len(pairs)), [False] * len(pairs)
        rooms = {query: room(query, self.instruction) for query in dict(pairs)}
        beside = [rooms[query] for query, _ in pairs]
        parts = self.tokenizer().parts([text for _, text in pairs], beside, self.windows)
        read = [(q, part) for (q, _), (of, _) in zip(pairs, parts, strict=True) for part in of]
        starts = np.cumsum([0, *(len(of) for of, _ in parts)])[:-1]
        return read, starts, [more for _, more in parts]

    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, which is loaded without the network."""
        with self._loading:
            return self._our_tokenizer()

    def _our_tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            self._tokenizer = open_tokenizer(self.files, max_length=self.max_length)
        return self._tokenizer

    def _opened(self) -> PairScorer:
        instructed = bool(self.instruction)
        with self._loading:
            if instructed not in self._opened_by:
                self._opened_by[instructed] = self._open()
            return self._opened_by[instructed]

    def _open(self) -> PairScorer:
        """The fastest engine that gives the numbers of sentence-transformers."""
        try:
            check_reads_pairs(self.files)
            if self.instruction:
                raise NoExportError("it reads an instruction")
            if self.precision == "bf16":
                with optional():
                    from rerank.inference.varlen import open_unpadded  # and torch
                engine: Rows = open_unpadded(self.files)
            else:
                engine = open_engine(self.files, "cross_encoder", self.precision)
        except NoExportError as error:
            with optional():
                from rerank.inference.library import LateInteraction, LibraryScorer
            for opened in self._opened_by.values():
                if isinstance(opened, LibraryScorer):  # opened with an instruction, or without
                    return opened
            stand_aside(self.files, error)
            bf16 = self.precision == "bf16"
            of_kind = LateInteraction if interacts_late(self.files) else LibraryScorer
            return of_kind(self.files, self.max_length, bf16=bf16)
        return EngineScorer(self._our_tokenizer(), engine)


def _of_pairs(cut: Sequence[bool], starts: Ints, more: Sequence[bool]) -> list[bool]:
    """Whether a pair is truncated: a window of it, or its text after the last one."""
    if not len(starts):
        return []
    found: list[bool] = (np.logical_or.reduceat(cut, starts) | np.array(more)).tolist()
    return found


class Reranker:
    """A scorer, and the cache of its scores if it has an identity to keep them under.

    `model` is what it was opened from: files on this machine, or an object.
    """

    def __init__(
        self, model: ModelFiles | Given, scorer: Scorer, cache: ScoreCache | None = None
    ) -> None:
        self.model = model
        self.scorer = scorer
        self.cache = cache if scorer.traits.identity else None
        self.caching = True  # False while the scorer is another one than at the fit
        self._instruction = ""  # of a query

    def with_instruction(self, instruction: str) -> Reranker:
        """The same model with the instruction of a query; "": itself.

        Raises:
            InputError: the model reads none.
        """
        if not instruction:
            return self
        if not isinstance(self.scorer, Instructed):
            raise InputError(f"{self.model.name} reads no instruction; leave `instruction` out")
        made = Reranker(self.model, self.scorer.with_instruction(instruction), self.cache)
        made.caching, made._instruction = self.caching, instruction
        return made

    @property
    def listwise(self) -> bool:
        """Whether a score depends on the other passages of its query."""
        return self.scorer.traits.listwise

    def score(self, pairs: Sequence[Pair], lists: Sequence[int] = ()) -> tuple[Floats, Bools]:
        """Scores of pairs, shape (n,), and whether each one was truncated.

        `lists` are the numbers of neighbouring pairs that are one list each, for a listwise scorer;
        by default the neighbours of one query are. What is in the cache is not scored again.
        """
        groups = [(self._keys(group), group) for group in _groups(pairs, lists)]
        keys = [key for of_group, _ in groups for key in of_group]
        cache = self.cache if self.caching else None
        score_of = cache.get(keys) if cache else {}
        missing: dict[bytes, Pair] = {}
        requests: list[Request] = []
        for of_group, group in groups:
            known = [key in score_of or key in missing for key in of_group]
            if self.listwise and not all(known):
                known = [False] * len(known)
            new = {k: p for k, p, old in zip(of_group, group, known, strict=True) if not old}
            if new:
                requests.append(Request(group[0][0], [text for _, text in new.values()]))
                missing |= new
        if missing:
            new_keys, ends = list(missing), np.cumsum([0, *(len(r.texts) for r in requests)])

            def keep(start: int, scored: Sequence[Checked]) -> None:
                logits, cut = (np.concatenate(p).tolist() for p in zip(*scored, strict=True))
                of_batch = new_keys[ends[start] : ends[start + len(scored)]]
                fresh = dict(zip(of_batch, zip(logits, cut, strict=True), strict=True))
                if cache:
                    cache.put(fresh)
                score_of.update(fresh)

            scores_of(self.scorer, requests, keep)
        scores = [score_of[key] for key in keys]
        logits = np.array([logit for logit, _ in scores], dtype=np.float64)
        return logits, np.array([cut for _, cut in scores], dtype=np.bool_)

    def truncates(self, pairs: Sequence[Pair]) -> Bools:
        """Whether each pair is longer than the model reads, as far as that is known, shape (n,)."""
        if not isinstance(self.scorer, CrossEncoder):
            return np.zeros(len(pairs), dtype=np.bool_)
        return np.array(self.scorer.truncates(pairs), dtype=np.bool_)

    def _keys(self, group: Sequence[Pair]) -> list[bytes]:
        """For each pair of a list 16 bytes, of the model and all that it reads for the score."""
        if self.listwise:
            texts = [group[0][0], *(text for _, text in group)]
            return [self._key([*texts, str(place)]) for place in range(len(group))]
        return [self._key(pair) for pair in group]

    def _key(self, texts: Sequence[str]) -> bytes:
        given = isinstance(self.model, Given)
        by = self.scorer.traits.identity
        if given:
            by = f"{self.model.fingerprint}{self._instruction}"
        state = hashlib.sha256(by.encode())
        for text in texts:
            # a tokenizer reads the normal form, which is slow to make of a long text; what another
            # model reads is not known
            as_given = given or len(text) > READ
            content = (text if as_given else normal_form(text)).encode()
            state.update(len(content).to_bytes(8, "big") + content)
        return state.digest()[:16]


def open_reranker(
    model: ModelFiles | Given,
    *,
    max_length: int,
    windows: int = 1,
    instruction: str = "",
    precision: Precision = "fp32",
    cache: ScoreCache | None = None,
) -> Reranker:
    """The reranker of a model; the other options are of a network on this machine."""
    if isinstance(model, Given):
        assert isinstance(model.model, Scorer)
        return Reranker(model, model.model, cache).with_instruction(instruction)
    scorer = CrossEncoder(
        model, max_length=max_length, precision=precision, windows=windows, instruction=instruction
    )
    return Reranker(model, scorer, cache)


def _groups(pairs: Sequence[Pair], lists: Sequence[int]) -> Iterator[list[Pair]]:
    if not lists:
        return (list(group) for _, group in groupby(pairs, key=lambda pair: pair[0]))
    rest = iter(pairs)
    return filter(None, (list(islice(rest, count)) for count in lists))
