"""The report of a recalibration: its text, its pictures, and a page of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibration.curves import reliability_bins
from calibration.monitoring.recalibration import Recalibration
from rerank.errors import optional
from rerank.report.html import html_page

if TYPE_CHECKING:
    from calibration.plots.picture import Picture

NOTE = (
    "before: the model as it was; after: moved by labels of other queries than the one that it "
    "judges (cross-fitted), as the new model will fare. AUROC cannot change much: an update keeps "
    "the order of the confidences. Brier and smECE: error of the probabilities, lower is better."
)


def recalibration_text(recalibration: Recalibration) -> str:
    """What a run prints."""
    return "\n".join(recalibration.sentences()) + f"\n\n{recalibration.table.table()}\n"


def recalibration_pictures(recalibration: Recalibration) -> dict[str, Picture]:
    """Reliability diagrams before and after, by file name."""
    with optional():
        from calibration.plots.confidence import reliability_diagram
        from calibration.plots.style import draw

    threshold = recalibration.table["before"].threshold
    shown = {"before": recalibration.before, "after": recalibration.after}
    return {
        f"reliability_{name}": draw(
            reliability_diagram(
                recalibration.right,
                p,
                reliability_bins(recalibration.right, p, groups=recalibration.groups),
                title=f"{name.capitalize()} the new labels",
                threshold=threshold,
            )
        )
        for name, p in shown.items()
    }


def recalibration_page(recalibration: Recalibration, pictures: dict[str, Picture]) -> str:
    """The page, as self-contained HTML."""
    first, *others = recalibration.sentences()
    return html_page(
        "recalibration",
        title="A recalibrated model",
        below=first,
        sentences=others,
        comparison=recalibration.table.cells(),
        note=NOTE,
        pictures=pictures.values(),
    )
