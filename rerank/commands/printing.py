"""Output of several commands: the headline of a model, and where its run is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rerank.commands.inputs import note

if TYPE_CHECKING:
    from rerank.tracking.runs import TrackedRun


def print_headline(sentences: Sequence[str], command: str) -> None:
    """Print what is accepted, what is certified, and what to do next; then warnings."""
    print("\n".join([*sentences[:2], f"Next: {command}", *sentences[2:]]))


def print_run(run: TrackedRun | None, notes: Sequence[str] = ()) -> None:
    """Print where a job's run is, and the model's name in MLflow; notes go to stderr."""
    for one in notes:
        note(one)
    if run is None:
        return
    version, name = run.model_version, run.model_name
    named = f", model version {version} (models:/{name}/{version})" if version else ""
    print(f"{'already ' if run.found else ''}tracked as run {run.run_id}{named}:")
    served = run.tracking_uri.startswith("http")  # then it is a page to open, else a store
    shown = run.tracking_uri
    print(f"  {shown}" if served else f"  mlflow ui --backend-store-uri {shown}")
