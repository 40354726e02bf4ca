"""`--metadata-features`: what passages say of themselves weighs as much as the labels teach."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call, flags, refused
from known_lists import known_lists, unlabelled, write_lines

from rerank.assessment.metadata_features import number
from rerank.assessment.model import CalibratedReranker
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.data.records import read_query
from rerank.jobs.calibrate import calibrate

KEYS = "source_type,temperature"


def with_sources(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Passages that are right come from a regulator three times as often as others do."""
    rng = np.random.default_rng(7)
    rows = copy.deepcopy(rows)
    for passage in (p for row in rows for p in row["passages"]):
        regulator = rng.random() < (0.9 if passage["right"] else 0.3)
        passage["metadata"] = {"source_type": "regulatory" if regulator else "third_party"}
        passage["metadata"]["temperature"] = int(rng.integers(100))  # tells nothing
    return rows


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> CalibratedReranker:
    place = tmp_path_factory.mktemp("metadata")
    lists = write_lines(place / "lists.jsonl", with_sources(known_lists(150)))
    config = Config(folds=2, calibrator="logistic", metadata_features=KEYS)
    made = calibrate(LabelledSet.read(lists), place / "model", config, work=place / "work")
    return CalibratedReranker.load(made.folder)


def test_the_weights_are_fitted(model: CalibratedReranker) -> None:
    """What tells weighs much, what does not weighs little."""
    maps = model.maps["lists"]
    weights = dict(zip(maps.features.passage, maps.score.coef, strict=True))
    regulator = weights["metadata.source_type=regulatory"]
    assert regulator > 0.3
    assert regulator > 3 * abs(weights["metadata.temperature"])


def test_a_source_moves_the_confidence(model: CalibratedReranker) -> None:
    """Of the same list: up where the best passage is a regulator's; none costs nothing much."""
    row = unlabelled(known_lists(1, seed=5)[0])

    def confidence(said: dict[str, Any]) -> float:
        asked = copy.deepcopy(row)
        for passage in asked["passages"]:
            passage["metadata"] = {"source_type": "third_party"}
        best = max(asked["passages"], key=lambda p: p["scores"]["reranker"] or -np.inf)
        best["metadata"] = said
        return model.assess([read_query(asked)])[0].confidence

    low, none, high = (
        confidence({"source_type": "third_party"}),
        confidence({}),
        confidence({"source_type": "regulatory"}),
    )
    assert low < none < high


def test_of_our_own_index(
    small: LabelledSet,
    config: Config,
    work: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the command line, around the pooled maps; a passage that is brought has its own."""
    corpus = {
        doc_id: replace(passage, metadata={"revised": f"20{10 + i % 10}-01-01"})
        for i, (doc_id, passage) in enumerate(small.corpus.items())
    }
    folder, out = tmp_path / "dated", tmp_path / "model"
    replace(small, corpus=corpus, name="dated").write(folder)
    arguments = ["calibrate", folder, "--out", out, "--work", work, *flags(config)]
    assert call(*arguments, "--metadata-features", "revised") == 0
    kept = json.loads((out / "calibrators.json").read_text())
    for mode in ("search", "rerank"):
        assert kept[mode]["passage_features"][-1] == "metadata.revised"
        assert len(kept[mode]["score"]["coef"]) == len(kept[mode]["passage_features"])
    loaded = CalibratedReranker.load(out)
    found = loaded.search("sort an array").ranking
    assert found.features.shape[1] == len(kept["search"]["passage_features"])
    assert found.features[:, -1].tolist() == [number(p.metadata["revised"]) for p in found.passages]
    assert 0 < loaded.rerank("sort an array", ["one text", "another"]).confidence < 1
    capsys.readouterr()
    said = refused(capsys, *arguments, "--overwrite", "--metadata-features", "author")
    assert "no passage has any" in said
