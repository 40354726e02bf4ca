"""The headline of a report: accuracy of accepted answers, what is certified, what comes next."""

from __future__ import annotations

from calibration.thresholds import Certificate
from rerank.evaluation.measure import OURS, Evaluation
from rerank.types import Mode

NEXT: dict[Mode, str] = {  # how to try a model
    "search": 'rerank search {model} "a query of yours"',
    "lists": "rerank rescore {model} {dataset} --out predictions.jsonl",
}


def headline(evaluation: Evaluation, certificate: Certificate) -> list[str]:
    """Two sentences: the accepted queries, and the certificate with how it did on the measured."""
    certified = certificate.sentence
    if certificate.threshold is not None:
        right = evaluation.right[evaluation.certified]
        share = f" ({right.mean():.1%})" if len(right) else ""
        folds = ", each by the threshold of its fold" if len(evaluation.fold_maps) > 1 else ""
        certified += (
            f" Of the measured queries, {right.sum()} of {len(right)} are right{share}{folds}."
        )
    return [accepted_sentence(evaluation), certified]


def split_report(text: str) -> tuple[list[str], str]:
    """The sentences of the headline, and the rest, of a report as `report.txt` holds it."""
    head, _, rest = text.partition("\n\n")
    return head.splitlines(), rest


def accepted_sentence(evaluation: Evaluation) -> str:
    """How accurate the accepted answers are; of all queries, if the measured ones have weights."""
    if evaluation.weighted:
        return evaluation.weighted.sentence
    ours = evaluation.table[OURS]
    if ours.accuracy_accepted is None or ours.accuracy_accepted_lower95 is None:
        return f"At {ours.threshold:g}: none of {ours.n:,} measured queries is accepted."
    return (
        f"At {ours.threshold:g}: {ours.accepted:,} of {ours.n:,} measured queries are accepted "
        f"({ours.coverage:.0%}); {ours.right_accepted:,} of these are right "
        f"({ours.accuracy_accepted:.1%}, at least {ours.accuracy_accepted_lower95:.1%} with 95% "
        "confidence)."
    )


def after_calibration(
    certificate: Certificate, *, promotable: bool, mode: Mode = "search", unused: int = 0
) -> str:
    """The next step, as a command with `{model}` and `{dataset}` in it.

    promotable: the model is tracked, and there are queries that it was not fitted on. mode: the
    model's main mode. unused: labelled queries of the set that `--max-queries` left out.
    """
    if certificate.threshold is None:
        search, missing = NEXT[mode], certificate.labels_missing
        if certificate.refused or not (missing or certificate.too_few):
            return search  # the reason says what to do, if anything
        count = f"about {missing:,} " if missing else ""
        how = ", drawn evenly from the same questions (`rerank label --draw even`),"
        step = f"label {count}more queries{how if mode == 'search' else ''} and calibrate again"
        if unused:
            step = f"calibrate on more of the {unused:,} labelled queries that were not used"
        return f"{step}; to try the model: {search}"
    if promotable:
        return "rerank model promote {model} {dataset}"
    return "rerank serve {model}"


def after_evaluation(evaluation: Evaluation, mode: Mode = "search") -> str:
    """The next step, as a command with `{model}` and `{dataset}` in it.

    It is to recalibrate, if accepted answers are right less often than the advisory threshold says.
    mode: that of the labelled queries.
    """
    ours = evaluation.table[OURS]
    accuracy, weighted = ours.accuracy_accepted, evaluation.weighted
    if weighted:
        accuracy = weighted.right.mean if weighted.right else None
    if accuracy is not None and accuracy < ours.threshold:
        return "rerank recalibrate {model} --labels labels.jsonl --out NEW"
    queries = "{dataset}" if mode == "lists" else "queries.jsonl"
    return f"rerank rescore {{model}} {queries} --out predictions.jsonl"
