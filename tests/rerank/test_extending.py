"""What docs/extending.md says: features, calibrators, indexes and metrics added from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run_python
from registries import restored

import rerank
from calibration import comparison, measure
from calibration.score_fitting import SCORE_FITS, fit_platt
from rerank import Config, InputError, LabelledSet, Query
from rerank.assessment.passage_features import PASSAGE_FEATURES, View, first_stage
from rerank.assessment.pipeline import Models, Pipeline
from rerank.assessment.predictions import predict, to_assessments
from rerank.assessment.ranking_features import GROUPS, feature, meaning
from rerank.assessment.sources.own_index import OwnIndex
from rerank.data.words import words
from rerank.fitting.fit import Fitted, fit
from rerank.fitting.scored_plan import ScoredPlan, score_search
from rerank.inference.score_cache import ScoreCache
from rerank.retrieval.index import Index
from rerank.storage.folder import Workspace
from rerank.types import FirstStage, Floats, Passage, Ranking

pytestmark = pytest.mark.usefixtures("untracked")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """What a test adds is gone after it."""
    with restored():
        yield


# --- features -----------------------------------------------------------------------------------


def test_a_feature_of_a_ranking(
    searched: ScoredPlan, fitted: Fitted, run: Any, config: Config
) -> None:
    """It is fitted on with the others, and a model folder without it is refused by name."""

    @feature("habits of our users")
    def top_title_length(ranking: Ranking) -> float:
        """Length of the top passage's title: number of characters."""
        return float(len(ranking.passages[0].title))

    assert GROUPS["habits of our users"] == ["top_title_length"]
    assert meaning("top_title_length") == "Length of the top passage's title"
    maps = fit(searched, config).maps
    *others, weight = maps.confidence.first.coef
    assert len(others) == len(fitted.maps.confidence.first.coef)
    assert weight != 0
    predicted = predict(searched.to_fit.items, maps, config)
    lengths = [len(ranking.passages[0].title) for ranking in predicted.rankings]
    assert predicted.features[:, -1].tolist() == lengths
    with pytest.raises(InputError, match=r"top_title_length.*calibrate it again"):
        rerank.load(run.folder)


def test_a_feature_of_a_passage(pipeline: Pipeline, run: Any, config: Config) -> None:
    """It is the last number of each passage, and its score is fitted on it."""

    @first_stage
    def has_example(view: View) -> Floats:
        """1 where the passage shows an example."""
        return np.array([float("exampl" in p.places) for p in view.passages])

    assert list(PASSAGE_FEATURES)[-1] == "has_example"
    searched = score_search(pipeline, run.plan)
    maps = fit(searched, config).maps
    assert len(maps.score.coef) == len(PASSAGE_FEATURES)
    assert maps.score.coef[-1] != 0
    ranking = predict(searched.to_report.items[:1], maps, config).rankings[0]
    shown = ["exampl" in words(p.full_text, language=config.language) for p in ranking.passages]
    assert ranking.features[:, -1].astype(bool).tolist() == shown


# --- calibrators --------------------------------------------------------------------------------


def test_a_calibrator(small: LabelledSet, run: Any, config: Config, tmp_path: Path) -> None:
    """A registered name is calibrated with; the folder loads where nothing is registered."""

    def fit_cautious(scores: Any, y: Any) -> Any:
        platt = fit_platt(scores, y)
        return replace(platt, coef=(platt.coef[0] / 2,))

    mine = replace(config, calibrator="cautious")
    with pytest.raises(InputError, match=r"--calibrator.*isotonic.*got 'cautious'"):
        rerank.calibrate(small, tmp_path / "unknown", mine, work=run.work)
    SCORE_FITS["cautious"] = fit_cautious
    rerank.calibrate(small, tmp_path / "cautious", mine, work=run.work)
    del SCORE_FITS["cautious"]
    model = rerank.load(tmp_path / "cautious")
    assert model.manifest["calibrator"]["name"] == "cautious"
    usual = rerank.load(run.folder).maps["search"].confidence.second
    assert model.maps["search"].confidence.second == replace(usual, coef=(usual.coef[0] / 2,))
    assert 0 < model.search("sort an array").confidence < 1


# --- indexes ------------------------------------------------------------------------------------


class SharedWords:
    """An index in memory: how many words query and passage share, and their cosine."""

    folder = Path("nowhere")
    language = "english"

    def __init__(self, passages: list[Passage], vectors: Any) -> None:
        self.passages, self.vectors = passages, vectors
        self.words = [set(words(p.full_text, language=self.language)) for p in passages]

    def __len__(self) -> int:
        return len(self.passages)

    def search(self, query: str, vector: Any, *, pool: int, count: int, rrf_k: int) -> FirstStage:
        """The best passages, the two orders fused."""
        wanted = set(words(query, language=self.language))
        shared = np.array([len(wanted & w) for w in self.words], dtype=np.float64)
        near = np.asarray(self.vectors @ vector, dtype=np.float64)
        ranks = [np.argsort(np.argsort(-scores, kind="stable")) + 1 for scores in (shared, near)]
        fused = 1 / (rrf_k + ranks[0]) + 1 / (rrf_k + ranks[1])
        best = np.argsort(-fused, kind="stable")[:count]
        return FirstStage(best, shared[best], near[best], *(r[best] for r in ranks), fused[best])

    def passage(self, row: int, /) -> Passage:
        """The passage at a row."""
        return self.passages[row]

    def idf(self, word: str, /) -> float:
        """Every word counts alike."""
        return 1.0

    def refuse_mismatch(self, config: Config, encoder: Any) -> None:
        """It serves any configuration."""


def test_an_index_from_outside(index: Index, run: Any, config: Config) -> None:
    """The pipeline takes it, a model is fitted on what it finds, and queries are assessed."""
    passages = [index.passage(row) for row in range(len(index))]
    vectors = np.stack([index.vectors.of(row)[0] for row in range(len(index))])
    outside = SharedWords(passages, vectors)
    models = Models.open(config, cache=ScoreCache(Workspace(run.work).scores))
    pipeline = Pipeline(OwnIndex(outside, config), models)
    searched = score_search(pipeline, run.plan)
    maps = fit(searched, config).maps
    scored = pipeline.run([Query("sort an array")], maps.policy)
    (answer,) = to_assessments(predict(scored, maps, config), maps, config, ["search"])
    assert len(answer.passages) == config.candidates
    assert all(float(p.bm25).is_integer() for p in answer.passages)  # counts of shared words
    assert 0 < answer.confidence < 1


# --- metrics ------------------------------------------------------------------------------------


def test_a_metric() -> None:
    """It stands in the result and in the table, beside the others."""

    def promised_too_much(y: Floats, p: Floats) -> float:
        return float((p - y)[p >= 0.7].mean())

    y, p = [1, 1, 0, 1], [0.9, 0.8, 0.7, 0.2]
    mine = {"promised too much": promised_too_much}
    assert measure(y, p, extra=mine).extra["promised too much"] == pytest.approx((2.4 - 2) / 3)
    table = comparison({"a": p, "b": [1.0] * 4}, y, extra=mine).table()
    head, first, second = table.splitlines()
    assert head.endswith("promised too much")
    assert (first.split()[-1], second.split()[-1]) == ("0.133", "0.250")


# --- rooms --------------------------------------------------------------------------------------

MODULE = '''
from rerank.rooms import Room

ROOM = Room(
    "mine",
    commands={"titles": "mine:titles", "data titles": "mine:titles"},
    server="mine:part",
)


def __getattr__(name):
    from fastapi import APIRouter
    from rerank.commands.command import command
    from rerank.serving.parts import Part

    @command("datasets/pydata")
    def titles(dataset: str) -> None:
        """Print the titles of a corpus.

        Args:
            dataset: its folder
        """
        print("of", dataset)

    router = APIRouter()
    router.get("/v1/mine")(lambda: "said")
    return {"titles": titles, "part": lambda host: Part(routers=[router])}[name]
'''
ROOMS = """
[rerank.rooms]
broken = mine_that_is_not_there:ROOM
mine = mine:ROOM
"""
ASKED = """
from rerank.cli import main
from rerank.rooms import load, rooms

for words in (["--help"], ["data", "--help"], ["titles", "a"], ["data", "titles", "b"]):
    try:
        main(words)
    except SystemExit as end:
        assert end.code == 0, words
print(*(route.path for r in load(rooms()["mine"].server)(None).routers for route in r.routes))
"""


def test_a_room_of_another_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands and routes are there, in a family of ours too; a broken one is left out."""
    (tmp_path / "mine.py").write_text(MODULE)
    told = tmp_path / "mine-1.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (told / "entry_points.txt").write_text(ROOMS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    printed = run_python(ASKED)
    assert printed.count("Print the titles of a corpus") == 2
    assert "of a\nof b\n/v1/mine\n" in printed
