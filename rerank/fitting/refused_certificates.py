"""Certificates that labels cannot carry: refused, with the reason. It measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from calibration.thresholds import Certificate
from rerank.assessment.fitted_maps import FittedMaps

ALL_ANSWERABLE = (
    "All {n} labelled queries have an answer here. They say nothing about queries without one: "
    "the confidence of these may be too high, and a certificate would not hold. Label such queries "
    "too, in the share that you expect from your users, and list them in splits/<split>.txt; or "
    "let unanswerable copies stand in for them (--expected-unanswerable)."
)
NONE_ANSWERABLE = (
    "None of the {n} labelled queries has an answer here: nothing can be certified. Label queries "
    "that the passages answer."
)

TRAINED_ON_DOCUMENTS = (
    "A model was trained on other queries about the same documents, and knows these better than it "
    "will know new ones: the confidence is likely to be too high, and all figures too good. Keep "
    "documents apart from its training, or take another --reranker."
)
NOT_AT_RANDOM = (
    "The labels are not of a random sample of questions: they were drawn by their confidence, or "
    "evenly, but different shares of several files, or people chose which answers to judge. They "
    "correct the confidence, but a certificate needs questions drawn at random, from one file or "
    "the same share of each (`rerank label --draw even`)."
)
KNOWN_GROUPS = (
    "{count} of {n} labels are of groups (`metadata.group`) that the model was fitted or "
    "recalibrated on, or name none: it looks better there than on new groups. The confidence "
    "follows the labels; a certificate needs labels of at least {least} questions of new groups."
)
KNOWN_GROUPS_LEFT_OUT = (
    "{count} of {n} labels of the mode {mode} are of groups (`metadata.group`) that the model was "
    "fitted or recalibrated on, or name none: the confidence follows them, and they are left out "
    "of what is certified."
)
CUT_FROM_SEARCH = (
    "The labelled lists were cut from our own search: they certify nothing about lists that "
    "callers bring. Label answers to such lists, and give the labels with their `passages` to "
    "`rerank recalibrate`."
)


def require_both_kinds(certificate: Certificate, answered: Sequence[bool]) -> Certificate:
    """The certificate, or a refused one if only one kind of query was labelled.

    answered: for each labelled query, whether any passage is right for it.
    """
    if any(answered) and not all(answered):
        return certificate
    return refused(
        certificate, (ALL_ANSWERABLE if any(answered) else NONE_ANSWERABLE).format(n=len(answered))
    )


def refused(certificate: Certificate, reason: str) -> Certificate:
    """The certificate, changed to promise nothing, for this reason and those that it had before."""
    reasons = certificate.refused
    if reason not in reasons:
        reasons = f"{reasons} {reason}".strip()
    return replace(
        certificate, threshold=None, accepted=0, right=0, labels_needed=None, refused=reasons
    )


def refuse_certificates(maps: FittedMaps, reason: str) -> FittedMaps:
    """The maps, with all their certificates refused: see `refused`."""
    context, documents = maps.context_certificate, maps.documents_certificate
    return replace(
        maps,
        certificate=refused(maps.certificate, reason),
        documents_certificate=refused(documents, reason) if documents else None,
        context_certificate=refused(context, reason) if context else None,
        stopping_threshold=None,
    )
