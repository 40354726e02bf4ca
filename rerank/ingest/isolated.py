"""Reads files in a separate process, with limits of time and memory.

A file that hangs, fills the memory or crashes the process affects no other file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event, Timer
from types import TracebackType

from rerank.ingest.document import Document, ReaderEndedError, UnreadableError

MEMORY = 2 * 2**30  # bytes of memory that reading a file may take
ANSWER = 2**25  # bytes that an answer may have, and three times those of the file
ROOT = Path(__file__).parents[2]  # where the package is


class IsolatedReader:
    """Reads one file after the other. `seconds`: the time that a file may take."""

    def __init__(self, *, seconds: float, memory: int = MEMORY) -> None:
        self.seconds = seconds
        self.memory = memory
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> IsolatedReader:
        """The process starts with the first file."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """End the process."""
        self._end()

    def read(self, kind: str, data: bytes) -> Document:
        """The document of a file of a format.

        Raises:
            UnreadableError: why there is none, or that its text is too much to take; a
                ReaderEndedError after the time or a crash.
        """
        longest = ANSWER + 3 * len(data)
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
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
        if "skipped" in answer:
            raise UnreadableError(answer["skipped"])
        return Document.from_dict(answer)

    def _start(self) -> subprocess.Popen[bytes]:
        found = os.environ.get("PYTHONPATH")
        path = os.pathsep.join(filter(None, (str(ROOT), found)))
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "rerank.ingest.worker", str(self.memory)],
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
        if process.poll() is None:
            process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        return code
