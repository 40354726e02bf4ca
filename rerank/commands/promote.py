"""`rerank promote`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from rerank.commands.command import Command
from rerank.commands.inputs import read_dataset
from rerank.commands.options import add_group_by, add_json, add_split, add_work, from_options
from rerank.commands.printing import note, print_json
from rerank.config import PromotionGate


def _arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("model", type=Path, help="model folder")
    p.add_argument("dataset", type=Path, help="BEIR folder, or labelled lists, to measure on")
    add_split(p, "test", "split to measure on")
    p.add_argument(
        "--new-corpus",
        action="store_true",
        help="replace a champion of another corpus, with which the model is not compared",
    )
    add_group_by(p)
    add_work(p)
    add_json(p)


def _run(o: argparse.Namespace) -> bool:
    from rerank.assessment.model_folder import RETRIEVER, open_folder
    from rerank.jobs.promote import promote
    from rerank.storage.locks import reserved

    gate = from_options(PromotionGate, o)
    labelled = read_dataset(o, corpus_elsewhere=RETRIEVER in open_folder(o.model).manifest)
    with reserved(o.model, to_read=True):  # so that the measured model is the promoted one
        done = promote(o.model, labelled, o.split, gate, work=o.work, new_corpus=o.new_corpus)
    if o.json:
        print_json(promoted=done.version is not None, **asdict(done))
    else:
        for one in done.notes:
            note(one)
        print(done.table())
        print(done.sentence)
    return done.version is not None


COMMAND = Command(
    "promote",
    "make a model the champion, if it passes the gate; exit code 1: it does not",
    "promote work/model datasets/pydata --split test",
    _arguments,
    _run,
    config=PromotionGate,
    resumes=True,
)
