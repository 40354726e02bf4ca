"""What the two training commands share: their sets as arguments, and what they print."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.commands.inputs import read_set, read_sets
from rerank.commands.options import add_group_by, add_json, add_out, add_split, add_work
from rerank.commands.printing import print_json, print_run, run_fields
from rerank.errors import InputError

if TYPE_CHECKING:
    from rerank.jobs.training_run import TrainingRun
    from rerank.training.training_sets import TrainingSet

MODELS = {"cross-encoder": "reranker", "bi-encoder": "encoder"}  # as the configuration names them


def add_training(p: argparse.ArgumentParser) -> None:
    """The sets to train on, where the model goes, and what is left out."""
    p.add_argument(
        "datasets",
        nargs="+",
        type=_set,
        metavar="SET[:EXAMPLES]",
        help="BEIR folders, or folders with pairs.jsonl",
    )
    add_out(p, "model")
    add_split(p, "train", "split to train on")
    add_pack(p)
    p.add_argument(
        "--within-group",
        nargs="+",
        default=(),
        metavar="NAME",
        help="sets whose questions do not name their subject: wrong passages are of the same group",
    )
    p.add_argument(
        "--leave-out",
        nargs="+",
        type=Path,
        default=(),
        metavar="SET",
        help="sets to measure on later: what they ask, and what answers it, is not trained on",
    )
    add_group_by(p)
    add_work(p)
    add_json(p)


def training_sets(o: argparse.Namespace) -> list[TrainingSet]:
    """The sets that the command names, without what it leaves out.

    Raises:
        InputError: one cannot be read, holds lists with scores, or has nothing left; a name of
            `--within-group` is of no set; the folder of `--pack` holds something else, or
            what is trained from this base cannot be packed.
    """
    from rerank.inference.int8_weights import check_can_pack, tensors_to_pack
    from rerank.inference.model_files import resolve
    from rerank.training.training_sets import TrainingSet, leave_out

    if o.pack:
        check_can_pack(o.pack)
        tensors_to_pack(resolve(o.base).folder, resolve("minilm").folder)  # else hours are lost
    folders, limits = zip(*o.datasets, strict=True)
    labelled = read_sets(folders, o)
    for one in labelled:
        one.refuse_lists()
    unknown = set(o.within_group) - {s.name for s in labelled}
    if unknown:
        raise InputError(
            f"--within-group: no set {sorted(unknown)}; there are {[s.name for s in labelled]}"
        )
    held = [read_set(folder, o.unjudged, o.on_bad_lines) for folder in o.leave_out]
    if o.group_by is not None:
        held = [other.grouped_by(o.group_by) for other in held]
    return [
        TrainingSet(leave_out(s, held, o.split), o.split, limit, within=s.name in o.within_group)
        for s, limit in zip(labelled, limits, strict=True)
    ]


def finish(o: argparse.Namespace, made: TrainingRun, kind: str) -> None:
    """Pack the weights if that is asked for, and print what was made."""
    if o.pack:
        pack(o.out, o.pack)
    examples, step = made.report["examples"], made.report["best_step"]
    if o.json:
        print_json(
            **{MODELS[kind]: o.out},
            made=made.made,
            examples=examples,
            best_step=step,
            packed=o.pack,
            notes=made.notes,
            **run_fields(made.run),
        )
        return
    average = made.report["config"]["average"]
    kept = f"step {step}" if average == 1 else f"the mean of the last {average} checkpoints"
    print(f"{o.out}: a {kind}; {examples} examples to draw from, {kept} is kept")
    if not made.made:
        print("it was there already, made from the same sets, settings and weights")
    print_run(made.run, made.notes)
    print_packed(o.pack)


def add_pack(p: argparse.ArgumentParser) -> None:
    """The folder of packed weights, if they are wanted."""
    p.add_argument("--pack", type=Path, help="also write small int8 weights into this folder")


def pack(folder: Path, packed: Path) -> None:
    """Pack the model in `folder`."""
    from rerank.inference.int8_weights import pack_finetuned
    from rerank.inference.model_files import resolve

    pack_finetuned(folder, packed, base=resolve("minilm").folder)


def print_packed(packed: Path | None) -> None:
    """Print where the packed weights are, if there are any."""
    if packed:
        print(f"{packed}: packed weights and manifest")


def _set(given: str) -> tuple[Path, int | None]:
    """A folder, and how many examples to take from it."""
    folder, _, limit = given.partition(":")
    if limit and not limit.isdecimal():
        raise argparse.ArgumentTypeError(
            f"{given!r}: expected FOLDER or FOLDER:EXAMPLES, such as squad:2000"
        )
    return Path(folder), int(limit) if limit else None
