"""What is measured of a fitted model: every way of being confident, on the same queries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hand_made import labelled, make_ranking, make_scored

from calibration.metrics import smece
from rerank.assessment.predictions import predict
from rerank.config import Config
from rerank.data.labels import Labelled, hits
from rerank.evaluation.baselines import HEURISTICS
from rerank.evaluation.measure import OURS, Evaluation, Part, measure
from rerank.fitting.fit import Fitted
from rerank.jobs.track import metrics_of
from rerank.types import Scored


@pytest.fixture(scope="module")
def evaluation(fitted: Fitted, to_report: Labelled[Scored], config: Config) -> Evaluation:
    """The reported queries, and one that brought back nothing, measured every way."""
    every = Labelled(
        [*to_report.items, make_scored()],
        np.append(to_report.groups, "none"),
        [*to_report.grades, {}],
    )
    return measure([Part(every, fitted.maps)], config)


def test_hits_by_hand() -> None:
    """A query is right at k when one of its first k passages is labelled right."""
    made = make_ranking(texts=["a", "b", "c"])  # ids d0, d1, d2
    every = labelled((made, ["d1", "elsewhere"]), (made, []), (make_ranking(), ["d1"]))
    assert hits(every, depth=3).tolist() == [[0, 1, 1], [0, 0, 0], [0, 0, 0]]
    assert hits(every).tolist() == [[0], [0], [0]]


def test_a_query_without_passages_has_no_confidence(evaluation: Evaluation) -> None:
    """Every way gives 0 where nothing was found, and it counts as wrong."""
    assert {name: values[-1] for name, values in evaluation.confidences.items()} == dict.fromkeys(
        evaluation.confidences, 0.0
    )
    assert evaluation.right[-1] == 0


def test_evaluation_measures_every_way_on_the_same_queries(
    evaluation: Evaluation, fitted: Fitted, to_report: Labelled[Scored], config: Config
) -> None:
    """The table has a row for each baseline and one of ours; all on n queries."""
    assert list(evaluation.confidences) == [*HEURISTICS, OURS]
    assert {row.n for _, row in evaluation.table.rows} == {len(to_report) + 1}
    assert set(evaluation.orders) == {"fused", "dense", "logit", "relevance"}
    rankings = predict(to_report.items, fitted.maps, config).rankings
    right = hits(replace(to_report, items=rankings))[:, 0]
    assert evaluation.right[:-1].tolist() == right.tolist()


def test_relevance_is_measured_rank_by_rank(evaluation: Evaluation) -> None:
    """At rank 1 it is the confidence, of the queries with passages; the table shows each rank."""
    told = [name for name, *_ in evaluation.events_cells()]
    assert told[-4:] == [f"relevance: passage at rank {name}" for name in ("1", "2", "3", "4-10")]
    has_passages = np.array([len(r) > 0 for r in evaluation.labelled.items])
    error = (evaluation.confidences[OURS] - evaluation.right)[has_passages]
    first = evaluation.events["relevance: passage at rank 1"]
    assert first["brier"] == pytest.approx((error**2).mean(), abs=1e-12)
    assert first["smece"] == pytest.approx(
        smece(evaluation.right[has_passages], evaluation.confidences[OURS][has_passages]), abs=1e-12
    )


def test_what_cannot_be_told_is_a_dash(
    fitted: Fitted, to_report: Labelled[Scored], config: Config
) -> None:
    """Without any right passage there is no AUROC and no order to be good: null, and a dash."""
    none = measure([Part(replace(to_report, grades=[{}] * len(to_report)), fitted.maps)], config)
    cells = [*none.orders_cells(), *none.events_cells(), *none.table.cells()]
    assert not any("nan" in cell for row in cells for cell in row)
    assert none.orders_cells()[-1] == ("relevance", "0.000", "-", "-", "- [-]")
    plain = none.to_dict()
    assert plain["orders"]["relevance"]["ndcg10"] is None
    assert plain["events"]["relevance: passage at rank 2"]["auroc"] is None
    found = metrics_of(plain, fitted.maps.certificate)
    assert "brier" in found
    assert "ndcg_at_10_relevance" not in found


def test_unanswerable_queries_are_measured_and_never_right(
    evaluation: Evaluation, to_report: Labelled[Scored]
) -> None:
    """They stand in the measurement, and no top passage of theirs is right."""
    none = np.array([not grades for grades in to_report.grades])
    assert none.sum() >= 5
    assert not evaluation.right[:-1][none].any()
    assert evaluation.right.any()


def test_the_bound_is_of_new_questions(
    evaluation: Evaluation, fitted: Fitted, to_report: Labelled[Scored], config: Config
) -> None:
    """Questions drawn one by one count each, whatever documents they share."""
    few = replace(to_report, groups=np.where(np.arange(len(to_report)) % 7, "one", "other"))
    ours = {
        of: measure([Part(part, fitted.maps)], config).table[OURS]
        for of, part in (("rows", to_report), ("few", few))
    }
    assert ours["few"].accuracy_accepted_lower95 == ours["rows"].accuracy_accepted_lower95
    assert ours["few"].smece_interval != ours["rows"].smece_interval
