"""Second tries by the real model: which candidates they bring, and what counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rerank.advice.adaptive import expand_query, with_confidence, with_second_try
from rerank.assessment.metadata_features import MetadataFeature
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import Models, Pipeline
from rerank.assessment.sources.own_index import OwnIndex
from rerank.config import Config, Thresholds
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.jobs.pipelines import open_index
from rerank.storage.folder import Workspace
from rerank.types import Assessment, Passage, Query


@pytest.fixture(scope="module")
def first(model: CalibratedReranker, questions: list[str]) -> Assessment:
    return model.search(questions[0])


def test_an_expanded_query_keeps_to_what_was_asked(
    model: CalibratedReranker, first: Assessment
) -> None:
    """The candidates belong to the query itself; BM25 scores stay on its scale."""
    found = expand_query(model.pipeline, first)
    assert found.query is first.ranking.query
    assert len(found) == len(first.ranking)
    assert found.first_stage.bm25.max() < 2 * first.ranking.first_stage.bm25.max()


def test_candidates_of_a_try_have_the_features_of_their_metadata(tmp_path: Path) -> None:
    """As those of the first search: the maps of the model expect them."""
    topics = ["sort", "array", "median", "merge", "index"]
    corpus = {t: Passage(t, t, f"How to {t}.", {"year": 2000 + i}) for i, t in enumerate(topics)}
    index = open_index(LabelledSet(corpus, {}, {}, {}, "dated"), Config(), Workspace(tmp_path))
    config, year = Config(), MetadataFeature("year", None, 2000.0)
    pipeline = Pipeline(OwnIndex(index, config, (year,)), Models.open(config))
    query = Query("sort an array", "q")
    ranking = pipeline.source.search(query, pipeline.encode([query.text])[0])
    first: Any = SimpleNamespace(ranking=ranking, relevance=np.linspace(1, 0, len(ranking)))
    found = expand_query(pipeline, first)
    assert found.features.shape[1] == ranking.features.shape[1]
    assert found.features[:, -1].tolist() == [p.metadata["year"] for p in found.passages]


def test_passages_that_came_with_the_query_are_not_searched_for(model: CalibratedReranker) -> None:
    """The index holds others."""
    own = model.rerank("what is a median", ["The middle value.", "Another text."])
    with pytest.raises(InputError, match="second try searches the model's own index"):
        with_second_try(model, own)


def test_only_a_higher_confidence_counts(model: CalibratedReranker, first: Assessment) -> None:
    """Else the first assessment stays, to the bit; one that is accepted is not tried again."""
    accepted = first.by(Thresholds(high=first.confidence, medium=first.confidence, low=0.0))
    assert with_second_try(model, accepted) is accepted
    sure = replace(first, confidence=np.nextafter(1.0, 0)).by(Thresholds(high=1.0, medium=1.0))
    assert with_second_try(model, sure) is sure


def test_a_better_try_is_told_with_the_first_confidence(
    model: CalibratedReranker, first: Assessment
) -> None:
    """The higher one of two is too high."""
    low = replace(first, confidence=1e-6)
    found = with_second_try(model, low)
    assert found is not low
    assert (found.confidence, found.certified, found.accepted) == (1e-6, False, False)
    assert "second try" in found.reasons[-1]


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
