"""The rooms: packages or modules of features that the core does without; nothing below imports one.

They are named here, `MODULE:NAME`, and imported when asked for; one that is not there is left out.
Another distribution enters a `Room` of its own under the entry-point group `rerank.rooms`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rerank.errors import InputError

logger = logging.getLogger(__name__)

GROUP = "rerank.rooms"  # of entry points


@dataclass(frozen=True, slots=True)
class Room:
    """A package or a module, and what it brings; every value is `MODULE:NAME`."""

    package: str
    commands: Mapping[str, str] = field(default_factory=dict)  # words -> the command
    server: str = ""  # a function of a `rerank.serving.parts.Host` that returns a `Part`
    of_model: str = ""  # a function of a model: what a server keeps of it for this room
    offers: Mapping[str, str] = field(default_factory=dict)  # what others ask for by a name


ROOMS = {
    "ingest": Room(
        "rerank.ingest",
        commands={
            "quickstart": "rerank.ingest.commands:quickstart",
            "data ingest": "rerank.ingest.commands:ingest",
        },
    ),
    "rag": Room(
        "rerank.rag",
        commands={"answer": "rerank.rag.commands:answer"},
        server="rerank.rag.routes:part",
        of_model="rerank.rag.answer.answering:answer_confidence_of",
        offers={
            "the confidence of answers": "rerank.rag.answer.answering:recalibrate_answers",
            "MCP": "rerank.rag.mcp_server:mcp_server",
            "a language model": "rerank.rag.answer.llm:LanguageModel",
        },
    ),
    "journal": Room(
        "rerank.journal",
        commands={
            "watch journal": "rerank.journal.commands:journal",
            "watch feedback": "rerank.journal.commands:feedback",
        },
        server="rerank.journal.server:part",
        offers={
            "a journal": "rerank.journal.server:check_journal",
            "records in a journal": "rerank.journal.commands:recorder",
            "labels of a journal": "rerank.journal.reading:journal_labels",
            "queries of a journal": "rerank.journal.reading:journal_queries",
            "answers of a journal": "rerank.journal.reading:journal_answers",
        },
    ),
    "labelling": Room(
        "rerank.labelling",
        commands={"label": "rerank.labelling.commands:label"},
        server="rerank.labelling.server:part",
    ),
    "judging": Room("rerank.judging", offers={"verdicts of a judge": "rerank.judging:verdicts_of"}),
    "training": Room(
        "rerank.training",
        commands={
            "train cross-encoder": "rerank.training.commands:cross_encoder",
            "train bi-encoder": "rerank.training.commands:bi_encoder",
        },
    ),
    "systems": Room(
        "rerank.systems",
        offers={
            "search systems": "rerank.systems.settings:system_of",
            "the search system of a model": "rerank.systems.settings:connect_of_model",
        },
    ),
    "tracing": Room("rerank.tracing", server="rerank.tracing:part"),
    "cluster": Room("rerank.cluster", offers={"rescoring on Ray": "rerank.cluster:scoring"}),
}


def load(name: str) -> Any:
    """What `MODULE:NAME` names; its module is imported now."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


@cache
def rooms() -> dict[str, Room]:
    """The rooms that are there, by name: ours, then those of other distributions."""
    from importlib.metadata import entry_points

    others = {}
    for entry in entry_points(group=GROUP):
        try:
            others[entry.name] = entry.load()
        except Exception as error:  # whatever another's code raises, ours runs
            why = f"{type(error).__name__}: {error}"
            logger.warning("the room %r (%s) is left out: %s", entry.name, entry.value, why)
    return {name: room for name, room in ROOMS.items() if find_spec(room.package)} | others


def offered(what: str) -> Any:
    """What a room offers under this name."""
    for room in rooms().values():
        if what in room.offers:
            return load(room.offers[what])
    lacking = next((room.package for room in ROOMS.values() if what in room.offers), "")
    why = f": the package {lacking} is not there" if lacking else ""
    raise InputError(f"this installation does not have {what}{why}")
