"""`rerank finetune-encoder`."""

from __future__ import annotations

import argparse

from rerank.commands.command import Command
from rerank.commands.options import from_options
from rerank.commands.training import add_training, finish, training_sets
from rerank.config import EncoderConfig


def _run(o: argparse.Namespace) -> None:
    from rerank.jobs.finetune_encoder import finetune_encoder

    config = from_options(EncoderConfig, o)
    made = finetune_encoder(training_sets(o), o.out, config, work=o.work, overwrite=o.overwrite)
    finish(o, made, "bi-encoder")


COMMAND = Command(
    "finetune-encoder",
    "train a bi-encoder on labelled sets",
    "finetune-encoder datasets/pydata my-set:2000 --out work/encoder --steps 300",
    add_training,
    _run,
    config=EncoderConfig,
    resumes=True,
)
