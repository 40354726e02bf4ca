"""Work in progress that outlives a crash: a hidden folder beside the output.

    .OUT.rescore/  lock         held by the one run that works here; the kernel frees it at death
                   header.json  what the work is bound to: model, input, options
                   predictions  lines, appended a chunk at a time
                   rejected     likewise
                   progress     a line a chunk, with the ends and checksums of what it appended

A chunk counts when its line of `progress` is whole and the checksums hold; what lies behind the
last such chunk is cut off when a run begins. So a process may die between any two writes, and after
a power cut the last seconds are done again. It knows bytes, nothing of queries or models.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from calibration.store import write_file
from rerank.types import InputError

FORMAT = 1
SYNC_EVERY = 5.0  # seconds of work that a power cut may cost
LOCK, HEADER = "lock", "header.json"
PREDICTIONS, REJECTED, PROGRESS, CONVERTED = "predictions", "rejected", "progress", "converted"
FILES = (HEADER, PROGRESS, REJECTED, PREDICTIONS, CONVERTED)
LONGEST_LINE = 1_000  # bytes of a line of `progress`

Convert = Callable[[Path, Path], None]


@dataclass(frozen=True, slots=True)
class State:
    """How far the work is: input lines and bytes passed, rows answered and rejected.

    `predictions` and `rejected` are the sizes of the two files. `stage` is `scoring`, `scored` when
    the whole input is, `installed` when the output has its name; then it has `installed` bytes.
    """

    line: int = 0
    byte: int = 0
    answered: int = 0
    refused: int = 0
    predictions: int = 0
    rejected: int = 0
    stage: str = "scoring"
    installed: int = 0


class Journal:
    """An open working folder; see `open_journal`."""

    def __init__(self, folder: Path, state: State) -> None:
        self.folder = folder
        self.state = state
        self._progress = _append_to(folder / PROGRESS)
        scoring = state.stage == "scoring"  # later the two files may have gone to their places
        self._data = [_append_to(folder / n) for n in (PREDICTIONS, REJECTED)] if scoring else []
        self._synced = time.monotonic()

    def append(self, state: State, predictions: bytes, rejected: bytes) -> None:
        """Add what a chunk gave; `state` says how far the input is read, and counts of rows.

        Raises:
            OSError: as by a full disk; what was added before stands.
        """
        parts = predictions, rejected
        for file, data in zip(self._data, parts, strict=True):
            _write(file, data)
        ends = [self.state.predictions + len(predictions), self.state.rejected + len(rejected)]
        state = replace(state, predictions=ends[0], rejected=ends[1])
        self._record(state, [zlib.crc32(data) for data in parts])
        if time.monotonic() - self._synced > SYNC_EVERY:
            self._sync()

    def scored(self) -> None:
        """Note, durably, that the whole input is scored."""
        self._stage("scored")

    def install(self, out: Path, side: Path, convert: Convert | None) -> None:
        """Give the finished files their names, and remove the folder; the input is scored.

        Of the lines, `convert` makes the output; without it they are the output. `side` is removed
        where no row was rejected.
        """
        if self.state.stage == "scored":
            if not self.state.rejected:
                side.unlink(missing_ok=True)
            elif (self.folder / REJECTED).exists():
                os.replace(self.folder / REJECTED, side)
            made = self.folder / PREDICTIONS
            if convert is not None:
                convert(made, self.folder / CONVERTED)
                made = self.folder / CONVERTED
                _sync(made)
            if made.exists():
                os.replace(made, out)
            _sync(out.parent)
            self._stage("installed", out.stat().st_size)
        self.close()
        for name in reversed(FILES):  # what tells that all is installed goes last
            (self.folder / name).unlink(missing_ok=True)
        for torn in self.folder.glob(f".{HEADER}.*"):  # of a header's writing that was interrupted
            torn.unlink()
        (self.folder / LOCK).unlink(missing_ok=True)
        with suppress(OSError):  # another run may have come in already
            self.folder.rmdir()

    def close(self) -> None:
        """Close the files; what they hold stays."""
        while self._data:
            os.close(self._data.pop())
        if self._progress >= 0:
            os.close(self._progress)
        self._progress = -1

    def _stage(self, stage: str, installed: int = 0) -> None:
        self._sync()
        self._record(replace(self.state, stage=stage, installed=installed), [0, 0])
        self._sync()

    def _record(self, state: State, sums: list[int]) -> None:
        line = json.dumps({**asdict(state), "crc": sums}).encode()
        _write(self._progress, b"%08x %s\n" % (zlib.crc32(line), line))
        self.state = state

    def _sync(self) -> None:
        for file in (*self._data, self._progress):  # last the one that vouches for the others
            os.fsync(file)
        self._synced = time.monotonic()


@contextmanager
def open_journal(
    out: Path, side: Path, header: Mapping[str, Any], *, restart: bool
) -> Iterator[Journal]:
    """The journal of `out` and its side file: an interrupted run's, cut to what is whole, or a new.

    Raises:
        InputError: another run works on `out`; or the interrupted one had another header, and
            `restart`, which throws its work away, is False.
        OSError: the folder of `out` cannot be written.
    """
    folder = out.with_name(f".{out.name}.rescore")
    lock = _lock(folder, out)
    try:
        state = _resume(folder, out, side, {"format": FORMAT, **header}, restart=restart)
        journal = Journal(folder, state)
        try:
            yield journal
        finally:
            journal.close()
    finally:
        os.close(lock)


def _lock(folder: Path, out: Path) -> int:
    """A handle that holds the folder's lock, the folder being there."""
    while True:
        if folder.is_symlink():
            raise InputError(f"{folder} is a link; take it away")
        folder.mkdir(exist_ok=True)
        try:
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # a run that finished has just removed the folder
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), (folder / LOCK).stat()):
                    return handle
        except BlockingIOError:
            os.close(handle)
            raise InputError(
                f"{out}: another run is writing it; let that one finish, or give another --out"
            ) from None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # of a lock file that is no longer there


def _resume(
    folder: Path, out: Path, side: Path, header: Mapping[str, Any], *, restart: bool
) -> State:
    path = folder / HEADER
    if path.exists() and not restart:
        _refuse_other(folder, header)
        return _recover(folder, out, side)
    for name in FILES:  # the header first: without it there is no work
        (folder / name).unlink(missing_ok=True)
    write_file(path, json.dumps(header, indent=2) + "\n")
    return State()


def _refuse_other(folder: Path, header: Mapping[str, Any]) -> None:
    try:
        kept = json.loads((folder / HEADER).read_bytes())
        differs = [key for key, value in header.items() if kept.get(key) != value]
    except (ValueError, AttributeError):
        differs = [HEADER]
    if differs:
        raise InputError(
            f"{folder} holds work that was begun with another {' and another '.join(differs)}; run "
            "that command again to finish it, or give --restart to throw it away and begin anew"
        )


def _recover(folder: Path, out: Path, side: Path) -> State:
    """The state that the files show, cut to what is whole of them."""
    (folder / PROGRESS).touch()
    last, whole = State(), 0
    for length, state, _ in _records(folder / PROGRESS):
        last, whole = state, whole + length
    os.truncate(folder / PROGRESS, whole)
    answers, refusals = _size(folder / PREDICTIONS), _size(folder / REJECTED)
    if last.stage == "installed" and _size(out) == last.installed:
        return last
    if last.stage == "scored":  # either file may have been moved to its place already
        answered = (answers if answers is not None else _size(out)) == last.predictions
        refused = (refusals if refusals is not None else _size(side) or 0) == last.rejected
        if answered and refused:
            return last
    return _cut(folder)


def _cut(folder: Path) -> State:
    """The state after the last chunk whose bytes are there; all else is cut off."""
    state, whole = State(), 0
    with _opened(folder / PREDICTIONS) as predictions, _opened(folder / REJECTED) as rejected:
        for length, after, sums in _records(folder / PROGRESS):
            answers = predictions.read(after.predictions - state.predictions)
            refusals = rejected.read(after.rejected - state.rejected)
            if after.stage != "scoring" or [zlib.crc32(answers), zlib.crc32(refusals)] != sums:
                break
            state, whole = after, whole + length
        predictions.truncate(state.predictions)
        rejected.truncate(state.rejected)
    os.truncate(folder / PROGRESS, whole)
    return state


def _records(path: Path) -> Iterator[tuple[int, State, list[int]]]:
    """Length, state and checksums of each whole line of `progress`, as far as they are whole."""
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE):
            try:
                if int(line[:8], 16) != zlib.crc32(line[9:-1]) or line[-1:] != b"\n":
                    return
                kept = json.loads(line[9:])
                sums = kept.pop("crc")
                state = State(**kept)
            except (ValueError, TypeError, KeyError, AttributeError):
                return
            yield len(line), state, sums


def _opened(path: Path) -> IO[bytes]:
    path.touch()
    return path.open("r+b")


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _append_to(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
