"""What the user chose for a process and what it starts: the device, and trust in models' code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rerank.errors import InputError, optional

DEVICE = "RERANK_DEVICE"
TRUST = "RERANK_TRUST_REMOTE_CODE"
AUTO = "auto"


def device() -> str:
    """Where torch runs: the choice (an InputError if it is not here), the first GPU, or cpu."""
    with optional():
        import torch
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    there = ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]
    chosen = os.environ.get(DEVICE) or AUTO
    found = {AUTO: [*gpus, "cpu"][0], "cuda": "cuda:0"}.get(chosen, chosen)
    if found not in there:
        raise InputError(
            f"`device` (--device, {DEVICE}) is {chosen!r:.80}, and torch has {', '.join(there)} "
            f"here; expected one of these, or {AUTO}"
        )
    return found


@contextmanager
def chosen(place: str, *, trust: bool) -> Iterator[None]:
    """Choose a device and trust, for a block and the processes that it starts; "", False: as is."""
    made = {DEVICE: place, TRUST: "1" if trust else ""}
    before = {name: os.environ.get(name, "") for name in made}
    os.environ.update({name: value for name, value in made.items() if value})
    try:
        if place not in ("", AUTO, "cpu"):
            device()
        yield
    finally:
        os.environ.update(before)


def trusted() -> bool:
    """Whether the code of models may run: `RERANK_TRUST_REMOTE_CODE` (--trust-remote-code)."""
    return os.environ.get(TRUST, "") == "1"


def local() -> dict[str, Any]:
    """How a library opens a model's folder: without a network, and without asking on a terminal."""
    return {"local_files_only": True, "trust_remote_code": trusted()}
