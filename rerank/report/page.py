"""The report of a run to look at: its pictures, and one page that holds all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from calibration.plots.picture import Picture
from rerank.errors import optional
from rerank.evaluation.evaluate import OURS
from rerank.report.headline import accepted_sentence
from rerank.report.html import Folded, Part, Section, Table, Text, html_page
from rerank.report.report import (
    Report,
    band_sentence,
    certificate_sentences,
    flat,
    given_sentence,
    groups_sentence,
    scored_sentence,
    split_sentences,
    table_note,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def report_figures(report: Report) -> dict[str, Figure]:
    """The pictures of a run by the name of their file, in the order of the page."""
    with optional():
        from calibration.plots import confidence as plots
        from calibration.plots import inputs as plots_of_inputs

    evaluation, name = report.evaluation, report.name
    ours, threshold = evaluation.confidences[OURS], evaluation.table[OURS].threshold
    others = {way: p for way, p in evaluation.confidences.items() if way != OURS}
    certified = report.fitted.maps.certificate.threshold
    found = {
        "reliability": plots.reliability_diagram(
            evaluation.right,
            ours,
            title=f"{name}, {report.planned.report_split}: {report.fitted.calibrator}",
            threshold=threshold,
            groups=evaluation.labelled.groups,
        ),
        "risk_coverage": plots.risk_coverage_curve(
            evaluation.right,
            {OURS: ours, **others},
            threshold=threshold,
            certified={} if certified is None else {OURS: certified},
        ),
        "histogram": plots.confidence_histogram(evaluation.right, ours, threshold=threshold),
    }
    for each in report.explained:
        found[each.file] = plots_of_inputs.feature_effects(
            each.names,
            each.moves,
            base=each.base,
            confidence=each.confidence,
            title=each.title,
            below=f"confidence {each.confidence:.2f}",
        )
    found["features"] = plots_of_inputs.feature_groups(
        [step.name for step in report.steps],
        [step.saved for step in report.steps],
        [step.saved_interval for step in report.steps],
        notes=[f"{step.features} features, AUROC {step.auroc:.3f}" for step in report.steps],
        below=f"{len(report.planned.fit):,} queries fitted on, {len(ours):,} measured",
    )
    budgets = report.budgets
    if len(budgets.labels) > 1:
        found["labels"] = plots_of_inputs.label_budget(
            budgets.labels,
            {"log loss": budgets.log_loss, "smECE": budgets.smece},
            {"accepted": budgets.accepted, "right, of the accepted": budgets.accepted_right},
            threshold=budgets.threshold,
            below=f"{len(ours):,} queries measured, {len(budgets.smece[0])} subsets of each size",
        )
    return found


def report_pictures(figures: Mapping[str, Figure]) -> dict[str, Picture]:
    """The figures, drawn."""
    from calibration.plots.style import draw

    return {name: draw(figure) for name, figure in figures.items()}


def report_page(report: Report, pictures: Mapping[str, Picture]) -> str:
    """The page: HTML that stands alone. `pictures` are drawn `report_figures`."""
    evaluation, fitted = report.evaluation, report.fitted
    split = report.planned.report_split
    head, *rows = evaluation.table.cells()
    worth = [Text(accepted_sentence(report.evaluation), weight=True)]
    near = band_sentence(report)
    if near:
        worth.append(Text(near))
    worth.append(Text("Certificate: " + " ".join(certificate_sentences(report))))
    sections = [
        Section("", worth),
        Section(
            "Ways of being confident, on the same queries",
            [Table(head, rows, note=table_note(report), ours=_place(rows, OURS))],
        ),
        Section("Is the confidence true?", _some(pictures, "reliability", "histogram")),
        Section("What does selecting by it buy?", _some(pictures, "risk_coverage")),
        Section("Two answers explained", list(_explained(report, pictures))),
        Section("What it rests on", [*_some(pictures, "features"), *_labels(report, pictures)]),
        Section("The order of the passages", [_orders(report)]),
        Section(
            "Probabilities beside the confidence", [_events(report), Text(given_sentence(report))]
        ),
        Section(
            "The queries",
            [
                Text(s)
                for s in (
                    *split_sentences(report),
                    groups_sentence(report),
                    scored_sentence(report),
                )
            ],
        ),
        Section(
            "The calibrator", [Text(f"{fitted.calibrator}. {fitted.reason}"), _details(report)]
        ),
    ]
    return html_page(
        f"{report.name}: how true is the confidence?",
        f"Measured on {len(evaluation.right):,} queries ({split}) that were not fitted on.",
        [section for section in sections if section.parts],
    )


def _some(pictures: Mapping[str, Picture], *names: str) -> list[Part]:
    return [pictures[name] for name in names if name in pictures]


def _explained(report: Report, pictures: Mapping[str, Picture]) -> Iterator[Part]:
    for each in report.explained:
        rows = [("query", each.query), ("put first", each.top)]
        if each.answer:
            rows.append(("would be right", each.answer))
        yield Table((), rows, words=True)
        yield pictures[each.file]


def _labels(report: Report, pictures: Mapping[str, Picture]) -> list[Part]:
    note = (
        "In both pictures only the confidence is refitted: the order of the passages, and so which "
        "answers are right, is that of the whole model."
    )
    return [*_some(pictures, "labels"), Text(note)]


def _orders(report: Report) -> Table:
    head, *rows = report.evaluation.orders_cells()
    note = (
        "fused: the first stage alone; logit: the cross-encoder's own order; relevance: by the "
        "calibrated probability of each passage. Intervals are by query group."
    )
    return Table(head, rows, note=note, ours=_place(rows, "relevance"))


def _events(report: Report) -> Table:
    head, *rows = report.evaluation.events_cells()
    note = (
        "Sufficiency is the probability that one of the first k passages is right, relevance that "
        "one passage is. Log loss should be below that of the share, which knows only how often "
        "the event happens."
    )
    return Table(head, rows, note=note)


def _place(rows: list[tuple[str, ...]], name: str) -> int | None:
    return next((i for i, row in enumerate(rows) if row[0] == name), None)


def _details(report: Report) -> Folded:
    rows = [(key, _shown(value)) for key, value in flat(report.made_from).items()]
    table = Table((), rows, words=True)
    return Folded("Data, configuration and fingerprints", [table])


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
