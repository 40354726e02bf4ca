"""The command `rerank`: argument parsing and printing only. Heavy imports wait."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.config import CHOICES, Config, FinetuneConfig, Thresholds
from rerank.types import InputError

if TYPE_CHECKING:
    from calibration.tracking import TrackedRun
    from rerank.types import Assessment

SHOWN = 3  # passages that `search` prints

OPTIONS = {
    "encoder": "bi-encoder: minilm, a folder, or a hub id",
    "encoder_max_length": "tokens of a passage that the bi-encoder reads",
    "reranker": "cross-encoder: minilm-reranker, a folder, or a hub id",
    "max_length": "tokens of query and passage that the cross-encoder reads",
    "language": "Snowball stemmer of BM25, or none",
    "pool": "passages each first stage brings back",
    "candidates": "fused passages that are ordered by relevance",
    "rerank_depth": "how many of them, the likeliest, the cross-encoder reads at most",
    "rank_by": "order of the passages; logit is the raw cross-encoder order",
    "calibrator": "how the confidence is mapped; auto chooses by cross-validation",
    "sufficiency_k": "sufficiency is P(one of the first k passages is right)",
    "seed": "seed of folds and draws",
}
BANDS = {
    "high": "confidence from here is HIGH",
    "medium": "confidence from here is MEDIUM and accepted",
    "low": "confidence from here is LOW",
    "sufficient": "sufficiency from here is SUFFICIENT",
    "partial": "sufficiency from here is PARTIAL",
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, or 2 after a message about bad input."""
    _prepare()
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], None] = options.run
    try:
        run(options)
    except (InputError, OSError) as error:
        return _refuse(str(error))
    except ValueError as error:
        from calibration.store import StoreError

        if not isinstance(error, StoreError):
            raise
        return _refuse(str(error))
    except KeyboardInterrupt:
        print("\nrerank: interrupted", file=sys.stderr)
        return 130
    return 0


def _refuse(message: str) -> int:
    print(f"rerank: error: {message}", file=sys.stderr)
    return 2


def _prepare() -> None:
    """Print what a narrow terminal cannot show as "?"; hold back other libraries' chatter."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


# --- commands ---------------------------------------------------------------------------------


def _dataset_build(o: argparse.Namespace) -> None:
    from rerank.pydata import build

    made = build(o.name, o.out, **({"libraries": o.libraries} if o.libraries else {}))
    print(f"{o.out}: {made['counts']['passages']} passages, {made['counts']['queries']} queries")
    print(_MATCH[made["matches"]])


_MATCH = {
    True: "the same set, to the byte, as the manifest says",
    None: "made with other package versions than the manifest's: figures will differ a little",
    False: "WARNING: not the set of the manifest, although the package versions are the same",
}


def _dataset_check(o: argparse.Namespace) -> None:
    from rerank.labelled_set import read_labelled_set

    labelled = read_labelled_set(o.dataset)
    for name, count in labelled.counts().items():
        print(f"{name:<20}{count:>8}")
    print(f"{'groups':<20}{len({labelled.group(q) for q in labelled.queries}):>8}")
    print(f"digest {labelled.digest()}")


def _index(o: argparse.Namespace) -> None:
    from rerank.labelled_set import read_labelled_set
    from rerank.models import resolve
    from rerank.retrieval.dense import Encoder
    from rerank.retrieval.index import build_index

    config = replace(
        Config(), encoder=o.encoder, encoder_max_length=o.encoder_max_length, language=o.language
    )
    corpus = read_labelled_set(o.dataset).corpus.values()
    encoder = Encoder(resolve(config.encoder), max_length=config.encoder_max_length)
    index = build_index(corpus, o.out, encoder, language=config.language, overwrite=o.overwrite)
    print(f"{o.out}: {len(index)} passages indexed")


def _finetune(o: argparse.Namespace) -> None:
    from rerank.finetune import finetune
    from rerank.labelled_set import read_labelled_set
    from rerank.reranking.mining import Source

    sources = []
    for given in o.datasets:
        path, _, limit = given.partition(":")
        if limit and not limit.isdigit():
            raise InputError(f"{given!r}: expected FOLDER or FOLDER:EXAMPLES, such as squad:2000")
        labelled = read_labelled_set(Path(path))
        sources.append(Source(labelled, o.split, int(limit) if limit else None))
    config = FinetuneConfig(**{name: getattr(o, name) for name in TRAINING})
    made = finetune(sources, o.out, config, work=o.work, overwrite=o.overwrite)
    examples, step = made.report["examples"], made.report["best_step"]
    print(f"{o.out}: a cross-encoder trained on {examples} examples; step {step} is kept")
    _print_run(made.folder, made.run, o.work)
    if o.pack:
        from rerank.models import resolve
        from rerank.packing import pack_finetuned

        pack_finetuned(o.out, o.pack, base=resolve("minilm").folder)
        print(f"{o.pack}: packed weights and manifest")


def _calibrate(o: argparse.Namespace) -> None:
    from rerank.calibrate import calibrate
    from rerank.labelled_set import read_labelled_set

    outcome = calibrate(
        read_labelled_set(o.dataset),
        o.out,
        _config(o),
        work=o.work,
        max_queries=o.max_queries,
        overwrite=o.overwrite,
    )
    print(f"\n{outcome.report}")
    print(f"{outcome.folder}: the model; pictures: reliability.png, risk_coverage.png")
    _print_run(outcome.folder, outcome.run, o.work)


def _print_run(folder: Path, run: TrackedRun | None, work: Path) -> None:
    """Where a job's run is; `run` is None where its folder was there already."""
    from rerank.workspace import tracked_run

    if run is None:
        print("it was there already, made from the same data, configuration and weights")
        known = tracked_run(folder, work)
        if known is None:
            print(f"no run of it is known in {work}: give --overwrite to track it")
            return
        run_id, uri, version = known["run_id"], known["tracking_uri"], None
    else:
        run_id, uri, version = run.run_id, run.tracking_uri, run.model_version
    print(f"tracked as run {run_id}{f', model version {version}' if version else ''}:")
    print(f"  mlflow ui --backend-store-uri {uri}")


def _evaluate(o: argparse.Namespace) -> None:
    from rerank.evaluate import evaluate_model
    from rerank.labelled_set import read_labelled_set

    labelled = read_labelled_set(o.dataset)
    evaluation, notes = evaluate_model(o.model, labelled, o.split, work=o.work)
    for note in notes:
        print(f"rerank: {note}", file=sys.stderr)
    if o.json:
        print(json.dumps(evaluation.to_dict()))
        return
    print(f"{len(evaluation.right)} queries, {evaluation.right.mean():.1%} right\n")
    print(
        evaluation.orders_table(), evaluation.table.table(), evaluation.events_table(), sep="\n\n"
    )


def _search(o: argparse.Namespace) -> None:
    from rerank.assessor import CalibratedReranker

    model = CalibratedReranker.load(o.model)
    for question in o.questions:
        found = model.search(question)
        if o.json:
            print(json.dumps({"question": question, **found.to_dict()}))
        else:
            _print_assessment(question, found)


def _print_assessment(question: str, found: Assessment) -> None:
    print(f"\n{question}")
    advice = "accepted" if found.accepted else "advisory only"
    print(f"  confidence {found.confidence:.2f}  {found.level}, {advice}; ", end="")
    print(f"sufficiency {found.sufficiency:.2f}  {found.verdict}")
    for rank, passage in enumerate(found.ranking.passages[:SHOWN]):
        text = " ".join(passage.text.split())
        shown = text if len(text) <= 60 else text[:59] + "…"
        print(f"  {rank + 1}. {found.ranking.relevance[rank]:.2f}  {passage.doc_id}  {shown}")
    for reason in found.reasons:
        print(f"     {reason}")


def _rescore(o: argparse.Namespace) -> None:
    from rerank.assessor import CalibratedReranker
    from rerank.batch import rescore
    from rerank.workspace import score_cache

    model = CalibratedReranker.load(o.model, cache=score_cache(o.work))
    print(f"{o.out}: {rescore(model, o.queries, o.out)} predictions")


# --- arguments --------------------------------------------------------------------------------


def _config(o: argparse.Namespace) -> Config:
    thresholds = Thresholds(**{name: getattr(o, name) for name in BANDS})
    return replace(Config(), thresholds=thresholds, **{name: getattr(o, name) for name in OPTIONS})


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rerank", description="Retrieval that knows when it is right."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        group: argparse._SubParsersAction[argparse.ArgumentParser],
        name: str,
        run: Callable[[argparse.Namespace], None],
        text: str,
        example: str,
    ) -> argparse.ArgumentParser:
        made = group.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example:\n  rerank {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.set_defaults(run=run)
        return made

    dataset = commands.add_parser("dataset", help="build a bundled labelled set, or check one")
    kinds = dataset.add_subparsers(required=True, metavar="build|check")
    p = command(
        kinds,
        "build",
        _dataset_build,
        "build a bundled labelled set from the installed libraries' documentation",
        "dataset build pydata --out datasets/pydata",
    )
    p.add_argument("name", help="pydata, pydata_questions, or documentation: a set to train on")
    p.add_argument("--out", type=Path, required=True, help="folder to write into")
    p.add_argument("--libraries", nargs="+", help="installed numpydoc libraries, for documentation")
    p = command(
        kinds,
        "check",
        _dataset_check,
        "check a labelled set and count what is in it",
        "dataset check datasets/pydata",
    )
    p.add_argument("dataset", type=Path, help="BEIR folder")

    p = command(
        commands,
        "index",
        _index,
        "index a corpus: BM25 and dense",
        "index datasets/pydata --out work/pydata-index",
    )
    p.add_argument("dataset", type=Path, help="BEIR folder")
    p.add_argument("--out", type=Path, required=True, help="index folder to write")
    p.add_argument("--overwrite", action="store_true", help="replace an index that is there")
    wanted = ("encoder", "encoder_max_length", "language")
    _add_options(p, Config(), {name: OPTIONS[name] for name in wanted})

    p = command(
        commands,
        "finetune",
        _finetune,
        "train a cross-encoder on labelled sets",
        "finetune datasets/pydata my-set:2000 --out work/reranker --steps 600",
    )
    p.add_argument("datasets", nargs="+", metavar="SET[:EXAMPLES]", help="BEIR folders")
    p.add_argument("--out", type=Path, required=True, help="model folder to write")
    p.add_argument("--overwrite", action="store_true", help="replace a model that is there")
    p.add_argument("--split", default="train", help="split to train on (default: train)")
    p.add_argument("--pack", type=Path, help="also write small int8 weights into this folder")
    _add_work(p)
    _add_options(p, FinetuneConfig(), TRAINING)

    p = command(
        commands,
        "calibrate",
        _calibrate,
        "labelled set to calibrated model: index, rank, fit, evaluate, track",
        "calibrate datasets/pydata --out work/model",
    )
    p.add_argument("dataset", type=Path, help="BEIR folder")
    p.add_argument("--out", type=Path, required=True, help="model folder to write")
    p.add_argument("--overwrite", action="store_true", help="replace a model that is there")
    p.add_argument("--max-queries", type=int, help="bound on queries to fit on, and to report on")
    _add_work(p)
    _add_options(p, Config(), OPTIONS)
    _add_options(p, Thresholds(), BANDS)

    p = command(
        commands,
        "evaluate",
        _evaluate,
        "measure a model on a split of a labelled set",
        "evaluate work/model datasets/pydata --split test",
    )
    p.add_argument("model", type=Path, help="model folder")
    p.add_argument("dataset", type=Path, help="BEIR folder")
    p.add_argument("--split", default="test", help="split to measure on (default: test)")
    p.add_argument("--json", action="store_true", help="print one JSON object")
    _add_work(p)

    p = command(
        commands,
        "search",
        _search,
        "answer questions, with a confidence each",
        'search work/model "median along an axis while ignoring NaNs"',
    )
    p.add_argument("model", type=Path, help="model folder")
    p.add_argument("questions", nargs="+", metavar="QUESTION", help="in plain words")
    p.add_argument("--json", action="store_true", help="print one JSON object a question")

    p = command(
        commands,
        "rescore",
        _rescore,
        "assess a file of queries (lines of _id and text)",
        "rescore work/model queries.jsonl --out predictions.jsonl",
    )
    p.add_argument("model", type=Path, help="model folder")
    p.add_argument("queries", type=Path, help="JSONL file")
    p.add_argument("--out", type=Path, required=True, help="predictions file to write")
    _add_work(p)
    return parser


def _add_work(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("work"),
        help="folder for indexes, scores and MLflow's database (default: work)",
    )


if __name__ == "__main__":
    sys.exit(main())
