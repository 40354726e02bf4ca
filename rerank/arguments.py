"""What the command line takes: the commands, their options, their help. It runs nothing."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from rerank.config import Config, FinetuneConfig, PromotionGate, options_of
from rerank.errors import InputError, nearest
from rerank.serving.settings import Settings

Run = Callable[[argparse.Namespace], bool | int | None]
Kind = TypeVar("Kind")


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest valid word."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse, and refuse what is unknown: here, where the options of the command are known."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            hint = nearest(unknown[0], re.findall(r"--[\w-]+", self.format_help()))
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return options, unknown

    def error(self, message: str) -> Any:
        """Exit with code 2, after the message."""
        wrong = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message)
        hint = nearest(wrong[1], re.findall(r"[\w-]+", wrong[2])) if wrong else ""
        super().error(f"{message}{hint}")


def parser(runs: Mapping[str, Run]) -> Parser:
    """The parser of `rerank`; an option `run` holds what `runs` names for the command given."""
    made = Parser(prog="rerank", description="Retrieval that knows when it is right.")
    made.add_argument("--version", action="version", version=f"rerank {_version()}")
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    dataset = commands.add_parser("dataset", help="build a labelled set, or check one")
    kinds = dataset.add_subparsers(required=True, metavar="build|check")
    for described in COMMANDS:
        words = described.name.split()
        p = (commands if len(words) == 1 else kinds).add_parser(
            words[-1],
            help=described.text,
            description=described.text,
            epilog=f"example:\n  rerank {described.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        described.arguments(p)
        p.set_defaults(run=runs[described.name], resumes=described.resumes)
    return made


def _version() -> str:
    try:
        return version("calibrated-rerank")
    except PackageNotFoundError:  # run from a tree that is not installed
        return "unknown"


def from_options(kind: type[Kind], o: argparse.Namespace) -> Kind:
    """The configuration that the options of a command give; the default of what it does not take.

    Raises:
        InputError: a value out of its bounds; the message names the flag.
    """
    values = {
        one.name: from_options(one.default_factory, o)  # type: ignore[arg-type]
        if one.default is MISSING
        else getattr(o, one.name, one.default)
        for one in fields(kind)  # type: ignore[arg-type]
    }
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(re.sub(r"`(\w+)`", lambda m: _flag(m[1]), str(error))) from None


def options_page() -> str:
    """docs/options.md: every option of every configuration, as its field says it."""
    pages = [
        "# Options",
        "Made from the code (`rerank.arguments.options_page`), which a test compares with this "
        "page. In Python an option is the field of the same name, with underscores.",
    ]
    for command, kind in CONFIGURATIONS.items():
        pages.append(f"## `rerank {command}`: `{kind.__module__}.{kind.__name__}`")
        rows = ["| option | default | values | meaning |", "|---|---|---|---|"]
        rows += [
            f"| `{_flag(one.name)}` | {_default(one.default)} | {said.values(type(one.default))} "
            f"| {said.help} |"
            for one, said in options_of(kind)
        ]
        pages.append("\n".join(rows))
    return "\n\n".join(pages) + "\n"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _default(value: object) -> str:
    return "none" if value == "" else str(value)


def _build(p: argparse.ArgumentParser) -> None:
    p.add_argument("name", help="pydata, pydata_questions, or documentation: a set to train on")
    p.add_argument("--out", type=Path, required=True, help="folder to write into")
    p.add_argument(
        "--libraries",
        nargs="+",
        default=(),
        help="installed libraries with numpydoc docstrings, which documentation is built from",
    )


def _check(p: argparse.ArgumentParser) -> None:
    p.add_argument("dataset", type=Path, help="BEIR folder")
    _add_unjudged(p)


def _index(p: argparse.ArgumentParser) -> None:
    p.add_argument("dataset", type=Path, help="folder with corpus.jsonl")
    _add_out(p, "index")
    _add_options(p, Config, "encoder", "encoder_max_length", "dense", "language")


def _finetune(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "datasets",
        nargs="+",
        type=_source,
        metavar="SET[:EXAMPLES]",
        help="BEIR folders, or folders with pairs.jsonl",
    )
    _add_out(p, "model")
    p.add_argument("--split", default="train", help="split to train on (default: train)")
    p.add_argument("--pack", type=Path, help="also write small int8 weights into this folder")
    p.add_argument(
        "--within-group",
        nargs="+",
        default=(),
        metavar="NAME",
        help="sets whose questions do not name their subject: wrong passages are of the same group",
    )
    _add_group_by(p)
    _add_work(p)
    _add_options(p, FinetuneConfig)


def _calibrate(p: argparse.ArgumentParser) -> None:
    p.add_argument("dataset", type=Path, help="BEIR folder")
    _add_out(p, "model")
    p.add_argument(
        "--index",
        type=Path,
        help="folder that `rerank index` wrote of this corpus (default: one is made in --work)",
    )
    p.add_argument(
        "--max-queries", type=_positive, help="bound on queries to fit on, and to report on"
    )
    _add_name(p, "calibrated-rerank-SET, after the data set")
    _add_verbose(p)
    p.add_argument(
        "--self-contained",
        action="store_true",
        help="carry the exported networks, to be deployed without torch and weights",
    )
    _add_group_by(p)
    _add_work(p)
    _add_options(p, Config)


def _evaluate(p: argparse.ArgumentParser) -> None:
    _add_model(p)
    p.add_argument("dataset", type=Path, help="BEIR folder")
    p.add_argument("--split", default="test", help="split to measure on (default: test)")
    p.add_argument("--json", action="store_true", help="print one JSON object")
    _add_verbose(p)
    _add_group_by(p)
    _add_work(p)


def _glossary(p: argparse.ArgumentParser) -> None:
    """It takes no argument."""


def _search(p: argparse.ArgumentParser) -> None:
    _add_model(p)
    p.add_argument("queries", nargs="+", metavar="QUERY", help="in plain words")
    p.add_argument(
        "--segment",
        metavar="NAME",
        help="segment of the queries, where the model was calibrated with --segment-by",
    )
    p.add_argument(
        "--json", action="store_true", help="print one JSON object a query, with all passages"
    )


def _rescore(p: argparse.ArgumentParser) -> None:
    _add_model(p)
    p.add_argument(
        "queries",
        type=Path,
        help="JSONL or Parquet of _id and text, and of passages where a query brings its own",
    )
    p.add_argument(
        "--out",
        type=Path,
        required=True,
        help="JSONL or Parquet to write; rejected rows go to OUT.rejected.jsonl beside it",
    )
    p.add_argument("--strict", action="store_true", help="stop at the first row to reject")
    p.add_argument(
        "--restart",
        action="store_true",
        help="throw away what an interrupted run of another model or input left",
    )
    p.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="this process, or Ray: the cluster of RAY_ADDRESS, else here (default: local)",
    )
    p.add_argument(
        "--actors", type=int, help="of Ray, each with the model (default: one a 4 cores)"
    )
    _add_work(p)


def _drift(p: argparse.ArgumentParser) -> None:
    _add_model(p)
    p.add_argument("queries", type=Path, help="JSONL file, or the BEIR folder of another corpus")
    p.add_argument("--split", default="test", help="split of a BEIR folder (default: test)")
    p.add_argument(
        "--level", type=float, default=0.01, help="chance of a false alarm (default: 0.01)"
    )
    p.add_argument("--json", action="store_true", help="print one JSON object")
    _add_work(p)


def _recalibrate(p: argparse.ArgumentParser) -> None:
    _add_model(p)
    p.add_argument(
        "--labels",
        type=Path,
        required=True,
        help='lines of {"query": TEXT, "right": true or false} or {"query": TEXT, "relevant": '
        "[IDS]}, or a BEIR folder, whose corpus the new model then searches",
    )
    _add_out(p, "model")
    p.add_argument("--split", default="train", help="split of a BEIR folder (default: train)")
    _add_unjudged(p)
    p.add_argument(
        "--max-labels", type=_positive, help="take only so many of them, drawn at random"
    )
    _add_name(p, "that of MODEL; calibrated-rerank-SET where the labels are of another corpus")
    _add_work(p)


def _export(p: argparse.ArgumentParser) -> None:
    _add_model(p)
    _add_out(p, "model")


def _track(p: argparse.ArgumentParser) -> None:
    p.add_argument("model", type=Path, help="model folder")
    _add_work(p)


def _promote(p: argparse.ArgumentParser) -> None:
    p.add_argument("model", type=Path, help="model folder")
    p.add_argument("dataset", type=Path, help="BEIR folder to measure on")
    p.add_argument("--split", default="test", help="split to measure on (default: test)")
    p.add_argument(
        "--new-corpus",
        action="store_true",
        help="replace a champion of another corpus, with which the model is not compared",
    )
    _add_options(p, PromotionGate)
    _add_group_by(p)
    _add_work(p)


def _positive(given: str) -> int:
    if not given.isdecimal() or not int(given):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, got {given!r}")
    return int(given)


def _serve(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "model",
        help="model folder (a copy of it in TMPDIR answers), or MLflow's name for it, such as "
        "models:/calibrated-rerank-pydata@champion",
    )
    _add_work(p)
    _add_options(p, Settings)


def _source(given: str) -> tuple[Path, int | None]:
    """A folder, and how many examples to take of it."""
    folder, _, limit = given.partition(":")
    if limit and not limit.isdigit():
        raise argparse.ArgumentTypeError(
            f"{given!r}: expected FOLDER or FOLDER:EXAMPLES, such as squad:2000"
        )
    return Path(folder), int(limit) if limit else None


def _add_options(parser: argparse.ArgumentParser, kind: type, *names: str) -> None:
    """An option a field of a configuration, with its default; only those named, if any are."""
    for one, said in options_of(kind):
        if names and one.name not in names:
            continue
        flag, value = _flag(one.name), one.default
        if value is False:
            parser.add_argument(flag, action="store_true", help=said.help)
            continue
        notes = filter(None, (said.bounds(), f"default: {_default(value)}"))
        parser.add_argument(
            flag,
            type=type(value),
            default=value,
            metavar=f"{{{','.join(said.choices)}}}"
            if said.choices
            else type(value).__name__.upper(),
            help=f"{said.help} ({'; '.join(notes)})".replace("%", "%%"),
        )


def _add_out(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--out", type=Path, required=True, help=f"{what} folder to write")
    parser.add_argument("--overwrite", action="store_true", help=f"replace the {what} in --out")


def _add_verbose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--verbose", action="store_true", help="print the comparison and all measurements too"
    )


def _add_group_by(parser: argparse.ArgumentParser) -> None:
    _add_unjudged(parser)
    parser.add_argument(
        "--group-by",
        metavar="KEY",
        help="metadata of a query, such as its article, whose like values stay on one side of "
        "every split (default: its `group`, else the documents that it is about)",
    )


def _add_unjudged(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--unjudged",
        choices=("refuse", "leave-out", "unanswerable"),
        default="refuse",
        help="queries that no qrels name, in a set without splits/: an error, left out, or counted "
        "as questions that nothing answers (default: refuse)",
    )


def _add_name(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--name",
        default="",
        help="of MLflow's experiment, and of the registered model of which this is a new version "
        f"(default: {default})",
    )


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        type=Path,
        help="model folder, or MLflow's name for it: models:/calibrated-rerank-pydata@champion",
    )
    parser.add_argument(
        "--download",
        action="store_true",
        help="fetch models of a hub that are not in its cache on this machine",
    )


def _add_work(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("work"),
        help="folder for indexes, scores and MLflow's database (default: work)",
    )


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name as typed, its help, one real example, and what adds its arguments.

    `resumes`: interrupted, the same command goes on from what is done.
    """

    name: str
    text: str
    example: str
    arguments: Callable[[argparse.ArgumentParser], None]
    resumes: bool = False


COMMANDS = (
    Command(
        "dataset build",
        "build a labelled set from the installed libraries' documentation",
        "dataset build pydata --out datasets/pydata",
        _build,
    ),
    Command(
        "dataset check",
        "check a labelled set and count what is in it",
        "dataset check datasets/pydata",
        _check,
    ),
    Command(
        "index",
        "index a corpus: BM25 and dense",
        "index datasets/pydata --out work/pydata-index",
        _index,
    ),
    Command(
        "finetune",
        "train a cross-encoder on labelled sets",
        "finetune datasets/pydata my-set:2000 --out work/reranker --steps 600",
        _finetune,
        resumes=True,
    ),
    Command(
        "calibrate",
        "labelled set to calibrated model: index, rank, fit, measure, track; code 3: untracked",
        "calibrate datasets/pydata --out work/model",
        _calibrate,
        resumes=True,
    ),
    Command(
        "evaluate",
        "measure a model on a split of a labelled set",
        "evaluate work/model datasets/pydata --split test",
        _evaluate,
        resumes=True,
    ),
    Command(
        "drift",
        "compare new queries with those a model was fitted on, without labels; exit code 1: alarm",
        "drift work/model queries.jsonl",
        _drift,
        resumes=True,
    ),
    Command(
        "recalibrate",
        "move a model's confidence by a few new labels",
        "recalibrate work/model --labels labels.jsonl --out work/moved",
        _recalibrate,
        resumes=True,
    ),
    Command(
        "export",
        "copy a model with its networks inside, to be deployed without torch and weights",
        "export work/model --out work/deployed",
        _export,
    ),
    Command(
        "track",
        "send a finished model to MLflow, where calibrate could not; once, however often it is run",
        "track work/model",
        _track,
    ),
    Command(
        "promote",
        "make a model the champion, if it passes the gate; exit code 1: it does not",
        "promote work/model datasets/pydata --split test",
        _promote,
        resumes=True,
    ),
    Command(
        "search",
        "answer queries, with a confidence each",
        'search work/model "median along an axis while ignoring NaNs"',
        _search,
    ),
    Command(
        "rescore",
        "assess a file of queries; exit code 3: some rows were rejected",
        "rescore work/model queries.jsonl --out predictions.jsonl",
        _rescore,
        resumes=True,
    ),
    Command(
        "glossary",
        "what the words of an answer mean, and which of them to act on",
        "glossary",
        _glossary,
    ),
    Command(
        "serve",
        "answer queries over HTTP, and take over new models as they come",
        "serve work/model --port 8000",
        _serve,
    ),
)

CONFIGURATIONS: dict[str, type] = {
    "calibrate": Config,
    "finetune": FinetuneConfig,
    "promote": PromotionGate,
    "serve": Settings,
}
