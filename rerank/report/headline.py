"""The headline of a report: what is accepted, right and certified, and what comes next."""

from __future__ import annotations

from calibration.arrays import group_codes
from calibration.metrics.intervals import grouped_standard_error
from calibration.reliability import Accepted
from calibration.thresholds import Certificate
from rerank.assessment.fitted_maps import FittedMaps
from rerank.evaluation.measure import OURS, Evaluation
from rerank.fitting.certificates import LOST
from rerank.types import Mode

NEXT: dict[Mode, str] = {  # how to try a model
    "search": 'rerank search {model} "a query of yours"',
    "lists": "rerank rescore {model} {dataset} --out predictions.jsonl",
}

SIMPLER = ("sigmoid of top logit", "temperature")  # confidences than ours, the simplest first


def headline(evaluation: Evaluation, maps: FittedMaps, *, rank_by: str = "relevance") -> list[str]:
    """A line on the top passage and one on the first k, each with its certificate; then advice.

    `rank_by` is the model's order: no other is advised where it was chosen.
    """
    of_top, documents = maps.certificate.brief, maps.documents_certificate
    if documents and not documents.refused:
        of_top += f" {documents.brief}"
    context = maps.context_certificate
    of_first = context.brief if context and not context.refused else "Nothing is certified."
    shown, n = "not measured.", len(evaluation.right)
    if evaluation.context and not evaluation.weighted:
        shown = _counted("sufficiency", evaluation.context, n, "have a right one among them")
    return [
        f"Top passage: {accepted_sentence(evaluation)} {of_top}",
        f"One of the first {evaluation.context_k}: {shown} {of_first}",
        *(order_sentence(evaluation, maps) if rank_by == "relevance" else ()),
        *simpler_sentence(evaluation),
    ]


def promise_sentences(evaluation: Evaluation, maps: FittedMaps) -> list[str]:
    """What each certificate promises and rests on, and what they hold together."""
    certificate, documents = maps.certificate, maps.documents_certificate
    given = [c for c in (certificate, documents, maps.context_certificate) if c and not c.refused]
    sentences = [c.sentence for c in given]
    if certificate.threshold is not None:
        right = evaluation.right[evaluation.certified]
        share = f" ({right.mean():.1%})" if len(right) else ""
        folds = ", each by the threshold of its fold" if len(evaluation.fold_maps) > 1 else ""
        counts = f"{right.sum()} of {len(right)}"
        sentences[0] += f" Of the measured queries, {counts} are right{share}{folds}."
    if maps.stopping_threshold is not None:
        sentences.append(
            "If passages are handed on until the sufficiency reaches "
            f"{maps.stopping_threshold:g} (at most ten), at most {LOST:.0%} of all questions lose "
            "an answer that was among the ten, at 95% confidence."
        )
    made = sum(c.threshold is not None for c in given) + (maps.stopping_threshold is not None)
    if made > 1:  # Bonferroni
        sentences.append(
            f"Each of these {made} promises holds at 95% confidence, all of them together at "
            f"{100 - 5 * made}% at least."
        )
    return sentences


def split_report(text: str) -> tuple[list[str], str]:
    """The sentences of the headline, and the rest, of a report as `report.txt` holds it."""
    head, _, rest = text.partition("\n\n")
    return head.splitlines(), rest


def accepted_sentence(evaluation: Evaluation) -> str:
    """How accurate the accepted answers are; of all queries, if the measured ones have weights."""
    if evaluation.weighted:
        return evaluation.weighted.sentence
    one = evaluation.table[OURS]
    bound = one.accuracy_accepted_lower95 or 0.0
    counts = Accepted(one.threshold, one.accepted, one.right_accepted, 0.0, bound)
    return _counted("confidence", counts, one.n, "are right")


def _counted(number: str, counts: Accepted, n: int, event: str) -> str:
    at = f"at a {number} of {counts.threshold:g} or more,"
    if not counts.rows:
        return f"{at} none of {n:,} measured queries is accepted."
    return (
        f"{at} {counts.rows:,} of {n:,} measured queries are accepted ({counts.rows / n:.0%}); "
        f"{counts.right:,} of these {event} ({counts.right / counts.rows:.1%}, at least "
        f"{counts.lower95:.1%} of new questions like these, with 95% confidence)."
    )


def order_sentence(evaluation: Evaluation, maps: FittedMaps) -> list[str]:
    """That another order is right first more often, and whether the cross-encoder pays; or none."""
    ours = float(evaluation.right.mean())
    hit1 = {name: order["hit1"] for name, order in evaluation.orders.items()}
    best = max(hit1, key=lambda name: hit1[name])
    cheap = max((name for name in ("fused", "dense") if name in hit1), key=lambda name: hit1[name])
    if hit1[best] <= ours > hit1[cheap]:
        return []
    shown = cheap if hit1[cheap] >= hit1[best] else best
    sentence = (
        f"The order `{shown}` is right first for {hit1[shown]:.1%} of the measured queries, this "
        f"model's for {ours:.1%}: `--rank-by auto` lets the labels choose."
    )
    if shown == cheap and not maps.kind.stages:
        sentence += (
            " The cross-encoder does not improve the order here; it reads "
            f"{evaluation.passages_scored:.1f} passages a query."
        )
    return [sentence]


def simpler_sentence(evaluation: Evaluation) -> list[str]:
    """The simplest confidence whose Brier score is within one standard error of ours; or none."""
    right, table = evaluation.right, evaluation.table
    groups = group_codes(evaluation.labelled.groups, len(right))
    ours = (evaluation.confidences[OURS] - right) ** 2
    for name in filter(evaluation.confidences.__contains__, SIMPLER):
        lost = (evaluation.confidences[name] - right) ** 2 - ours
        if lost.mean() <= grouped_standard_error(lost, groups):
            simple, own = table[name], table[OURS]
            return [
                f"A simpler confidence, `{name}`, is as good on these labels, within one standard "
                f"error (Brier score {simple.brier:.3f}, ours {own.brier:.3f}): from "
                f"{own.threshold:g} up it accepts {simple.accepted:,} of which "
                f"{simple.right_accepted:,} are right; ours {own.accepted:,} of which "
                f"{own.right_accepted:,} are right."
            ]
    return []


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
