"""Maps pooled over many labelled sets: what is known of relevance before the first label.

They are stored as plain numbers beside the weights whose scores they were fitted on. It knows
nothing of how they are fitted.
"""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rerank.assessment.fitted_maps import FittedMaps, maps_from_dict, maps_to_dict
from rerank.assessment.model_folder import fingerprints
from rerank.config import Config
from rerank.errors import InputError
from rerank.inference.model_files import BUNDLED, Model, ModelFiles
from rerank.storage.files import parse_json
from rerank.types import Mode

FILES = "pooled.json"  # in the folder of bundled weights, and beside any other: NAME.pooled.json
MADE_BY = "`rerank train prior SETS --reranker FOLDER --out FOLDER.pooled.json` makes them"


@dataclass(frozen=True, slots=True)
class PooledMaps:
    """The maps of each mode, the models whose scores they need, and the sets fitted on."""

    maps: Mapping[Mode, FittedMaps]
    fingerprints: Mapping[str, Any]  # see `scored_by`
    sets: Sequence[Mapping[str, Any]]  # name, digest, licence, and counts of each set
    measured: Mapping[str, Any] = field(default_factory=dict)  # leave-one-set-out figures
    marks: frozenset[str] = frozenset()  # of every query fitted on (`rerank.data.grouping`)

    def described(self) -> dict[str, Any]:
        """The manifest entry of a model that was fitted around these maps."""
        text = json.dumps(maps_to_dict(self.maps), sort_keys=True).encode()
        digest = hashlib.sha256(text).hexdigest()
        return {"sets": [fitted_on["name"] for fitted_on in self.sets], "digest": digest}

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; `from_dict` restores equal maps, to the bit."""
        return {
            "fingerprints": dict(self.fingerprints),
            "sets": list(map(dict, self.sets)),
            "measured": dict(self.measured),
            "marks": " ".join(sorted(self.marks)),
            **maps_to_dict(self.maps),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PooledMaps:
        """Read `to_dict`'s value.

        Raises:
            InputError: it lacks a part, or its maps are of other features than this version's.
        """
        try:
            parts = (values["fingerprints"], values["sets"], values["measured"])
        except (KeyError, TypeError) as error:
            raise InputError(f"pooled maps cannot be read: {error}") from None
        marks = frozenset(str(values.get("marks", "")).split())
        return cls(maps_from_dict(values), *parts, marks)


def scored_by(encoder: Model, reranker: Model, config: Config) -> dict[str, Any]:
    """What determines the scores that pooled maps are fitted on.

    Precision hardly changes them, and `encoder_windows` only the cosines of long passages.
    """
    prints = fingerprints(encoder, reranker, config)
    models = {part: value for part, value in prints.items() if part != "precision"}
    return models | {"long_passages": "beginning"}  # what is read of a passage that is too long


def pooled_over(models: tuple[Model, Model], config: Config) -> frozenset[str]:
    """The marks of the queries that the pooled maps of these models were fitted on, if any."""
    pooled = pooled_for(*models, config)
    return pooled.marks if pooled else frozenset()


def pooled_for(encoder: Model, reranker: Model, config: Config) -> PooledMaps | None:
    """The pooled maps of exactly these weights, lengths and parts of long passages.

    Bundled ones, or those beside the cross-encoder's folder. None if there are none, or if they
    have other features than this version's.

    Raises:
        FolderError: a file of that name beside the folder is not JSON.
    """
    if not isinstance(reranker, ModelFiles):
        return None
    here, folder = scored_by(encoder, reranker, config), reranker.folder
    beside = folder.parent.glob(f"{glob.escape(folder.name)}.{FILES}")
    for path in [*sorted(BUNDLED.glob(f"*/{FILES}")), *sorted(beside)]:
        values = parse_json(path.read_bytes(), str(path))
        if isinstance(values, dict) and values.get("fingerprints") == here:
            try:
                return PooledMaps.from_dict(values)
            except InputError:
                continue
    return None
