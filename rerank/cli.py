"""The command `rerank`: from arguments to jobs, and what is printed. Heavy imports wait."""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.arguments import Run, from_options, parser
from rerank.config import Config, FinetuneConfig, PromotionGate
from rerank.errors import InputError, RerankError, TrackingError, nearest, optional
from rerank.serving.settings import Settings

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.data.labelled_set import LabelledSet
    from rerank.tracking.runs import TrackedRun
    from rerank.types import Assessment

SHOWN = 3  # passages that `search` prints
REJECTED = 3  # exit code of a job that is done but for rows that cannot be used


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    The exit code is 0, 1 where the answer is no (an alarm, a gate that is not passed), 2 after a
    message about bad input, or 3 where all is done but for rows that were rejected, or but for
    MLflow's record of it.
    """
    _prepare()
    options = parser(RUNS).parse_args(arguments)
    run: Run = options.run
    try:
        with optional():
            answer = run(options)
    except RerankError as error:
        return _refuse(str(error), error.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror}" if error.strerror else str(error))
    except KeyboardInterrupt:
        resume = ": run the same command again to resume" if options.resumes else ""
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


def _dataset_build(o: argparse.Namespace) -> None:
    from rerank.data.build.recipes import build

    made = build(o.name, o.out, o.libraries)
    print(f"{o.out}: {made['counts']['passages']} passages, {made['counts']['queries']} queries")
    print(_MATCH[made["matches"]])


_MATCH = {
    "new": "its manifest.json holds the package versions and the digest",
    "same": "the same set, to the byte, as the manifest says",
    "other versions": "made with other package versions than the manifest's: "
    "figures will differ a little",
    "differs": "WARNING: not the set of the manifest, although the package versions are the same",
}


def _read_set(folder: Path, unjudged: str) -> LabelledSet:
    """The set; how many queries stand in no split, or are taken as unanswerable, goes to stderr."""
    from rerank.data.pairs import read_training_set

    labelled = read_training_set(folder, unjudged=unjudged)
    left_out = len(labelled.queries) - sum(map(len, labelled.splits.values()))
    if left_out:
        print(
            f"rerank: {folder}: {left_out} of {len(labelled.queries)} queries stand in no split "
            "and are left out.",
            file=sys.stderr,
        )
    if unjudged == "unanswerable":
        split = ", ".join(labelled.splits)
        nothing = sum(i not in labelled.qrels for i in labelled.queries)
        print(
            f"rerank: {folder}: {nothing} of {len(labelled.queries)} queries count as unanswerable "
            f"({split}).",
            file=sys.stderr,
        )
    return labelled


def _read(
    folders: Sequence[Path], group_by: str | None, unjudged: str = "refuse"
) -> list[LabelledSet]:
    """The sets, grouped by a metadata of their queries that one of them at least must have."""
    sets = [_read_set(folder, unjudged) for folder in folders]
    if group_by is None:
        return sets
    known = {key for labelled in sets for q in labelled.queries.values() for key in q.metadata}
    if group_by not in known:
        raise InputError(
            f"no query has the metadata {group_by!r} of --group-by, only {sorted(known)}"
            f"{nearest(group_by, known)}"
        )
    return [labelled.grouped_by(group_by) for labelled in sets]


def _dataset_check(o: argparse.Namespace) -> None:
    from rerank.data.grouping import grouped

    labelled = _read_set(o.dataset, o.unjudged)
    for name, count in labelled.counts().items():
        print(f"{name:<20}{count:>8}")
    every = grouped(labelled, list(labelled.queries))
    print(f"{'groups':<20}{len({every.group(q) for q in labelled.queries}):>8}")
    print(f"grouped by {every.grouping.name if every.grouping else 'question'}")
    print(f"digest {labelled.digest()}")


def _index(o: argparse.Namespace) -> None:
    from rerank.data.beir import read_corpus
    from rerank.inference.model_files import resolve
    from rerank.retrieval.dense import Encoder
    from rerank.retrieval.index import build_index

    chosen = from_options(Config, o)
    corpus = read_corpus(o.dataset / "corpus.jsonl").values()
    encoder = Encoder(resolve(chosen.encoder), max_length=chosen.encoder_max_length)
    index = build_index(
        corpus,
        o.out,
        encoder,
        language=chosen.language,
        approximate=chosen.dense == "approximate",
        overwrite=o.overwrite,
    )
    print(f"{o.out}: {len(index)} passages indexed")


def _finetune(o: argparse.Namespace) -> None:
    from rerank.inference.int8_weights import pack_finetuned, refuse_to_pack_into
    from rerank.inference.model_files import resolve
    from rerank.jobs.finetune import finetune
    from rerank.training.mining import Source

    config = from_options(FinetuneConfig, o)
    if o.pack:
        refuse_to_pack_into(o.pack)
    folders, limits = zip(*o.datasets, strict=True)
    sets = _read(folders, o.group_by, o.unjudged)
    unknown = set(o.within_group) - {s.name for s in sets}
    if unknown:
        raise InputError(
            f"--within-group: no set {sorted(unknown)}; there are {[s.name for s in sets]}"
        )
    sources = [
        Source(s, o.split, limit, within=s.name in o.within_group)
        for s, limit in zip(sets, limits, strict=True)
    ]
    made = finetune(sources, o.out, config, work=o.work, overwrite=o.overwrite)
    examples, step = made.report["examples"], made.report["best_step"]
    print(f"{o.out}: a cross-encoder trained on {examples} examples; step {step} is kept")
    if not made.made:
        print("it was there already, made from the same sets, settings and weights")
    _print_run(made.run, made.notes)
    if o.pack:
        pack_finetuned(o.out, o.pack, base=resolve("minilm").folder)
        print(f"{o.pack}: packed weights and manifest")


def _calibrate(o: argparse.Namespace) -> None:
    from rerank.jobs.calibrate import calibrate

    config = from_options(Config, o)
    try:
        outcome = calibrate(
            _read([o.dataset], o.group_by, o.unjudged)[0],
            o.out,
            config,
            work=o.work,
            max_queries=o.max_queries,
            overwrite=o.overwrite,
            index=o.index,
            name=o.name,
            self_contained=o.self_contained,
        )
    except TrackingError:
        _print_model(o)
        raise
    _print_model(o)
    if not outcome.made:
        print("it was there already, made from the same data, configuration and weights")
    _print_run(outcome.run, outcome.notes)


def _print_model(o: argparse.Namespace) -> None:
    from rerank.assessment.model_folder import REPORT

    report = (o.out / REPORT).read_text(encoding="utf-8")
    head, _, rest = report.partition("\n\n")
    model = shlex.quote(str(o.out))
    _print_headline(head.splitlines(), f'rerank search {model} "a query of yours"')
    if o.verbose:
        print(f"\n{rest}")
    print(f"{o.out}: the model; its report.html has all measurements (here: --verbose)")


def _print_headline(sentences: Sequence[str], command: str) -> None:
    """Three lines: what is accepted, what is certified, what to do next; then warnings."""
    print("\n".join([*sentences[:2], f"Next: {command}", *sentences[2:]]))


def _print_run(run: TrackedRun | None, notes: Sequence[str] = ()) -> None:
    """Where a job's run is, and by which name MLflow gives the model back; notes on stderr."""
    for note in notes:
        print(f"rerank: {note}", file=sys.stderr)
    if run is None:
        return
    version, name = run.model_version, run.model_name
    named = f", model version {version} (models:/{name}/{version})" if version else ""
    print(f"{'already ' if run.found else ''}tracked as run {run.run_id}{named}:")
    served = run.tracking_uri.startswith("http")  # then there is a page to open; else a store
    shown = run.tracking_uri
    print(f"  {shown}" if served else f"  mlflow ui --backend-store-uri {shown}")


def _export(o: argparse.Namespace) -> None:
    from rerank.jobs.export import export

    print(f"{export(_load(o), o.out, overwrite=o.overwrite)}: the model, self-contained")


def _track(o: argparse.Namespace) -> None:
    from rerank.jobs.track import track_model
    from rerank.workspace import Workspace

    _print_run(track_model(o.model, work=Workspace(o.work)))


def _evaluate(o: argparse.Namespace) -> None:
    from rerank.jobs.evaluate import evaluate
    from rerank.report.headline import headline, promised_too_much

    labelled, model = _read([o.dataset], o.group_by, o.unjudged)[0], _load(o)
    evaluation = evaluate(model, labelled, o.split, work=o.work)
    for note in evaluation.notes:
        print(f"rerank: {note}", file=sys.stderr)
    if o.json:
        print(json.dumps(evaluation.to_dict()))
        return
    command = "rescore {} queries.jsonl --out predictions.jsonl"
    if promised_too_much(evaluation):
        command = "recalibrate {} --labels labels.jsonl --out NEW"
    certificate = model.maps["search"].certificate
    _print_headline(
        headline(evaluation, certificate), f"rerank {command.format(shlex.quote(str(o.model)))}"
    )
    if o.verbose:
        print()
        print(*evaluation.tables(), sep="\n\n")
    else:
        print("(--verbose: the comparison and all measurements)")


def _load(o: argparse.Namespace) -> CalibratedReranker:
    """The model asked for; its cross-encoder scores are kept under `work`, where that is given."""
    from rerank.assessment.model import CalibratedReranker
    from rerank.inference.score_cache import ScoreCache
    from rerank.workspace import Workspace

    work = Workspace(o.work) if hasattr(o, "work") else None
    return CalibratedReranker.load(
        o.model,
        cache=ScoreCache(work.scores) if work else None,
        allow_download=getattr(o, "download", False),
        tracking_uri=work.tracking_uri if work else None,
    )


def _drift(o: argparse.Namespace) -> bool:
    from rerank.data.beir import read_queries
    from rerank.jobs.drift import detect_drift
    from rerank.jobs.pipelines import pipeline_over
    from rerank.workspace import Workspace

    model = _load(o)
    if o.queries.is_dir():
        labelled = _read_set(o.queries, "leave-out")
        found = detect_drift(
            model,
            labelled.select(labelled.split(o.split)),
            pipeline=pipeline_over(labelled, model, Workspace(o.work)),
            level=o.level,
        )
    else:
        found = detect_drift(model, read_queries(o.queries), level=o.level)
    if o.json:
        print(json.dumps(found.to_dict()))
    else:
        print(f"{found.sentence}\n\n{found.table()}")
    return not found.fired


def _recalibrate(o: argparse.Namespace) -> None:
    from rerank.jobs.recalibrate import recalibrate

    labels = _read_set(o.labels, o.unjudged) if o.labels.is_dir() else o.labels
    model = _load(o)
    try:
        made = recalibrate(
            model,
            labels,
            o.out,
            split=o.split,
            work=o.work,
            max_labels=o.max_labels,
            overwrite=o.overwrite,
            name=o.name,
        )
    except TrackingError:
        _print_recalibrated(o.out)
        raise
    _print_recalibrated(o.out)
    _print_run(made.run, made.notes)


def _print_recalibrated(folder: Path) -> None:
    from rerank.assessment.model_folder import REPORT

    print((folder / REPORT).read_text(encoding="utf-8"))
    print(f"{folder}: the recalibrated model; open its report.html")


def _promote(o: argparse.Namespace) -> bool:
    from rerank.jobs.promote import promote

    gate = from_options(PromotionGate, o)
    labelled = _read([o.dataset], o.group_by, o.unjudged)[0]
    done = promote(o.model, labelled, o.split, gate, work=o.work, new_corpus=o.new_corpus)
    print(done.table())
    print(done.sentence)
    return done.version is not None


def _search(o: argparse.Namespace) -> None:
    from rerank.types import Query

    model = _load(o)
    if o.segment and not model.segment_by:
        raise InputError(f"{o.model} has no segments; calibrate it with --segment-by")
    metadata = {model.segment_by: o.segment} if o.segment else {}
    queries = [Query(text, str(i), metadata) for i, text in enumerate(o.queries, start=1)]
    for query, found in zip(queries, model.assess(queries), strict=True):
        if o.json:
            print(json.dumps(_with_texts(query.text, found)))
        else:
            _print_assessment(query.text, found)


def _with_texts(query: str, found: Assessment) -> dict[str, Any]:
    """A prediction with the texts that it speaks of."""
    told = found.to_dict()
    passages = [
        {**numbers, "title": passage.title, "text": passage.text}
        for numbers, passage in zip(told["ranking"], found.passages, strict=True)
    ]
    return {"query": query, **told, "ranking": passages}


def _print_assessment(query: str, found: Assessment) -> None:
    print(f"\n{query}")
    advice = "accepted" if found.accepted else "advisory only"
    if found.certified:
        advice += ", certified"
    print(f"  confidence {found.confidence:.2f}  {found.level}, {advice}; ", end="")
    print(f"sufficiency {found.sufficiency:.2f}  {found.verdict}")
    for rank, passage in enumerate(found.first(SHOWN)):
        text = " ".join(passage.text.split())
        shown = text if len(text) <= 60 else text[:59] + "…"
        print(f"  {rank + 1}. {passage.relevance:.2f}  {passage.doc_id}  {shown}")
    for reason in found.reasons:
        print(f"     {reason}")


def _rescore(o: argparse.Namespace) -> int:
    from rerank.batch import rescore

    done = rescore(
        _load(o),
        o.queries,
        o.out,
        strict=o.strict,
        restart=o.restart,
        engine=o.engine,
        actors=o.actors,
    )
    if done.resumed:
        print(f"{done.resumed} of the rows were done before an interruption")
    print(f"{o.out}: {done.answered} predictions")
    if done.rejected:
        print(f"{done.side}: {done.rejected} rows were rejected")
    return REJECTED if done.rejected else 0


def _serve(o: argparse.Namespace) -> None:
    chosen = from_options(Settings, o)
    from rerank.serving.model_source import locator
    from rerank.serving.server import serve

    serve(locator(o.model, o.work), chosen)


def _glossary(_: argparse.Namespace) -> None:
    from rerank.report.glossary import glossary_text

    print(glossary_text())


RUNS = {
    "dataset build": _dataset_build,
    "dataset check": _dataset_check,
    "index": _index,
    "finetune": _finetune,
    "calibrate": _calibrate,
    "evaluate": _evaluate,
    "drift": _drift,
    "recalibrate": _recalibrate,
    "export": _export,
    "track": _track,
    "promote": _promote,
    "search": _search,
    "rescore": _rescore,
    "glossary": _glossary,
    "serve": _serve,
}


if __name__ == "__main__":
    sys.exit(main())
