"""The report of a recalibration: its text, its pictures, and a page of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from calibration.curves import reliability_bins
from calibration.monitoring.recalibration import Recalibration
from rerank.errors import optional
from rerank.report.html import html_page
from rerank.types import Mode

if TYPE_CHECKING:
    from calibration.plots.picture import Picture

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


def recalibration_text(recalibrations: Mapping[Mode, Recalibration], notes: Sequence[str]) -> str:
    """What a run prints: of each mode, its sentences and its table; then notes on both."""
    parts = [
        "\n".join(
            [f"{MODE_HEADINGS[mode]}:", *of_mode.sentences(), "", f"{of_mode.table.table()}\n"]
        )
        for mode, of_mode in recalibrations.items()
    ]
    return "\n".join([*parts, *_bounds(recalibrations), *(f"Note: {one}" for one in notes)])


def recalibration_pictures(recalibrations: Mapping[Mode, Recalibration]) -> dict[str, Picture]:
    """Reliability diagrams before and after, by file name, which has the mode after the first."""
    with optional():
        from calibration.plots.confidence import reliability_diagram
        from calibration.plots.style import draw

    pictures = {}
    for number, (mode, of_mode) in enumerate(recalibrations.items()):
        threshold = of_mode.table["before"].threshold
        for name, p in (("before", of_mode.before), ("after", of_mode.after)):
            file = f"reliability_{name}" if number == 0 else f"{mode}_reliability_{name}"
            pictures[file] = draw(
                reliability_diagram(
                    of_mode.right,
                    p,
                    reliability_bins(of_mode.right, p, groups=of_mode.groups),
                    title=f"{MODE_HEADINGS[mode]}: {name} the new labels",
                    threshold=threshold,
                )
            )
    return pictures


def recalibration_page(
    recalibrations: Mapping[Mode, Recalibration],
    pictures: Mapping[str, Picture],
    notes: Sequence[str],
) -> str:
    """The page, as self-contained HTML."""
    parts = {MODE_HEADINGS[mode]: of_mode for mode, of_mode in recalibrations.items()}
    heading, first = next(iter(parts.items()))
    return html_page(
        "recalibration",
        title="A recalibrated model",
        below=f"{heading}: {first.sentences()[0]}",
        parts=[(name, part.sentences(), part.table.cells()) for name, part in parts.items()],
        note=" ".join([NOTE, *_bounds(recalibrations)]),
        notes=notes,
        pictures=pictures.values(),
    )


def _bounds(recalibrations: Mapping[Mode, Recalibration]) -> list[str]:
    """The sentence on lower bounds, if labels of a mode share a group."""
    in_groups = [len(set(one.groups)) < len(one.groups) for one in recalibrations.values()]
    return [BOUNDS] if any(in_groups) else []
