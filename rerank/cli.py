"""The command line `rerank`: every command, arguments to it, errors to messages and exit codes.

`data index` is `index` in `rerank.commands.data`, and `search`, of the group `use`, is `search` in
`rerank.commands.use`. Those of a room are where `rerank.rooms` says, if they are there.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from rerank.commands.command import Command
from rerank.errors import NO_SPACE, RerankError, led_to, nearest, optional
from rerank.progress import progress_shown
from rerank.rooms import ROOMS, load, rooms
from rerank.storage.files import package_version

ENOUGH = 141  # exit code if the output is no longer read: 128 plus the number of SIGPIPE
_GROUPS = {
    "use": ("quickstart", "search", "answer", "rescore", "serve"),
    "make": ("calibrate", "evaluate", "recalibrate", "model"),
    "data": ("data", "label"),
    "watch and train": ("watch", "train"),
}
_FAMILIES = {  # of commands with two words: what the second may be, and help
    "model": (
        ("init", "update", "export", "track", "promote"),
        "Make a model without labels; update, export, track or promote one",
    ),
    "data": (
        ("build", "check", "ingest", "index", "import-trec"),
        "Build, check, ingest, index or import data",
    ),
    "watch": (
        ("drift", "probe", "journal", "feedback"),
        "Detect drift, probe remote models, report on a journal, record feedback",
    ),
    "train": (
        ("cross-encoder", "bi-encoder", "prior"),
        "Train a cross-encoder, a bi-encoder, or the maps before the first label",
    ),
}
_PRESENT = [name for room in rooms().values() for name in room.commands]
_ABSENT = {name for room in ROOMS.values() for name in room.commands} - {*_PRESENT}


def _seconds(first: str, ours: tuple[str, ...]) -> tuple[str, ...]:
    """The second words of a family that are there: ours first, then those of others."""
    brought = (name.split()[1] for name in _PRESENT if name.startswith(f"{first} "))
    every = dict.fromkeys((*ours, *brought))
    return tuple(second for second in every if f"{first} {second}" not in _ABSENT)


FAMILIES = {first: (_seconds(first, ours), text) for first, (ours, text) in _FAMILIES.items()}
GROUPS = {group: tuple(n for n in names if n not in _ABSENT) for group, names in _GROUPS.items()}
_OURS = {name for names in _GROUPS.values() for name in names}
if _OTHERS := tuple(n for n in _PRESENT if n.split()[0] not in _OURS):  # of other distributions
    GROUPS["others"] = _OTHERS
COMMANDS = tuple(
    f"{first} {second}".strip()
    for names in GROUPS.values()
    for first in names
    for second in FAMILIES.get(first, (("",), ""))[0]
)


def find(name: str) -> Command:
    """The command of a name; its module is imported now."""
    first, _, second = name.partition(" ")
    family = "watch" if first == "train" else first  # of one module
    module = family if second else next(group for group, ns in GROUPS.items() if first in ns)
    own = f"rerank.commands.{module}:{(second or first).replace('-', '_')}"
    where = next((r.commands[name] for r in rooms().values() if name in r.commands), own)
    found: Command = load(where)
    return found


USAGE = "usage: rerank [-h] [--version] COMMAND ..."
HELP = ("-h", "--help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    The exit code is 0; 1 if the answer is no (an alarm, a gate that is not passed); 2 after a
    message about bad input; or 3 if MLflow or another system failed, or rows were rejected.
    """
    for stream in (sys.stdout, sys.stderr):  # what a terminal cannot show is a "?"
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the threads are ours: `rerank.process`
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


def parse(arguments: Sequence[str] | None = None) -> tuple[Command, argparse.Namespace]:
    """The command, and its options; `--help`, `--version` and wrong words end the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in COMMANDS:
            command = find(name)
            return command, command.parser(name).parse_args(words[count:])
    raise SystemExit(_answer(words))


def _answer(words: Sequence[str]) -> int:
    """Print the version or help, or which word is wrong; the exit code."""
    first, second = [*words, "", ""][:2]
    if first == "--version":
        print(f"rerank {package_version()}")
    elif first in HELP:
        print(overview())
    elif first in FAMILIES and second in HELP:
        print(f"usage: rerank {first} [-h] COMMAND ...\n")
        for word in FAMILIES[first][0]:
            print(f"  {word:<15}{find(f'{first} {word}').text}")
    else:
        known, usage, wrong = [n for names in GROUPS.values() for n in names], USAGE, first
        if first in FAMILIES:
            known, wrong = list(FAMILIES[first][0]), second
            usage = f"usage: rerank {first} [-h] {'|'.join(known)} ..."
        expected = f"expected one of {', '.join(known)}"
        renamed = [n for n in COMMANDS if n.partition(" ")[2] == first] if first else []
        hint = f"; it is `rerank {renamed[0]}`" if renamed else nearest(wrong, known)
        got = f", got {wrong!r}{hint}" if wrong else ""
        print(f"{usage}\nrerank: error: {expected}{got}", file=sys.stderr)
        return 2
    return 0


def overview() -> str:
    """What `rerank --help` prints."""
    lines = [USAGE, "", "Retrieval that knows when it is right."]
    for group, names in GROUPS.items():
        texts = [FAMILIES[name][1] if name in FAMILIES else find(name).text for name in names]
        lines += ["", f"{group}:", *map("  {:<13}{}".format, names, texts)]
    return "\n".join([*lines, "", "`rerank COMMAND --help` explains a command and its options."])


if __name__ == "__main__":
    sys.exit(main())
