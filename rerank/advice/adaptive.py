"""As many passages as a question needs: the first k at which sufficiency reaches a threshold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rerank.advice.settings import DEEPEST, Strategy
from rerank.assessment.fitted_maps import FittedMaps
from rerank.config import VERDICTS
from rerank.data.duplicates import distinct
from rerank.errors import InputError
from rerank.filters import Where
from rerank.types import Assessment, Query, RankedPassage

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker

THRESHOLD, MAX_K, LEAST_GAIN, NO_MORE = "threshold", "max_k", "least_gain", "no_more"
NO_RESULTS, NO_PASSAGES = "no_results", "no_passages"


@dataclass(frozen=True, slots=True)
class AdaptiveResult:
    """The selected passages, and why there are so many."""

    passages: tuple[RankedPassage, ...]  # best first
    sufficiency: float  # P(one of them is right)
    stop_reason: str  # threshold, max_k, least_gain, no_more, no_results, no_passages
    assessment: Assessment

    @property
    def k(self) -> int:
        """Count of passages."""
        return len(self.passages)

    @property
    def verdict(self) -> str:
        """SUFFICIENT, PARTIAL or INSUFFICIENT; the last one without any passage."""
        t, calibrated = self.assessment.thresholds, self.assessment.calibrated
        return t.verdict(self.sufficiency, calibrated=calibrated) if self.k else VERDICTS[-1]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; level and acceptance are those of the whole ranking."""
        of_ranking = ("confidence", "level", "accepted", "calibrated")
        return {
            **{name: getattr(self, name) for name in ("k", "sufficiency", "verdict")},
            **{name: getattr(self.assessment, name) for name in of_ranking},
            **self.assessment.marks,
            "stop_reason": self.stop_reason,
            "passages": [{**p.to_dict(), "title": p.title, "text": p.text} for p in self.passages],
        }


def search(
    model: CalibratedReranker,
    text: str,
    strategy: Strategy = Strategy(),
    *,
    metadata: Mapping[str, Any] | None = None,
    where: Mapping[str, Any] | None = None,
) -> AdaptiveResult:
    """Search the model's index, and return as many passages as the question needs.

    Raises:
        InputError, RetrieverError: as `CalibratedReranker.search`.
    """
    query = Query(text, metadata={} if metadata is None else metadata, where=Where.read(where))
    return take(model.assess([query])[0], strategy)


def depth(assessment: Assessment, k: int) -> int:
    """The rank of the `k`-th different passage, 1 <= k; `k` itself, if there are fewer."""
    first, _ = distinct(assessment.first(len(assessment.sufficiency_at)))
    return int(first[k - 1]) + 1 if k <= len(first) else k


def guaranteed(maps: FittedMaps, query: Query) -> Strategy:
    """The strategy with which a calibrated model loses at most one answer in twenty questions.

    It takes as few of ten passages as the labels allow, whatever their similarity. `maps` are those
    of the query's mode: `model.maps[model.mode_of(query)]`. Refused if no labelled question had a
    filter on the same keys as the query.
    """
    if maps.stopping_threshold is None:
        raise InputError(
            "this model has no guaranteed strategy: it takes a calibration on more labelled "
            "queries, usually a few hundred, and a recalibration drops it"
        )
    if query.filtered_by not in maps.filters:
        raise InputError(
            "the guarantee is for questions like the labelled ones, and none of these had a filter "
            "on the same keys; leave the guarantee out"
        )
    return Strategy(1, DEEPEST, maps.stopping_threshold, similarity_floor=-1.0, least_gain=0.0)


def check_floor(model: CalibratedReranker) -> None:
    """Refuse a similarity floor where passages have scores of other stages, and no cosine."""
    if model.source.kind.stages:
        raise InputError(
            "`similarity_floor`: the passages of this model have the scores of "
            f"{', '.join(model.source.kind.stages)}, and no similarity; use `sufficiency_threshold`"
        )


def near(passage: RankedPassage, strategy: Strategy) -> bool:
    """Whether a passage reaches the similarity floor; one that came with scores counts as near."""
    return bool(passage.scores) or not passage.dense < strategy.similarity_floor


def take(assessment: Assessment, strategy: Strategy = Strategy()) -> AdaptiveResult:
    """The first passages of an assessment, up to the k that the strategy asks for.

    That is the first k >= `min_k` at which the sufficiency reaches the threshold, else `max_k`
    without the last passages that each add less than `least_gain`. It is 0 if no passage is `near`.
    Of equal passages only the first is taken.

    `stop_reason`: `threshold`; `least_gain` if passages were left out, `no_more` if there are fewer
    than `max_k`, else `max_k`; `no_results` if none is near, `no_passages` if there is none.
    """
    passages = assessment.first(len(assessment.sufficiency_at))
    first, _ = distinct(passages)
    passages = [passages[i] for i in first]
    if not passages:
        return AdaptiveResult((), 0.0, NO_PASSAGES, assessment)
    if not any(near(passage, strategy) for passage in passages):
        return AdaptiveResult((), 0.0, NO_RESULTS, assessment)
    threshold = strategy.sufficiency_threshold or assessment.thresholds.sufficient
    sufficiency = [0.0, *(assessment.sufficiency_at[i] for i in first)]
    last = min(strategy.max_k, len(passages))
    for k in range(strategy.min_k, last + 1):
        if sufficiency[k] >= threshold:
            return AdaptiveResult(tuple(passages[:k]), sufficiency[k], THRESHOLD, assessment)
    k, reason = last, MAX_K if last == strategy.max_k else NO_MORE
    while k > strategy.min_k and sufficiency[k] - sufficiency[k - 1] < strategy.least_gain:
        k, reason = k - 1, LEAST_GAIN
    return AdaptiveResult(tuple(passages[:k]), sufficiency[k], reason, assessment)
