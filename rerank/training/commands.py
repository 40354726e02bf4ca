"""`rerank train cross-encoder` and `train bi-encoder`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rerank.commands.command import command
from rerank.commands.options import WORK, Json, Out, Overwrite, Reading, Work
from rerank.commands.printing import print_json, print_run, run_fields
from rerank.config import Option
from rerank.errors import InputError
from rerank.training.settings import EncoderConfig, FinetuneConfig

if TYPE_CHECKING:
    from rerank.training.mining import TrainingSet


@dataclass(frozen=True, slots=True)
class Training:
    """The sets to train on, where the model goes, and what is left out."""

    datasets: Annotated[
        tuple[str, ...],
        Option("BEIR folders, or folders with pairs.jsonl", metavar="SET[:EXAMPLES]"),
    ]
    reading: Reading
    _: KW_ONLY
    out: Out
    overwrite: Overwrite = False
    split: Annotated[str, Option("split to train on")] = "train"
    pack: Annotated[Path | None, Option("also write small int8 weights into this folder")] = None
    within_group: Annotated[
        tuple[str, ...],
        Option(
            "sets whose questions do not name their subject: wrong passages are of the same group",
            metavar="NAME",
        ),
    ] = ()
    leave_out: Annotated[
        tuple[Path, ...],
        Option(
            "sets to measure on later: what they ask, and what answers it, is not trained on",
            metavar="SET",
        ),
    ] = ()
    work: Work = WORK
    json: Json = False

    def sets(self, base: str) -> list[TrainingSet]:
        """The sets to train on, without what is left out; refuses what would fail at the end."""
        from rerank.inference.model_files import resolve
        from rerank.inference.small_weights import check_can_pack, tensors_to_pack
        from rerank.training.mining import TrainingSet, leave_out

        if self.pack:
            check_can_pack(self.pack)
            tensors_to_pack(resolve(base).folder, resolve("minilm").folder)  # else hours are lost
        folders: list[Path] = []
        limits: list[int | None] = []
        for given in self.datasets:
            folder, _, limit = given.partition(":")
            if limit and not limit.isdecimal():
                expected = "expected FOLDER or FOLDER:EXAMPLES, such as squad:2000"
                raise InputError(f"{given!r}: {expected}")
            folders.append(Path(folder))
            limits.append(int(limit) if limit else None)
        labelled = self.reading.read_all(folders)
        for one in labelled:
            one.refuse_lists()
        names = [one.name for one in labelled]
        if unknown := sorted(set(self.within_group) - set(names)):
            raise InputError(f"--within-group: no set {unknown}; there are {names}")
        held = [self.reading.read_one(folder) for folder in self.leave_out]
        if self.reading.group_by:
            held = [other.grouped_by(self.reading.group_by) for other in held]
        return [
            TrainingSet(
                leave_out(s, held, self.split), self.split, limit, s.name in self.within_group
            )
            for s, limit in zip(labelled, limits, strict=True)
        ]

    def run(self, config: FinetuneConfig | EncoderConfig, kind: str, key: str) -> None:
        """Train, pack the weights if that is asked for, and print what was made."""
        from rerank.training.finetune import finetune

        sets = self.sets(config.base)
        made = finetune(sets, self.out, config, work=self.work, overwrite=self.overwrite)
        if self.pack:
            from rerank.inference.model_files import resolve
            from rerank.inference.small_weights import pack_finetuned

            pack_finetuned(self.out, self.pack, base=resolve("minilm").folder)
        examples, step = made.report["examples"], made.report["best_step"]
        if self.json:
            named = {key: self.out, "made": made.made, "examples": examples, "best_step": step}
            print_json(**named, packed=self.pack, notes=made.notes, **run_fields(made.run))
            return
        average = made.report["config"]["average"]
        kept = f"step {step}" if average == 1 else f"the mean of the last {average} checkpoints"
        print(f"{self.out}: a {kind}; {examples} examples to draw from, {kept} is kept")
        if not made.made:
            print("it was there already, made from the same sets, settings and weights")
        print_run(made.run, made.notes)
        if self.pack:
            print(f"{self.pack}: packed weights and manifest")


@command("datasets/pydata my-set:2000 --out work/reranker --steps 600", resumes=True)
def cross_encoder(training: Training, config: FinetuneConfig) -> None:
    """Train a cross-encoder on labelled sets."""
    training.run(config, "cross-encoder", "reranker")


@command("datasets/pydata my-set:2000 --out work/encoder --steps 300", resumes=True)
def bi_encoder(training: Training, config: EncoderConfig) -> None:
    """Train a bi-encoder on labelled sets."""
    training.run(config, "bi-encoder", "encoder")
