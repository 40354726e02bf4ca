"""`rerank watch drift`, `watch probe` and `train prior`; other trainings are `rerank.training`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rerank.commands.command import Only, Typed, command
from rerank.commands.options import WORK, Json, ModelChoice, OnBadLines, Reading, Work
from rerank.commands.printing import print_json, tell
from rerank.config import Config, Option
from rerank.errors import InputError
from rerank.rooms import offered

if TYPE_CHECKING:
    from rerank.data.labelled_set import LabelledSet


@command("work/model queries.jsonl", resumes=True, networks=True)
def drift(
    chosen: ModelChoice,
    queries: Path | None = None,
    *,
    typed: Typed,
    journal: Annotated[str | None, Option(metavar="URL")] = None,
    newest: Annotated[int, Option(ge=1)] = 1000,
    split: str | None = None,
    level: float = 0.01,
    on_bad_lines: OnBadLines = "refuse",
    work: Work = WORK,
    json: Json = False,
) -> bool:
    """Compare new queries with those that a model was fitted on, without labels; exit code 1: they
    differ.

    Args:
        queries: the new queries: a JSONL file, or the BEIR folder of another corpus, which needs no
            qrels
        journal: instead of QUERIES: take the new queries from the journal of a server
        newest: with --journal: compare only the newest searches
        split: split of a BEIR folder (default: test, with the queries that are of no split)
        level: chance of a false alarm
    """
    from rerank.assessment.ranking_features import meaning
    from rerank.data.beir import UNLABELLED, read_queries
    from rerank.data.grouping import grouped
    from rerank.jobs.evaluate import detect_drift
    from rerank.jobs.pipelines import pipeline_over
    from rerank.storage.folder import Workspace

    if (queries is None) == (journal is None):
        raise InputError("expected QUERIES, or a journal's URL with --journal")
    if journal is None:
        typed.refuse("only with --journal", "newest")
    if queries is None or not queries.is_dir():
        typed.refuse("only with a BEIR folder", "split")
    model = chosen.load(work)
    if queries is not None and queries.is_dir():
        reading = Reading(unjudged=UNLABELLED, on_bad_lines=on_bad_lines)
        labelled = reading.read(queries, corpus_elsewhere=model.source.elsewhere)
        ids = _of_split(labelled, split)
        found = detect_drift(
            model,
            grouped(labelled, ids).select(ids),  # by the groups that the model's queries had
            pipeline=pipeline_over(labelled, model, Workspace(work)),
            level=level,
        )
    else:
        if journal is not None:
            asked = offered("queries of a journal")(model, journal, newest=newest)
        else:
            asked = read_queries(queries or Path(), passages=not model.source.searches)
        found = detect_drift(model, asked, level=level)
    if json:
        print_json(**found.to_dict())
    else:
        table = model.maps.main.features.ranking
        print(f"{found.sentence}\n\n{found.table(words=lambda name: meaning(name, table))}")
    return not found.fired


@command("work/model")
def probe(chosen: ModelChoice, *, work: Work = WORK, json: Json = False) -> bool:
    """Check that the remote models of a model still answer as at its calibration; exit code 1: one
    does not, so no answer is calibrated.

    A few requests score fixed texts. Where the numbers differ, a scale and an offset that explain
    them mean that the order of passages is the same, and that few labels are enough to calibrate
    again.
    """
    from dataclasses import asdict

    model = chosen.load(work)
    if not model.shifts:
        raise InputError(
            f"the models of {chosen.model} are on this machine, and loading it has compared their "
            "hashes: there is nothing to probe"
        )
    if json:
        found = {r: {**asdict(s), "affine": s.affine} for r, s in model.shifts.items()}
        print_json(shifted=bool(model.shifted), models=found)
    else:
        print(*(f"{role}: {s.sentence}" for role, s in model.shifts.items()), sep="\n")
    return not model.shifted


def _of_split(labelled: LabelledSet, split: str | None) -> tuple[str, ...]:
    from rerank.data.beir import UNLABELLED

    splits = dict(labelled.splits)
    of_none = splits.pop(UNLABELLED, ())
    named = replace(labelled, splits=splits)
    if split:
        return tuple(named.split(split))
    return (*named.split("test"), *of_none) if splits else of_none


@command("sets/* --out models/minilm-reranker/pooled.json", resumes=True, networks=True)
def prior(
    datasets: Annotated[tuple[Path, ...], Option(metavar="SET")],
    config: Annotated[Config, Only(("encoder", "reranker", "max_length", "precision"))],
    *,
    out: Path,
    max_queries: Annotated[int, Option(ge=1)] = 300,
    on_bad_lines: OnBadLines = "refuse",
    work: Work = WORK,
    json: Json = False,
) -> None:
    """Fit the maps that a model starts from before it has labels, on other labelled sets.

    Args:
        datasets: BEIR folders, or folders with pairs.jsonl
        out: JSON file to write; read as FOLDER.pooled.json beside the FOLDER of a cross-encoder
        max_queries: most queries of a set
    """
    from rerank.jobs.pool import pool_sets

    made = pool_sets(
        datasets, out, config, work=work, max_queries=max_queries, on_bad_lines=on_bad_lines
    )
    count = len(made.sets)
    tell(json, f"{out}: maps pooled over {count} sets", maps=out, sets=count)
