"""Models that are given as objects or functions: checked, and recognised by what they answer.

No folder can hold such a model. A model folder notes its name, its identity, and its numbers for a
few fixed texts, the probe; whoever loads the folder passes the same model again.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rerank.cores import in_threads
from rerank.errors import InputError
from rerank.protocols import (
    Embedder,
    FunctionEmbedder,
    FunctionScorer,
    Request,
    Role,
    Scorer,
    Scores,
    Traits,
)

Checked = tuple[NDArray[np.float64], NDArray[np.bool_]]  # scores, and which texts were cut off
Keep = Callable[[int, Sequence[Checked]], None]
DIGITS = 1e-4  # allowed change of a probe's number, as a share of their range
REPEATS = 3.0  # times the change between two runs that is allowed, too
TEXTS = (
    "The median is the middle value of a sorted sample.",
    "Sourdough bread rises for twelve hours before it is baked.",
    "Installation: download the archive, unpack it, and run the setup.",
    "No. " + "This text says the same thing over and over again. " * 12,
)
QUESTIONS = (
    "what is the median of a sample",
    "how do I install it?",
    "does the text repeat itself",
    "brot backen 24 °C",
)


@dataclass(frozen=True, slots=True)
class Given:
    """A model given as an object: what a model folder is bound to, as `ModelFiles` of files.

    The fingerprint is of name and identity. A model without an identity is bound to this object
    alone; when a folder is loaded with one that passes the probe, it takes the folder's.
    """

    model: Scorer | Embedder
    fingerprint: str

    tokenizer = ""  # part of the model, and unknown
    place = "was given as an object"  # in messages

    @classmethod
    def of(cls, choice: Any, role: str) -> Given:
        """The model of a choice for the `reranker` or the `encoder` that is no name."""
        kind: Any = Scorer if role == "reranker" else Embedder
        if not isinstance(choice, kind):
            if not callable(choice) or isinstance(choice, (type, Scorer, Embedder)):
                method = "score" if kind is Scorer else "embed"
                raise InputError(
                    f"the {role} should be a name, a function, or an object with the method "
                    f"`{method}` and `traits` (rerank.Traits), got {choice!r:.100}"
                )
            choice = FunctionScorer(choice) if kind is Scorer else FunctionEmbedder(choice)
        if not isinstance(choice.traits, Traits):
            raise InputError(
                f"`traits` of the {role} should be rerank.Traits, got {choice.traits!r:.100}"
            )
        secret = choice.traits.identity or f"only this object {uuid.uuid4()}"
        text = f"{role}\0{choice.traits.name}\0{secret}"
        return cls(choice, hashlib.sha256(text.encode()).hexdigest())

    @property
    def name(self) -> str:
        """The name in reports and messages."""
        return self.model.traits.name

    def described(self) -> dict[str, Any]:
        """The entry of a manifest: what has to be passed to load the folder, and its probe."""
        traits = self.model.traits
        first, again = self.probe(), self.probe()
        tolerance = DIGITS * max(float(np.ptp(first)), 1e-6)
        return {
            "name": traits.name,
            "identity": traits.identity,
            "listwise": traits.listwise,
            "cost": traits.cost,
            "probe": first.tolist(),
            "tolerance": tolerance + REPEATS * float(np.abs(first - again).max()),
        }

    def bound_to(self, recorded: Mapping[str, Any], fingerprint: str, role: str) -> Given:
        """The model as that of a folder with this entry of its manifest, and this fingerprint.

        Without an identity a name is only what a function happens to be called: the probe decides.
        """
        traits = self.model.traits
        named = bool(recorded.get("identity") or traits.identity)
        for part, here in (("name", traits.name), ("identity", traits.identity))[not named :]:
            if recorded.get(part) != here:
                raise InputError(
                    f"the {role} has the {part} {here!r}, and had {recorded.get(part)!r} when the "
                    "model was calibrated; pass that one, or calibrate again"
                )
        if bool(recorded.get("listwise")) != traits.listwise:
            raise InputError(f"the {role} is listwise then or now, not both times; calibrate again")
        expected, now = np.asarray(recorded["probe"], dtype=np.float64), self.probe()
        gap = float(np.abs(now - expected).max()) if now.shape == expected.shape else np.inf
        if not gap <= recorded["tolerance"]:
            raise InputError(
                f"the {role} {traits.name!r} gives other numbers than when the model was "
                f"calibrated: for fixed texts they differ by {gap:.3g}, allowed are "
                f"{recorded['tolerance']:.3g}; pass the same one, or calibrate again"
            )
        return replace(self, fingerprint=fingerprint)

    def probe(self, texts: Sequence[str] = TEXTS) -> NDArray[np.float64]:
        """Numbers (n,) of the model for fixed texts."""
        if isinstance(self.model, Scorer):
            requests = [Request(question, texts) for question in QUESTIONS]
            return np.concatenate([values for values, _ in scores_of(self.model, requests)])
        queries = vectors_of(self.model, QUESTIONS, "query").astype(np.float64)
        passages = vectors_of(self.model, texts, "passage").astype(np.float64)
        return np.concatenate([(queries @ passages.T).ravel(), passages[:, :8].ravel()])


def scores_of(
    scorer: Scorer, requests: Sequence[Request], keep: Keep = lambda *_: None
) -> list[Checked]:
    """The scores of each request (n,), and whether each text was truncated, checked.

    The scorer gets about `batch` texts at once, in as many threads as it allows. `keep` is called
    with the first request of each batch, counted from 0, and the scores of the batch, as soon as
    they are there, so that they are kept where a later batch fails.
    """
    name, starts, size = scorer.traits.name, list[int](), 0
    for i, request in enumerate(requests):
        if not starts or size + len(request.texts) > scorer.traits.batch:
            starts, size = [*starts, i], 0
        size += len(request.texts)

    def score(part: slice) -> list[Checked]:
        group = requests[part]
        answers = _as_many(scorer.score(group), len(group), f"{name}: lists of scores")
        checked: list[Checked] = []
        for request, answer in zip(group, answers, strict=True):
            count = len(request.texts)
            values, cut = answer if isinstance(answer, Scores) else (answer, [False] * count)
            numbers = _numbers(values, (count,), f"{name} should give one number for each text")
            flags = _as_many(cut, count, f"{name}: `truncated`")
            checked.append((numbers, np.array(flags, dtype=np.bool_)))
        keep(part.start, checked)
        return checked

    parts = [slice(*ends) for ends in pairwise([*starts, len(requests)])]
    made = in_threads(score, parts, scorer.traits.threads)
    return [one for of_part in made for one in of_part]


def vectors_of(embedder: Embedder, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
    """The unit vectors (n, d) of texts of one role, checked."""
    size, name = embedder.traits.batch, embedder.traits.name
    chunks = [texts[start : start + size] for start in range(0, len(texts), size)]
    made = in_threads(lambda chunk: embedder.embed(chunk, role), chunks, embedder.traits.threads)
    vectors = [
        _numbers(given, (len(chunk), None), f"{name} should give an array (n, d) for n texts")
        for chunk, given in zip(chunks, made, strict=True)
    ]
    if len({of_chunk.shape[1] for of_chunk in vectors}) > 1:
        raise InputError(f"{name} gives vectors of different widths")
    rows = np.concatenate(vectors)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if not norms.all():
        raise InputError(f"{name} gives a vector of zeros, whose direction is unknown")
    return np.asarray(rows / norms, dtype=np.float32)


def _as_many(values: Any, count: int, what: str) -> Any:
    try:
        length = len(values)
    except TypeError:
        raise InputError(f"{what}: expected {count}, got {values!r:.100}") from None
    if length != count:
        raise InputError(f"{what}: expected {count}, got {length}")
    return values


def _numbers(values: Any, shape: tuple[int | None, ...], what: str) -> NDArray[np.float64]:
    """The values as finite numbers of a shape, in which None is any width."""
    try:
        array = np.asarray(values)
        numbers = array.astype(np.float64) if array.dtype.kind in "buif" else np.empty(0)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    fits = numbers.ndim == len(shape) and all(
        n in (None, m) for n, m in zip(shape, numbers.shape, strict=True)
    )
    if not fits or (numbers.ndim == 2 and not numbers.shape[1]):
        raise InputError(f"{what} ({shape[0]} of them), got {values!r:.100}")
    if not np.isfinite(numbers).all():
        raise InputError(f"{what}, and all finite; got {numbers[~np.isfinite(numbers)][0]}")
    return numbers
