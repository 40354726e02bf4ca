"""Files: written whole or not at all, read only if they are regular and not too large; and locks.

The system releases a lock when the process ends, however it ends. A writer locks its temporary
folder; the next writer removes one that nobody holds.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rerank.errors import FolderError

PACKAGE = "calibrated-rerank"
BUFFER = 2**20  # bytes that are read ahead


def package_version() -> str:
    """The installed version; "unknown" if the package is run from a tree that is not installed."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "unknown"


LARGEST_JSON = 32 * 2**20  # most bytes of a JSON file that is read; a larger one is refused unread


def file_state(path: Path) -> tuple[int, ...]:
    """Numbers that change when the file does: to cache what was read from it."""
    state = path.stat()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


def sha256_file(path: str | Path) -> str:
    """The sha256 of a regular file's bytes as 64 hexadecimal digits; an OSError if it is none."""
    with regular(Path(path)) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_file(path: str | Path, data: bytes | str | Iterable[str]) -> None:
    """Write bytes, UTF-8 text or its parts whole or not at all: a sibling, fsync, then rename."""
    path = Path(path)
    new = beside(path)
    try:
        with new.open("xb") as file:
            for piece in [data] if isinstance(data, (bytes, str)) else data:
                file.write(piece.encode() if isinstance(piece, str) else piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync(path.parent)


def beside(path: Path, ending: str = "") -> Path:
    """A hidden name beside a path that nothing has, with this ending."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{ending}")


def write_json(path: str | Path, value: Mapping[str, Any]) -> None:
    """Write plain JSON values, indented; for `fill` of `write_folder`, which makes them durable."""
    text = json.dumps(value, indent=2, allow_nan=False)
    Path(path).write_text(text + "\n", encoding="utf-8")


class RepeatedKeyError(ValueError):
    """A key that occurs twice in one JSON object: readers differ in which value counts."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key[:80]!r} appears twice")
        self.key = key


class InfiniteNumberError(ValueError):
    """NaN or an infinity, or a number that no float can hold, such as 1e999."""

    def __init__(self, written: str) -> None:
        why = "is too large for a number" if written.lstrip("-")[0].isdigit() else "is not JSON"
        super().__init__(f"{written[:20]}, which {why}")


def loads(text: bytes | str, *, constants: bool = False) -> Any:
    """The value of JSON text; with `constants`, NaN and Infinity are read as Python writes them.

    Raises:
        ValueError: not JSON; a repeated key (`RepeatedKeyError`); or an `InfiniteNumberError`.
        RecursionError: nested too deep.
    """
    return json.loads(
        text,
        object_pairs_hook=_object,
        parse_float=_finite,
        parse_constant=float if constants else _finite,
    )


def parse_json(data: bytes, name: str) -> Any:
    """The value of JSON bytes, by RFC 8259; `name` is part of the FolderError if it is none."""
    try:
        return loads(data)
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{name} is not JSON: {error}") from None


def read_bytes(path: Path, max_bytes: int, *, follow: bool = True) -> bytes:
    """The bytes of a file of at most `max_bytes`, even if it grows meanwhile."""
    with regular(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(max_bytes + 1) if size <= max_bytes else b""
    if size > max_bytes or len(data) > max_bytes:
        raise FolderError(f"{path} has more than {max_bytes} bytes, and is not read")
    return data


@contextmanager
def regular(path: Path, *, follow: bool = True) -> Iterator[Any]:
    """A regular file, open to read; never blocks, even if the path has become a pipe."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    flags |= 0 if follow else getattr(os, "O_NOFOLLOW", 0)
    with open(path, "rb", BUFFER, opener=lambda name, _: os.open(name, flags)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a regular file")
        yield file


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields:
            raise RepeatedKeyError(key)
        fields[key] = value
    return fields


def _finite(written: str) -> float:
    if not math.isfinite(number := float(written)):
        raise InfiniteNumberError(written)
    return number


def files_below(folder: Path) -> dict[str, Path]:
    """Return every regular file below a folder by its relative posix path; refuse anything else."""
    result, below = {}, [folder]
    while below:
        try:
            with os.scandir(below.pop()) as entries:
                for entry in entries:
                    path = Path(entry.path)
                    if entry.is_dir(follow_symlinks=False):
                        below.append(path)
                        continue
                    name = path.relative_to(folder).as_posix()
                    if not entry.is_file(follow_symlinks=False):
                        raise FolderError(f"{folder}: {name} is a link or no regular file")
                    result[name] = path
        except OSError as error:
            raise FolderError(f"{folder} cannot be read: {error}") from None
    return result


def sync(path: Path) -> None:
    """Make a file, or a folder's list of names, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def clear_away(path: Path) -> None:
    """Remove a folder with its contents, a file, or a link but not its target; or nothing.

    Raises:
        OSError: it cannot be removed; the sentence asks to remove it by hand.
    """
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            return
        shutil.rmtree(path, ignore_errors=True)  # all that can be, whatever another process removes
        if path.exists():
            shutil.rmtree(path)
    except FileNotFoundError:  # by another process
        return
    except OSError as error:
        raise OSError(
            f"{path} is not usable and cannot be removed ({error}): remove it by hand, then try "
            "again"
        ) from error


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder; an OSError is about the first file that could not be copied, and no other."""
    try:
        shutil.copytree(source, target)
    except shutil.Error as error:
        _, first, reason = error.args[0][0]
        raise OSError(f"{first} cannot be written: {reason}") from None


def lock(handle: int, *, wait: bool = False) -> bool:
    """Whether this process now holds the lock of an open file or folder; closing it releases it.

    False on a system without such locks. If another process holds it, it is a BlockingIOError, or
    with `wait` a wait for its release.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except (ImportError, OSError):
        return False
    return True


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file, without an unfinished last one of a killed process; none without one."""
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


@contextmanager
def appending(path: Path) -> Iterator[tuple[Callable[[Iterable[str]], None], bool]]:
    """Hold the lock of a file of lines, made if there is none, after waiting for other writers.

    Yields what appends lines durably, in place of an unfinished last one, and whether its file
    system has locks. A process killed meanwhile may have written only the first lines.
    """
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)

    def append(lines: Iterable[str]) -> None:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.seek(0, os.SEEK_END)
        file.write("".join(line + "\n" for line in lines).encode())
        file.flush()
        os.fsync(handle)

    with os.fdopen(handle, "r+b") as file:
        yield append, lock(handle, wait=True)


def open_locked(path: Path) -> tuple[int, bool]:
    """An open and locked file, made if there is none; and whether its file system has locks.

    A file that its last holder removed meanwhile is opened anew.

    Raises:
        BlockingIOError: another process holds its lock.
        FileNotFoundError: its folder is missing.
    """
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            locked = lock(handle)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), path.stat()):
                    return handle, locked
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


MIN_AGE = 60.0  # seconds: the writer of a younger empty folder may not have locked it yet


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder while this process works in it, if the system has such locks."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock(handle, wait=True)  # a cleaner may hold it for an instant
        yield
    finally:
        os.close(handle)


def remove_leftovers(path: Path) -> None:
    """Remove what killed writers of the folder `path` left beside it, but for locked folders.

    If `path` is missing, between the two renames of a replacement, the old folder is put back.
    """
    if not path.parent.is_dir():
        return
    ours = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}\.(new|old)")
    for name in os.listdir(path.parent):
        leftover = path.parent / name
        if not ours.fullmatch(name) or leftover.is_symlink() or not leftover.is_dir():
            continue
        try:
            handle = os.open(leftover, os.O_RDONLY)
        except OSError:
            continue
        try:
            with suppress(BlockingIOError):
                if lock(handle):
                    _clear(leftover, path)
        finally:
            os.close(handle)


def _clear(leftover: Path, path: Path) -> None:
    old_folder = leftover / path.name
    abandoned = any(leftover.iterdir())  # a writer locks its folder before it writes there
    missing = not path.exists() and not path.is_symlink()
    if leftover.suffix == ".old" and old_folder.is_dir() and missing:
        old_folder.rename(path)
    if abandoned or abs(time.time() - leftover.stat().st_mtime) >= MIN_AGE:
        shutil.rmtree(leftover, ignore_errors=True)
