"""A picture as bytes, with its title and caption. It knows nothing of matplotlib."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG with its caption (`whole`) and one without (`plain`), its title, and how to read it."""

    whole: bytes
    plain: bytes
    title: str
    caption: str
