"""`rerank search`."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from rerank.commands.command import Command
from rerank.commands.inputs import load_model
from rerank.commands.options import add_json, add_model
from rerank.errors import InputError

if TYPE_CHECKING:
    from rerank.types import Assessment

SHOWN = 3  # passages that are printed


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument("queries", nargs="+", metavar="QUERY", help="in plain words")
    p.add_argument(
        "--segment",
        metavar="NAME",
        help="segment of the queries, where the model was calibrated with --segment-by",
    )
    add_json(p, "print one JSON object a query, with all passages")


def _run(o: argparse.Namespace) -> None:
    from rerank.types import Query

    model = load_model(o)
    if o.segment and not model.segment_by:
        raise InputError(f"{o.model} has no segments; calibrate it with --segment-by")
    metadata = {model.segment_by: o.segment} if o.segment else {}
    queries = [Query(text, str(i), metadata) for i, text in enumerate(o.queries, start=1)]
    for query, found in zip(queries, model.assess(queries), strict=True):
        if o.json:
            print(json.dumps(_with_texts(query.text, found)))
        else:
            _print_assessment(query.text, found)


def _with_texts(query: str, found: Assessment) -> dict[str, Any]:
    """A prediction with the texts that it speaks of."""
    record = found.to_dict()
    passages = [
        {**numbers, "title": passage.title, "text": passage.text}
        for numbers, passage in zip(record["ranking"], found.passages, strict=True)
    ]
    return {"query": query, **record, "ranking": passages}


def _print_assessment(query: str, found: Assessment) -> None:
    print(f"\n{query}")
    advice = "accepted" if found.accepted else "advisory only"
    advice = advice if found.calibrated else "not calibrated"
    if found.certified:
        advice += ", certified"
    print(f"  confidence {found.confidence:.2f}  {found.level}, {advice}; ", end="")
    print(f"sufficiency {found.sufficiency:.2f}  {found.verdict}")
    for rank, passage in enumerate(found.first(SHOWN)):
        text = " ".join(passage.text.split())
        shown = text if len(text) <= 60 else text[:59] + "…"
        print(f"  {rank + 1}. {passage.relevance:.2f}  {passage.doc_id}  {shown}")
    for reason in found.reasons:
        print(f"     {reason}")


COMMAND = Command(
    "search",
    "answer queries, with a confidence each",
    'search work/model "median along an axis while ignoring NaNs"',
    _arguments,
    _run,
)
