"""The command line `rerank`: arguments to a command, errors to messages and exit codes."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from rerank.commands.command import Command
from rerank.commands.table import parse
from rerank.errors import NO_SPACE, RerankError, led_to, optional
from rerank.progress import progress_shown

ENOUGH = 141  # exit code if the output is no longer read: 128 plus the number of SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    The exit code is 0; 1 if the answer is no (an alarm, a gate that is not passed); 2 after a
    message about bad input; or 3 if MLflow, another system failed, or rows of a file were
    rejected.
    """
    for stream in (sys.stdout, sys.stderr):  # what a terminal cannot show is a "?"
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the threads are ours: `rerank.cores`
    command, options = _parsed(arguments)
    try:
        with optional(), progress_shown(on=not options.quiet):
            answer = command.run(options)
        sys.stdout.flush()
    except RerankError as error:
        return _refuse(str(error), error.exit_code)
    except BrokenPipeError:
        return _unread()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        message = f"{where}{error.strerror}" if error.strerror else str(error)
        advice = f"; make room and {_again(command)}" if led_to(error, NO_SPACE) else ""
        return _refuse(f"{message}{advice}")
    except KeyboardInterrupt:
        resume = f": {_again(command)}" if command.resumes else ""
        print(f"\nrerank: interrupted{resume}", file=sys.stderr)
        return 130
    finally:
        if client := sys.modules.get("rerank.inference.remote.client"):
            for sentence in client.METER.sentences():
                print(f"rerank: {sentence}", file=sys.stderr)
            client.METER.start(client.Budget())
    if isinstance(answer, bool) or answer is None:
        return 1 if answer is False else 0
    return answer


def _parsed(arguments: Sequence[str] | None) -> tuple[Command, argparse.Namespace]:
    try:
        try:
            return parse(arguments)
        finally:
            sys.stdout.flush()  # what `--help` and `--version` print
    except BrokenPipeError:
        raise SystemExit(_unread()) from None


def _unread() -> int:
    """Write no more: the reader has stopped, as `head` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ENOUGH


def _again(command: Command) -> str:
    return f"run the same command again{' to resume' if command.resumes else ''}"


def _refuse(message: str, code: int = 2) -> int:
    print(f"rerank: error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
