"""The command `rerank`: from arguments to a command, from errors to messages and exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from rerank.commands.command import Command
from rerank.commands.parser import parser
from rerank.errors import RerankError, optional

ENOUGH = 141  # exit code where nobody reads the output any more: 128 and the number of SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    The exit code is 0, 1 where the answer is no (an alarm, a gate that is not passed), 2 after a
    message about bad input, or 3 where all is done but for rows that were rejected, or but for
    MLflow's record of it.
    """
    _prepare()
    options = parser().parse_args(arguments)
    command: Command = options.command
    try:
        with optional():
            answer = command.run(options)
        sys.stdout.flush()
    except RerankError as error:
        return _refuse(str(error), error.exit_code)
    except BrokenPipeError:  # whoever reads has enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ENOUGH
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror}" if error.strerror else str(error))
    except KeyboardInterrupt:
        resume = ": run the same command again to resume" if command.resumes else ""
        print(f"\nrerank: interrupted{resume}", file=sys.stderr)
        return 130
    if isinstance(answer, bool) or answer is None:
        return 1 if answer is False else 0
    return answer


def _refuse(message: str, code: int = 2) -> int:
    print(f"rerank: error: {message}", file=sys.stderr)
    return code


def _prepare() -> None:
    """Print what a narrow terminal cannot show as "?"; hold back other libraries' chatter."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


if __name__ == "__main__":
    sys.exit(main())
