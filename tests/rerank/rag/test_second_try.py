"""Second tries by the real model: which candidates they bring, and what counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rerank.assessment.index_pipeline import IndexPipeline
from rerank.assessment.metadata_features import MetadataFeature
from rerank.assessment.model import CalibratedReranker
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.jobs.pipelines import open_index
from rerank.rag.second_try import (
    APART,
    TRIES,
    Try,
    assess_try,
    expand_query,
    fit_best_of,
    search_stages_apart,
    with_confidence,
    with_second_tries,
)
from rerank.types import Assessment, Passage, Query
from rerank.workspace import Workspace


@pytest.fixture(scope="module")
def first(model: CalibratedReranker, questions: list[str]) -> Assessment:
    return model.search(questions[0])


def test_the_stages_apart_are_merged(model: CalibratedReranker, first: Assessment) -> None:
    """Each candidate is among the first of one stage, with its scores in both."""
    found = search_stages_apart(model.pipeline, first).first_stage
    assert ((found.bm25_rank <= APART) | (found.dense_rank <= APART)).all()
    assert (found.dense_rank <= APART).sum() == APART
    before = first.ranking.first_stage
    known = dict(zip(before.rows, before.dense, strict=True))
    for row, score in zip(found.rows, found.dense, strict=True):
        assert score == pytest.approx(known.get(row, score))


def test_an_expanded_query_keeps_to_what_was_asked(
    model: CalibratedReranker, first: Assessment
) -> None:
    """The candidates belong to the query itself; BM25 scores stay on its scale."""
    found = expand_query(model.pipeline, first)
    assert found.query is first.ranking.query
    assert len(found) == len(first.ranking)
    assert found.first_stage.bm25.max() < 2 * first.ranking.first_stage.bm25.max()


@pytest.mark.parametrize("one", TRIES.values(), ids=TRIES)
def test_candidates_of_a_try_have_the_features_of_their_metadata(one: Try, tmp_path: Path) -> None:
    """As those of the first search: the maps of the model expect them."""
    topics = ["sort", "array", "median", "merge", "index"]
    corpus = {t: Passage(t, t, f"How to {t}.", {"year": 2000 + i}) for i, t in enumerate(topics)}
    index = open_index(LabelledSet(corpus, {}, {}, {}, "dated"), Config(), Workspace(tmp_path))
    pipeline = IndexPipeline(index, Config(), metadata=(MetadataFeature("year", None, 2000.0),))
    query = Query("sort an array", "q")
    ranking = pipeline.search(query, pipeline.encode([query.text])[0])
    first: Any = SimpleNamespace(ranking=ranking, relevance=np.linspace(1, 0, len(ranking)))
    found = one(pipeline, first)
    assert found.features.shape[1] == ranking.features.shape[1]
    assert found.features[:, -1].tolist() == [p.metadata["year"] for p in found.passages]


def test_passages_that_came_with_the_query_are_not_searched_for(model: CalibratedReranker) -> None:
    """The index holds others."""
    own = model.rerank("what is a median", ["The middle value.", "Another text."])
    with pytest.raises(InputError, match="second tries search the model's own index"):
        with_second_tries(model, own)


def test_only_a_higher_confidence_counts(model: CalibratedReranker, first: Assessment) -> None:
    """Else the first assessment stays, to the bit; a sure one is not tried again."""
    assert with_second_tries(model, first, threshold=0.0) is first
    tried = [assess_try(model, first, one) for one in TRIES.values()]
    found = with_second_tries(model, first, threshold=1.0)
    if max(a.confidence for a in tried) <= first.confidence:
        assert found is first
    else:
        best = max(tried, key=lambda a: a.confidence)
        assert found.ranking.doc_ids == best.ranking.doc_ids
        assert found.confidence == first.confidence


def test_a_better_try_is_told_by_its_own_map(model: CalibratedReranker, first: Assessment) -> None:
    """Without the map the first confidence is told; with it, what the map says."""
    low = replace(first, confidence=1e-6)
    found = with_second_tries(model, low)
    assert found is not low
    assert found.confidence == 1e-6
    best_of = fit_best_of([0.2, 0.3, 0.2, 0.4], [0.5, 0.4, 0.3, 0.6], [1, 0, 0, 1])
    told = with_second_tries(model, low, best_of=best_of)
    assert 1e-6 < told.confidence < 1
    assert not told.certified
    assert "second try" in told.reasons[-1]


@pytest.mark.parametrize("confidence", [0.0, 0.3, 0.8, 1.0])
def test_all_probabilities_follow_another_confidence(
    confidence: float, model: CalibratedReranker, first: Assessment
) -> None:
    """They begin with it, and agree with each other; at the old confidence they are the old."""
    found = with_confidence(model, first, confidence)
    assert found.sufficiency_at[0] == found.relevance[0] == found.confidence == confidence
    assert (np.diff(found.sufficiency_at) >= 0).all()
    assert (np.diff(found.relevance) <= 0).all()
    assert found.accepted == (confidence >= 0.7)
    unlabelled = with_confidence(model, replace(first, calibrated=False), confidence)
    assert not unlabelled.accepted
    assert unlabelled.level in ("LOW", "VERY_LOW")
    assert with_confidence(model, first, first.confidence).sufficiency_at == first.sufficiency_at
