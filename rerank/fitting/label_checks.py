"""Refuse a corpus or labels that nothing can be learned from. It fits nothing."""

from __future__ import annotations

from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import Labels
from rerank.errors import InputError


def check_corpus(labelled: LabelledSet) -> None:
    """Refuse a corpus with nothing to choose between.

    Raises:
        InputError: fewer than two passages.
    """
    if len(labelled.corpus) < 2:
        raise InputError(
            f"{labelled.name}: its corpus has {len(labelled.corpus)} passage; every query would "
            "get the same one. Expected two at least"
        )


def check_both_outcomes(right: Labels, name: str) -> None:
    """Refuse to learn a confidence if every answer, or none, is right.

    Raises:
        InputError: right (n,) is 0 everywhere, or 1.
    """
    if right.any() and not right.all():
        return
    outcome, remedy = (
        ("right for all", "queries that are harder, or that nothing answers")
        if right.all()
        else ("wrong for all", "queries that the passages answer, and check the ids in qrels/")
    )
    raise InputError(
        f"{name}: the top passage is {outcome} of the {len(right)} queries to fit on. A confidence "
        f"is learned from both outcomes, and a constant tells nothing: add {remedy}"
    )
