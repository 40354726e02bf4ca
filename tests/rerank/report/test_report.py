"""What a run says of itself: the result, its sentences, its text, its pictures and its page."""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from calibration.arrays import sigmoid
from calibration.maps import IsotonicMap, LogisticMap, TwoStageMap
from calibration.plots import Picture, draw
from calibration.reliability import aligned
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.ranking_features import GROUPS, RANKING_FEATURES
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import Labelled
from rerank.evaluation.measure import OURS, Evaluation, Part, measure
from rerank.fitting.certificates import refuse_certificates
from rerank.fitting.fit import Fitted
from rerank.fitting.plan import Plan
from rerank.report.calibration import (
    band_sentence,
    fewer_labels,
    groups_sentence,
    measured_sections,
    report_figures,
    report_sections,
    scored_sentence,
    split_sentences,
)
from rerank.report.headline import (
    accepted_sentence,
    after_evaluation,
    headline,
    order_sentence,
    promise_sentences,
    simpler_sentence,
)
from rerank.report.measured import Report, make_report, usual_log_odds
from rerank.report.sections import as_page, as_text
from rerank.types import Scored

HOSTILE = "<script>alert('1')</script> & \"quoted\" <img src=http://x.org/a.png>"


@pytest.fixture(scope="module")
def evaluation(fitted: Fitted, to_report: Labelled[Scored], config: Config) -> Evaluation:
    """The reported queries measured every way."""
    return measure([Part(to_report, fitted.maps)], config)


@pytest.fixture(scope="module")
def report(
    run: Any, fitted: Fitted, evaluation: Evaluation, small: LabelledSet, config: Config
) -> Report:
    """The report of the session's run."""
    made_from = {
        "config": config.to_dict(),
        "dataset": small.described(),
        "inputs": {"ranking_features": list(RANKING_FEATURES)},
    }
    return make_report(
        run.plan,
        fitted,
        evaluation,
        config,
        rerank=evaluation,
        made_from=made_from,
        fits=[fitted],
    )


def drawn(figures: Mapping[str, Figure]) -> dict[str, Picture]:
    """The real pictures, where other tests make do with small ones."""
    return {name: draw(figure) for name, figure in figures.items()}


@pytest.fixture(scope="module")
def pictures(report: Report) -> dict[str, Picture]:
    """Its pictures, drawn."""
    return drawn(report_figures(report))


@pytest.fixture(scope="module")
def page(report: Report, pictures: dict[str, Picture]) -> str:
    """Its page."""
    return report_page(report, pictures)


def report_text(report: Report) -> str:
    """Its text."""
    return as_text(report_sections(report, {}))


def report_page(report: Report, pictures: dict[str, Picture]) -> str:
    """Its page."""
    return as_page(report.name, report.planned.reported, report_sections(report, pictures))


def certified(report: Report, **changes: Any) -> Report:
    """The report with another certificate, by which the queries are measured too."""
    maps = with_certificate(report.fitted.maps, **changes)
    threshold = maps.certificate.threshold
    reached = report.evaluation.confidences[OURS] >= (np.inf if threshold is None else threshold)
    return replace(
        report,
        fitted=replace(report.fitted, maps=maps),
        evaluation=replace(report.evaluation, certified=reached),
    )


def with_certificate(maps: FittedMaps, **changes: Any) -> FittedMaps:
    """The maps with another certificate."""
    return replace(maps, certificate=replace(maps.certificate, **changes))


# --- the result -------------------------------------------------------------------------------


def test_it_is_plain_json(report: Report) -> None:
    """`reliability.json` holds the evaluation, a step a group of features, and the budgets."""
    kept = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert kept["report_split"] == report.planned.report_split
    assert kept["confidence"][OURS]["n"] == len(report.evaluation.right)
    assert [step["name"] for step in kept["ablation"]][:2] == ["logits", "+ margins"]
    assert len(kept["ablation"]) == len(GROUPS)
    assert kept["ablation"][0]["gain"] is None
    assert kept["labels"]["labels"] == [50, len(report.planned.fit)]


def test_the_last_step_and_the_last_budget_are_the_model(report: Report) -> None:
    """Refitted on all features, and on all labels, the confidence is the model's own."""
    ours = report.evaluation.table[OURS]
    assert report.steps[-1].log_loss == pytest.approx(ours.log_loss, abs=1e-9)
    assert report.steps[-1].auroc == pytest.approx(ours.auroc, abs=1e-9)
    assert report.budgets.log_loss[-1, 0] == ours.log_loss
    assert report.budgets.accepted[-1, 0] == ours.coverage


def test_the_queries_explained_are_the_extremes(report: Report) -> None:
    """The surest wrong one and the least sure right one; their contributions add up."""
    ours, right = report.evaluation.confidences[OURS], report.evaluation.right
    wrong, least = report.explained
    assert (wrong.file, least.file) == ("surest_wrong", "least_sure_right")
    assert wrong.confidence == ours[right == 0].max()
    assert least.confidence == ours[right == 1].min()
    for each in (wrong, least):
        assert float(sigmoid(each.base + each.contributions.sum())) == pytest.approx(
            each.confidence
        )
        assert len(each.names) == len(RANKING_FEATURES)
        assert each.query
        assert each.top
    assert wrong.answer
    assert not least.answer


def test_where_nothing_is_right_there_is_still_a_report(
    report: Report, run: Any, config: Config
) -> None:
    """Only the surest mistake is explained; what cannot be told is null, and pictures are drawn."""
    wrong = replace(report.evaluation, right=np.zeros_like(report.evaluation.right))
    made = make_report(
        run.plan,
        report.fitted,
        wrong,
        config,
        rerank=wrong,
        made_from=report.made_from,
        fits=[report.fitted],
    )
    assert [each.file for each in made.explained] == ["surest_wrong"]
    kept = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert kept["ablation"][0]["auroc"] is None
    drawn(report_figures(made))


def test_the_base_of_an_explanation_by_hand() -> None:
    """Logistic: the log odds of a query whose features are usual; else the first stage's."""
    first = LogisticMap((2.0, -1.0), 0.5, (3.0, 4.0), (1.0, 1.0))
    bent = TwoStageMap(first, IsotonicMap((0.0, 1.0), (0.2, 0.8)))
    straight = TwoStageMap(first, LogisticMap((2.0,), -1.0, (0.0,), (1.0,)))
    assert usual_log_odds(bent) == 0.5
    assert usual_log_odds(straight) == pytest.approx(2 * 0.5 - 1)


# --- sentences --------------------------------------------------------------------------------


def with_ours(report: Report, **changes: Any) -> Report:
    """The report with other measurements of the calibrated confidence."""
    table = report.evaluation.table
    rows = tuple((n, replace(r, **changes) if n == OURS else r) for n, r in table.rows)
    changed = replace(report.evaluation, table=replace(table, rows=rows))
    return replace(report, evaluation=changed)


def test_what_the_threshold_is_worth(report: Report) -> None:
    """Accepted, right and the lower bound, in one sentence; another where nothing is accepted."""
    some = with_ours(
        report,
        n=1000,
        accepted=50,
        coverage=0.05,
        right_accepted=40,
        accuracy_accepted=0.8,
        accuracy_accepted_lower95=0.684,
        effective_accepted=49.7,
    )
    assert accepted_sentence(some.evaluation) == (
        "at a confidence of 0.7 or more, 50 of 1,000 measured queries are accepted (5%); 40 of "
        "these are right (80.0%, at least 68.4% of new questions like these, with 95% confidence)."
    )
    assert "rescore {model} queries.jsonl" in after_evaluation(some.evaluation)
    assert "rescore {model} {dataset}" in after_evaluation(some.evaluation, "lists")
    less = with_ours(some, accuracy_accepted=0.69)
    assert "recalibrate" in after_evaluation(less.evaluation)
    none = with_ours(
        report, n=9, accepted=0, accuracy_accepted=None, accuracy_accepted_lower95=None
    )
    assert "none of 9 measured queries is accepted" in accepted_sentence(none.evaluation)
    assert "rescore" in after_evaluation(none.evaluation)


def test_what_is_certified(report: Report) -> None:
    """The certificate's own sentence, and how a threshold fares on the measured queries."""

    def said(**changes: Any) -> tuple[str, str]:
        changed = certified(report, **{"threshold": None, "refused": "", **changes})
        certificate = changed.fitted.maps.certificate
        assert certificate.brief in headline(changed.evaluation, changed.fitted.maps)[0]
        whole = promise_sentences(changed.evaluation, changed.fitted.maps)
        _, _, after = whole[0].partition(certificate.sentence) if whole else ("", "", "")
        return certificate.sentence, after

    right = report.evaluation.right
    _, measured = said(threshold=0.0, labels_needed=None)
    share = f"{right.sum()} of {len(right)} are right ({right.mean():.1%})"
    assert measured == f" Of the measured queries, {share}."
    assert said(threshold=1.0, labels_needed=None)[1].endswith(" 0 of 0 are right.")
    few = said(queries=64, accepted=0, right=0, labels_needed=300)
    assert "240 more" in few[0]
    assert few[1] == said(refused="All labels are right.")[1] == ""


def test_what_a_confidence_near_the_threshold_is_worth(report: Report) -> None:
    """Promised and held, of the queries around the threshold; nothing where there are none."""
    near = with_ours(report, band_rows=20, band_confidence=0.71, band_accuracy=0.65)
    assert band_sentence(near) == [
        "20 queries have a confidence within 0.05 of 0.7: their mean confidence is 71.0%, and "
        "65.0% of them are right."
    ]
    one = with_ours(report, band_rows=1, band_confidence=0.71, band_accuracy=1.0)
    assert band_sentence(one)[0].startswith("1 query has a confidence within")
    assert band_sentence(with_ours(report, band_rows=0)) == []


def test_certificates_and_refusals_are_told_once(
    report: Report, pictures: dict[str, Picture]
) -> None:
    """Of the top passage and of the first ones; a refusal is in the headline alone."""
    given = {"target": 0.7, "level": 0.95, "groups": 30, "queries": 30, "accepted": 20, "right": 20}
    maps = report.fitted.maps
    promised = replace(maps.certificate, threshold=0.0, labels_needed=None, **given)
    with_context = replace(
        maps, certificate=promised, context_certificate=promised, stopping_threshold=0.9
    )
    changed = replace(report, fitted=replace(report.fitted, maps=with_context))
    *_, third, together = promises = promise_sentences(changed.evaluation, with_context)
    second = headline(changed.evaluation, with_context)[1]
    assert second.startswith("One of the first 5: at a sufficiency of 0.7 or more, ")
    assert promised.brief in second
    assert promised.sentence in promises
    assert "85%" in together  # three promises, each at 95%
    assert third.startswith("If passages are handed on until the sufficiency reaches 0.9 (at most")
    page = report_page(changed, pictures)
    assert all(html.escape(said) in page for said in (promised.sentence, second, third))
    refused = refuse_certificates(maps, "It is a test.")
    changed = replace(report, fitted=replace(report.fitted, maps=refused))
    assert promise_sentences(changed.evaluation, refused) == []
    assert report_text(changed).count("It is a test.") == 1
    assert report_page(changed, pictures).count("It is a test.") == 1


def test_a_simpler_order_and_confidence_are_named_where_they_are_as_good(report: Report) -> None:
    """By what was measured; nothing is said where ours are better."""
    evaluation, maps = report.evaluation, report.fitted.maps
    right = evaluation.right

    def with_hit1(**hit1: float) -> Evaluation:
        orders = {n: {**o, "hit1": hit1.get(n, 0.0)} for n, o in evaluation.orders.items()}
        return replace(evaluation, orders=orders)

    (cheap,) = order_sentence(with_hit1(fused=1.0, logit=0.5), maps)
    assert "`fused`" in cheap
    assert "cross-encoder" in cheap
    (dear,) = order_sentence(with_hit1(logit=1.0, fused=0.5), maps)
    assert "`logit`" in dear
    assert "cross-encoder" not in dear
    assert order_sentence(with_hit1(), maps) == []

    perfect, worst = right.astype(float), 1.0 - right
    sigmoid = "sigmoid of top logit"
    as_good = replace(evaluation, confidences={sigmoid: perfect, OURS: perfect})
    assert f"`{sigmoid}`" in simpler_sentence(as_good)[0]
    assert simpler_sentence(replace(as_good, confidences={sigmoid: worst, OURS: perfect})) == []


def test_who_was_left_out(report: Report) -> None:
    """Counts of both parts, and a sentence for each reason that applies."""
    plan: Plan = report.planned
    assert len(split_sentences(replace(report, planned=replace(plan, asked_twice=0)))) == 1
    all_of_it = replace(plan, seen_by_reranker=12, asked_twice=3)
    text = " ".join(split_sentences(replace(report, planned=all_of_it)))
    assert f"fitted on {len(plan.fit)} queries. Measured on {len(plan.report)} queries" in text
    assert "Left out: 12 queries" in text
    assert "Left out: 3 queries that have the words or the group (`metadata.group`) of" in text


def test_a_report_in_folds_says_so(
    report: Report, fitted: Fitted, to_report: Labelled[Scored], config: Config
) -> None:
    """Nested cross-fitting in a plain sentence, and thresholds that are the folds' own."""
    folds = replace(report.planned, report_split="cross-fitted", report=report.planned.fit)
    said = " ".join(split_sentences(replace(report, planned=folds)))
    assert f"Measured on the same {len(folds.fit)} queries by nested cross-fitting" in said
    assert "queries by nested cross-fitting" not in " ".join(split_sentences(report))
    promising = with_certificate(fitted.maps, threshold=0.0, refused="", labels_needed=None)
    none = with_certificate(fitted.maps, threshold=None, refused="")
    first = np.arange(len(to_report)) < len(to_report) // 2
    parts = [Part(to_report.where(first), promising), Part(to_report.where(~first), none)]
    evaluation = measure(parts, config)
    accepted = evaluation.confidences[OURS] >= config.thresholds.advisory
    assert evaluation.certified.any()
    assert not (evaluation.certified & ~(first & accepted)).any()
    changed = certified(report, threshold=0.5, refused="")
    assert ", each by the threshold of its fold." in report_text(
        replace(changed, evaluation=evaluation)
    )


@pytest.mark.parametrize(
    ("of_folds", "of_model", "expected"),
    [
        ((0.5, 0.5), 0.5, ", those at least 0.5 times as likely as the likeliest."),
        ((0.5, 0.0), 0.5, " by a cutoff of its own in each fold; the model scores those at least"),
        ((0.5, 0.2), 0.0, ", by a cutoff of its own in each fold; the model scores all."),
        ((0.0,), 0.0, "."),
    ],
)
def test_the_passages_of_folds_are_not_said_to_be_the_model_s(
    report: Report, of_folds: tuple[float, ...], of_model: float, expected: str
) -> None:
    """Each fold chooses a cutoff; the model's may leave many more passages, or fewer."""
    maps = report.fitted.maps

    def with_cutoff(cutoff: float) -> FittedMaps:
        return replace(maps, policy=replace(maps.policy, cutoff=cutoff))

    fitted = replace(report.fitted, maps=with_cutoff(of_model))
    evaluation = replace(
        report.evaluation, passages_scored=4.5, fold_maps=tuple(map(with_cutoff, of_folds))
    )
    said = scored_sentence(replace(report, fitted=fitted, evaluation=evaluation))
    assert said.startswith("Passages scored per query: 4.5")
    assert expected in said
    assert ("fold" in said) == ("fold" in expected)


def test_copies_are_told(report: Report) -> None:
    """How many questions without an answer were made, and of which mixture the figures are."""
    copied = report.fitted.copies.copy()
    copied[:11] = True
    made = replace(report, fitted=replace(report.fitted, copies=copied))
    said = " ".join(split_sentences(made))
    assert "so 11 unanswerable copies of others" in said
    assert "have no answer, 0 of them such copies." in said
    assert said.endswith(
        "The certificate is about the queries fitted on, copies included; the figures are about "
        "the measured queries."
    )
    same = replace(made, planned=replace(made.planned, report_split="cross-fitted"))
    assert "The certificate is about" not in " ".join(split_sentences(same))
    assert "copies" not in " ".join(split_sentences(report))


def test_the_groups_are_named_and_what_they_leave(report: Report) -> None:
    """What a group is, how many there are, the effective number of queries, and, where reported
    queries are of groups that were fitted on, what that does to the figures.
    """
    alone = replace(report, planned=replace(report.planned, reported_of_fitted_groups=0))
    said = groups_sentence(alone)
    groups = len(set(report.fitted.groups))
    assert said.startswith(f"Groups: {report.planned.grouping.name}, {groups} of them; the ")
    assert "the errors of the confidence on the" in said
    assert said.endswith(f"are worth those of {report.fitted.effective:.0f} independent queries.")
    assert groups <= len(report.planned.fit)
    assert 1 <= report.fitted.effective <= len(report.planned.fit)
    shared = groups_sentence(
        replace(report, planned=replace(report.planned, reported_of_fitted_groups=7))
    )
    assert "7 of the measured queries are of groups that were fitted on" in shared
    assert said in " ".join(report_text(alone).split())


def test_the_text_has_every_sentence_and_table(report: Report) -> None:
    """The headline first, a line a sentence; the rest no wider than 104 characters."""
    text = report_text(report)
    head, _, rest = text.partition("\n\n")
    assert head.splitlines() == headline(report.evaluation, report.fitted.maps)
    unwrapped = " ".join(text.split())
    promises = promise_sentences(report.evaluation, report.fitted.maps)
    for sentence in (*split_sentences(report), *promises):
        assert " ".join(sentence.split()) in unwrapped
    for section in measured_sections(report.evaluation):
        assert aligned(section.table) in text
    assert max(map(len, rest.splitlines())) <= 104


# --- pictures ---------------------------------------------------------------------------------


def test_pictures_in_the_order_of_the_page(report: Report) -> None:
    """Every picture of the run."""
    names = ["reliability", "risk_coverage", "histogram", "surest_wrong", "least_sure_right"]
    assert list(report_figures(report)) == [*names, "features"]


def test_the_table_of_fewer_labels_has_medians(report: Report) -> None:
    """A row for each number of labels; none where there could not be fewer."""
    got = report.budgets
    rows = fewer_labels(report).table[1:]
    assert [row[0] for row in rows] == [f"{n:,}" for n in got.labels]
    assert rows[0][1] == f"{np.median(got.log_loss[0]):.3f}"
    assert not fewer_labels(replace(report, budgets=replace(got, labels=(40,)))).table


def test_real_names_fit_into_the_pictures(report: Report) -> None:
    """The names of the features and of the steps lie within the picture, off its other texts."""
    worst = max(report.explained[0].names, key=lambda name: len(name.split("\n")[0]))
    stretched = replace(
        report.explained[0],
        names=tuple(worst if i % 2 else n for i, n in enumerate(RANKING_FEATURES)),
    )
    figures = report_figures(replace(report, explained=(stretched, *report.explained[1:])))
    for figure in figures.values():
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        blocks = [t.get_window_extent(renderer) for t in figure.texts]
        blocks += [axes.get_tightbbox(renderer) for axes in figure.axes]
        assert all(b.x0 >= 0 and b.x1 <= figure.bbox.x1 for b in blocks)
        assert not any(a.overlaps(b) for a, b in itertools.combinations(blocks, 2))


# --- the page ---------------------------------------------------------------------------------


def test_the_page_holds_all_of_it_in_order(
    report: Report, page: str, pictures: dict[str, Picture]
) -> None:
    """What the threshold is worth comes first, the fingerprints last; each picture is explained."""
    text = re.sub(r"<[^>]*>", " ", page)
    evaluation = report.evaluation
    expected = [
        f"Measured on {len(evaluation.right)} queries",
        "Top passage:",
        "One of the first 5:",
        f"fitted on {len(report.planned.fit)} queries",
        report.fitted.calibrator,
        *(name for name, _ in evaluation.table.rows),
        pictures["reliability"].caption.split(".")[0],
        pictures["histogram"].caption.split(".")[0],
        pictures["risk_coverage"].caption.split(".")[0],
        "put first",
        pictures["features"].caption.split(".")[0],
        "What fewer labels would have given",
        *evaluation.orders,
        *(name for name, *_ in evaluation.events_cells()[1:]),
        "config.rerank_depth",
    ]
    place = 0
    for each in expected:
        place = text.find(each, place)
        assert place >= 0, each
    assert page.count("<img ") == page.count("<figcaption>") == len(pictures)


def test_text_from_data_is_escaped_on_the_page(
    report: Report, pictures: dict[str, Picture]
) -> None:
    """A set's name, a query, passages and configuration are shown as they are, never as tags."""
    first = replace(report.explained[0], query=HOSTILE, top=HOSTILE, answer=HOSTILE)
    hostile = replace(
        report,
        name=HOSTILE,
        explained=(first, *report.explained[1:]),
        made_from={**report.made_from, HOSTILE: [HOSTILE]},
        planned=replace(report.planned, report_split=HOSTILE),
    )
    page = report_page(hostile, pictures)
    assert "<script" not in page
    assert "<img src=http" not in page
    # the set thrice, the split twice, query and passages, and the configuration's name and value
    assert page.count("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;") == 10
    assert page.count("<img ") == len(pictures)


def test_the_page_stands_alone(page: str) -> None:
    """No source but its own data, no link, no script."""
    without_texts = re.sub(r">[^<]*<", "><", page)
    assert not re.search(r'(?:src|href)="(?!data:)', without_texts)
    assert not re.search(r"https?:", without_texts)
    assert "<script" not in page
    assert "<link" not in page


def test_the_page_is_the_same_every_time(
    report: Report, page: str, pictures: dict[str, Picture]
) -> None:
    """No date and no chance: the same run gives the same bytes, pictures and all."""
    again = report_figures(report)["reliability"]
    redrawn = {**pictures, **drawn({"reliability": again})}
    assert report_page(report, redrawn) == page


def test_a_page_needs_no_optional_part(report: Report) -> None:
    """Without pictures, explanations and a measured band it is still a page."""
    bare = with_ours(replace(report, explained=()), band_rows=0)
    page = report_page(bare, {})
    assert "<img" not in page
    assert "Two answers explained" not in page
    assert "Is the confidence calibrated?" not in page
