"""The report of a recalibration: its sections, and its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from calibration.monitoring.recalibration import Recalibration
from calibration.reliability import reliability_bins
from rerank.errors import optional
from rerank.report.sections import Section, pictured
from rerank.types import Mode

if TYPE_CHECKING:
    from calibration.plots.style import Picture

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
        from calibration.plots.confidence import reliability_diagram
        from calibration.plots.style import draw

    pictures = {}
    for number, (mode, of_mode) in enumerate(recalibrations.items()):
        for name, p in (("before", of_mode.before), ("after", of_mode.after)):
            figure = reliability_diagram(
                of_mode.right,
                p,
                reliability_bins(of_mode.right, p, groups=of_mode.groups),
                title=f"{MODE_HEADINGS[mode]}: {name} the new labels",
                threshold=of_mode.table["before"].threshold,
            )
            file = f"reliability_{name}" if number == 0 else f"{mode}_reliability_{name}"
            pictures[file] = draw(figure)
    return pictures
