"""`rerank average`."""

from __future__ import annotations

import argparse

from rerank.commands.command import Command
from rerank.commands.finetune import add_pack, pack
from rerank.commands.options import add_out


def _arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="cross-encoders that were fine-tuned from one base, or the base: names or folders",
    )
    add_out(p, "model")
    add_pack(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.inference.int8_weights import check_can_pack
    from rerank.jobs.average import average

    if o.pack:
        check_can_pack(o.pack)
    print(f"{average(o.models, o.out, overwrite=o.overwrite)}: the mean of {len(o.models)} models")
    if o.pack:
        pack(o.out, o.pack)


COMMAND = Command(
    "average",
    "average the weights of fine-tuned cross-encoders",
    "average work/reranker minilm-reranker --out work/averaged",
    _arguments,
    _run,
)
