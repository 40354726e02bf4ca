"""A process that reads files for another one: bytes in, a document or a reason out.

    python -m rerank.ingest.worker BYTES

Standard input, for each file: a line of JSON with `kind` and `size`, then `size` bytes. Standard
output, for each file: a line of JSON. A crash here affects no other process.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from rerank.ingest.document import UnreadableError
from rerank.ingest.formats import reader


def answer(kind: str, data: bytes) -> dict[str, Any]:
    """The document of a file as plain JSON values, or `skipped` with the reason why not."""
    try:
        found = reader(kind)(data)
    except UnreadableError as error:
        return {"skipped": str(error)}
    except MemoryError:
        return {"skipped": "it takes more memory than is allowed"}
    except RecursionError:
        return {"skipped": "it is nested too deep"}
    except Exception as error:  # each format fails on a broken file in its own way
        message = " ".join(f"{type(error).__name__}: {error}".split())
        return {"skipped": f"it is broken ({message[:200]})"}
    return found.to_dict()


def bound_memory(max_bytes: int) -> None:
    """Limit this process to `max_bytes` bytes of memory, if the system supports it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        return


def main() -> None:
    """Answer until the input ends."""
    bound_memory(int(sys.argv[1]))
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
