"""What a person acts on: how right the accepted answers are, and what is certified."""

from __future__ import annotations

from calibration.thresholds import Certificate
from rerank.evaluation.evaluate import OURS, Evaluation


def headline(evaluation: Evaluation, certificate: Certificate) -> list[str]:
    """Two sentences: the accepted queries, and the certified ones."""
    return [accepted_sentence(evaluation), certified_sentence(evaluation, certificate)]


def accepted_sentence(evaluation: Evaluation) -> str:
    """What the advisory threshold is worth on the measured queries."""
    ours = evaluation.table[OURS]
    if ours.accuracy_accepted is None or ours.accuracy_accepted_lower95 is None:
        return f"At {ours.threshold:g}: none of {ours.n:,} measured queries is accepted."
    return (
        f"At {ours.threshold:g}: {ours.accepted:,} of {ours.n:,} measured queries are accepted "
        f"({ours.coverage:.0%}); {ours.right_accepted:,} of these are right "
        f"({ours.accuracy_accepted:.1%}, at least {ours.accuracy_accepted_lower95:.1%} with 95% "
        "confidence)."
    )


def certified_sentence(evaluation: Evaluation, certificate: Certificate) -> str:
    """From where on answers are certified, and how that fares; or what it would take."""
    if certificate.refused:
        return f"Certified: nothing. {certificate.refused}"
    if certificate.threshold is None:
        more = certificate.labels_needed
        what = (
            f"about {more - certificate.queries} more labelled queries" if more else "better scores"
        )
        return f"Certified: nothing yet; it takes {what}."
    kept = evaluation.right[evaluation.reaching(certificate)]
    fared = f" ({kept.mean():.1%})" if len(kept) else ""
    return (
        f"Certified: from {certificate.threshold:.3f} up {certificate.target:.0%} or more are "
        f"right, at {certificate.level:.0%} confidence; of the measured queries {kept.sum()} of "
        f"{len(kept)} are{fared}."
    )


def promised_too_much(evaluation: Evaluation) -> bool:
    """Whether the accepted answers are right less often than the threshold says."""
    ours = evaluation.table[OURS]
    return ours.accuracy_accepted is not None and ours.accuracy_accepted < ours.threshold
