"""`rerank assess`."""

from __future__ import annotations

import argparse
import json
import time

from rerank.commands.command import Command
from rerank.commands.inputs import load_model
from rerank.commands.journaling import add_kept_journal, journal_kept
from rerank.commands.options import add_json, add_model


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument("queries", nargs="+", metavar="QUERY", help="in plain words")
    p.add_argument(
        "--full", action="store_true", help="print every signal and what to do about it too"
    )
    add_json(p, "print one JSON object a query, with every signal")
    add_kept_journal(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.rag.retrieval_assessment import assess_with
    from rerank.types import Query

    queries = [Query(text, str(i)) for i, text in enumerate(o.queries, start=1)]
    with journal_kept(o) as record:
        model, start = load_model(o), time.perf_counter()
        assessed = model.assess(queries)
        latency = (time.perf_counter() - start) / len(queries)
        for query, assessment in zip(queries, assessed, strict=True):
            found = assess_with(model, assessment)
            answer_id = record(assessment, model=model.version, latency=latency)
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
