"""A picture as bytes, with its title and caption. It knows nothing of matplotlib."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG with its caption and one without, its title, and the caption: how to read it."""

    captioned: bytes
    plain: bytes
    title: str
    caption: str
