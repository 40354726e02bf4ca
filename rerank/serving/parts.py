"""What a room of the table brings to a server, and what it gets for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter

from rerank.rooms import load, rooms
from rerank.serving.model_source import ModelHolder
from rerank.serving.request_assessor import RequestAssessor
from rerank.serving.settings import Settings


@dataclass(frozen=True, slots=True)
class Host:
    """The server, as a room sees it."""

    holder: ModelHolder
    settings: Settings
    assessor: RequestAssessor
    given: Any = None  # by the command that started the server, for this room


@dataclass(frozen=True, slots=True)
class Part:
    """Routes, pages and middleware, and what is done at the end."""

    routers: Sequence[APIRouter] = ()
    pages: Mapping[str, str] = field(default_factory=dict)  # address -> PACKAGE/FILE in `static`
    linked: bool = True  # whether other pages link to its pages
    middleware: Sequence[tuple[Any, dict[str, Any]]] = ()  # class and arguments, innermost first
    stop: Callable[[], None] | None = None  # begin nothing new; before the last answers
    finish: Callable[[], object] | None = None  # after them, in a thread


def parts_of(
    holder: ModelHolder,
    settings: Settings,
    assessor: RequestAssessor,
    given: Mapping[str, Any],
) -> list[Part]:
    """The part of every room that has one; `given` is by the name of the room."""
    return [
        load(room.server)(Host(holder, settings, assessor, given.get(name)))
        for name, room in rooms().items()
        if room.server
    ]
