"""`rerank search`."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from rerank.commands.command import Command
from rerank.commands.inputs import load_model
from rerank.commands.journaling import Record, add_kept_journal, journal_kept
from rerank.commands.options import add_json, add_model
from rerank.commands.printing import print_passages, two_digits
from rerank.errors import InputError

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.config import Thresholds
    from rerank.types import Assessment

SHOWN = 3  # passages that are printed
CUT = 60  # characters of each


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument("queries", nargs="+", metavar="QUERY", help="in plain words")
    p.add_argument(
        "--segment",
        metavar="NAME",
        help="segment of the queries, where the model was calibrated with --segment-by",
    )
    add_json(p, "print one JSON object a query, with all passages")
    add_kept_journal(p)


def _run(o: argparse.Namespace) -> None:
    with journal_kept(o) as record:
        _search(load_model(o), o, record)


def _search(model: CalibratedReranker, o: argparse.Namespace, record: Record) -> None:
    from rerank.types import Query

    if o.segment and not model.segment_by:
        raise InputError(f"{o.model} has no segments; calibrate it with --segment-by")
    metadata = {model.segment_by: o.segment} if o.segment else {}
    queries = [Query(text, str(i), metadata) for i, text in enumerate(o.queries, start=1)]
    start = time.perf_counter()
    assessed = model.assess(queries)
    latency = (time.perf_counter() - start) / len(queries)
    for query, found in zip(queries, assessed, strict=True):
        answer_id = record(found, model=model.version, latency=latency)
        if o.json:
            named = {"id": answer_id} if answer_id else {}
            print(json.dumps({**named, **_with_texts(query.text, found)}))
            continue
        _print_assessment(query.text, found, model.pipeline.config.thresholds)
        if answer_id:
            print(f"  answer id {answer_id}")


def _with_texts(query: str, assessment: Assessment) -> dict[str, Any]:
    """A prediction with the texts of its query and passages."""
    record = assessment.to_dict()
    passages = [
        {**numbers, "title": passage.title, "text": passage.text}
        for numbers, passage in zip(record["ranking"], assessment.passages, strict=True)
    ]
    return {"query": query, **record, "ranking": passages}


def _print_assessment(query: str, assessment: Assessment, thresholds: Thresholds) -> None:
    print(f"\n{query}")
    advice = "accepted" if assessment.accepted else "advisory only"
    advice = advice if assessment.calibrated else "not calibrated"
    if assessment.certified:
        advice += ", certified"
    t = thresholds
    confidence = two_digits(assessment.confidence, (t.low, t.medium, t.high))
    sufficiency = two_digits(assessment.sufficiency, (t.partial, t.sufficient))
    print(f"  confidence {confidence}  {assessment.level}, {advice}; ", end="")
    print(f"sufficiency {sufficiency}  {assessment.verdict}")
    print_passages(assessment.first(SHOWN), CUT)
    for reason in assessment.reasons:
        print(f"     {reason}")


COMMAND = Command(
    "search",
    "answer queries, with a confidence each",
    'search work/model "median along an axis while ignoring NaNs"',
    _arguments,
    _run,
)
