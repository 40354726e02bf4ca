"""Reads files in a separate process, with limits of time and memory.

    python -m rerank.ingest.isolated BYTES

is that process. A file that hangs, fills the memory or crashes it affects no other file. It takes
for each file a line of JSON with `kind` and `size`, then `size` bytes, and answers a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from pathlib import Path, PurePosixPath
from threading import Event, Timer
from typing import Any, cast

from rerank.ingest.document import Document, ReaderEndedError, UnreadableError, one_line

READERS = {  # a new format needs a module and a line here
    **dict.fromkeys((".md", ".markdown"), "markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    ".pdf": "pdf",
    **dict.fromkeys((".docx", ".docm", ".dotx", ".dotm"), "docx"),
    ".rst": "rst",
    **dict.fromkeys((".txt", ".text"), "plain"),
}
KNOWN = ", ".join(READERS)
MEMORY = 2 * 2**30  # bytes of memory that reading a file may take
ANSWER = 2**25  # bytes that an answer may have, and three times those of the file
ROOT = Path(__file__).parents[2]  # where the package is


def format_of(name: str) -> str | None:
    """The name of a file's format; None if there is no reader for it."""
    return READERS.get(PurePosixPath(name).suffix.lower())


def reader(kind: str) -> Callable[[bytes], Document]:
    """The reader of a format; this imports its library."""
    return cast(Callable[[bytes], Document], import_module(f"rerank.ingest.{kind}").read)


class IsolatedReader(AbstractContextManager["IsolatedReader"]):
    """Reads one file after the other. `seconds`: the time that a file may take."""

    def __init__(self, *, seconds: float, memory: int = MEMORY) -> None:
        self.seconds, self.memory = seconds, memory
        self._process: subprocess.Popen[bytes] | None = None  # starts with the first file

    def __exit__(self, *_: object) -> None:
        self._end()

    def read(self, kind: str, data: bytes) -> Document:
        """The document of a file of a format.

        Raises:
            UnreadableError: why there is none, or that its text is too much to take; a
                ReaderEndedError after the time or a crash.
        """
        longest = ANSWER + 3 * len(data)
        process = self._process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018
        late = Event()

        def stop() -> None:
            late.set()
            process.kill()

        timer = Timer(self.seconds, stop)
        timer.start()
        try:
            process.stdin.write(json.dumps({"kind": kind, "size": len(data)}).encode() + b"\n")
            process.stdin.write(data)
            process.stdin.flush()
            line = process.stdout.readline(longest)
        except BrokenPipeError:
            line = b""
        except BaseException:  # such as Ctrl-C, amid an answer
            self._end()
            raise
        finally:
            timer.cancel()
            timer.join()
        if len(line) == longest:  # the rest of it is not wanted
            self._end()
            raise UnreadableError(f"its text takes more than {longest // 2**20} MiB")
        if late.is_set() or not line.endswith(b"\n"):
            code = self._end()  # the next file gets another process
            if late.is_set():
                raise ReaderEndedError(f"reading it takes longer than {self.seconds:g} seconds")
            raise ReaderEndedError(f"reading it ends the process that reads (code {code})")
        answer = json.loads(line)
        if "blocks" not in answer:
            raise UnreadableError(answer["skipped"])
        return Document.from_dict(answer)

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "rerank.ingest.isolated", str(self.memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C ends us, and no file is blamed for it
        )

    def _end(self) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()
        with suppress(BrokenPipeError), process:  # closes the pipes and waits
            pass
        return process.wait()


def answer(kind: str, data: bytes) -> dict[str, Any]:
    """The document of a file as plain JSON values, or `skipped` with the reason why not."""
    try:
        return reader(kind)(data).to_dict()
    except UnreadableError as error:
        why = str(error)
    except MemoryError:
        why = "it takes more memory than is allowed"
    except RecursionError:
        why = "it is nested too deep"
    except Exception as error:  # each format fails on a broken file in its own way
        why = f"it is broken ({one_line(f'{type(error).__name__}: {error}')[:200]})"
    return {"skipped": why}


def main() -> None:
    """Answer until the input ends; with a limit of memory, if the system supports it."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library's output must not mix with the answers
    while line := sys.stdin.buffer.readline():
        asked = json.loads(line)
        data = sys.stdin.buffer.read(asked["size"])
        if len(data) < asked["size"]:
            return
        answers.write(json.dumps(answer(asked["kind"], data)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
