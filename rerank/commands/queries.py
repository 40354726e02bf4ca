"""Queries that are typed: their segment, and their assessments, which a journal may record."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rerank.commands.printing import note
from rerank.errors import nearest

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.rag.answer.model_answers import Record
    from rerank.types import Assessment, Query


def add_segment(p: argparse.ArgumentParser) -> None:
    """Add `--segment`."""
    p.add_argument(
        "--segment",
        metavar="NAME",
        help="segment of the query, if the model was calibrated with --segment-by",
    )


def typed_queries(
    model: CalibratedReranker, texts: Sequence[str], segment: str | None
) -> list[Query]:
    """The queries, with ids from 1 up; a note says if no segment was given or fitted.

    Raises:
        InputError: the model has no segments.
    """
    from rerank.types import Query

    metadata = model.of_segment(segment or "")
    if segment and segment not in model.segments:
        note(
            f"nothing was fitted for {model.segment_by} {segment!r}, so the confidence is that of "
            f"all queries{nearest(segment, model.segments)}"
        )
    if model.segment_by and not segment:
        note(f"no {model.segment_by} with --segment, so the confidence is that of all queries")
    return [Query(text, str(i), metadata) for i, text in enumerate(texts, start=1)]


def assess_recorded(
    model: CalibratedReranker, queries: Sequence[Query], record: Record
) -> list[tuple[Assessment, str]]:
    """Each query's assessment, with its id in the journal; "" without a journal."""
    start = time.perf_counter()
    assessed = model.assess(queries)
    latency = (time.perf_counter() - start) / len(queries)
    return [(found, record(found, model=model.version, latency=latency)) for found in assessed]
