"""Recovers the complete part of an interrupted run: the reading side of `checkpoint`."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PREDICTIONS, REJECTED, PROGRESS, CONVERTED = "predictions", "rejected", "progress", "converted"
LONGEST_LINE = 4_000  # bytes of a line of `progress`


@dataclass(frozen=True, slots=True)
class CheckpointProgress:
    """The progress: input lines and bytes processed, rows answered and rejected.

    `stage` is `scoring`, then `scored` when the whole input is, then `installed` when the output
    has its name; its size is then `installed` bytes.

    The last two are of the next chunk: what is being scored of it, all rows (0) or one (from 1);
    and at what of it processes have ended.
    """

    line: int = 0
    byte: int = 0
    answered: int = 0
    rejected: int = 0
    predictions_bytes: int = 0  # size of the file of answers
    rejections_bytes: int = 0  # size of the file of rejected rows
    stage: str = "scoring"
    installed: int = 0
    scoring: int | None = None
    ended_at: Sequence[int] = ()


def recover(folder: Path, out: Path, rejected_file: Path | None) -> CheckpointProgress:
    """The state of the files, after incomplete parts of them are cut off."""
    (folder / PROGRESS).touch()
    last, complete = CheckpointProgress(), 0
    for length, state, _ in _records(folder / PROGRESS):
        last, complete = state, complete + length
    os.truncate(folder / PROGRESS, complete)
    answers, rejections = _size(folder / PREDICTIONS), _size(folder / REJECTED)
    if last.stage == "installed" and _size(out) == last.installed:
        return last
    if last.stage == "scored":  # either file may already have been moved to its place
        if answers is None:
            answers = _size(out)
        if rejections is None and rejected_file is not None:
            rejections = _size(rejected_file)
        if (answers, rejections or 0) == (last.predictions_bytes, last.rejections_bytes):
            return last
    return _truncate_to_last_chunk(folder)


def _truncate_to_last_chunk(folder: Path) -> CheckpointProgress:
    """The state after the last complete chunk; the rest of the files is cut off."""
    state, complete = CheckpointProgress(), 0
    with (
        _open_or_create(folder / PREDICTIONS) as predictions,
        _open_or_create(folder / REJECTED) as rejected,
    ):
        for length, after, sums in _records(folder / PROGRESS):
            parts = (
                predictions.read(after.predictions_bytes - state.predictions_bytes),
                rejected.read(after.rejections_bytes - state.rejections_bytes),
            )
            if after.stage != "scoring" or [zlib.crc32(part) for part in parts] != sums:
                break
            state, complete = after, complete + length
        predictions.truncate(state.predictions_bytes)
        rejected.truncate(state.rejections_bytes)
    os.truncate(folder / PROGRESS, complete)
    return state


def _records(path: Path) -> Iterator[tuple[int, CheckpointProgress, list[int]]]:
    """Length, state and checksums of each line of `progress`, up to the first broken one."""
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE):
            try:
                if int(line[:8], 16) != zlib.crc32(line[9:-1]) or line[-1:] != b"\n":
                    return
                record = json.loads(line[9:])
                sums = record.pop("crc")
                state = CheckpointProgress(**record)
            except (ValueError, TypeError, KeyError, AttributeError):
                return
            yield len(line), state, sums


def _open_or_create(path: Path) -> IO[bytes]:
    path.touch()
    return path.open("r+b")


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
