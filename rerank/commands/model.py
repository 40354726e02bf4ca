"""`rerank model init`, `update`, `export`, `track` and `promote`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rerank.commands import options
from rerank.commands.command import Only, command
from rerank.commands.data import OF_INDEXES
from rerank.commands.printing import note, print_json, print_run, run_fields, tell
from rerank.config import Config, Option, PromotionGate
from rerank.errors import command_line

if TYPE_CHECKING:
    from rerank.jobs.update import Updated

ModelFolder = Annotated[Path, Option("model folder")]
MODELS = (*OF_INDEXES, "reranker", "max_length", "precision")  # before the first label


@command("datasets/pydata --out work/unlabelled", resumes=True, networks=True)
def init(
    corpus: options.Corpus,
    config: Annotated[Config, Only(MODELS)],
    *,
    out: options.Out,
    overwrite: options.Overwrite = False,
    on_bad_lines: options.OnBadLines = "refuse",
    work: options.Work = options.WORK,
    json: options.Json = False,
) -> None:
    """Make a model that searches a corpus without labels; it is not calibrated."""
    from rerank.jobs.update import NOT_CALIBRATED, init

    init(corpus, out, config, work=work, overwrite=overwrite, on_bad_lines=on_bad_lines)
    made = f"{out}: a model to search with. {NOT_CALIBRATED}"
    step = f"Next: {command_line('search', out, 'a query of yours')}"
    tell(json, made, step, model=out, calibrated=False)


@command("work/model work/corpus", networks=True)
def update(
    target: Path,
    corpus: options.Corpus,
    *,
    on_bad_lines: options.OnBadLines = "refuse",
    json: options.Json = False,
) -> None:
    """Let an index or a model search a changed corpus; only what changed is encoded.

    Args:
        target: index or model folder, replaced in place
    """
    from rerank.jobs.update import update

    found = update(target, corpus, on_bad_lines=on_bad_lines)
    if json:
        print_json(updated=target, **asdict(found))
    else:
        print_updated(found, target)


def print_updated(found: Updated, target: Path) -> None:
    """Print what an update changed, and whether guarantees were lost."""
    from rerank.jobs.update import CHANGED

    counts = f"; {found.added} added, {found.removed} removed, {found.changed} changed"
    same = ", the same as before; nothing is written"
    print(f"{target}: {found.passages} passages{counts if found else same}")
    if found and found.uncertified:
        note(f"nothing is certified. {CHANGED}")


@command("work/model --out work/deployed", networks=True)
def export(
    chosen: options.ModelChoice,
    *,
    out: options.Out,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Copy a model with its networks inside, to be deployed without torch and weights."""
    from rerank.jobs.update import export
    from rerank.storage.files import sha256_file
    from rerank.storage.folder import MANIFEST

    made = export(chosen.load(), out, overwrite=overwrite)
    sha256 = sha256_file(made / MANIFEST)
    text = f"{made}: the model, self-contained; --manifest-sha256 {sha256} loads no other"
    tell(json, text, model=made, manifest_sha256=sha256)


@command("work/model")
def track(
    model: ModelFolder, *, work: options.Work = options.WORK, json: options.Json = False
) -> None:
    """Log a model to MLflow if `calibrate` could not (safe to repeat)."""
    from rerank.jobs.track import track_model
    from rerank.storage.folder import Workspace

    run = track_model(model, work=Workspace(work))
    if json:
        print_json(model=model, **run_fields(run))
    else:
        print_run(run)


@command("work/model datasets/pydata --split test", resumes=True, networks=True)
def promote(
    model: ModelFolder,
    dataset: Path,
    gate: PromotionGate,
    reading: options.Reading,
    *,
    split: str = "test",
    new_corpus: bool = False,
    work: options.Work = options.WORK,
    json: options.Json = False,
) -> bool:
    """Make a model the champion, if it passes the gate; exit code 1: it does not.

    Args:
        dataset: BEIR folder, or labelled lists, to measure on
        split: split to measure on
        new_corpus: replace a champion of another corpus, with which the model is not compared
    """
    from rerank.assessment.model_folder import RETRIEVER, open_folder
    from rerank.jobs.promote import promote
    from rerank.storage.folder import reserved

    labelled = reading.read(dataset, corpus_elsewhere=RETRIEVER in open_folder(model).manifest)
    with reserved(model, to_read=True):  # so that the measured model is the promoted one
        done = promote(model, labelled, split, gate, work=work, new_corpus=new_corpus)
    if json:
        print_json(promoted=done.version is not None, **asdict(done))
    else:
        note(*done.notes)
        print(done.table())
        print(done.sentence)
    return done.version is not None
