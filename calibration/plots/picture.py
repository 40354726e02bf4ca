"""A picture as bytes, with what is to be read beside it. It knows nothing of matplotlib."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG with its caption written into it, one without, its title, and how to read it."""

    whole: bytes
    plain: bytes
    title: str
    caption: str
