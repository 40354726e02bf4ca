"""`rerank finetune`."""

from __future__ import annotations

import argparse

from rerank.commands.command import Command
from rerank.commands.options import from_options
from rerank.commands.training import add_training, finish, training_sets
from rerank.config import FinetuneConfig


def _run(o: argparse.Namespace) -> None:
    from rerank.jobs.finetune import finetune

    config = from_options(FinetuneConfig, o)
    made = finetune(training_sets(o), o.out, config, work=o.work, overwrite=o.overwrite)
    finish(o, made, "cross-encoder")


COMMAND = Command(
    "finetune",
    "train a cross-encoder on labelled sets",
    "finetune datasets/pydata my-set:2000 --out work/reranker --steps 600",
    add_training,
    _run,
    config=FinetuneConfig,
    resumes=True,
)
