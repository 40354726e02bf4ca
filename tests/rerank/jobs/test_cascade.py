"""Two calibrated models on one labelled set: what asking the second one gains."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from small_sets import QUERIES, encoder, write_numbered

import rerank
from rerank.jobs.cascade import FITTED_HERE, evaluate_cascade

CONFIG = rerank.Config(rerank_depth=5, candidates=10, pool=20, folds=2)


def knows_nothing(query: str, texts: Sequence[str]) -> list[float]:
    return [0.0] * len(texts)


def knows_all(query: str, texts: Sequence[str]) -> list[float]:
    """Questions and passages end with numbers, which only this model reads."""
    number = query.rsplit(maxsplit=1)[-1][1:]
    return [float(text.split()[-1][1:] == number) for text in texts]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Two models that differ in the reranker alone, and the set."""
    work = tmp_path_factory.mktemp("work")
    labelled, models = rerank.LabelledSet.read(write_numbered(work / "set", asked=3)), []
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
