"""Two calibrated models on one labelled set: what asking the second one gains."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_sets import WORDS

import rerank
from rerank.jobs.cascade import FITTED_HERE, evaluate_cascade

CONFIG = rerank.Config(rerank_depth=5, candidates=10, pool=20, folds=2)
QUERIES = 240


def encoder(texts: Sequence[str]) -> np.ndarray:
    counts = [[text.split().count(word) for word in WORDS] for text in texts]
    return np.array(counts, dtype=np.float64) + 0.01


def knows_nothing(query: str, texts: Sequence[str]) -> list[float]:
    return [0.0] * len(texts)


def knows_all(query: str, texts: Sequence[str]) -> list[float]:
    """Questions and passages end with numbers, which only this model reads."""
    number = query.rsplit(maxsplit=1)[-1][1:]
    return [float(text.split()[-1][1:] == number) for text in texts]


def write_set(folder: Path) -> Path:
    """Questions of three words about passages of six; a fifth has no answer; half is `test`."""
    for part in ("qrels", "splits"):
        (folder / part).mkdir(parents=True)
    draw = np.random.default_rng(5)
    texts = [" ".join(draw.choice(WORDS, 6)) for _ in range(QUERIES)]
    passages = [{"_id": f"d{i}", "title": "", "text": f"{t} x{i}"} for i, t in enumerate(texts)]
    queries = [
        {"_id": f"q{i}", "text": " ".join([*t.split()[:3], f"y{i if i % 5 else -1 - i}"])}
        for i, t in enumerate(texts)
    ]
    for name, rows in (("corpus", passages), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split, rest in (("train", 0), ("test", 1)):
        ids = [i for i in range(QUERIES) if i % 2 == rest]
        right = "".join(f"q{i}\td{i}\t1\n" for i in ids if i % 5)
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{right}")
        (folder / "splits" / f"{split}.txt").write_text("".join(f"q{i}\n" for i in ids))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Two models that differ in the reranker alone, and the set."""
    work = tmp_path_factory.mktemp("work")
    labelled, models = rerank.LabelledSet.read(write_set(work / "set")), []
    for scorer in (knows_nothing, knows_all):
        out, own = work / scorer.__name__, {"reranker": scorer, "encoder": encoder}
        rerank.calibrate(labelled, out, CONFIG, work=work, **own)
        models.append(rerank.load(out, **own))
    return SimpleNamespace(first=models[0], second=models[1], labelled=labelled, work=work)


def test_the_points_are_those_of_the_models(made: SimpleNamespace) -> None:
    """Never is the first model, always the second one, and certified is what both were new to."""
    of_first, cascade = evaluate_cascade(made.first, made.second, made.labelled, work=made.work)
    for model, point in ((made.first, cascade.points[0]), (made.second, cascade.points[-1])):
        alone = rerank.evaluate(model, made.labelled, work=made.work)
        ours = alone.table["calibrated"]
        assert point.hit1 == ours.base_accuracy
        assert point.accepted == ours.coverage
        assert point.smece == pytest.approx(ours.smece)
    assert of_first.notes == ()
    assert cascade.gain.low > 0
    assert cascade.points[0].hit1 < cascade.chosen.hit1 <= cascade.points[-1].hit1
    assert 0 < cascade.chosen.asked < 0.6
    assert not cascade.certificate.refused
    assert cascade.certificate.queries == QUERIES // 2 * 2 // 3  # a third has chosen the band
    assert 0 < cascade.held.asked < 0.6


def test_one_model_twice_gains_nothing(made: SimpleNamespace) -> None:
    """They agree on every top passage, so no band is chosen."""
    _, cascade = evaluate_cascade(made.first, made.first, made.labelled, work=made.work)
    assert cascade.gain.mean == 0
    assert cascade.chosen.asked == 0
    assert not cascade.worth_it


def test_queries_that_a_model_was_fitted_on_certify_nothing(made: SimpleNamespace) -> None:
    """They are measured, and both the notes and the certificate say so."""
    of_first, cascade = evaluate_cascade(
        made.first, made.second, made.labelled, "train", work=made.work
    )
    assert any("was fitted on" in note for note in of_first.notes)
    assert FITTED_HERE in cascade.certificate.refused
    assert cascade.certificate.threshold is None


@pytest.mark.parametrize("wrong", [{"share": 0.0}, {"share": 1.0}, {"price": -1.0}])
def test_what_is_out_of_range_is_refused(made: SimpleNamespace, wrong: Any) -> None:
    """Before anything is measured."""
    with pytest.raises(rerank.InputError, match=r"then-share|price-per-1000"):
        evaluate_cascade(made.first, made.second, made.labelled, work=made.work, **wrong)
