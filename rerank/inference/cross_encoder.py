"""Rerankers: pairs of query and passage to scores, without a sigmoid, and what was truncated."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import groupby, islice
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeAlias

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
    from rerank.inference.torch_models import LibraryScorer

    PairScorer: TypeAlias = "EngineScorer | LibraryScorer"

Pair = tuple[str, str]
Rows = Callable[[Sequence[Tokens]], NDArray[np.float32]]  # an engine
TOGETHER = 2**20  # pairs in one call: the engine divides them itself


@dataclass(frozen=True)
class EngineScorer:
    """Our own tokens, and an engine that runs them; it reads no instruction."""

    tokenizer: Tokenizer
    engine: Rows

    def __call__(
        self, pairs: Sequence[Pair], instruction: str = ""
    ) -> tuple[NDArray[np.float32], list[bool]]:
        """Rows of shape (n, outputs), and whether each pair was truncated."""
        tokens = self.tokenizer(pairs)
        return self.engine(tokens), [t.cut for t in tokens]

    def room(self, query: str, instruction: str = "") -> int:
        """How many tokens of a passage are read with a query."""
        return self.tokenizer.room(query, "")


@dataclass(eq=False)
class CrossEncoder:
    """The `Scorer` of a cross-encoder's files; the network is loaded at the first call.

    A pair's logit depends on the pair alone, except for the rounding of bf16. Of a longer passage
    the best of `windows` parts counts. Safe to call from many threads.
    """

    files: ModelFiles
    _: KW_ONLY
    max_length: int
    precision: Computed
    windows: int = 1
    instruction: str = ""
    _tokenizer: Tokenizer | None = None
    _opened_by: dict[bool, PairScorer] = field(default_factory=dict)  # if an instruction is read
    _loading: Any = field(default_factory=RLock)

    def __post_init__(self) -> None:
        files = self.files
        check_cross_encoder(files, self.precision, self.instruction)
        identity = f"{files.fingerprint}\0{self.precision}\0{self.max_length}\0{EXPORT_FORMAT}"
        if self.windows > 1 or self.instruction:
            identity += f"\0{self.windows}\0{self.instruction}"
        self.traits = Traits(files.name, identity, batch=TOGETHER)

    def with_instruction(self, instruction: str) -> CrossEncoder:
        """The same network with another instruction, which it must have a place for."""
        tokenizer = self.tokenizer() if self.windows > 1 else None
        return replace(self, instruction=instruction, _tokenizer=tokenizer)

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
        both = zip(best.tolist(), _of_pairs(cut, starts, more), strict=True)
        by_request = ([next(both) for _ in texts] for _, texts in requests)
        return [Scores(*zip(*scores, strict=True)) for scores in by_request]

    def truncates(self, pairs: Sequence[Pair]) -> list[bool]:
        """Whether each pair is truncated, without the network where our own tokens are its."""
        precision = self.precision
        scorer: PairScorer
        if precision == "bf16" or self.instruction or runs_in_library(self.files, precision):
            scorer = self._opened()
        else:
            nothing = np.zeros((len(pairs) * self.windows, 1), dtype=np.float32)
            scorer = EngineScorer(self.tokenizer(), lambda _: nothing)
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
                from rerank.inference.torch_models import LateInteraction, LibraryScorer
            for opened in self._opened_by.values():
                if isinstance(opened, LibraryScorer):  # opened with an instruction, or without
                    return opened
            stand_aside(self.files, error)
            bf16 = self.precision == "bf16"
            of_kind = LateInteraction if interacts_late(self.files) else LibraryScorer
            return of_kind(self.files, self.max_length, bf16=bf16)
        return EngineScorer(self.tokenizer(), engine)


def _of_pairs(cut: Sequence[bool], starts: Ints, more: Sequence[bool]) -> list[bool]:
    of_windows = np.logical_or.reduceat(cut, starts) if len(starts) else np.array(cut)
    return [bool(one or goes_on) for one, goes_on in zip(of_windows, more, strict=True)]


@dataclass(eq=False)
class Reranker:
    """A scorer of a model, and the cache of its scores if it has an identity to keep them under."""

    model: ModelFiles | Given
    scorer: Scorer
    cache: ScoreCache | None = None
    caching: bool = True  # False while the scorer is another one than at the fit
    instruction: str = ""  # of a query

    def __post_init__(self) -> None:
        self.cache = self.cache if self.scorer.traits.identity else None

    def with_instruction(self, instruction: str) -> Reranker:
        """The same model with the instruction of a query; an InputError if it reads none."""
        if not instruction:
            return self
        if not isinstance(self.scorer, Instructed):
            raise InputError(f"{self.model.name} reads no instruction; leave `instruction` out")
        instructed = self.scorer.with_instruction(instruction)
        return replace(self, scorer=instructed, instruction=instruction)

    @property
    def listwise(self) -> bool:
        """Whether a score depends on the other passages of its query."""
        return self.scorer.traits.listwise

    def score(self, pairs: Sequence[Pair], lists: Sequence[int] = ()) -> tuple[Floats, Bools]:
        """Scores of pairs, shape (n,), and whether each one was truncated.

        `lists` are the numbers of neighbouring pairs that are one list each, for a listwise scorer;
        by default the neighbours of one query are. What is in the cache is not scored again.
        """
        rest = iter(pairs)
        by_list = filter(None, (list(islice(rest, count)) for count in lists))
        by_query = (list(group) for _, group in groupby(pairs, key=lambda pair: pair[0]))
        groups = [(self._keys(group), group) for group in (by_list if lists else by_query)]
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
        of_given = f"{self.model.fingerprint}{self.instruction}"
        by = of_given if given else self.scorer.traits.identity
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
    if precision == "auto":
        raise InputError("`precision` (--precision) auto is for a calibration; name one here")
    scorer = CrossEncoder(
        model, max_length=max_length, precision=precision, windows=windows, instruction=instruction
    )
    return Reranker(model, scorer, cache)
