"""Arguments shared by several commands, and options made from the fields of a configuration."""

from __future__ import annotations

import argparse
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TypeVar

from rerank.config import LARGEST, options_of
from rerank.data.beir import UNJUDGED
from rerank.data.lines import ON_BAD_LINES
from rerank.errors import InputError

Kind = TypeVar("Kind")


def from_options(kind: type[Kind], o: argparse.Namespace) -> Kind:
    """The configuration from the options of a command; fields without an option have their default.

    Raises:
        InputError: a value is out of range; the message names the flag.
    """
    values = {
        field.name: from_options(field.default_factory, o)  # type: ignore[arg-type]
        if field.default is MISSING
        else getattr(o, field.name, field.default)
        for field in fields(kind)  # type: ignore[arg-type]
    }
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(re.sub(r"`(\w+)`", lambda m: flag(m[1]), str(error))) from None


def flag(name: str) -> str:
    """The flag of a field."""
    return f"--{name.replace('_', '-')}"


def default_text(default: object) -> str:
    """A default in words."""
    return "none" if default == "" else str(default)


def typed_options(kind: type, o: argparse.Namespace) -> list[str]:
    """The flags of a configuration that were typed."""
    return [flag(field.name) for field, _ in options_of(kind) if hasattr(o, field.name)]


def add_options(p: argparse.ArgumentParser, kind: type, *names: str) -> None:
    """Add one option per field of a configuration; only `names`, if given.

    An option that is not typed is missing in the parsed arguments: read them with `from_options`.
    """
    for field, option in options_of(kind):
        if names and field.name not in names:
            continue
        value, choices = field.default, ",".join(option.choices)
        absent = argparse.SUPPRESS
        if value is False:
            p.add_argument(flag(field.name), action="store_true", default=absent, help=option.help)
            continue
        notes = filter(None, (option.bounds(), f"default: {default_text(value)}"))
        p.add_argument(
            flag(field.name),
            type=type(value),
            default=absent,
            metavar=f"{{{choices}}}" if choices else type(value).__name__.upper(),
            help=f"{option.help} ({'; '.join(notes)})".replace("%", "%%"),
        )


def positive(given: str) -> int:
    """The type of an argument that is a count."""
    if not given.isdecimal() or len(given) > len(str(LARGEST)) or not 0 < int(given) <= LARGEST:
        raise argparse.ArgumentTypeError(
            f"expected a whole number from 1 to {LARGEST}, got {given!r:.80}"
        )
    return int(given)


def add_out(p: argparse.ArgumentParser, what: str) -> None:
    """Add `--out` and `--overwrite`, for a folder."""
    p.add_argument("--out", type=Path, required=True, help=f"{what} folder to write")
    p.add_argument("--overwrite", action="store_true", help=f"replace the {what} in --out")


def add_split(p: argparse.ArgumentParser, default: str, use: str) -> None:
    """Add `--split`, of a labelled set."""
    p.add_argument("--split", default=default, help=f"{use} (default: {default})")


def add_json(p: argparse.ArgumentParser, what: str = "print one JSON object") -> None:
    """Add `--json`."""
    p.add_argument("--json", action="store_true", help=what)


def add_verbose(p: argparse.ArgumentParser) -> None:
    """Add `--verbose`."""
    p.add_argument(
        "--verbose", action="store_true", help="print the comparison and all measurements too"
    )


def add_group_by(p: argparse.ArgumentParser) -> None:
    """Add `--group-by` and `--unjudged`: how a labelled set is read."""
    add_unjudged(p)
    p.add_argument(
        "--group-by",
        metavar="KEY",
        help="metadata of a query, such as its article; queries with the same value stay on one "
        "side of every split (default: its `group`, else the documents that it is about)",
    )


def add_unjudged(p: argparse.ArgumentParser) -> None:
    """Add `--unjudged` and `--on-bad-lines`: how queries without labels and bad lines count."""
    add_on_bad_lines(p)
    p.add_argument(
        "--unjudged",
        choices=UNJUDGED,
        default=UNJUDGED[0],
        help="queries that no qrels name, in a set without splits/: an error, left out, or counted "
        "as questions that nothing answers (default: refuse)",
    )


def add_on_bad_lines(p: argparse.ArgumentParser) -> None:
    """Add `--on-bad-lines`: what becomes of lines that cannot be used."""
    p.add_argument(
        "--on-bad-lines",
        choices=ON_BAD_LINES,
        default=ON_BAD_LINES[0],
        help="lines of a labelled set that cannot be used, such as a passage without words or a "
        "judgement of a passage that is not there: an error that lists them, or left out, counted "
        "and listed (default: refuse)",
    )


def add_name(p: argparse.ArgumentParser, default: str) -> None:
    """Add `--name`, the name in MLflow."""
    p.add_argument(
        "--name",
        default="",
        help="name of the experiment in MLflow, and of the registered model, which gets a new "
        f"version (default: {default})",
    )


def add_model(p: argparse.ArgumentParser) -> None:
    """Add the model to load, and `--download`."""
    p.add_argument(
        "model",
        type=Path,
        help="model folder, or MLflow's name for it: models:/calibrated-rerank-pydata@champion",
    )
    p.add_argument(
        "--download",
        action="store_true",
        help="fetch models of a hub that are not in its cache on this machine",
    )
    add_manifest_sha256(p)


def add_manifest_sha256(p: argparse.ArgumentParser) -> None:
    """Add `--manifest-sha256`, of the model to load."""
    p.add_argument(
        "--manifest-sha256",
        metavar="SHA256",
        help="refuse the model unless its manifest.json has this sha256, which `calibrate` and "
        "`export` print (default: any)",
    )


def add_work(p: argparse.ArgumentParser) -> None:
    """Add `--work`."""
    p.add_argument(
        "--work",
        type=Path,
        default=Path("work"),
        help="folder for indexes, scores and MLflow's database (default: work)",
    )


def add_journal(p: argparse.ArgumentParser) -> None:
    """Add the journal to use."""
    p.add_argument("journal", help="its URL: sqlite:///PATH or postgresql://USER@HOST/DATABASE")
