"""`rerank assess`."""

from __future__ import annotations

import argparse
import json

from rerank.commands.command import Command
from rerank.commands.inputs import load_model
from rerank.commands.journaling import add_kept_journal, journal_kept
from rerank.commands.options import add_json, add_model
from rerank.commands.queries import add_segment, assess_recorded, typed_queries


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument("queries", nargs="+", metavar="QUERY", help="question in plain words")
    p.add_argument(
        "--full", action="store_true", help="print every signal and what to do about it too"
    )
    add_segment(p)
    add_json(p, "print one JSON object per query, with every signal")
    add_kept_journal(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.rag.retrieval_assessment import assess_with

    with journal_kept(o) as record:
        model = load_model(o)
        queries = typed_queries(model, o.queries, o.segment)
        for assessment, answer_id in assess_recorded(model, queries, record):
            query, found = assessment.ranking.query, assess_with(model, assessment)
            if o.json:
                named = {"id": answer_id} if answer_id else {}
                names = {**named, "query_id": query.query_id, "query": query.text}
                print(json.dumps({**names, **found.to_dict()}))
                continue
            print(found.text() if o.full else found.headline())
            if answer_id:
                print(f"  answer id {answer_id}")


COMMAND = Command(
    "assess",
    "say how good the retrieval of a query is, and with --full why",
    'assess work/model "median along an axis while ignoring NaNs" --full',
    _arguments,
    _run,
)
