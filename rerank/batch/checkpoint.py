"""Work in progress that survives a crash: a hidden folder beside the output.

    .OUT.rescore/  lock         held by the one run that works here; the kernel frees it at exit
                   header.json  what the work belongs to: model, input, version, format
                   predictions  lines, appended a chunk at a time
                   rejected     likewise
                   progress     one line per chunk: the file sizes after it, and its checksums;
                                the last line may note what was being scored when the process ended

A chunk counts if its line of `progress` is complete and the checksums match; what follows the last
such chunk is cut off when a run begins. So a process may die between any two writes, and after a
power cut only the last seconds are done again. It handles bytes, and knows nothing of queries or
models.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rerank.errors import InputError
from rerank.storage.files import open_locked, sync, write_file

FORMAT = 4  # of the unfinished work; 1 to 3: other names in `CheckpointProgress`
SYNC_EVERY = 5.0  # seconds of work that a power cut may lose
LOCK, HEADER = "lock", "header.json"
PREDICTIONS, REJECTED, PROGRESS, CONVERTED = "predictions", "rejected", "progress", "converted"
LONGEST_LINE = 4_000  # bytes of a line of `progress`
FILES = (HEADER, PROGRESS, REJECTED, PREDICTIONS, CONVERTED)

Convert = Callable[[Path, Path], None]


@dataclass(frozen=True, slots=True)
class CheckpointProgress:
    """The progress: input lines processed, rows answered and rejected.

    `stage` is `scoring`, then `scored` when the whole input is, then `installed` when the output
    has its name; its size is then `installed` bytes. The last two are of the next chunk: what is
    being scored of it, all rows (0) or one (from 1); and at what of it processes have ended.
    """

    line: int = 0
    answered: int = 0
    rejected: int = 0
    predictions_bytes: int = 0  # size of the file of answers
    rejections_bytes: int = 0  # size of the file of rejected rows
    stage: str = "scoring"
    installed: int = 0
    scoring: int | None = None
    ended_at: Sequence[int] = ()


class Checkpoint:
    """An open working folder; see `open_checkpoint`."""

    def __init__(self, folder: Path, state: CheckpointProgress) -> None:
        self.folder = folder
        self.state = state
        self._progress = _append_to(folder / PROGRESS)
        scoring = state.stage == "scoring"  # later the two files may have been moved away
        self._data = [_append_to(folder / n) for n in (PREDICTIONS, REJECTED)] if scoring else []
        self._synced = time.monotonic()
        self._noted = 0  # size of `progress` before a note
        if state.scoring is not None:  # the process before this one ended there
            ended_at = (*state.ended_at, state.scoring)
            self._record(replace(state, scoring=None, ended_at=ended_at), [0, 0])

    def note(self, scoring: int) -> None:
        """Note what is being scored of the next chunk: see `CheckpointProgress`."""
        self.remove_note()
        self._noted = os.fstat(self._progress).st_size
        self._record(replace(self.state, scoring=scoring), [0, 0])

    def remove_note(self) -> None:
        """Remove the note: what was being scored did not end the process."""
        if self.state.scoring is not None:
            os.ftruncate(self._progress, self._noted)
            self.state = replace(self.state, scoring=None)

    def append(self, state: CheckpointProgress, predictions: bytes, rejections: bytes) -> None:
        """Append the results of a chunk; `state` has the lines processed and the row counts."""
        parts = predictions, rejections
        for file, data in zip(self._data, parts, strict=True):
            _write(file, data)
        state = replace(
            state,
            predictions_bytes=self.state.predictions_bytes + len(predictions),
            rejections_bytes=self.state.rejections_bytes + len(rejections),
        )
        self.remove_note()
        self._record(state, [zlib.crc32(data) for data in parts])
        if time.monotonic() - self._synced > SYNC_EVERY:
            self._sync()

    def scored(self) -> None:
        """Record durably that the whole input is scored."""
        self._stage("scored")

    def install(self, out: Path, rejected_file: Path | None, convert: Convert | None) -> None:
        """Give the finished files their names, and remove the folder; call it when all is scored.

        `convert` makes the output from the lines; without it they are the output.
        `rejected_file` is removed if no row was rejected.
        """
        if self.state.stage == "scored":
            if rejected_file is not None:
                if not self.state.rejections_bytes:
                    rejected_file.unlink(missing_ok=True)
                elif (self.folder / REJECTED).exists():
                    os.replace(self.folder / REJECTED, rejected_file)
            result = self.folder / PREDICTIONS
            if convert is not None:
                convert(result, self.folder / CONVERTED)
                result = self.folder / CONVERTED
                sync(result)
            if result.exists():
                os.replace(result, out)
            sync(out.parent)
            self._stage("installed", out.stat().st_size)
        self.close()
        for name in reversed(FILES):  # the file that says that all is installed goes last
            (self.folder / name).unlink(missing_ok=True)
        for torn in self.folder.glob(f".{HEADER}.*"):  # left by an interrupted write of the header
            torn.unlink()
        (self.folder / LOCK).unlink(missing_ok=True)
        with suppress(OSError):  # another run may already use it
            self.folder.rmdir()

    def close(self) -> None:
        """Close the files; their contents stay."""
        while self._data:
            os.close(self._data.pop())
        if self._progress >= 0:
            os.close(self._progress)
        self._progress = -1

    def _stage(self, stage: str, installed: int = 0) -> None:
        self._sync()
        self._record(replace(self.state, stage=stage, installed=installed), [0, 0])
        self._sync()

    def _record(self, state: CheckpointProgress, sums: list[int]) -> None:
        line = json.dumps({**asdict(state), "crc": sums}).encode()
        _write(self._progress, b"%08x %s\n" % (zlib.crc32(line), line))
        self.state = state

    def _sync(self) -> None:
        for file in (*self._data, self._progress):  # last the one with the checksums of the others
            os.fsync(file)
        self._synced = time.monotonic()


@contextmanager
def open_checkpoint(
    out: Path,
    rejected_file: Path | None,
    header: Mapping[str, Any],
    *,
    restart: bool,
    kind: str = "rescore",
) -> Iterator[Checkpoint]:
    """The checkpoint of `out`: an interrupted run's, recovered, or a new one.

    `rejected_file` gets the rejected rows; None: no row is ever rejected. `kind` is the command
    that writes `out`; the checkpoint is the folder `.OUT.kind` beside it.
    """
    folder = out.with_name(f".{out.name}.{kind}")
    handle = _lock(folder, out)
    try:
        state = _resume(folder, out, rejected_file, {"format": FORMAT, **header}, restart=restart)
        checkpoint = Checkpoint(folder, state)
        try:
            yield checkpoint
        finally:
            checkpoint.close()
    finally:
        os.close(handle)


def _lock(folder: Path, out: Path) -> int:
    while True:
        if folder.is_symlink():
            raise InputError(f"{folder} is a link; remove it")
        folder.mkdir(exist_ok=True)
        try:
            handle, locked = open_locked(folder / LOCK)
        except FileNotFoundError:  # a run that finished has just removed the folder
            continue
        except BlockingIOError:
            raise InputError(
                f"{out}: another run is writing it; let that one finish, or give another --out"
            ) from None
        if not locked:
            os.close(handle)
            raise InputError(f"{folder}: no locks on this file system; give another --out")
        return handle


def _resume(
    folder: Path, out: Path, rejected_file: Path | None, header: Mapping[str, Any], *, restart: bool
) -> CheckpointProgress:
    """The state of the interrupted run, or of a new one, whose header is written."""
    path = folder / HEADER
    if restart or not path.exists():
        for name in FILES:  # the header first: without it there is no work
            (folder / name).unlink(missing_ok=True)
        write_file(path, json.dumps(header, indent=2) + "\n")
        return CheckpointProgress()
    try:
        old_header = json.loads(path.read_bytes())
        differs = [key for key, value in header.items() if old_header.get(key) != value]
    except (ValueError, AttributeError):
        differs = [HEADER]
    if differs:
        raise InputError(
            f"{folder} holds work that was begun with another {' and another '.join(differs)}; run "
            "that command again to finish it, or give --restart to throw it away and begin anew"
        )
    return recover(folder, out, rejected_file)


def _append_to(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


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
    files = folder / PREDICTIONS, folder / REJECTED
    for file in files:
        file.touch()
    with files[0].open("r+b") as predictions, files[1].open("r+b") as rejected:
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


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
