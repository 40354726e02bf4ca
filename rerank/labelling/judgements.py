"""A file of judgements: append-only, and safe for several writers.

One JSON object per line. It knows nothing of what a line means.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rerank.data.canonical import to_json
from rerank.errors import InputError
from rerank.storage.file_lock import lock

Event = Mapping[str, Any]


class JudgementFile:
    """The file at `path`; an unfinished last line, left by a killed process, is ignored."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Event]:
        """All complete lines, in order; empty if there is no file.

        Raises:
            InputError: a line is not a JSON object with `do`.
        """
        data = self.path.read_bytes() if self.path.exists() else b""
        events: list[Event] = []
        for number, line in enumerate(data.split(b"\n")[:-1], start=1):
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if not isinstance(event, dict) or "do" not in event:
                raise InputError(
                    f'{self.path}:{number}: expected a JSON object with "do"; mend the line'
                )
            events.append(event)
        return events

    def append(self, events: Sequence[Event]) -> None:
        """Append lines durably, after waiting for other writers.

        A process that is killed meanwhile may have written only the first of them.
        """
        with self.locked() as handle:
            self.append_locked(handle, events)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the write lock of the file, after waiting for it; yields an open handle.

        Raises:
            InputError: its file system has no locks, so two writers could lose judgements.
        """
        handle = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            if not lock(handle, wait=True):
                raise InputError(f"{self.path}: this file system has no locks; use another folder")
            yield handle
        finally:
            os.close(handle)

    @staticmethod
    def append_locked(handle: int, events: Sequence[Event]) -> None:
        """Append lines to the `locked` file, replacing an unfinished last line."""
        with open(handle, "r+b", closefd=False) as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.seek(0, os.SEEK_END)
            file.write("".join(to_json(event) + "\n" for event in events).encode())
            file.flush()
            os.fsync(handle)
