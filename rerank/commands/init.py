"""`rerank init`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rerank.commands.command import Command
from rerank.commands.options import (
    add_json,
    add_on_bad_lines,
    add_options,
    add_out,
    add_work,
    from_options,
)
from rerank.commands.printing import print_json
from rerank.config import Config
from rerank.errors import command_line


def _arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("corpus", type=Path, help="JSONL file, or a folder with corpus.jsonl")
    add_out(p, "model")
    add_options(p, Config, "encoder_windows", "dense", "language")
    add_on_bad_lines(p)
    add_work(p)
    add_json(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.jobs.init import NOT_CALIBRATED, init

    init(
        o.corpus,
        o.out,
        from_options(Config, o),
        work=o.work,
        overwrite=o.overwrite,
        on_bad_lines=o.on_bad_lines,
    )
    if o.json:
        print_json(model=o.out, calibrated=False)
        return
    print(f"{o.out}: a model to search with. {NOT_CALIBRATED}")
    print(f"Next: {command_line('search', o.out, 'a query of yours')}")


COMMAND = Command(
    "init",
    "make a model that searches a corpus without labels; it is not calibrated",
    "init datasets/pydata --out work/unlabelled",
    _arguments,
    _run,
    resumes=True,
)
