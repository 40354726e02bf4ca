"""What a model behind an address is recognised by: its numbers for a few fixed texts, the probe.

Nobody sees its weights, and it may change without a word. A model folder keeps its numbers of the
fit, and how far two runs differed. The last text is long, so that a model that begins to read less
of a text is found out too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rerank.errors import InputError
from rerank.inference.given import QUESTIONS, REPEATS, Given
from rerank.inference.given import TEXTS as SHORT
from rerank.inference.model_cache import cache_folder
from rerank.inference.remote.client import Client, RemoteEmbedder, RemoteScorer
from rerank.inference.remote.wires import address_of
from rerank.protocols import Request
from rerank.storage.files import loads, write_file

DIGITS = 2e-3  # allowed change of a number, as a share of their range: other cards round otherwise
ROUNDED = 1e-9  # numbers closer than this to few digits are rounded by the server
RUNS = 3  # of the probe at the fit
FILLER = "Chapter seven is about the history of the town, its mills, its river and its markets. "
TEXTS = (*SHORT[:3], f"{FILLER * 20}The median of a sample is its middle value. Run the setup.")
"""Four texts, so sixteen pairs with the questions; about 400 tokens in the last."""


@dataclass(frozen=True, slots=True)
class Shift:
    """How far the numbers of a remote model are from those of the fit.

    `gap` is the largest difference, `tolerance` what repeats allow. Numbers now are about
    `scale` times those of the fit plus `offset`, up to `rest`. `served` is what the server called
    the model then, and calls it now.
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
        now, then = self.probe(TEXTS), np.array(self.noted["probe"], dtype=np.float64)
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
    first = model.probe(TEXTS)
    kept = cache_folder() / f"probe-{hashlib.sha256(f'{role} {name}'.encode()).hexdigest()[:32]}"
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = replace(model, noted=loads(kept.read_bytes()))
        then = np.array(known.noted["probe"], dtype=np.float64)
        same = first.shape == then.shape and known.noted["served"] == model.model.client.served
        if same and np.abs(first - then).max() <= known.noted["tolerance"]:
            return _bound(known, _fingerprint(known.noted, role))
    noted = _measured(model, first)
    write_file(kept, json.dumps(noted))
    return _bound(replace(model, noted=noted), _fingerprint(noted, role))


def is_noted(entry: Any) -> bool:
    """Whether an entry of a manifest is that of a model behind an address."""
    return isinstance(entry, Mapping) and "wire" in entry


def remote_of_folder(noted: Mapping[str, Any], fingerprint: str, role: str) -> RemoteModel:
    """The model that the manifest of a model folder names; it is not asked yet."""
    try:
        model = _model(str(noted["name"]), role, of_folder=True, wire=noted["wire"])
        np.array(noted["probe"], dtype=np.float64) + noted["tolerance"]
        return _bound(replace(model, noted=noted), fingerprint)
    except (KeyError, TypeError) as error:
        raise InputError(f"what is noted of the {role} cannot be read: {error!r:.100}") from None


def _model(name: str, role: str, *, of_folder: bool, wire: int | None = None) -> RemoteModel:
    client = Client(address_of(name, role), wire, of_folder=of_folder)
    kind = RemoteScorer if role == "reranker" else RemoteEmbedder
    return RemoteModel(kind(client), "", {})


def _measured(model: RemoteModel, first: NDArray[np.float64]) -> dict[str, Any]:
    """What is noted of a model whose first probe is given."""
    again = [model.probe(TEXTS) for _ in range(RUNS - 1)]
    spread = max(float(np.abs(first - one).max()) for one in again)
    tolerance = DIGITS * max(float(np.ptp(first)), 1e-6) + REPEATS * spread
    rounded = [d for d in range(4) if np.abs(first - first.round(d)).max() < ROUNDED]
    if rounded:  # a last digit may turn
        tolerance = max(tolerance, 1.01 * 10.0 ** -rounded[0])
    listwise = False
    if isinstance(model.model, RemoteScorer):  # the first question, with its texts turned round
        turned = model.model.score([Request(QUESTIONS[0], TEXTS[::-1])])[0][::-1]
        listwise = not np.abs(np.array(turned) - first[: len(TEXTS)]).max() <= tolerance
    client = model.model.client
    return {
        "name": model.name,
        "identity": f"{model.name} {client.served}",
        "listwise": listwise,
        "cost": 0.0,
        "probe": first.tolist(),
        "tolerance": tolerance,
        "served": client.served,
        "wire": client.wire,
    }


def _bound(model: RemoteModel, fingerprint: str) -> RemoteModel:
    """The model as that of a fingerprint, with the traits that were noted."""
    traits, noted = model.model.traits, model.noted
    listwise = bool(noted["listwise"])
    model.model.traits = replace(traits, identity=str(noted["identity"]), listwise=listwise)
    return replace(model, fingerprint=fingerprint)


def _fingerprint(noted: Mapping[str, Any], role: str) -> str:
    return hashlib.sha256(json.dumps([role, noted], sort_keys=True).encode()).hexdigest()
