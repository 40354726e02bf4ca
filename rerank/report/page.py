"""The visual report of a run: its pictures, and one page with everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rerank.config import Config
from rerank.errors import optional
from rerank.evaluation.measure import OURS
from rerank.report.glossary import glossary
from rerank.report.headline import headline
from rerank.report.html import html_page
from rerank.report.report import Report, flatten
from rerank.report.sentences import (
    band_sentence,
    certificate_sentences,
    confidence_sources,
    groups_sentence,
    rerank_sentence,
    scored_sentence,
    split_sentences,
    table_note,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibration.plots.picture import Picture


def report_figures(report: Report) -> dict[str, Figure]:
    """The pictures of a run by file name, in the order of the page."""
    with optional():
        from calibration.plots import ablation
        from calibration.plots import confidence as plots

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
    for explained in report.explained:
        figures[explained.file] = ablation.feature_effects(
            explained.names,
            explained.contributions,
            base=explained.base,
            confidence=explained.confidence,
            title=explained.title,
            below=f"confidence {explained.confidence:.2f}",
        )
    figures["features"] = ablation.feature_groups(
        [step.name for step in report.steps],
        [step.saved for step in report.steps],
        [step.saved_interval for step in report.steps],
        notes=[f"{step.features} features, AUROC {step.auroc:.3f}" for step in report.steps],
        below=f"{len(report.planned.fit):,} queries fitted on, {len(ours):,} measured",
    )
    budgets = report.budgets
    if len(budgets.labels) > 1:
        figures["labels"] = ablation.label_budget(
            budgets.labels,
            {"log loss": budgets.log_loss, "smECE": budgets.smece},
            {"accepted": budgets.accepted, "right, of the accepted": budgets.accepted_right},
            threshold=budgets.threshold,
            below=f"{len(ours):,} queries measured, {len(budgets.smece[0])} subsets of each size",
        )
    return figures


def report_pictures(figures: Mapping[str, Figure]) -> dict[str, Picture]:
    """The figures, drawn."""
    from calibration.plots.style import draw

    return {name: draw(figure) for name, figure in figures.items()}


def report_page(report: Report, pictures: Mapping[str, Picture]) -> str:
    """The page, as self-contained HTML. `pictures` are drawn `report_figures`."""
    evaluation, fitted = report.evaluation, report.fitted
    return html_page(
        "report",
        title=f"{report.name}: is the confidence calibrated?",
        below=report.planned.reported,
        headline=headline(evaluation, fitted.maps.certificate),
        certificate=certificate_sentences(report),
        near=band_sentence(report),
        comparison=evaluation.table.cells(),
        comparison_note=table_note(report),
        ours=OURS,
        sources=confidence_sources(report).items(),
        explained=report.explained,
        orders=evaluation.orders_cells(),
        events=evaluation.events_cells(),
        caller_passages=rerank_sentence(report),
        queries=[*split_sentences(report), groups_sentence(report), scored_sentence(report)],
        calibrator=f"{fitted.calibrator}. {fitted.reason}",
        made_from=[(key, _as_text(value)) for key, value in flatten(report.made_from).items()],
        glossary=glossary(Config.from_dict(report.made_from.get("config", {}))),
        pictures=pictures,
    )


def _as_text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
