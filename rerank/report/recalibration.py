"""What a recalibration says of itself: its text, its picture, and a page of both."""

from __future__ import annotations

from calibration.monitoring.recalibration import Recalibration
from calibration.plots.picture import Picture
from rerank.errors import optional
from rerank.report.html import Section, Table, Text, html_page

NOTE = (
    "before: the model as it was; after: moved by labels of other queries than the one that it "
    "judges (cross-fitted), as the new model will fare. AUROC cannot change much: an update keeps "
    "the order of the confidences. Brier and smECE: error of the probabilities, lower is better."
)


def recalibration_text(found: Recalibration) -> str:
    """What a run prints."""
    return "\n".join(found.sentences()) + f"\n\n{found.table.table()}\n"


def recalibration_pictures(found: Recalibration) -> dict[str, Picture]:
    """Reliability before and after, by the name of their file."""
    with optional():
        from calibration.plots.confidence import reliability_diagram
        from calibration.plots.style import draw

    threshold = found.table["before"].threshold
    shown = {"before": found.before, "after": found.after}
    return {
        f"reliability_{name}": draw(
            reliability_diagram(
                found.right,
                p,
                title=f"{name.capitalize()} the new labels",
                threshold=threshold,
                groups=found.groups,
            )
        )
        for name, p in shown.items()
    }


def recalibration_page(found: Recalibration, pictures: dict[str, Picture]) -> str:
    """The page: HTML that stands alone."""
    first, *others = found.sentences()
    head, *rows = found.table.cells()
    names = [row[0] for row in rows]
    table = Table(head, rows, note=NOTE, ours=names.index("after"))
    return html_page(
        "A model moved by new labels",
        first,
        [
            Section("", [Text(others[0], weight=True), *(Text(s) for s in others[1:])]),
            Section("Before and after, on the same labels", [table]),
            Section("Is the confidence true?", list(pictures.values())),
        ],
    )
