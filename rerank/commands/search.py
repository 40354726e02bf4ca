"""`rerank search`."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from rerank.commands.command import Command
from rerank.commands.inputs import load_model
from rerank.commands.journaling import add_kept_journal, journal_kept
from rerank.commands.options import add_json, add_model
from rerank.commands.printing import print_passages
from rerank.commands.queries import add_segment, assess_recorded, typed_queries
from rerank.config import two_digits

if TYPE_CHECKING:
    from rerank.config import Thresholds
    from rerank.types import Assessment

SHOWN = 3  # passages that are printed
CUT = 60  # characters of each


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument("queries", nargs="+", metavar="QUERY", help="question in plain words")
    add_segment(p)
    add_json(p, "print one JSON object per query, with all passages")
    add_kept_journal(p)


def _run(o: argparse.Namespace) -> None:
    with journal_kept(o) as record:
        model = load_model(o)
        queries = typed_queries(model, o.queries, o.segment)
        for found, answer_id in assess_recorded(model, queries, record):
            if o.json:
                named = {"id": answer_id} if answer_id else {}
                print(json.dumps({**named, **_with_texts(found)}))
                continue
            _print_assessment(found, model.pipeline.config.thresholds)
            if answer_id:
                print(f"  answer id {answer_id}")


def _with_texts(assessment: Assessment) -> dict[str, Any]:
    """A prediction with the texts of its query and passages."""
    record = assessment.to_dict()
    passages = [
        {**numbers, "title": passage.title, "text": passage.text}
        for numbers, passage in zip(record["ranking"], assessment.passages, strict=True)
    ]
    return {"query": assessment.ranking.query.text, **record, "ranking": passages}


def _print_assessment(assessment: Assessment, thresholds: Thresholds) -> None:
    print(f"\n{assessment.ranking.query.text}")
    advice = "accepted" if assessment.accepted else "advisory only"
    advice = advice if assessment.calibrated else "not calibrated"
    if assessment.certified:
        advice += ", certified"
    t = thresholds
    levels = (t.low, t.medium, t.high)
    confidence = two_digits(assessment.confidence, levels)
    sufficiency = two_digits(assessment.sufficiency, (t.partial, t.sufficient))
    print(f"  confidence {confidence}  {assessment.level}, {advice}; ", end="")
    print(f"sufficiency {sufficiency}  {assessment.verdict}")
    print_passages(assessment.first(SHOWN), CUT, levels)
    for reason in assessment.reasons:
        print(f"     {reason}")


COMMAND = Command(
    "search",
    "answer queries, with a confidence each",
    'search work/model "median along an axis while ignoring NaNs"',
    _arguments,
    _run,
)
