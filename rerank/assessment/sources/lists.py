"""Lists that come with their scores: neither an index nor a network is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from rerank.assessment.list_features import list_features, list_passage_features, stage_ranks
from rerank.assessment.metadata_features import Metadata
from rerank.assessment.model_folder import ModelFolder
from rerank.assessment.passage_features import CROSS_ENCODER
from rerank.assessment.sources.source import PROBE, PROBE_TEXTS, Selection, Source
from rerank.config import Config
from rerank.data.duplicates import distinct, highest_of_equal, with_text
from rerank.errors import InputError
from rerank.retrieval.dense import Vectors
from rerank.retrieval.index import NoIndex
from rerank.types import Bools, Candidates, FirstStage, Floats, Ints, ListKind, Mode, Query, Scored


class ScoredLists(Source):
    """Passages that the caller's own stages have found; the last scores as a cross-encoder."""

    modes = ("lists",)
    scores_passages = False
    cutoff = 0.0

    def __init__(self, kind: ListKind, config: Config, metadata: Metadata = ()) -> None:
        super().__init__(NoIndex(config.words_language), config, metadata)
        self.kind = kind

    @classmethod
    def open(cls, files: ModelFolder, config: Config, kind: ListKind, metadata: Metadata) -> Self:
        """The lists of a model folder: nothing is to be opened."""
        return cls(kind, config, metadata)

    @classmethod
    def mode_of(cls, query: Query) -> Mode:
        """An empty list counts as one with scores."""
        return "lists" if query.passages == () else query.mode

    @classmethod
    def refusal(cls, kind: ListKind) -> str:
        """It takes lists with scores alone."""
        return (
            "this model has no index and scores nothing: it was calibrated on lists, and assesses "
            f"passages that come with the scores of {', '.join(kind.stages)}"
        )

    @classmethod
    def comparison_key(cls, manifest: Mapping[str, Any], kind: ListKind) -> object:
        """The stages: each list brings its own passages."""
        return "lists", kind.stages

    def probes(self) -> list[Query]:
        """A list with a score of each stage."""
        scores = {stage: np.array([1.0, 0.0]) for stage in self.kind.stages}
        return [replace(self.plain_query(PROBE, PROBE_TEXTS), scores=scores)]

    def check(self, query: Query) -> None:
        """Refuse a list of another kind than the model was calibrated on."""
        if not query.passages:
            return
        stages, expected = list(query.scores or {}), self.kind.stages
        if set(stages) != set(expected):
            raise InputError(
                f"its passages have the scores of {', '.join(stages) or 'no stage'}; expected "
                f"those of {', '.join(expected)}, null where a stage did not bring a passage"
            )
        if self.kind.texts and not len(with_text(query.passages)):
            raise InputError(
                "no passage has a text; the model was calibrated on lists whose passages have one"
            )

    def embedded(self, query: Query) -> None:
        """No text is encoded."""

    def candidates(
        self, query: Query, vector: Vectors | None = None, near: Floats | None = None
    ) -> Candidates:
        """The passages of the query, best fused score first; ties are ordered by id.

        Equal passages count as one: each has the highest score that a stage gave one of them. If
        texts are needed, passages without one are left out, and a list without any is refused.
        """
        provided = query.passages or ()
        if not provided:
            width = len(list_passage_features(self.kind)) - len(CROSS_ENCODER)
            none = self.with_metadata(query, np.zeros((0, width)), ())
            return Candidates(query, (), _stage(np.zeros(0, dtype=np.int64), np.zeros(0)), none)
        self.check(query)
        rows = with_text(provided) if self.kind.texts else np.arange(len(provided))
        passages = tuple(provided[i] for i in rows)
        _, group = distinct(provided)
        scores = {s: highest_of_equal(given, group) for s, given in (query.scores or {}).items()}
        first, group = distinct(passages)
        once = replace(
            query,
            passages=tuple(passages[i] for i in first),
            scores={s: highest[rows[first]] for s, highest in scores.items()},
        )
        # reciprocal rank fusion of the stages before the last, or of the only stage
        fused = np.zeros(len(first))
        for name in self.kind.stages[:-1] or self.kind.stages:
            of_stage = (once.scores or {})[name]
            ranks, returned = stage_ranks(of_stage), ~np.isnan(of_stage)
            fused[returned] += 1.0 / (self.config.rrf_k + ranks[returned])
        ranked_once = _stage(np.arange(len(first)), fused)
        features = list_features(self.kind, once, ranked_once, language=self.config.words_language)
        candidates = Candidates(
            replace(query, scores=scores),
            passages,
            stage := _stage(rows, fused[group]),
            self.with_metadata(query, features[group], passages),
        )
        by_id = sorted(range(len(passages)), key=lambda i: (-stage.fused[i], passages[i].doc_id))
        return candidates.take(np.array(by_id))

    def scores_are_known(self, query: Query) -> bool:
        """Always: nothing is scored here."""
        return True

    def select(self, candidates: Candidates, prior_scores: Floats, cutoff: float) -> Selection:
        """The candidates, those with a score of the last stage first: these count as scored."""
        unscored = np.isnan(self._last_scores(candidates))
        order = np.argsort(unscored, kind="stable")
        count = int((~unscored).sum())
        return Selection(candidates.take(order), prior_scores[order], count, known=True)

    def with_scores(self, selection: Selection, logits: Floats, truncated: Bools) -> Scored:
        """The candidates with the scores of the last stage."""
        scores = self._last_scores(selection.candidates)[: selection.count]
        none_cut = np.zeros(selection.count, dtype=np.bool_)
        return Scored(selection.candidates, selection.prior_scores, scores, none_cut)

    def _last_scores(self, candidates: Candidates) -> Floats:
        """The scores (n,) of the last stage; NaN for a passage without one."""
        if not len(candidates):
            return np.zeros(0)
        scores = (candidates.query.scores or {})[self.kind.stages[-1]]
        last: Floats = scores[candidates.first_stage.rows]
        return last


def _stage(rows: Ints, fused: Floats) -> FirstStage:
    unknown, none = np.full(len(rows), np.nan), np.zeros(len(rows), dtype=np.int64)
    return FirstStage(rows, unknown, unknown, none, none, fused)
