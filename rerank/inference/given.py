"""Models that no folder can hold, objects and models behind an address: a folder notes their probe.

The probe is their numbers for a few fixed texts, by which they are recognised.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rerank.errors import InputError
from rerank.inference.model_cache import cache_folder
from rerank.inference.remote.client import Client, RemoteEmbedder, RemoteScorer
from rerank.inference.remote.wires import address_of
from rerank.process import in_threads
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
from rerank.storage.files import loads, write_file

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
REMOTE_DIGITS = 2e-3  # likewise of a model behind an address: other cards round otherwise
ROUNDED = 1e-9  # numbers closer than this to few digits are rounded by the server
RUNS = 3  # of the probe at the fit
FILLER = "Chapter seven is about the history of the town, its mills, its river and its markets. "
LONG = f"{FILLER * 20}The median of a sample is its middle value. Run the setup."
REMOTE_TEXTS = (*TEXTS[:3], LONG)  # 400 tokens: a model that begins to read less is found out too


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
            _check_takes(choice, role, ("query", "texts") if kind is Scorer else ("texts",))
            choice = FunctionScorer(choice) if kind is Scorer else FunctionEmbedder(choice)
        elif kind is Scorer:
            _check_takes(choice.score, f"{role}'s `score`", ("requests",))
        else:
            _check_takes(choice.embed, f"{role}'s `embed`", ("texts", "role"))
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
        return self.measured([self.probe(), self.probe()], DIGITS)

    def measured(self, runs: Sequence[NDArray[np.float64]], digits: float) -> dict[str, Any]:
        """That entry from runs of the probe; `digits`: allowed change, as a share of the range."""
        traits, (first, *others) = self.model.traits, runs
        spread = max(float(np.abs(first - other).max()) for other in others)
        return {
            "name": traits.name,
            "identity": traits.identity,
            "listwise": traits.listwise,
            "cost": traits.cost,
            "probe": first.tolist(),
            "tolerance": digits * max(float(np.ptp(first)), 1e-6) + REPEATS * spread,
        }

    def bound_to(self, recorded: Mapping[str, Any], fingerprint: str, role: str) -> Given:
        """The model as that of a folder with this entry of its manifest, and this fingerprint."""
        traits = self.model.traits
        named = bool(recorded.get("identity") or traits.identity)  # else the probe decides
        for part, here in (("name", traits.name), ("identity", traits.identity))[not named :]:
            if recorded.get(part) != here:
                raise InputError(
                    f"the {role} has the {part} {here!r}, and had {recorded.get(part)!r} at the "
                    "calibration; pass that one, or calibrate again"
                )
        if bool(recorded.get("listwise")) != traits.listwise:
            raise InputError(f"the {role} is listwise then or now, not both times; calibrate again")
        expected, now = np.asarray(recorded["probe"], dtype=np.float64), self.probe()
        gap = float(np.abs(now - expected).max()) if now.shape == expected.shape else np.inf
        if not gap <= recorded["tolerance"]:
            raise InputError(
                f"the {role} {traits.name!r} gives other numbers than at the calibration: they "
                f"differ by {gap:.3g}, allowed are {recorded['tolerance']:.3g}; pass the same one, "
                "or calibrate again"
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


def _check_takes(function: Callable[..., Any], what: str, names: tuple[str, ...]) -> None:
    """Refuse a function that cannot be called with so many arguments, if it says what it takes."""
    try:
        takes = signature(function)
    except (TypeError, ValueError):  # of C
        return
    try:
        takes.bind(*names)
    except TypeError:
        expected = f"expected a function of {' and '.join(f'`{name}`' for name in names)}"
        raise InputError(f"the {what} takes {takes}; {expected}") from None


def scores_of(
    scorer: Scorer, requests: Sequence[Request], keep: Keep = lambda *_: None
) -> list[Checked]:
    """The scores of each request (n,), and whether each text was truncated, checked.

    The scorer gets about `batch` texts at once, in as many threads as it allows. `keep` is called
    with the first request of each batch, counted from 0, and its scores, as soon as they are there.
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


@dataclass(frozen=True, slots=True)
class Shift:
    """How far the numbers of a remote model are from those of the fit.

    `gap` is the largest difference, `tolerance` what repeats allow. Numbers now are about `scale`
    times those of the fit plus `offset`, up to `rest`. `served`: its name at the server then, now.
    """

    name: str
    gap: float
    tolerance: float
    scale: float
    offset: float
    rest: float
    served: tuple[str, str]

    @property
    def shifted(self) -> bool:
        """Whether it is another model than that of the fit."""
        return not self.gap <= self.tolerance or self.served[0] != self.served[1]

    @property
    def affine(self) -> bool:
        """Whether a scale and an offset explain the numbers: the order of passages is the same."""
        return self.scale > 0 and self.rest <= self.tolerance * max(1.0, self.scale)

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        allowed = f"allowed are {self.tolerance:.2g}"
        if not self.shifted:
            return f"{self.name}: as at the fit (differs by {self.gap:.2g}, {allowed})"
        called = ""
        if self.served[0] != self.served[1]:
            called = f"is called {self.served[1]!r:.80} and was {self.served[0]!r:.80}; "
        if self.gap <= self.tolerance:
            return f"{self.name}: {called}its numbers are the same"
        mend = f"no scale and offset explain it ({self.rest:.2g} remain)"
        if self.affine:
            mend = f"a scale of {self.scale:.3g} and an offset of {self.offset:+.3g} explain it"
        return f"{self.name}: {called}its numbers differ by {self.gap:.2g}, {allowed}; {mend}"


@dataclass(frozen=True, slots=True)
class RemoteModel(Given):
    """A model behind an address, and what is noted of it."""

    model: RemoteScorer | RemoteEmbedder
    noted: Mapping[str, Any]

    place = "is behind an address"

    def described(self) -> dict[str, Any]:
        """The entry of a manifest: the probe of the fit."""
        return dict(self.noted)

    @property
    def renamed(self) -> bool:
        """Whether the server called the model otherwise in its last answer than at the fit."""
        return self.model.client.served not in ("", self.noted["served"])

    def shift(self) -> Shift:
        """How far it is from what was noted; this asks the model."""
        now, then = self.probe(REMOTE_TEXTS), np.array(self.noted["probe"], dtype=np.float64)
        tolerance = float(self.noted["tolerance"])
        served = (str(self.noted["served"]), self.model.client.served)
        if now.shape != then.shape:  # vectors of another width
            return Shift(self.name, np.inf, tolerance, 0.0, 0.0, np.inf, served)
        scale, offset = np.polyfit(then, now, 1).tolist() if np.ptp(then) else (1.0, 0.0)
        rest, gap = np.abs(now - scale * then - offset).max(), np.abs(now - then).max()
        return Shift(self.name, float(gap), tolerance, scale, offset, float(rest), served)


def lost(model: RemoteModel) -> Shift:
    """The shift of a model that does not answer: nothing is known of it."""
    served = str(model.noted["served"])
    return Shift(model.name, np.inf, 0.0, 0.0, 0.0, np.inf, (served, served))


def open_remote(name: str, role: str) -> RemoteModel:
    """The model of an address, probed now.

    The first probe is kept in the user's cache: as long as the model is the same, its fingerprint
    is too, so a run that was interrupted finds the scores that it has paid for.
    """
    model = _model(name, role, of_folder=False)
    first = model.probe(REMOTE_TEXTS)
    kept = cache_folder() / f"probe-{hashlib.sha256(f'{role} {name}'.encode()).hexdigest()[:32]}"
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = loads(kept.read_bytes())
        then = np.array(known["probe"], dtype=np.float64)
        same = first.shape == then.shape and known["served"] == model.model.client.served
        if same and np.abs(first - then).max() <= known["tolerance"]:
            return _bound(model, known, role)
    noted = _measured(model, first)
    write_file(kept, json.dumps(noted))
    return _bound(model, noted, role)


def is_noted(entry: Any) -> bool:
    """Whether an entry of a manifest is that of a model behind an address."""
    return isinstance(entry, Mapping) and "wire" in entry


def remote_of_folder(noted: Mapping[str, Any], fingerprint: str, role: str) -> RemoteModel:
    """The model that the manifest of a model folder names; it is not asked yet."""
    try:
        model = _model(str(noted["name"]), role, of_folder=True, wire=noted["wire"])
        np.array(noted["probe"], dtype=np.float64) + noted["tolerance"]
        return replace(_bound(model, noted, role), fingerprint=fingerprint)
    except (KeyError, TypeError) as error:
        raise InputError(f"what is noted of the {role} cannot be read: {error!r:.100}") from None


def _model(name: str, role: str, *, of_folder: bool, wire: int | None = None) -> RemoteModel:
    client = Client(address_of(name, role), wire, of_folder=of_folder)
    kind = RemoteScorer if role == "reranker" else RemoteEmbedder
    return RemoteModel(kind(client), "", {})


def _measured(model: RemoteModel, first: NDArray[np.float64]) -> dict[str, Any]:
    again = [model.probe(REMOTE_TEXTS) for _ in range(RUNS - 1)]
    noted = model.measured([first, *again], REMOTE_DIGITS)
    rounded = [d for d in range(4) if np.abs(first - first.round(d)).max() < ROUNDED]
    if rounded:  # a last digit may turn
        noted["tolerance"] = max(noted["tolerance"], 1.01 * 10.0 ** -rounded[0])
    if isinstance(model.model, RemoteScorer):  # the first question, with its texts turned round
        turned = model.model.score([Request(QUESTIONS[0], REMOTE_TEXTS[::-1])])[0][::-1]
        gap = np.abs(np.array(turned) - first[: len(REMOTE_TEXTS)]).max()
        noted["listwise"] = not gap <= noted["tolerance"]
    client = model.model.client
    noted["identity"] = f"{model.name} {client.served}"
    return {**noted, "served": client.served, "wire": client.wire}


def _bound(model: RemoteModel, noted: Mapping[str, Any], role: str) -> RemoteModel:
    """The model as what is noted of it says, with the traits and the fingerprint of that."""
    text = json.dumps([role, noted], sort_keys=True)
    of_fit: dict[str, Any] = {
        "identity": str(noted["identity"]),
        "listwise": bool(noted["listwise"]),
    }
    model.model.traits = replace(model.model.traits, **of_fit)
    return replace(model, noted=noted, fingerprint=hashlib.sha256(text.encode()).hexdigest())
