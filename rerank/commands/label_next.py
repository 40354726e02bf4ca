"""`rerank label-next`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rerank.commands.command import Command
from rerank.commands.inputs import load_model
from rerank.commands.options import add_json, add_model, add_work, positive
from rerank.commands.printing import print_json
from rerank.errors import command_line


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument("queries", type=Path, help="JSONL file of queries without labels")
    p.add_argument("--count", type=positive, default=50, help="queries to label (default: 50)")
    p.add_argument("--out", type=Path, required=True, help="JSONL file to write")
    p.add_argument(
        "--quantity",
        choices=("accuracy", "map"),
        default="accuracy",
        help="what the labels should tell: how often accepted answers are right, or how true each "
        "confidence is (default: accuracy)",
    )
    p.add_argument("--seed", type=int, default=0, help="seed of the draw (default: 0)")
    p.add_argument("--overwrite", action="store_true", help="replace the file of --out")
    add_work(p)
    add_json(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.batch.output_paths import check_places
    from rerank.data.beir import read_queries
    from rerank.jobs.label_next import label_next

    queries = read_queries(o.queries, passages=True)
    check_places(o.model, o.queries, o.out)
    many = label_next(
        load_model(o),
        queries,
        o.count,
        o.out,
        quantity=o.quantity,
        seed=o.seed,
        overwrite=o.overwrite,
    )
    if o.json:
        print_json(out=o.out, queries=many)
        return
    print(f"{o.out}: {many} queries to label, with their top passages")
    print('Add "right": true or false to each line; then:')
    again = ("--labels", o.out, "--out", f"{o.model}-new")
    print(f"  {command_line('recalibrate', o.model, *again)}")


COMMAND = Command(
    "label-next",
    "choose the queries whose labels tell most, with weights that keep estimates unbiased",
    "label-next work/model queries.jsonl --count 50 --out to-label.jsonl",
    _arguments,
    _run,
    resumes=True,
)
