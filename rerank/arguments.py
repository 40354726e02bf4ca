"""What the command line takes: the commands, their options, their help. It runs nothing."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rerank.config import CHOICES, Config, FinetuneConfig, Gate, Thresholds
from rerank.serving.settings import Settings

Run = Callable[[argparse.Namespace], bool | int | None]

OPTIONS = {
    "encoder": "bi-encoder: minilm, a folder, or a hub id",
    "encoder_max_length": "tokens of a passage that the bi-encoder reads",
    "reranker": "cross-encoder: minilm-reranker, a folder, or a hub id",
    "max_length": "tokens of query and passage that the cross-encoder reads",
    "precision": "of the cross-encoder: bf16 uses a GPU, int8 is fastest on a CPU",
    "dense": "search by cosine; approximate is for a million passages and more",
    "language": "Snowball stemmer of BM25, or none",
    "pool": "passages each first stage brings back",
    "candidates": "fused passages that are ordered by relevance",
    "rerank_depth": "how many of them, the likeliest, the cross-encoder reads at most",
    "rank_by": "order of the passages; logit is the raw cross-encoder order",
    "calibrator": "how the confidence is mapped; auto chooses by cross-validation",
    "segment_by": "metadata of a query, such as its language: each value of it gets a correction",
    "sufficiency_k": "the verdict is of P(one of the first k passages is right); 2 to 10",
    "seed": "seed of folds and draws",
}
BANDS = {
    "high": "confidence from here is HIGH",
    "medium": "confidence from here is MEDIUM and accepted",
    "low": "confidence from here is LOW",
    "sufficient": "sufficiency from here is SUFFICIENT",
    "partial": "sufficiency from here is PARTIAL",
}
GATE = {
    "most_smece": "the upper end of the 95 %% interval of smECE may be this at most",
    "least_certified": "share of the queries that the certified threshold must accept",
    "margin": "of log loss, and of the share that is right, that may be lost to the champion",
}
TRAINING = {
    "base": "body to start from, or a cross-encoder to train further",
    "encoder": "bi-encoder that mines hard negatives",
    "hard": "wrong passages a query, from the top of the first stage",
    "easy": "wrong passages a query, from anywhere",
    "max_length": "tokens of query and passage, while training",
    "batch": "queries a step",
    "steps": "training steps",
    "learning_rate": "peak learning rate",
    "warmup": "share of the steps in which the rate rises",
    "dropout": "dropout while training",
    "depth": "how many of the first stage's passages the wrong ones are drawn from",
    "frozen_layers": "lowest layers to leave as they are in the base",
    "lora": "rank of low-rank updates to the layers (LoRA); 0 trains them whole",
    "loss": "what is learned from the labels",
    "teacher": "cross-encoder whose scores are learned from as well: a name, a folder, a hub id",
    "distil": "weight of the teacher beside the labels",
    "validation": "queries held out to choose the best step; 0 keeps the last",
    "check_every": "steps between two checkpoints, each validated",
    "patience": "checks in a row without a better nDCG@10 before training stops",
    "seed": "seed of draws and weights",
}
SERVING = {
    "host": "address to listen on; others than 127.0.0.1 need keys in RERANK_API_KEYS",
    "port": "port to listen on; 0 takes a free one",
    "queue": "requests in hand at once; the next one is answered 429",
    "batch": "waiting requests that are ranked in one call",
    "timeout": "seconds in which a request must be answered",
    "patience": "seconds in which a client must have sent its request",
    "max_body": "bytes of a request",
    "max_documents": "documents of a request",
    "max_document": "characters of a document",
    "max_query": "characters of a query",
    "max_depth": "nesting of a request's JSON",
    "max_values": "values in a request's JSON",
    "poll": "seconds between two looks whether MODEL has changed; 0: only at SIGHUP",
    "drift_window": "searches that the drift alarm compares at a time",
    "drift_level": "chance of a false alarm of one window",
}


def parser(runs: Mapping[str, Run]) -> argparse.ArgumentParser:
    """The parser of `rerank`; an option `run` holds what `runs` names for the command given."""
    made = argparse.ArgumentParser(
        prog="rerank", description="Retrieval that knows when it is right."
    )
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
        p.set_defaults(run=runs[described.name])
    return made


def config(o: argparse.Namespace) -> Config:
    """The configuration that the options of `calibrate` give."""
    thresholds = Thresholds(**{name: getattr(o, name) for name in BANDS})
    return replace(Config(), thresholds=thresholds, **{name: getattr(o, name) for name in OPTIONS})


def finetune_config(o: argparse.Namespace) -> FinetuneConfig:
    """The configuration that the options of `finetune` give."""
    return FinetuneConfig(**{name: getattr(o, name) for name in TRAINING})


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
    p.add_argument("--out", type=Path, required=True, help="index folder to write")
    p.add_argument("--overwrite", action="store_true", help="replace an index that is there")
    wanted = ("encoder", "encoder_max_length", "dense", "language")
    _add_options(p, Config(), {name: OPTIONS[name] for name in wanted})


def _finetune(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "datasets", nargs="+", type=_source, metavar="SET[:EXAMPLES]", help="BEIR folders"
    )
    p.add_argument("--out", type=Path, required=True, help="model folder to write")
    p.add_argument("--overwrite", action="store_true", help="replace a model that is there")
    p.add_argument("--split", default="train", help="split to train on (default: train)")
    p.add_argument("--pack", type=Path, help="also write small int8 weights into this folder")
    _add_group_by(p)
    _add_work(p)
    _add_options(p, FinetuneConfig(), TRAINING)


def _calibrate(p: argparse.ArgumentParser) -> None:
    p.add_argument("dataset", type=Path, help="BEIR folder")
    p.add_argument("--out", type=Path, required=True, help="model folder to write")
    p.add_argument("--overwrite", action="store_true", help="replace a model that is there")
    p.add_argument("--max-queries", type=int, help="bound on queries to fit on, and to report on")
    _add_group_by(p)
    _add_work(p)
    _add_options(p, Config(), OPTIONS)
    _add_options(p, Thresholds(), BANDS)


def _evaluate(p: argparse.ArgumentParser) -> None:
    _add_model(p)
    p.add_argument("dataset", type=Path, help="BEIR folder")
    p.add_argument("--split", default="test", help="split to measure on (default: test)")
    p.add_argument("--json", action="store_true", help="print one JSON object")
    _add_group_by(p)
    _add_work(p)


def _search(p: argparse.ArgumentParser) -> None:
    _add_model(p)
    p.add_argument("questions", nargs="+", metavar="QUESTION", help="in plain words")
    p.add_argument(
        "--segment",
        metavar="NAME",
        help="segment of the questions, where the model was calibrated with --segment-by",
    )
    p.add_argument("--json", action="store_true", help="print one JSON object a question")


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
    p.add_argument("--out", type=Path, required=True, help="model folder to write")
    p.add_argument("--overwrite", action="store_true", help="replace a model that is there")
    p.add_argument("--split", default="train", help="split of a BEIR folder (default: train)")
    _add_unjudged(p)
    p.add_argument(
        "--max-labels", type=_positive, help="take only so many of them, drawn at random"
    )
    _add_work(p)


def _track(p: argparse.ArgumentParser) -> None:
    p.add_argument("model", type=Path, help="model folder")
    _add_work(p)


def _promote(p: argparse.ArgumentParser) -> None:
    p.add_argument("model", type=Path, help="model folder")
    p.add_argument("dataset", type=Path, help="BEIR folder to measure on")
    p.add_argument("--split", default="test", help="split to measure on (default: test)")
    _add_options(p, Gate(), GATE)
    _add_group_by(p)
    _add_work(p)


def _positive(given: str) -> int:
    if not given.isdecimal() or not int(given):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, got {given!r}")
    return int(given)


def _serve(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "model",
        help="model folder (a copy of it in TMPDIR answers) or models:/calibrated-rerank@champion",
    )
    _add_work(p)
    _add_options(p, Settings(), SERVING)
    p.add_argument("--log-text", action="store_true", help="let the logs hold the queries")


def settings(o: argparse.Namespace) -> Settings:
    """The settings that the options of `serve` give."""
    return Settings(**{name: getattr(o, name) for name in SERVING}, log_text=o.log_text)


def _source(given: str) -> tuple[Path, int | None]:
    """A folder, and how many examples to take of it."""
    folder, _, limit = given.partition(":")
    if limit and not limit.isdigit():
        raise argparse.ArgumentTypeError(
            f"{given!r}: expected FOLDER or FOLDER:EXAMPLES, such as squad:2000"
        )
    return Path(folder), int(limit) if limit else None


def _add_options(parser: argparse.ArgumentParser, kind: object, texts: Mapping[str, str]) -> None:
    """An option a field of a configuration, with its default."""
    for name, text in texts.items():
        default = getattr(kind, name)
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(default),
            default=default,
            choices=CHOICES.get(name),
            metavar=None if name in CHOICES else type(default).__name__.upper(),
            help=f"{text} (default: {'none' if default == '' else default})",
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


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        type=Path,
        help="model folder, or MLflow's name for it: models:/calibrated-rerank@champion",
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
    """A command: its name as typed, its help, one real example, and what adds its arguments."""

    name: str
    text: str
    example: str
    arguments: Callable[[argparse.ArgumentParser], None]


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
    ),
    Command(
        "calibrate",
        "labelled set to calibrated model: index, rank, fit, measure, track; code 3: untracked",
        "calibrate datasets/pydata --out work/model",
        _calibrate,
    ),
    Command(
        "evaluate",
        "measure a model on a split of a labelled set",
        "evaluate work/model datasets/pydata --split test",
        _evaluate,
    ),
    Command(
        "drift",
        "compare new queries with those a model was fitted on, without labels; exit code 1: alarm",
        "drift work/model queries.jsonl",
        _drift,
    ),
    Command(
        "recalibrate",
        "move a model's confidence by a few new labels",
        "recalibrate work/model --labels labels.jsonl --out work/moved",
        _recalibrate,
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
    ),
    Command(
        "search",
        "answer questions, with a confidence each",
        'search work/model "median along an axis while ignoring NaNs"',
        _search,
    ),
    Command(
        "rescore",
        "assess a file of queries; interrupted, the same command goes on; exit code 3: some rows "
        "were rejected",
        "rescore work/model queries.jsonl --out predictions.jsonl",
        _rescore,
    ),
    Command(
        "serve",
        "answer questions over HTTP, and take over new models as they come",
        "serve work/model --port 8000",
        _serve,
    ),
)
