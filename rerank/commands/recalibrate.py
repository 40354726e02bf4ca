"""`rerank recalibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rerank.commands.command import Only, Typed, command
from rerank.commands.options import WORK, Json, ModelChoice, Name, Out, Overwrite, Reading, Work
from rerank.commands.printing import note, print_json, print_run, run_fields, tell
from rerank.config import Option
from rerank.errors import InputError, TrackingError
from rerank.rooms import offered

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.data.feedback import Feedback
    from rerank.data.labelled_set import LabelledSet


@command("work/model --labels labels.jsonl --out work/moved", resumes=True)
def recalibrate(
    chosen: ModelChoice,
    reading: Annotated[Reading, Only(("on_bad_lines", "unjudged"))],
    typed: Typed,
    *,
    labels: Path | None = None,
    journal: Annotated[str | None, Option(metavar="URL")] = None,
    answers: bool = False,
    out: Out,
    overwrite: Overwrite = False,
    split: str = "train",
    max_labels: Annotated[int | None, Option(ge=1)] = None,
    name: Name = "",
    work: Work = WORK,
    json: Json = False,
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
        max_labels: use at most so many labels, drawn at random; of a journal the newest
    """
    from rerank.jobs.recalibrate import recalibrate

    if answers and journal is None:
        raise InputError("--answers takes what people said of answers from a --journal URL")
    if (labels is None) == (journal is None):
        raise InputError(
            "expected labels: a file or a set with --labels, or a journal's URL with --journal; "
            f"got {'neither' if labels is None else 'both'}"
        )
    if answers and journal:
        typed.refuse("not with --answers, which tracks nothing", "name")
        model = chosen.load(work)
        count, right = offered("the confidence of answers")(
            model, journal, out, newest=max_labels, overwrite=overwrite
        )
        text = (
            f"{out}: the model with a confidence of answers, fitted on {count} labelled ones, of "
            f"which {right} were right; `rerank answer` and the server show it"
        )
        tell(json, text, model=out, labels=count, right=right)
        return
    model = chosen.load(work)
    found = _labels(model, labels, journal, reading, max_labels)
    try:
        made = recalibrate(
            model,
            found,
            out,
            split=split,
            work=work,
            max_labels=max_labels,
            overwrite=overwrite,
            name=name,
        )
    except TrackingError:
        if not json:
            _print_model(out)
        raise
    if json:
        print_json(model=out, worse=made.worse, notes=made.notes, **run_fields(made.run))
    else:
        report = " ".join(_print_model(out).split())  # whose lines are wrapped
        print_run(made.run, [one for one in made.notes if one not in report])


def _labels(
    model: CalibratedReranker,
    labels: Path | None,
    journal: str | None,
    reading: Reading,
    newest: int | None,
) -> Path | LabelledSet | list[Feedback]:
    if journal is not None:
        found: list[Feedback]
        found, notes = offered("labels of a journal")(model, journal, newest=newest)
        for one in notes:
            note(one)
        return found
    if labels is None or not labels.is_dir():
        return labels or Path()
    return reading.read(labels, corpus_elsewhere=model.source.elsewhere)


def _print_model(folder: Path) -> str:
    """Print the report, which is returned, and where the model is."""
    from rerank.assessment.model_folder import REPORT

    report = (folder / REPORT).read_text(encoding="utf-8")
    print(report)
    print(f"{folder}: the recalibrated model; open its report.html")
    return report
