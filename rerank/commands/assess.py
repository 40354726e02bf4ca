"""`rerank assess`."""

from __future__ import annotations

import argparse
import json

from rerank.commands.command import Command
from rerank.commands.inputs import load_model
from rerank.commands.options import add_json, add_model


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument("queries", nargs="+", metavar="QUERY", help="in plain words")
    p.add_argument(
        "--full", action="store_true", help="print every signal and what to do about it too"
    )
    add_json(p, "print one JSON object a query, with every signal")


def _run(o: argparse.Namespace) -> None:
    from rerank.rag.retrieval_assessment import assess_with
    from rerank.types import Query

    model = load_model(o)
    queries = [Query(text, str(i)) for i, text in enumerate(o.queries, start=1)]
    for query, assessment in zip(queries, model.assess(queries), strict=True):
        found = assess_with(model, assessment)
        if o.json:
            print(json.dumps({"query_id": query.query_id, "query": query.text, **found.to_dict()}))
        else:
            print(found.text() if o.full else found.headline())


COMMAND = Command(
    "assess",
    "say how good the retrieval of a query is, and with --full why",
    'assess work/model "median along an axis while ignoring NaNs" --full',
    _arguments,
    _run,
)
