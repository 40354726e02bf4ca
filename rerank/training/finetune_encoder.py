"""The training job of the bi-encoder: labelled sets in; a tracked model folder out.

Index with the base, mine one wrong passage per question, train, write, track. The folder it writes
is an ordinary bi-encoder of sentence-transformers, for `--encoder`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rerank.config import Config
from rerank.errors import InputError
from rerank.inference.model_files import ModelFiles, check_bi_encoder, resolve
from rerank.jobs.pipelines import open_index
from rerank.retrieval.dense import Encoder
from rerank.storage.locks import reserved
from rerank.training.mining import Example, mine
from rerank.training.run import (
    Trained,
    TrainingRun,
    architecture,
    check_layers,
    checkpoints_of,
    run_training,
    too_large_groups,
)
from rerank.training.settings import EncoderConfig, FinetuneConfig
from rerank.training.training_sets import TrainingSet, split_validation
from rerank.workspace import Workspace


def finetune_encoder(
    sets: Sequence[TrainingSet],
    out: Path,
    config: EncoderConfig,
    *,
    work: str | Path,
    overwrite: bool = False,
) -> TrainingRun:
    """Run the whole job and write the model folder `out`, whole or not at all.

    Queries without a right passage are left out. Indexes and checkpoints are kept under `work`;
    after an interruption, the same call resumes from them. If `out` already holds the model of the
    same sets and settings, it is not rebuilt. `out/finetune.json` and `out/trained_on.txt` are
    those of `rerank.training.finetune.finetune`.

    Raises:
        InputError: there is no set, none has a query with a right passage, or the base does not
            exist or is not a bi-encoder.
        FolderError: `out` exists, is another model, and `overwrite` is False; or another job uses
            it.
        TrackingError: the model is written, but MLflow did not accept its record.
    """
    workspace = Workspace(Path(work))
    base = resolve(config.base)

    def train_on_lists(made_from: Mapping[str, Any]) -> Trained:
        check_bi_encoder(base)
        layers = getattr(architecture(base, config.max_length), "num_hidden_layers", None)
        check_layers(layers, frozen=config.frozen_layers)
        mined = _mine_all(sets, base, config, workspace)
        lists = {name: list(map(asdict, examples)) for name, examples in mined.items()}
        checkpoints = checkpoints_of(workspace, made_from, lists)
        from rerank.training.encoder_trainer import train_encoder

        with reserved(checkpoints):
            model, loss = train_encoder(mined, base, checkpoints, config)
        return Trained(
            model,
            checkpoints,
            queries=[example.query for examples in mined.values() for example in examples],
            counts=[{"examples": len(examples)} for examples in mined.values()],
            figures={"loss": loss, "best_step": config.steps},
        )

    return run_training(
        "bi-encoder",
        sets,
        base,
        config,
        out,
        workspace,
        fingerprints={"base": base.fingerprint},
        train=train_on_lists,
        overwrite=overwrite,
    )


def _mine_all(
    sets: Sequence[TrainingSet], base: ModelFiles, config: EncoderConfig, work: Workspace
) -> Mapping[str, list[Example]]:
    """The lists of each set, by its name: a right passage, and a wrong one if one was found."""
    encoder = Encoder(base, max_length=config.max_length)
    mining = FinetuneConfig(
        encoder=config.base, hard=1, easy=0, depth=config.depth, seed=config.seed
    )
    name, count = Counter(s.labelled.name for s in sets).most_common(1)[0]
    if count > 1:
        raise InputError(f"{count} sets are named {name!r}; rename a folder")
    mined: dict[str, list[Example]] = {}
    for training_set in sets:
        labelled, split = training_set.labelled, training_set.split
        answerable = tuple(i for i in labelled.splits[split] if labelled.relevant(i))
        labelled = replace(labelled, splits={**labelled.splits, split: answerable})
        ids, _ = split_validation(labelled, split, 0, seed=config.seed, limit=training_set.limit)
        if answerable and not ids:
            raise too_large_groups(training_set)
        random.Random(f"{config.seed}:{labelled.name}:mix").shuffle(ids)
        index = None
        if not training_set.within:
            indexed = replace(Config(), encoder=config.base, encoder_max_length=config.max_length)
            index = open_index(labelled, indexed, work, encoder)
        mined[labelled.name] = (
            mine(labelled, ids, index, encoder, mining, limit=training_set.limit) if ids else []
        )
    if not any(mined.values()):
        raise InputError("no query of these sets has a right passage; a bi-encoder learns from one")
    return mined
