"""A command is a typed function: its parameters are the arguments, and its docstring is the help.

A parameter that `Args:` describes is an argument before `*`, and a flag after it; an `Option` in
its annotation has bounds or choices. Of a parameter that is a dataclass, every field is a flag.
"""

from __future__ import annotations

import argparse
import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, is_dataclass, replace
from typing import Annotated, Any, NamedTuple, NoReturn, Union, get_args, get_origin, get_type_hints

from rerank.config import NOUNS, Option, check_option
from rerank.data.checks import is_encodable
from rerank.errors import InputError, nearest
from rerank.process import chosen

REJECTED = 3  # exit code of a job that is done, except for rows that cannot be used
SHARED = {"quiet", "device", "trust_remote_code"}  # by commands, beside their own options
DEVICES = (
    "where torch runs, for --precision bf16 and for models that sentence-transformers runs: cpu, "
    "cuda, cuda:1, mps, or auto: the first GPU, else the CPU (default: auto)"
)
TRUSTING = (
    "run the Python code of models that need their own, from a local folder, or from a hub id with "
    "its commit (org/model@COMMIT); it can do all that you can: read it first"
)
MUST = inspect.Parameter.empty  # the default of what must be given


class Typed(frozenset[str]):
    """The names of the options that were typed; a command asks for them with such a parameter."""

    def refuse(self, why: str, *names: str, kind: type | None = None) -> None:
        """Refuse the options `names`, or those of a configuration."""
        named = names if kind is None else [x.name for x in parameters(kind)]
        if flags := [flag(name) for name in named if name in self]:
            raise InputError(f"{', '.join(flags)}: {why}")


class Only(tuple[str, ...]):
    """Of a dataclass only these fields are options: `Annotated[Config, Only(("encoder",))]`."""


@dataclass(frozen=True, slots=True)
class Instead:
    """The options of a configuration that replace another one's values: a dictionary of them."""

    kind: type
    default: str  # in words


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument or a flag."""

    name: str
    kind: Any  # str, int, float, bool or Path
    option: Option
    default: Any
    positional: bool = False
    many: bool = False


def flag(name: str) -> str:
    """The flag of a parameter."""
    return f"--{name.replace('_', '-')}"


def default_text(default: object) -> str:
    """A default in words."""
    return "none" if default == "" else str(default)


@contextmanager
def named_by_flags() -> Iterator[None]:
    """In an InputError, names of fields in backquotes become flags."""
    try:
        yield
    except InputError as error:
        raise InputError(re.sub(r"`(\w+)`", lambda m: flag(m[1]), str(error))) from None


class _Hint(NamedTuple):
    name: str
    kind: Any
    notes: tuple[Any, ...]  # what annotates it
    default: Any
    positional: bool
    checked: bool  # by its dataclass, whose every field is an option


def _hints(target: Any) -> Iterator[_Hint]:
    hints, text = get_type_hints(target, include_extras=True), target.__doc__ or ""
    _, *described = re.split(r"^ +(\w+): ", text.partition("    Args:\n")[2], flags=re.M)
    helps = dict(zip(described[::2], described[1::2], strict=True))
    fields = getattr(target, "__dataclass_fields__", {})
    for p in inspect.signature(target).parameters.values():
        hint = hints[p.name]
        kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        option = fields[p.name].metadata.get("option") if p.name in fields else None
        if option:
            kind, notes = type(p.default), [option]
        elif p.name in helps:
            given = next((note for note in notes if isinstance(note, Option)), Option())
            notes = [replace(given, help=" ".join(helps[p.name].split()))]
        positional = p.kind is p.POSITIONAL_OR_KEYWORD and not option
        yield _Hint(p.name, kind, tuple(notes), p.default, positional, bool(option))


def parameters(target: Any, only: Sequence[str] = ()) -> Iterator[Parameter]:
    """The arguments and flags of a function or a dataclass, of dataclasses within it too."""
    for hint in _hints(target):
        if is_dataclass(hint.kind):
            within = next((note for note in hint.notes if isinstance(note, Only)), only)
            yield from parameters(hint.kind, within)
        for note in hint.notes:
            if isinstance(note, Instead):
                for x in parameters(note.kind):
                    yield Parameter(x.name, x.kind, x.option, note.default)
            elif isinstance(note, Option) and (not only or hint.name in only):
                item, many = _item(hint.kind)
                yield Parameter(hint.name, item, note, hint.default, hint.positional, many)


def _item(kind: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there may be several."""
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(k for k in get_args(kind) if k is not type(None))
    return (get_args(kind)[0], True) if get_origin(kind) is tuple else (kind, False)


def build(target: Any, given: Mapping[str, Any]) -> Any:
    """Call a function, or make a dataclass, with what was typed; the rest has its default."""
    values: dict[str, Any] = {}
    for hint in _hints(target):
        note = next(iter(hint.notes), None)
        if hint.kind is Typed:
            values[hint.name] = Typed(given)
        elif is_dataclass(hint.kind):
            values[hint.name] = build(hint.kind, given)
        elif isinstance(note, Instead):
            names = [x.name for x in parameters(note.kind)]
            values[hint.name] = {name: given[name] for name in names if name in given}
        elif hint.name in given:
            values[hint.name] = value = given[hint.name]
            item, many = _item(hint.kind)
            if isinstance(note, Option) and item in NOUNS and not (many or hint.checked):
                with named_by_flags():
                    check_option(hint.name, note, item, value)
    with named_by_flags() if isinstance(target, type) else nullcontext():
        return target(**values)


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest valid word."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; arguments and flags may be mixed. Each must be text, as URLs and JSON are."""
        for word in args or ():
            if not is_encodable(word):
                self.error(f"{word!r:.200} holds bytes that are not UTF-8; expected another name")
        options, unknown = self.parse_known_intermixed_args(args, namespace)
        if unknown:
            hint = nearest(unknown[0], re.findall(r"--[\w-]+", self.format_help()))
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return options

    def error(self, message: str) -> NoReturn:
        """Print the message, and exit with code 2."""
        self.exit(2, f"{self.format_usage()}rerank: error: {message}\n")


@dataclass(frozen=True, slots=True)
class Command:
    """A function as a command; its docstring is the help.

    It imports what is heavy, and returns an exit code, or False if the answer is no (code 1).
    """

    function: Callable[..., bool | int | None]
    example: str
    resumes: bool  # if interrupted, run the command again to resume
    networks: bool = False  # it runs networks

    @property
    def text(self) -> str:
        """Its help: the first paragraph of the docstring."""
        return " ".join((self.function.__doc__ or "").split("\n\n")[0].split()).rstrip(".")

    def parser(self, name: str) -> Parser:
        """The parser of its arguments; what is not typed is missing in the parsed ones."""
        parser = Parser(
            prog=f"rerank {name}",
            description=self.text,
            epilog=f"example:\n  rerank {name} {self.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for parameter in parameters(self.function):
            _add(parser, parameter)
        parser.add_argument("--quiet", action="store_true", help="show no progress")
        if self.networks:
            parser.add_argument("--device", metavar="DEVICE", help=DEVICES)
            parser.add_argument("--trust-remote-code", action="store_true", help=TRUSTING)
        return parser

    def run(self, options: argparse.Namespace) -> bool | int | None:
        """Run it with parsed arguments."""
        given = {n: v for n, v in vars(options).items() if v is not None and n not in SHARED}
        trust = getattr(options, "trust_remote_code", False)
        with chosen(getattr(options, "device", None) or "", trust=trust):
            answer: bool | int | None = build(self.function, given)
        return answer


def command(
    example: str, *, resumes: bool = False, networks: bool = False
) -> Callable[[Callable[..., bool | int | None]], Command]:
    """Make a command of a function, with one real example of its arguments."""
    return lambda function: Command(function, example, resumes, networks)


def _add(parser: argparse.ArgumentParser, x: Parameter) -> None:
    """Add an argument or a flag; its help ends with its bounds and its default."""
    option, choices = x.option, ",".join(x.option.choices)
    absent = x.default is MUST or x.default in (None, ()) or isinstance(x.default, bool)
    default = "" if absent else f"default: {default_text(x.default)}"
    notes = "; ".join(filter(None, (option.bounds(), default)))
    named: dict[str, Any] = {"default": argparse.SUPPRESS}
    named["help"] = (f"{option.help} ({notes})" if notes else option.help).replace("%", "%%")
    if x.kind is bool:
        parser.add_argument(flag(x.name), action="store_true", **named)
        return
    named["type"] = x.kind
    metavar = option.metavar or (f"{{{choices}}}" if choices else "")
    if x.positional:
        nargs = "+" if x.many else None if x.default is MUST else "?"
        named["default"] = None  # argparse would convert SUPPRESS, too
        parser.add_argument(x.name, nargs=nargs, metavar=metavar or x.name.upper(), **named)
    else:
        parser.add_argument(
            flag(x.name),
            nargs="+" if x.many else None,
            metavar=metavar or x.kind.__name__.upper(),
            required=x.default is MUST,
            **named,
        )
