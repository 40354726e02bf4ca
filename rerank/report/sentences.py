"""A report in sentences, and the printed text of these and of its tables."""

from __future__ import annotations

import math
import textwrap

from rerank.assessment.model_folder import RETRIEVER
from rerank.evaluation.baselines import sources
from rerank.evaluation.measure import OURS
from rerank.fitting.context_certificates import LOST
from rerank.fitting.refused_certificates import NO_LISTS
from rerank.fitting.scored_plan import LENGTHS
from rerank.fitting.unanswerable import copies_in
from rerank.report.headline import headline
from rerank.report.report import Report

WIDTH = 96  # characters of a line of the text


def split_sentences(report: Report) -> list[str]:
    """Which queries were fitted on, which were measured on, and which were left out and why."""
    planned = report.planned
    sentences = [f"{report.name}: fitted on {len(planned.fit)} queries. {planned.reported}"]
    if report.copies:
        sentences.append(copies_sentence(report))
    if planned.seen_by_reranker:
        sentences.append(
            f"Left out: {planned.seen_by_reranker} queries, because a model was trained on "
            "them or on their split."
        )
    if planned.asked_twice:
        sentences.append(
            f"Left out: {planned.asked_twice} queries that have the words or the group "
            "(`metadata.group`) of a measured query."
        )
    if planned.warning:
        sentences.append(f"Warning: {planned.warning}.")
    return sentences


def copies_sentence(report: Report) -> str:
    """How many unanswerable copies were made, and which queries the figures are about."""
    measured = report.evaluation.labelled
    copies = int(copies_in(measured).sum())
    sentence = (
        f"Questions that nothing answers: {sum(not g for g in report.planned.fit.grades)} of the "
        f"queries fitted on, so {report.copies} unanswerable copies of others, with their "
        "answers taken out of the index, were added (--expected-unanswerable). Of the measured "
        f"queries {sum(not g for g in measured.grades)} of {len(measured)} have no answer, "
        f"{copies} of them such copies."
    )
    if report.planned.cross_fitted:  # the measured queries are those fitted on
        return sentence
    return (
        f"{sentence} The certificate is about the queries fitted on, copies included; the figures "
        "are about the measured queries."
    )


def groups_sentence(report: Report) -> str:
    """What keeps queries together, the number of groups, and the effective number of labels."""
    fitted, planned = report.fitted, report.planned
    with_copies = ", copies included," if report.copies else ""
    sentence = (
        f"Groups: {planned.grouping.name}, {len(set(fitted.groups))} of them; the errors of the "
        f"confidence on the {len(fitted.right)} queries fitted on{with_copies} are worth those of "
        f"{fitted.effective:.0f} independent queries."
    )
    if planned.reported_of_fitted_groups:
        sentence += (
            f" {planned.reported_of_fitted_groups} of the measured queries are of groups that were "
            "fitted on: the figures are of new questions about the same, and flatter the model on "
            "others."
        )
    return sentence


def scored_sentence(report: Report) -> str:
    """How many passages the cross-encoder scores; or which stages scored the lists.

    The number is that of the measured folds, whose cutoffs may differ from the model's.
    """
    kind = report.fitted.maps.list_kind
    if kind and RETRIEVER not in report.made_from:
        *first, last = kind.stages
        others = f", and `fused` is the fusion of the ranks of {', '.join(first)}" if first else ""
        sentence = f"The lists came with their scores: `logit` is the score of {last}{others}."
        return (
            sentence if kind.texts else f"{sentence} Not all passages have a text: none was read."
        )
    cutoff = report.fitted.maps.policy.cutoff
    those = f"those at least {cutoff:g} times as likely as the likeliest" if cutoff else ""
    how = f", {those}" if cutoff else ""
    if any(maps.policy.cutoff != cutoff for maps in report.evaluation.fold_maps):
        how = f", by a cutoff of its own in each fold; the model scores {those or 'all'}"
    return f"Passages scored per query: {report.evaluation.passages_scored:.1f}{how}."


def band_sentence(report: Report) -> str:
    """The mean confidence and the accuracy near the threshold; empty without queries there."""
    ours = report.evaluation.table[OURS]
    if not ours.band_rows:
        return ""
    have = "query has" if ours.band_rows == 1 else "queries have"
    return (
        f"{ours.band_rows} {have} a confidence within 0.05 of {ours.threshold:g}: their mean "
        f"confidence is {ours.band_confidence:.1%}, and {ours.band_accuracy:.1%} of them are right."
    )


def certificate_sentences(report: Report) -> list[str]:
    """What is certified of the top passage and of the first ones, on which labels.

    Why nothing is certified, if that is so, and how the certificate did on the measured queries are
    in the headline.
    """
    maps = report.fitted.maps
    sentences = [] if maps.certificate.refused else [maps.certificate.sentence]
    context = maps.context_certificate
    if context and not context.refused:
        sentences.append(f"The context: {context.sentence}")
    if maps.stopping_threshold is not None:
        sentences.append(
            "If passages are handed on until the sufficiency reaches "
            f"{maps.stopping_threshold:g} (at most ten), at most {LOST:.0%} of all questions lose "
            "an answer that was among the ten, at 95% confidence."
        )
    return sentences


def rerank_sentence(report: Report) -> str:
    """How the confidence does on passages that callers bring; "" if this was not measured."""
    if report.rerank is None:
        return ""
    ours = report.rerank.table[OURS]
    accepted = f"{ours.accepted} of {ours.n} are at >= {ours.threshold:g}"
    if ours.accuracy_accepted is not None:
        accepted += f", {ours.right_accepted} ({ours.accuracy_accepted:.1%}) of these right"
    auroc = "-" if math.isnan(ours.auroc) else f"{ours.auroc:.3f}"
    return (
        f"Where callers bring {LENGTHS[0]} to {LENGTHS[-1]} passages: AUROC {auroc}, smECE "
        f"{ours.smece:.3f} (exactly calibrated: up to {ours.smece_floor95:.3f}); {accepted}. "
        f"Nothing is certified there. {NO_LISTS}"
    )


def table_note(report: Report) -> str:
    """How to read the comparison."""
    ours = report.evaluation.table[OURS]
    return (
        "AUROC: is a higher confidence right more often (0.5: no, 1: always)? Brier and smECE: "
        "error of the probabilities, lower is better; exactly calibrated ones would show smECE up "
        f"to {ours.smece_floor95:.3f} here. Of the queries at >= {ours.threshold:g}, that share or "
        f"more should be right; our {ours.accepted} are worth {ours.effective_accepted:.0f} "
        "independent ones by group, and the lower bound is no higher than theirs."
    )


def confidence_sources(report: Report) -> dict[str, str]:
    """What each confidence of the table is, and where it comes from."""
    fitted = {
        "temperature": "The best logit divided by one number, which was fitted.",
        OURS: "This model.",
    }
    texts = {**sources(), **fitted}
    return {way: text for way, text in texts.items() if way in report.evaluation.confidences}


def report_text(report: Report) -> str:
    """The headline; a blank line; all the rest."""
    evaluation, fitted = report.evaluation, report.fitted
    first = [
        *split_sentences(report),
        groups_sentence(report),
        scored_sentence(report),
        f"Calibrator: {fitted.calibrator}. {fitted.reason}",
        *certificate_sentences(report),
    ]
    parts = (
        "\n".join(headline(evaluation, fitted.maps.certificate)),
        "\n".join(textwrap.fill(sentence, WIDTH) for sentence in first),
        evaluation.orders_table(),
        evaluation.table.table(),
        textwrap.fill(table_note(report), WIDTH),
        "\n".join(
            textwrap.fill(f"{n}: {text}", WIDTH) for n, text in confidence_sources(report).items()
        ),
        evaluation.events_table(),
        textwrap.fill(rerank_sentence(report), WIDTH),
    )
    return "\n\n".join(filter(None, parts)) + "\n"
