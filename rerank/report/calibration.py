"""The reports of a calibration and of a recalibration: their sections, and their pictures."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from calibration.recalibration import Recalibration
from calibration.reliability import Comparison, Reliability, reliability_bins
from rerank.errors import optional
from rerank.evaluation.baselines import SOURCES
from rerank.evaluation.cascade import Cascade
from rerank.evaluation.measure import OURS, Evaluation
from rerank.fitting.certificates import CUT_FROM_SEARCH
from rerank.fitting.scored_plan import LENGTHS, copies_in
from rerank.report.headline import headline, promise_sentences
from rerank.report.measured import Report, flatten
from rerank.report.sections import Section, pictured
from rerank.types import Mode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibration.plots import Picture


ORDERS_NOTE = (
    "fused: the first stage alone; dense: by cosine; logit: the cross-encoder's own order; "
    "relevance: by the calibrated probability of each passage. hit@1: the share of all queries "
    "whose top passage is right; MRR@10 and nDCG@10 count the queries that something answers. "
    "Intervals are by query group."
)
EVENTS_NOTE = (
    "Sufficiency is the probability that one of the first k passages is right, relevance that the "
    "passage at a rank is; at rank 1 it is the confidence. Log loss should be below that of the "
    "base rate, which knows only how often the event happens."
)
CASCADE_NOTE = (
    "at >=: the share of all queries that is accepted; right: the share of these. smECE is of the "
    "confidence of whichever model answered. Bands are chosen without labels, where the second "
    "model expects to gain most, and on other queries than those that they are measured on."
)


def report_sections(report: Report, pictures: Mapping[str, Picture]) -> list[Section]:
    """All sections, the headline first. `pictures` are `report_figures`, drawn."""
    fitted, evaluation = report.fitted, report.evaluation
    comparison, orders, events = measured_sections(evaluation)
    queries = [*split_sentences(report), groups_sentence(report), scored_sentence(report)]
    made_from = flatten(report.made_from).items()
    kept = {k: ", ".join(map(str, v)) if isinstance(v, list) else str(v) for k, v in made_from}
    brought = [rerank_sentence(report.rerank)] if report.rerank else []
    temperature = "The best logit divided by one number, which was fitted."
    ways = {**SOURCES, "temperature": temperature, OURS: "This model."}
    compared = {way: text for way, text in ways.items() if way in evaluation.confidences}
    named = fitted.reason.startswith(fitted.calibrator)
    chosen = fitted.reason if named else f"{fitted.calibrator}. {fitted.reason}"
    rank_by, explained = report.made_from["config"]["rank_by"], list[Section]()
    for one in (one for one in report.explained if one.file in pictures):
        words = {"query": one.query, "put first": one.top, "would be right": one.answer}
        title, said = "Two answers explained", {name: text for name, text in words.items() if text}
        picture = pictures[one.file]
        explained.append(Section("" if explained else title, words=said, picture=picture))
    sections = [
        Section("", headline(evaluation, fitted.maps, rank_by=rank_by)),
        Section("What is promised", promise_sentences(evaluation, fitted.maps)),
        Section("Near the threshold", band_sentence(report)),
        Section("The queries", queries),
        Section("The calibrator", [chosen]),
        comparison,
        Section("The methods compared", words=compared, folded=True),
        *pictured("Is the confidence calibrated?", pictures, "reliability", "histogram"),
        *pictured("Accuracy and coverage", pictures, "risk_coverage"),
        *explained,
        *pictured("What the confidence is based on", pictures, "features"),
        fewer_labels(report),
        orders,
        events,
        Section("Passages that callers bring", brought),
        Section("Data, configuration and fingerprints", words=kept, folded=True),
    ]
    return [one for one in sections if one.sentences or one.table or one.words or one.picture]


def fewer_labels(report: Report) -> Section:
    """The medians of fits on random subsets of the labels; empty if there are too few to draw."""
    got, title = report.budgets, "What fewer labels would have given"
    if len(got.labels) < 2:
        return Section(title)
    with warnings.catch_warnings(action="ignore"):  # nothing accepted: no share of it is right
        medians = [np.nanmedian(x, axis=1) for x in (got.log_loss, got.smece, got.accepted)]
        medians.append(np.nanmedian(got.accepted_right, axis=1))
    heads = ["labels", "log loss", "smECE", f"accepted at {got.threshold:g}", "right of these"]
    rows = zip(got.labels, *medians, strict=True)
    cells = [[f"{n:,}", *("" if np.isnan(x) else f"{x:.3f}" for x in row)] for n, *row in rows]
    note = (
        f"medians of {len(got.smece[0])} random subsets of each size. Log loss and smECE: lower is "
        "better. If they no longer fall in the last rows, more labels will help little."
    )
    return Section(title, table=[heads, *cells], note=note)


def measured_sections(evaluation: Evaluation) -> tuple[Section, Section, Section]:
    """The tables of an evaluation: the confidences, the orders, the other probabilities."""
    title, table = "Confidence methods compared, on the same queries", evaluation.table.cells()
    orders, events = evaluation.orders_cells(), evaluation.events_cells()
    return (
        Section(title, table=table, ours=OURS, note=table_note(evaluation.table[OURS])),
        Section("The order of the passages", table=orders, ours="relevance", note=ORDERS_NOTE),
        Section("Probabilities beside the confidence", table=events, note=EVENTS_NOTE),
    )


def predictions_sections(table: Comparison, order: Mapping[str, float]) -> list[Section]:
    """The table of a file of predictions, of one row, under a sentence on its order."""
    ((name, one),) = table.rows
    sentence = (
        f"The order of {one.n} queries: hit@1 {order['hit1']:.3f}; of those that something answers "
        f"MRR@10 {order['mrr10']:.3f} and nDCG@10 {order['ndcg10']:.3f}."
    )
    return [
        Section("", [sentence]),
        Section("The confidence", table=table.cells(), ours=name, note=table_note(one)),
    ]


def cascade_section(cascade: Cascade) -> Section:
    """Whether a second model is worth asking, and for how many queries."""
    title, table = "Is a second model worth asking?", cascade.cells()
    return Section(title, cascade.sentences(), table, CASCADE_NOTE, cascade.chosen.name)


def split_sentences(report: Report) -> list[str]:
    """Which queries were fitted on, which were measured on, and which were left out and why."""
    planned, measured = report.planned, report.evaluation.labelled
    copies = (
        f"Questions without an answer: {sum(not g for g in planned.fit.grades)} of the queries "
        f"fitted on, so {report.copies} unanswerable copies of others, with their answers taken "
        "out of the index, were added (--expected-unanswerable). Of the measured queries "
        f"{sum(not g for g in measured.grades)} of {len(measured)} have no answer, "
        f"{int(copies_in(measured).sum())} of them such copies."
    )
    if not planned.cross_fitted:  # else the measured queries are those fitted on
        copies += (
            " The certificate is about the queries fitted on, copies included; the figures are "
            "about the measured queries."
        )
    said = {
        f"{report.name}: fitted on {len(planned.fit)} queries. {planned.reported}": True,
        copies: report.copies,
        f"Left out: {planned.seen_by_reranker} queries, because a model was trained on them or on "
        "their split.": planned.seen_by_reranker,
        f"Left out: {planned.asked_twice} queries that have the words or the group "
        "(`metadata.group`) of a measured query.": planned.asked_twice,
        f"Warning: {planned.warning}.": planned.warning,
    }
    return [sentence for sentence, holds in said.items() if holds]


def groups_sentence(report: Report) -> str:
    """What keeps queries together, the number of groups, and the effective number of labels."""
    fitted, planned = report.fitted, report.planned
    sentence = (
        f"Groups: {planned.grouping.name}, {len(set(fitted.groups))} of them; the errors of the "
        f"confidence on the {len(fitted.right)} queries fitted on"
        f"{', copies included,' if report.copies else ''} are worth those of "
        f"{fitted.effective:.0f} independent queries."
    )
    if shared := planned.reported_of_fitted_groups:
        sentence += (
            f" {shared} of the measured queries are of groups that were fitted on: the figures are "
            "of new questions about the same, and flatter the model on others."
        )
    return sentence


def scored_sentence(report: Report) -> str:
    """How many passages the cross-encoder scores; or which stages scored the lists.

    The number is that of the measured folds, whose cutoffs may differ from the model's.
    """
    kind = report.fitted.maps.kind
    if kind.stages and not report.made_from["fingerprints"]:  # no network of ours has read them
        *first, last = kind.stages
        others = f", and `fused` is the fusion of the ranks of {', '.join(first)}" if first else ""
        unread = "" if kind.texts else " Not all passages have a text: none was read."
        return f"The lists came with their scores: `logit` is the score of {last}{others}.{unread}"
    cutoff = report.fitted.maps.policy.cutoff
    those = f"those at least {cutoff:g} times as likely as the likeliest" if cutoff else ""
    how = f", {those}" if cutoff else ""
    if any(maps.policy.cutoff != cutoff for maps in report.evaluation.fold_maps):
        how = f", by a cutoff of its own in each fold; the model scores {those or 'all'}"
    return f"Passages scored per query: {report.evaluation.passages_scored:.1f}{how}."


def band_sentence(report: Report) -> list[str]:
    """The mean confidence and the accuracy near the threshold; empty without queries there."""
    ours = report.evaluation.table[OURS]
    if not ours.band_rows:
        return []
    have = "query has" if ours.band_rows == 1 else "queries have"
    return [
        f"{ours.band_rows} {have} a confidence within 0.05 of {ours.threshold:g}: their mean "
        f"confidence is {ours.band_confidence:.1%}, and {ours.band_accuracy:.1%} of them are right."
    ]


def rerank_sentence(evaluation: Evaluation) -> str:
    """How the confidence does on passages that callers bring."""
    ours = evaluation.table[OURS]
    right = ""
    if ours.accuracy_accepted is not None:
        right = f", {ours.right_accepted} ({ours.accuracy_accepted:.1%}) of these right"
    auroc = "-" if math.isnan(ours.auroc) else f"{ours.auroc:.3f}"
    return (
        f"Where callers bring {LENGTHS[0]} to {LENGTHS[-1]} passages: AUROC {auroc}, smECE "
        f"{ours.smece:.3f} (exactly calibrated: up to {ours.smece_floor95:.3f}); {ours.accepted} "
        f"of {ours.n} are at >= {ours.threshold:g}{right}. Nothing is certified there. "
        f"{CUT_FROM_SEARCH}"
    )


def table_note(ours: Reliability) -> str:
    """How to read the comparison."""
    return (
        "AUROC: is a higher confidence right more often (0.5: no, 1: always)? Brier and smECE: "
        "error of the probabilities, lower is better; exactly calibrated ones would show smECE up "
        f"to {ours.smece_floor95:.3f} here. Of the queries at >= {ours.threshold:g}, that share or "
        f"more should be right; our {ours.accepted} are worth {ours.effective_accepted:.0f} "
        "independent ones by group, and the lower bound is no higher than theirs."
    )


def report_figures(report: Report) -> dict[str, Figure]:
    """The pictures of a run by file name, in the order of the page."""
    with optional():
        from calibration import plots

    evaluation, name = report.evaluation, report.name
    ours, threshold = evaluation.confidences[OURS], evaluation.table[OURS].threshold
    others = {way: p for way, p in evaluation.confidences.items() if way != OURS}
    certified = None if len(evaluation.fold_maps) > 1 else report.fitted.maps.certificate.threshold
    figures = {
        "reliability": plots.reliability_diagram(
            evaluation.right,
            ours,
            report.curves.bins,
            title=f"{name}, {report.planned.report_split}: {report.fitted.calibrator}",
            threshold=threshold,
        ),
        "risk_coverage": plots.risk_coverage_curve(
            evaluation.right,
            {OURS: ours, **others},
            threshold=threshold,
            certified={} if certified is None else {OURS: certified},
        ),
        "histogram": plots.confidence_histogram(evaluation.right, ours, threshold=threshold),
    }
    for one in report.explained:
        below, base, p = f"confidence {one.confidence:.2f}", one.base, one.confidence
        figures[one.file] = plots.feature_effects(
            one.names, one.contributions, base=base, confidence=p, title=one.title, below=below
        )
    steps = report.steps
    figures["features"] = plots.feature_groups(
        [step.name for step in steps],
        [step.saved for step in steps],
        [step.saved_interval for step in steps],
        notes=[f"{step.features} features, AUROC {step.auroc:.3f}" for step in steps],
        below=f"{len(report.planned.fit):,} queries fitted on, {len(ours):,} measured",
    )
    return figures


def report_pictures(figures: Mapping[str, Figure]) -> dict[str, Picture]:
    """The figures, drawn."""
    from calibration.plots import draw

    return {name: draw(figure) for name, figure in figures.items()}


MODE_HEADINGS: dict[Mode, str] = {  # mode -> which answers a recalibration is about
    "search": "Searches",
    "rerank": "Passages that callers bring",
    "lists": "Lists with scores",
}
BOUNDS = "Lower bounds are of new groups: the labels of one group count as dependent."
NOTE = (
    "before: the model as it was; after: moved by labels of other queries than the one that it "
    "judges (cross-fitted), an estimate for the new model. AUROC cannot change much: an update "
    "keeps the order of the confidences. Brier and smECE: error of the probabilities, lower is "
    "better."
)


def recalibration_sections(
    recalibrations: Mapping[Mode, Recalibration],
    notes: Sequence[str],
    pictures: Mapping[str, Picture],
) -> list[Section]:
    """What was learned of each mode, notes on the labels, and the drawn pictures."""
    sections = [
        Section(MODE_HEADINGS[m], one.sentences(), table=one.table.cells(), ours="after", note=NOTE)
        for m, one in recalibrations.items()
    ]
    in_groups = [len(set(one.groups)) < len(one.groups) for one in recalibrations.values()]
    remarks = [*([BOUNDS] if any(in_groups) else []), *notes]
    if remarks:
        sections.append(Section("Notes on the labels", remarks))
    return [*sections, *pictured("Is the confidence calibrated?", pictures, *pictures)]


def recalibration_pictures(recalibrations: Mapping[Mode, Recalibration]) -> dict[str, Picture]:
    """Reliability diagrams before and after, by file name, which has the mode after the first."""
    with optional():
        from calibration.plots import reliability_diagram

    figures = {}
    for number, (mode, of_mode) in enumerate(recalibrations.items()):
        for name, p in (("before", of_mode.before), ("after", of_mode.after)):
            bins = reliability_bins(of_mode.right, p, groups=of_mode.groups)
            title, at = f"{MODE_HEADINGS[mode]}: {name} the new labels", of_mode.table["before"]
            file = f"reliability_{name}" if number == 0 else f"{mode}_reliability_{name}"
            figures[file] = reliability_diagram(
                of_mode.right, p, bins, title=title, threshold=at.threshold
            )
    return report_pictures(figures)
