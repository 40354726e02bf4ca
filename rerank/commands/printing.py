"""Output of several commands: the headline of a model, where its run is, and results as JSON."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rerank.config import two_digits

if TYPE_CHECKING:
    from rerank.tracking.runs import TrackedRun
    from rerank.types import RankedPassage


def note(*messages: object) -> None:
    """Print lines that are no errors to stderr."""
    for message in messages:
        print(f"rerank: {printable(str(message))}", file=sys.stderr)


def counted(count: int, thing: str) -> str:
    """A count with its thing, such as "1 question" or "2 questions"."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """The text with a space for each character that could command a terminal, such as ESC."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def print_headline(sentences: Sequence[str], command: str) -> None:
    """Print what is accepted, what is certified, and what to do next; then warnings."""
    print("\n".join([*sentences[:2], f"Next: {command}", *sentences[2:]]))


def print_json(**fields: Any) -> None:
    """Print one JSON object; paths become text, and numbers that are undefined null."""
    from calibration.arrays import plain

    print(json.dumps(plain(fields), default=str))


def tell(json: bool, *lines: str, **fields: Any) -> None:
    """Print the lines, or with `--json` the fields as one JSON object."""
    if json:
        print_json(**fields)
    else:
        print("\n".join(lines))


def print_passages(passages: Iterable[RankedPassage], characters: int) -> None:
    """Print a line per passage: relevance, id, and the first `characters` of its text."""
    for rank, passage in enumerate(passages, start=1):
        text = " ".join(passage.text.split())
        shown = text if len(text) <= characters else f"{text[: characters - 1]}…"
        print(printable(f"  {rank}. {two_digits(passage.relevance)}  {passage.doc_id}  {shown}"))


def run_fields(run: TrackedRun | None) -> dict[str, Any]:
    """A job's run in MLflow as fields of the JSON object; all null without a run."""
    names = ("run_id", "model_name", "model_version", "tracking_uri")
    return {name: getattr(run, name, None) for name in names}


def print_run(run: TrackedRun | None, notes: Sequence[str] = ()) -> None:
    """Print where a job's run is, and the model's name in MLflow; notes go to stderr."""
    note(*notes)
    if run is None:
        return
    version, name = run.model_version, run.model_name
    named = f", model version {version} (models:/{name}/{version})" if version else ""
    print(f"{'already ' if run.found else ''}tracked as run {run.run_id}{named}:")
    served = run.tracking_uri.startswith("http")  # then it is a page to open, else a store
    shown = run.tracking_uri
    print(f"  {shown}" if served else f"  mlflow ui --backend-store-uri {shlex.quote(shown)}")
