"""`rerank average`."""

from __future__ import annotations

import argparse

from rerank.commands.command import Command
from rerank.commands.options import add_json, add_out
from rerank.commands.printing import print_json
from rerank.commands.training import add_pack, pack, print_packed


def _arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="cross-encoders that were fine-tuned from one base, or the base: names or folders",
    )
    add_out(p, "model")
    add_pack(p)
    add_json(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.inference.int8_weights import check_can_pack
    from rerank.jobs.average import average

    if o.pack:
        check_can_pack(o.pack)
    made = average(o.models, o.out, overwrite=o.overwrite)
    if o.pack:
        pack(made, o.pack)
    if o.json:
        print_json(reranker=made, models=len(o.models), packed=o.pack)
        return
    print(f"{made}: the mean of {len(o.models)} models")
    print_packed(o.pack)


COMMAND = Command(
    "average",
    "average the weights of fine-tuned cross-encoders",
    "average work/reranker minilm-reranker --out work/averaged",
    _arguments,
    _run,
)
