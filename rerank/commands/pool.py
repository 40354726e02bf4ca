"""`rerank pool`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rerank.commands.command import Command
from rerank.commands.options import (
    add_json,
    add_on_bad_lines,
    add_options,
    add_work,
    from_options,
    positive,
)
from rerank.commands.printing import print_json
from rerank.config import Config


def _arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "datasets",
        nargs="+",
        type=Path,
        metavar="SET",
        help="BEIR folders, or folders with pairs.jsonl",
    )
    p.add_argument(
        "--out",
        type=Path,
        required=True,
        help="JSON file to write; found as FOLDER.pooled.json beside the FOLDER of a cross-encoder",
    )
    p.add_argument(
        "--max-queries", type=positive, default=300, help="bound on queries of a set (default: 300)"
    )
    add_options(p, Config, "encoder", "reranker", "max_length", "long_passages", "precision")
    add_on_bad_lines(p)
    add_work(p)
    add_json(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.fitting.leave_one_set_out import markdown_table
    from rerank.jobs.pool import pool_sets

    made = pool_sets(
        o.datasets,
        o.out,
        from_options(Config, o),
        work=o.work,
        max_queries=o.max_queries,
        on_bad_lines=o.on_bad_lines,
    )
    if o.json:
        print_json(maps=o.out, sets=len(made.sets), measured=made.measured["mean"])
        return
    print(f"{o.out}: maps pooled over {len(made.sets)} sets")
    print(markdown_table(made.measured["mean"]))


COMMAND = Command(
    "pool",
    "fit the maps that a model starts from before it has labels, on other labelled sets",
    "pool sets/* --out models/minilm-reranker/pooled.json",
    _arguments,
    _run,
    resumes=True,
)
