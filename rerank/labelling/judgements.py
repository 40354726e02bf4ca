"""A file of what people said while they labelled: appended to, never changed, safe for several.

One JSON object a line. It knows nothing of what a line says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rerank.data.text import to_json
from rerank.errors import InputError
from rerank.storage.locks import wait_locked

Event = Mapping[str, Any]


class JudgementFile:
    """The file at `path`; a line that a killed process left unfinished is no line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Event]:
        """Every whole line, in order; none where there is no file.

        Raises:
            InputError: a line is no JSON object.
        """
        data = self.path.read_bytes() if self.path.exists() else b""
        found: list[Event] = []
        for number, line in enumerate(data.split(b"\n")[:-1], start=1):
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if not isinstance(event, dict):
                raise InputError(f"{self.path}:{number}: expected a JSON object; mend the line")
            found.append(event)
        return found

    def append(self, events: Sequence[Event]) -> None:
        """Add lines, durably, when nobody else writes; all of them or, if killed, the first."""
        with self.locked() as handle:
            self.append_locked(handle, events)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Wait until nobody else writes, and keep the others waiting; gives an open handle."""
        handle = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            wait_locked(handle)
            yield handle
        finally:
            os.close(handle)

    @staticmethod
    def append_locked(handle: int, events: Sequence[Event]) -> None:
        """Add lines to the file that is `locked`, in place of an unfinished one."""
        size = os.fstat(handle).st_size
        with open(handle, "r+b", closefd=False) as file:
            whole = size
            while whole and os.pread(handle, 1, whole - 1) != b"\n":
                whole -= 1
            file.truncate(whole)
            file.seek(whole)
            file.write("".join(to_json(event) + "\n" for event in events).encode())
            file.flush()
            os.fsync(handle)
