"""`rerank calibrate`, `evaluate` and `recalibrate`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rerank.commands import options
from rerank.commands.command import Only, Typed, command
from rerank.commands.printing import note, print_headline, print_json, print_run, run_fields, tell
from rerank.commands.use import ranked
from rerank.config import Config, Option
from rerank.errors import InputError, TrackingError
from rerank.inference.remote.client import METER, Budget
from rerank.rooms import offered

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.assessment.model_folder import ModelFolder


@command("datasets/pydata --out work/model", resumes=True, networks=True)
def calibrate(
    dataset: Path,
    config: Config,
    reading: options.Reading,
    budget: Budget,
    *,
    out: options.Out,
    overwrite: options.Overwrite = False,
    index: Path | None = None,
    retriever: Annotated[Path | None, Option(metavar="FILE.toml")] = None,
    max_queries: Annotated[int | None, Option(ge=1)] = None,
    name: options.Name = "",
    self_contained: bool = False,
    verbose: options.Verbose = False,
    work: options.Work = options.WORK,
    json: options.Json = False,
) -> None:
    """Fit a model's confidence on a labelled set, and measure it on other queries.

    Args:
        dataset: BEIR folder, or a JSONL file of labelled lists with the scores of any other system
        index: folder that `rerank data index` wrote of this corpus (default: one is made in --work)
        retriever: another search system that finds the candidates: see docs/your-models.md
        max_queries: most queries to fit on, and most to report on
        self_contained: include the exported networks, to be deployed without torch and weights
    """
    from rerank.assessment.model_folder import MEASURED, REPORT, open_folder
    from rerank.evaluation.measure import OURS
    from rerank.jobs.calibrate import calibrate
    from rerank.report.headline import split_report

    def print_model(*, tracked: bool) -> None:
        folder = open_folder(out)
        head, rest = split_report(folder.text(REPORT))
        print_headline(head, _next_step(folder, dataset, out, max_queries, tracked=tracked))
        if verbose:
            print(f"\n{rest}")
        print(f"{out}: the model; its report.html has all measurements (here: --verbose)")

    METER.start(budget)
    try:
        outcome = calibrate(
            reading.read(dataset, corpus_elsewhere=retriever is not None),
            out,
            config,
            work=work,
            max_queries=max_queries,
            overwrite=overwrite,
            index=index,
            name=name,
            self_contained=self_contained,
            retriever=retriever,
        )
    except TrackingError:
        if not json:
            print_model(tracked=False)
        raise
    tracked = outcome.run is not None
    if json:
        folder = open_folder(out)
        print_json(
            model=out,
            manifest_sha256=folder.sha256(),
            made=outcome.made,
            headline=split_report(outcome.report)[0],
            measured=folder.json(MEASURED)["confidence"][OURS],
            next=_next_step(folder, dataset, out, max_queries, tracked=tracked),
            notes=outcome.notes,
            **run_fields(outcome.run),
        )
        return
    print_model(tracked=tracked)
    if not outcome.made:
        print("it was there already, made from the same data, configuration and weights")
    print_run(outcome.run, outcome.notes)
    print(f"--manifest-sha256 {open_folder(out).sha256()} loads this model and no other")


def _next_step(
    folder: ModelFolder, dataset: Path, out: Path, max_queries: int | None, *, tracked: bool
) -> str:
    """The command to run next; `promote` if queries of a random sample are left to measure on."""
    from rerank.assessment.fitted_maps import read_maps
    from rerank.fitting.plan import count_unused
    from rerank.report.headline import after_calibration

    maps = read_maps(folder)
    counts: Mapping[str, Any] = folder.manifest["queries"]
    queries = folder.manifest["dataset"]["queries"]
    at_random = counts["report_split"] == "test" and counts.get("reported_at_random", True)
    step = after_calibration(
        maps.main.certificate,
        promotable=tracked and bool(at_random),
        mode=maps.main_mode,
        unused=count_unused(counts, of=queries) if max_queries else 0,
    )
    model, path = (shlex.quote(str(path)) for path in (out, _rescorable(dataset)))
    return step.format(model=model, dataset=path)


def _rescorable(dataset: Path) -> Path:
    """The file of labelled lists, if `rescore` takes its ending; else a name that it takes."""
    from rerank.batch.input import ENDINGS

    return dataset if dataset.suffix.lower() in ENDINGS else Path("lists.jsonl")


OF_THEN = ("then_share", "price_per_1000", "overwrite")  # options of two models


@command("work/model datasets/pydata --split test", resumes=True, networks=True)
def evaluate(
    chosen: options.ModelChoice,
    dataset: Path,
    reading: options.Reading,
    budget: Budget,
    typed: Typed,
    *,
    split: str = "test",
    labels: Annotated[tuple[str, ...], Option(metavar="N")] = (),
    draws: Annotated[int, Option(ge=1)] = 3,
    beside: Annotated[tuple[Path, ...], Option(metavar="FILE")] = (),
    reranker: str = "",
    then: Annotated[Path | None, Option(metavar="MODEL")] = None,
    then_share: Annotated[float, Option(gt=0, lt=1)] = 0.4,
    price_per_1000: Annotated[float | None, Option(ge=0, metavar="PRICE")] = None,
    out: Annotated[Path | None, Option(metavar="FOLDER")] = None,
    overwrite: options.Overwrite = False,
    examples: bool = False,
    verbose: options.Verbose = False,
    work: options.Work = options.WORK,
    json: options.Json = False,
) -> None:
    """Measure a model, or a file of predictions, on a split of a labelled set.

    Predictions of anything, given in place of the model, are a line a query:
    {"query_id": ID, "confidence": 0.93, "ranking": [IDS]}.

    Args:
        dataset: BEIR folder, or labelled lists
        split: split to measure on
        labels: measure before and after a calibration on N random labels of the other splits, such
            as 0 50 100 300 all; the model `default` is the bundled networks, or the scores of lists
        draws: with --labels: draws of each number
        beside: with --labels: files of predictions for the same questions
        reranker: with --labels and `default`: another reranker, named as for `calibrate`
        then: a model with a more expensive reranker, calibrated on the same set: measure whether
            to ask it where the first one is unsure
        then_share: largest share of the queries that may go to --then
        price_per_1000: what 1,000 queries to --then cost, in any currency
        out: folder to write: with --then both models, searched and served as one; with --labels
            benchmark.json and benchmark.html
        examples: also show three of the queries: one accepted and right, one rightly not accepted,
            one without an answer (of each kind the first by id)
    """
    from rerank.jobs.evaluate import measure_predictions
    from rerank.report.calibration import cascade_section, measured_sections, predictions_sections
    from rerank.report.headline import after_evaluation, headline
    from rerank.report.sections import as_text

    METER.start(budget)
    if json:
        typed.refuse("not with --json", "examples")
    if labels:
        typed.refuse("not with --labels", "then", *OF_THEN, "examples")
        how: Any = {"draws": draws, "predictions": beside, "work": work}
        _benchmark(chosen, dataset, reading, split, labels, reranker, out, json=json, **how)
        return
    typed.refuse("only with --labels", "draws", "beside", "reranker")
    if chosen.model.is_file():
        typed.refuse("only with a model folder", "then", *OF_THEN, "out", "examples")
        said = measure_predictions(chosen.model, reading.read(dataset), split)
        note(*said.notes)
        tell(
            json,
            as_text(predictions_sections(said.table, said.order)).removesuffix("\n"),
            **said.to_dict(),
        )
        return
    model, cascade = _to_measure(chosen, work), None
    labelled = reading.read(dataset, corpus_elsewhere=model.source.elsewhere)
    if then is None:
        from rerank.jobs.evaluate import evaluate

        typed.refuse("only with --then MODEL, the second model", *OF_THEN, "out")
        evaluation = evaluate(model, labelled, split, work=work)
    else:
        from rerank.jobs.cascade import evaluate_cascade

        second = replace(chosen, model=then, manifest_sha256=None).load(work)
        how = {"share": then_share, "price": price_per_1000, "work": work}
        how |= {"out": out, "overwrite": overwrite}
        evaluation, cascade = evaluate_cascade(model, second, labelled, split, **how)
    note(*evaluation.notes)
    if json:
        of_both = {"cascade": cascade.to_dict(), "out": out} if cascade else {}
        print_json(**evaluation.to_dict(), **of_both)
        return
    model_path, path = (shlex.quote(str(path)) for path in (chosen.model, _rescorable(dataset)))
    next_step = after_evaluation(evaluation, labelled.mode).format(model=model_path, dataset=path)
    next_step = f"{out} holds both models, and is searched and served as one." if out else next_step
    print_headline(
        headline(evaluation, model.maps[labelled.mode], rank_by=model.pipeline.config.rank_by),
        next_step,
    )
    more = [cascade_section(cascade)] if cascade else []
    if verbose:
        more += measured_sections(evaluation)
    if more:
        print(f"\n{as_text(more)}", end="")
    if not verbose:
        print("(--verbose: the comparison and all measurements)")
    if examples:
        for found in model.assess(evaluation.examples()):
            ranked(model, found)[1]()


def _to_measure(chosen: options.ModelChoice, work: Path) -> CalibratedReranker:
    from rerank.assessment.model import DEFAULT
    from rerank.tracking.registry import is_uri

    if not (chosen.model.exists() or is_uri(chosen.model) or str(chosen.model) == DEFAULT):
        expected = "expected a model folder, or a file of predictions: a line a query, as in --help"
        raise InputError(f"there is no {chosen.model}; {expected}")
    return chosen.load(work)


def _benchmark(
    chosen: options.ModelChoice,
    dataset: Path,
    reading: options.Reading,
    split: str,
    labels: Sequence[str],
    reranker: str,
    out: Path | None,
    *,
    json: bool,
    **how: Any,
) -> None:
    """Measure with no labels and with some, print the tables, and write them."""
    from rerank.assessment.model import DEFAULT
    from rerank.jobs.benchmark import benchmark
    from rerank.report.benchmark import as_json, differences, tables
    from rerank.report.sections import Section, as_page, as_text
    from rerank.storage.files import write_file, write_json

    if wrong := [n for n in labels if n != "all" and not n.isdecimal()]:
        raise InputError(f"--labels: expected whole numbers, or all, got {wrong[0]!r}")
    if out and (out.is_file() or (out / "benchmark.json").exists()):
        raise InputError(f"{out} exists; give another --out, or move it away")
    model: Any = None
    if chosen.model.is_file():
        how["predictions"] = (chosen.model, *how["predictions"])
    elif str(chosen.model) == DEFAULT:
        model = Config(reranker=reranker or Config().reranker)
    else:
        model = _to_measure(chosen, how["work"])
    if reranker and not isinstance(model, Config):
        raise InputError(f"--reranker: only with {DEFAULT!r} as the model, got {chosen.model}")
    elsewhere = bool(model) and not isinstance(model, Config) and model.source.elsewhere
    labelled, began = reading.read(dataset, corpus_elsewhere=elsewhere), time.perf_counter()
    counts = [None if n == "all" else int(n) for n in labels]
    rows, notes = benchmark(labelled, model, split, labels=counts, **how)
    note(*notes)
    taken = "; ".join([*METER.sentences(), f"{time.perf_counter() - began:.0f} seconds"])
    said = f"{rows[0]['questions']} questions of {labelled.name}, {split}"
    said = f"{said}; {rows[0]['lent']} others lend labels; {taken}."
    compared = [differences(rows)] if any(row["less"] for row in rows) else []
    sections, rows = [*tables(rows), *compared], as_json(rows)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "benchmark.json", {"said": said, "rows": rows})
        title = f"{labelled.name}: who knows when it is right?"
        write_file(out / "benchmark.html", as_page(title, said, sections))
    text = as_text([Section("", [said]), *sections])
    tell(json, text.removesuffix("\n"), said=said, rows=rows)


@command("work/model --labels labels.jsonl --out work/moved", resumes=True, networks=True)
def recalibrate(
    chosen: options.ModelChoice,
    reading: Annotated[options.Reading, Only(("on_bad_lines", "unjudged"))],
    typed: Typed,
    *,
    labels: Path | None = None,
    journal: Annotated[str | None, Option(metavar="URL")] = None,
    answers: bool = False,
    out: options.Out,
    overwrite: options.Overwrite = False,
    split: str = "train",
    max_labels: Annotated[int | None, Option(ge=1)] = None,
    name: options.Name = "",
    work: options.Work = options.WORK,
    json: options.Json = False,
) -> None:
    """Recalibrate a model's confidence on a few new labels.

    Args:
        labels: lines of {"query": TEXT, "right": true or false} or {"query": TEXT, "relevant":
            [IDS]}, with "passages" if they came with the query; or a BEIR folder, whose corpus the
            new model then searches
        journal: instead of --labels: what people said of answers in a journal
        answers: with --journal: fit the confidence of generated answers only, on what people said
            of them, refusals aside
        split: split of a BEIR folder
        max_labels: most labels to use, drawn at random; of a journal the newest
    """
    from rerank.jobs.recalibrate import recalibrate

    if answers and journal is None:
        raise InputError("--answers takes what people said of answers from a --journal URL")
    if (labels is None) == (journal is None):
        raise InputError(
            "expected labels: a file or a set with --labels, or a journal's URL with --journal; "
            f"got {'neither' if labels is None else 'both'}"
        )
    if answers:
        typed.refuse("not with --answers, which tracks nothing", "name")
    model = chosen.load(work)
    if answers:
        count, right = offered("the confidence of answers")(
            model, journal, out, newest=max_labels, overwrite=overwrite
        )
        text = (
            f"{out}: the model with a confidence of answers, fitted on {count} labelled ones, of "
            f"which {right} were right; `rerank answer` and the server show it"
        )
        tell(json, text, model=out, labels=count, right=right)
        return
    found: Any = labels
    if journal is not None:
        found, notes = offered("labels of a journal")(model, journal, newest=max_labels)
        note(*notes)
    elif labels and labels.is_dir():
        found = reading.read(labels, corpus_elsewhere=model.source.elsewhere)
    rest: Any = {"split": split, "work": work, "max_labels": max_labels, "name": name}
    try:
        made = recalibrate(model, found, out, overwrite=overwrite, **rest)
    except TrackingError:
        if not json:
            _print_model(out)
        raise
    if json:
        print_json(model=out, worse=made.worse, notes=made.notes, **run_fields(made.run))
    else:
        report = " ".join(_print_model(out).split())  # whose lines are wrapped
        print_run(made.run, [one for one in made.notes if one not in report])


def _print_model(folder: Path) -> str:
    from rerank.assessment.model_folder import REPORT

    report = (folder / REPORT).read_text(encoding="utf-8")
    print(report)
    print(f"{folder}: the recalibrated model; open its report.html")
    return report
