"""The model that answers, and how another takes its place without a request noticing.

The place it came from is looked at now and then. What is found there is loaded beside the present
one, and takes over only when it has answered; a broken one changes nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rerank.serving.logs import event
from rerank.serving.metrics import Metrics
from rerank.serving.served import NoRoomError, Served, open_served
from rerank.types import InputError

State = tuple[tuple[str, int, int, int], ...]


def state_of(folder: Path) -> State:
    """What tells one content of a folder from another without reading it; () where it is gone."""
    found = []
    try:
        for path in sorted(folder.rglob("*")):
            kept = path.lstat()
            name = path.relative_to(folder).as_posix()
            found.append((name, kept.st_size, kept.st_mtime_ns, kept.st_ino))
    except OSError:
        return ()
    return tuple(found)


def give_back() -> None:
    """Free what the old model held: it has cycles, and glibc keeps freed memory to itself."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


class Champion:
    """Where the model comes from, and the one that answers now.

    `current` is read by many threads; one thread at a time looks for another.

    Raises:
        InputError: the model cannot be served.
    """

    def __init__(self, where: Callable[[], Path], metrics: Metrics) -> None:
        self._where = where
        self.metrics = metrics
        self._looking = threading.Lock()
        folder = where()
        self._known = self._latest = state_of(folder)
        self._again = False  # whether what is known is to be tried all the same
        self.current = self._open(folder)
        self._tell()

    def look(self, *, now: bool = False) -> bool:
        """Swap if another model is there and answers; whether it was swapped.

        A folder that is being written is waited for: it must be the same at two looks, unless
        `now`. What was refused once is not tried again until it changes, unless `now` or for want
        of room on the disk.
        """
        with self._looking:
            try:
                folder = self._where()
            except InputError as error:
                return self._refuse((), error, now=now)
            state = state_of(folder)
            settled, self._latest = state == self._latest, state
            if not now and ((state == self._known and not self._again) or not settled):
                return False
            start = time.perf_counter()
            try:
                made = self._open(folder)
            except InputError as error:
                self._again = isinstance(error, NoRoomError)
                return self._refuse(state, error, now=now)
            self._again = False
            self._known = state
            if made.version == self.current.version:
                return False
            self.metrics.model.remove(self.current.version)
            self.current = made
            self._tell()
            give_back()
            self.metrics.swaps.labels("swapped").inc()
            event("model swapped", model=made.version, seconds=time.perf_counter() - start)
            return True

    def _open(self, folder: Path) -> Served:
        def observe(stage: str, seconds: float) -> None:
            self.metrics.stages.labels(stage).observe(seconds)

        try:
            return open_served(folder, observe=observe)
        except InputError:
            raise
        except Exception as error:  # a broken file shows in as many ways as there are libraries
            event("model failed to load", severity=logging.WARNING, exc_info=error)
            raise InputError(f"{folder} cannot be served: {type(error).__name__}") from error

    def _refuse(self, state: State, error: InputError, *, now: bool) -> bool:
        if now or state != self._known:  # once a content
            self._known = state
            self.metrics.swaps.labels("refused").inc()
            event(
                "model refused, the present one stays",
                severity=logging.ERROR,
                model=self.current.version,
                why=str(error),
            )
        return False

    def _tell(self) -> None:
        self.metrics.model.labels(self.current.version).set(1)
        self.metrics.loaded.set(self.current.loaded)


class Watch:
    """Looks for another model every `poll` seconds (0: never) and when told to, until the end.

    Its thread is a daemon's: a store that hangs holds up neither the answers nor the end.
    """

    def __init__(self, champion: Champion, poll: float) -> None:
        self._champion = champion
        self._poll = poll
        self._told = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="watching", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def look_now(self) -> None:
        """Look at once."""
        self._told.set()

    def end(self) -> None:
        """Look no more; what is being loaded is not waited for."""
        self._ended = True
        self._told.set()

    def _work(self) -> None:
        while True:
            told = self._told.wait(self._poll or None)
            if self._ended:
                return
            self._told.clear()
            try:
                self._champion.look(now=told)
            except Exception as error:  # whatever it is, the present model answers
                event("looking for a model failed", severity=logging.ERROR, exc_info=error)
