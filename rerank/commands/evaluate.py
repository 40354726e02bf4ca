"""`rerank evaluate`."""

from __future__ import annotations

import shlex
from pathlib import Path

from rerank.commands.command import command
from rerank.commands.options import WORK, Json, ModelChoice, Reading, Verbose, Work
from rerank.commands.printing import note, print_headline, print_json, rescorable


@command("work/model datasets/pydata --split test", resumes=True)
def evaluate(
    chosen: ModelChoice,
    dataset: Path,
    reading: Reading,
    *,
    split: str = "test",
    verbose: Verbose = False,
    work: Work = WORK,
    json: Json = False,
) -> None:
    """Measure a model on a split of a labelled set.

    Args:
        dataset: BEIR folder, or labelled lists
        split: split to measure on
    """
    from rerank.jobs.evaluate import evaluate
    from rerank.report.calibration import measured_sections
    from rerank.report.headline import after_evaluation, headline
    from rerank.report.sections import as_text

    model = chosen.load(work)
    labelled = reading.read(dataset, corpus_elsewhere=model.source.elsewhere)
    evaluation = evaluate(model, labelled, split, work=work)
    for one in evaluation.notes:
        note(one)
    if json:
        print_json(**evaluation.to_dict())
        return
    model_path, path = (shlex.quote(str(path)) for path in (chosen.model, rescorable(dataset)))
    next_step = after_evaluation(evaluation, labelled.mode).format(model=model_path, dataset=path)
    print_headline(
        headline(evaluation, model.maps[labelled.mode], rank_by=model.pipeline.config.rank_by),
        next_step,
    )
    if verbose:
        print()
        print(as_text(measured_sections(evaluation)), end="")
    else:
        print("(--verbose: the comparison and all measurements)")
