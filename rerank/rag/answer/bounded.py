"""Answers bounded by their sources: retrieve, gate, generate, check, report.

The gate decides before any answerer is called. What the sources do not support is removed, marked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from rerank.advice.adaptive import near, take
from rerank.advice.settings import NO_ANSWER, AnswerConfig
from rerank.config import two_digits
from rerank.data.duplicates import distinct
from rerank.data.words import Lexicon
from rerank.errors import EndpointError
from rerank.rag.answer.answerers import Answerer
from rerank.rag.answer.attribution import (
    Checked,
    Judge,
    SupportCheck,
    attribution_coverage,
    without_unsupported,
)
from rerank.rag.answer.sentences import without_controls
from rerank.rag.answer.sources import Source, sources_of
from rerank.rag.decisions import UNASSESSED, ContextVerdict, gate_handed_on
from rerank.types import Assessment, RankedPassage

RECORD = (
    *("query_id", "answer", "refused", "low_confidence", "confidence", "level", "accepted"),
    *("sufficiency", "verdict", "attribution_coverage", "model_calls", "calibrated"),
)
LOW = "Answer (LOW CONFIDENCE - limited source coverage): "


@dataclass(frozen=True, slots=True)
class BoundedAnswer:
    """An answer, or the refusal to give one."""

    query_id: str
    answer: str
    refused: bool
    confidence: float  # P(the top passage is right), of the retrieval
    level: str  # of this confidence
    accepted: bool  # likewise
    sufficiency: float | None  # P(a source holds the answer); None if the gate failed
    verdict: str  # of the sufficiency; UNASSESSED if the gate failed
    sources: tuple[Source, ...] = ()  # those that support the answer
    quotes: tuple[str, ...] = ()  # the supporting sentence of each
    attribution_coverage: float | None = None  # of the answer as generated; None if there is none
    model_calls: int = 0
    calibrated: bool = True  # False: `reason` says why not
    reason: str = ""
    marks: Mapping[str, Any] = field(default_factory=dict)  # see `Assessment.marks`
    error: str = ""  # why the answerer gave no answer
    cut_off: bool = False  # a language model reached its limit of tokens
    answer_confidence: float | None = None  # P(the answer is right), if fitted on labels
    answer_level: str = ""  # of this confidence
    answer_id: str = ""  # in the journal, for feedback; "" if it is not there

    @property
    def low_confidence(self) -> bool:
        """Whether there is an answer although the sources may not hold one."""
        return not self.refused and self.verdict in ("PARTIAL", UNASSESSED)

    def to_dict(self) -> dict[str, Any]:
        """The output record; what follows `sources` only if it is set."""
        quoted = zip(self.sources, self.quotes, strict=True)
        more = {
            "answer_confidence": self.answer_confidence,
            "answer_level": self.answer_level or None,
            "cut_off": self.cut_off or None,
            "error": self.error or None,
            **self.marks,
            "id": self.answer_id or None,
        }
        return {
            **{name: getattr(self, name) for name in RECORD},
            "sources": [source.to_dict(quote) for source, quote in quoted],
            **{name: value for name, value in more.items() if value is not None},
        }

    def text(self) -> str:
        """The answer with its sources, as a person reads it."""
        parts = [self.answer]
        if not self.refused and self.sources:
            parts.append("\n".join(["Sources:", *(s.line() for s in self.sources)]))
        if self.cut_off:
            parts.append("The language model was cut off: the end is missing (--llm-max-tokens).")
        if not self.calibrated:
            parts.append(f"{self.reason[:1].upper()}{self.reason[1:]}.")
        if self.answer_confidence is not None:
            sure = two_digits(self.answer_confidence)
            parts.append(f"Confidence that this answer is right: {sure}")
        if self.answer_id:
            parts.append(f"Answer id: {self.answer_id}")
        return "\n\n".join(parts)


def bounded_answer(
    assessment: Assessment,
    answerer: Answerer,
    lexicon: Lexicon,
    config: AnswerConfig = AnswerConfig(),
    *,
    judge: Judge | None = None,
) -> BoundedAnswer:
    """The answer to the query of an assessment.

    The answerer is not called if the context is insufficient, or fewer than `min_chunks` passages
    are near the question. If the attribution is below `config.coverage`, it is called again, more
    strictly; what is then unsupported is removed, with a mark. If the answerer cannot be reached,
    `error` says why.
    """
    query, no_answer = assessment.ranking.query, config.language_model.no_answer
    usable, verdict = usable_context(assessment, config)
    refusal = BoundedAnswer(
        query_id=query.query_id,
        answer=no_answer,
        refused=True,
        confidence=assessment.confidence,
        level=assessment.level,
        accepted=assessment.accepted,
        sufficiency=verdict.sufficiency,
        verdict=verdict.verdict,
        calibrated=assessment.calibrated,
        reason="" if assessment.calibrated else assessment.reasons[0],
        marks=assessment.marks,
    )
    if verdict.verdict == "INSUFFICIENT":
        return refusal
    sources = sources_of(usable)
    check = SupportCheck(lexicon, judge, config.support, query.text)

    def one_draft(*, strict: bool) -> _Draft:
        made = answerer.generate(query.text, sources, note=verdict.note(), strict=strict)
        checked = check(without_controls(made.text), sources)
        return _Draft(_without_refusal(checked, no_answer), made.calls, made.cut_off)

    try:
        draft = _better_draft(one_draft, config.coverage)
    except EndpointError as error:
        return replace(refusal, answer="", model_calls=error.calls, error=str(error))
    return _answer_of(draft, sources, refusal)


def usable_context(
    assessment: Assessment, config: AnswerConfig
) -> tuple[list[RankedPassage], ContextVerdict]:
    """The passages to answer from, and the verdict on them: P(one of them holds an answer).

    They have text and reach `min_score`. The context is insufficient if fewer than `min_chunks`
    different passages of the first ten are `near` the question.
    """
    assessment = _with_text(assessment)
    taken = take(assessment, config.strategy).passages
    usable = [p for p in taken if p.relevance >= config.min_score]
    verdict = gate_handed_on(assessment, len(usable), floor=config.min_score)
    found = assessment.first(len(assessment.sufficiency_at))
    supporting = sum(near(found[i], config.strategy) for i in distinct(found)[0])
    if usable and supporting < config.min_chunks:
        few = f"Only {supporting} of {config.min_chunks} needed passages are near the question."
        verdict = replace(verdict, verdict="INSUFFICIENT", reason=few)
    return usable, verdict


def _with_text(assessment: Assessment) -> Assessment:
    """The assessment of the first passages that have text.

    Their sufficiency is a lower bound: the first one's relevance, and what each other one adds.
    """
    sufficiency, ranking = np.array(assessment.sufficiency_at), assessment.ranking
    passages = ranking.passages[: len(sufficiency)]
    rows = np.array([i for i, p in enumerate(passages) if p.full_text.strip()], dtype=np.int64)
    if len(rows) == len(passages):
        return assessment
    relevance, gains = assessment.relevance[rows], np.zeros(len(sufficiency))
    gains[: len(rows)] = np.diff(sufficiency, prepend=0.0)[rows]
    gains[:1] = relevance[:1] if len(rows) else 0.0
    at = tuple(np.cumsum(gains).tolist())
    return replace(assessment, ranking=ranking.take(rows), relevance=relevance, sufficiency_at=at)


class _Draft(NamedTuple):
    checked: list[Checked] | None  # None: a refusal
    calls: int  # of a language model, for both tries
    cut_off: bool = False

    @property
    def covered(self) -> float:
        """The share of its sentences that have support; 0 for a refusal."""
        return attribution_coverage(self.checked or [])


def _answer_of(draft: _Draft, sources: Sequence[Source], refusal: BoundedAnswer) -> BoundedAnswer:
    """The supported part of a draft, with the sources that it cites; or `refusal`, without any."""
    refusal = replace(refusal, model_calls=draft.calls)
    if draft.checked is None:
        return refusal
    refusal = replace(refusal, attribution_coverage=draft.covered, cut_off=draft.cut_off)
    # the first quote of each source
    quotes = {i: quote for one in reversed(draft.checked) for i, quote in one.quotes.items()}
    if not quotes:
        return refusal
    used = tuple(source for source in sources if source.id in quotes)
    shown = tuple(quotes[source.id] for source in used)
    text = without_unsupported(draft.checked)
    answer = replace(refusal, answer=text, refused=False, sources=used, quotes=shown)
    return replace(answer, answer=LOW + text) if answer.low_confidence else answer


def _better_draft(one_draft: Callable[..., _Draft], coverage: float) -> _Draft:
    """The better one of at most two drafts, the second, `strict`, if the first has less coverage.

    If the second fails, the first one counts, unless no sentence of it has support.
    """
    first = one_draft(strict=False)
    if first.checked is None or first.covered >= coverage or not first.calls:
        return first
    try:
        second = one_draft(strict=True)
    except EndpointError as error:
        if not first.covered:
            error.calls += first.calls
            raise
        return first._replace(calls=first.calls + error.calls)
    second_counts = second.covered >= first.covered if second.checked else not first.covered
    better = second if second_counts else first
    return better._replace(calls=first.calls + second.calls)


def _without_refusal(checked: list[Checked], no_answer: str) -> list[Checked] | None:
    """The sentences without one that refuses; None if no other sentence has support."""
    refusals = [re.sub(r"^\W+|\W+$", "", own).casefold() for own in (no_answer, NO_ANSWER)]

    def refuses(one: Checked) -> bool:
        claim = re.sub(r"^\W+", "", one.sentence.claim).casefold()
        return not one.supported and claim.startswith(tuple(refusals))

    others = [one for one in checked if not refuses(one)]
    refused = len(others) < len(checked) and not any(one.supported for one in others)
    return None if refused else others
