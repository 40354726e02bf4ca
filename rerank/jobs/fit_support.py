"""Fit the threshold of the support check of answers: on labelled claims, or on a labelled set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rerank.assessment.model import CalibratedReranker
from rerank.data.checks import json_type
from rerank.data.labelled_set import LabelledSet
from rerank.data.lines import read_records
from rerank.data.records import read_passage, read_text
from rerank.errors import InputError
from rerank.rag.answer.attribution import fit_support
from rerank.rag.answer.model_answers import cross_encoder_judge
from rerank.rag.answer.sources import evidence_of


class Claim(NamedTuple):
    """A sentence, the text of a source, and whether the source supports the sentence."""

    text: str
    evidence: str  # see `evidence_of`
    supported: bool


def fit_support_threshold(
    model: CalibratedReranker, labels: LabelledSet | Path, split: str = "train"
) -> tuple[float, int]:
    """The fitted threshold of `AnswerConfig.support`, in (0, 1), and how many claims are labelled.

    `labels` is a file of claims, or a labelled set, of which see `claims_of`. Only claims that
    words leave undecided are fitted on: see `fit_support`.

    Raises:
        InputError: bad lines (all are listed), fewer than 30 undecided claims or none of one kind,
            no such split, or a model that has no relevance of a passage for a claim.
    """
    judge = cross_encoder_judge(model)
    if judge is None:
        raise InputError(
            f"{model.folder} finds its passages in another search system, or gets them with "
            "scores, and has no map for a passage and a claim: words alone check its answers. "
            "Calibrate a labelled set with its corpus for this"
        )
    if isinstance(labels, LabelledSet):
        claims = claims_of(model, labels, split)
    else:
        claims = read_records(labels, claim_of, "claim")
    return fit_support(claims, model.pipeline.index, judge), len(claims)


def claims_of(model: CalibratedReranker, labelled: LabelledSet, split: str) -> list[Claim]:
    """Two claims for each answerable query of a split, if the model finds a right passage for it.

    The query counts as a claim that the first right passage supports, and the first other passage
    does not.
    """
    ids = [i for i in labelled.split(split) if labelled.relevant(i)]
    claims: list[Claim] = []
    for i, answer in zip(ids, model.assess([labelled.queries[i] for i in ids]), strict=True):
        right, text = labelled.relevant(i), labelled.queries[i].text
        passages = answer.passages
        first = next((p for p in passages if p.doc_id in right), None)
        other = next((p for p in passages if p.doc_id not in right), None)
        if first and other:
            claims.append(Claim(text, evidence_of(first.title, first.text), True))
            claims.append(Claim(text, evidence_of(other.title, other.text), False))
    return claims


def claim_of(row: Mapping[str, Any]) -> Claim:
    """The claim of one record: `claim`, the passage's `text` and `title`, and `supported`.

    Raises:
        InputError: naming the field, the value and what was expected.
    """
    supported = row.get("supported")
    if not isinstance(supported, bool):
        raise InputError(f"'supported' should be true or false, got {json_type(supported)}")
    passage = read_passage(row, default_id="passage")
    return Claim(read_text(row, "claim"), evidence_of(passage.title, passage.text), supported)
