"""The training jobs: labelled sets in; a tracked folder of a cross-encoder or a bi-encoder out.

Index, mine, score with a teacher if there is one, train, write, track. They know nothing of
calibration: a folder is an ordinary one of sentence-transformers, for `--reranker` or `--encoder`.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rerank.config import Config
from rerank.data.checks import query_hash
from rerank.errors import InputError
from rerank.inference.cross_encoder import open_reranker
from rerank.inference.model_files import (
    LOCAL,
    ModelFiles,
    check_bi_encoder,
    classifies,
    resolve,
    trained_on,
)
from rerank.inference.score_cache import ScoreCache
from rerank.inference.tokenizer import positions
from rerank.jobs.pipelines import open_index
from rerank.progress import in_chunks
from rerank.retrieval.dense import Encoder
from rerank.storage.folder import reserved
from rerank.training.mining import (
    Example,
    ValidationQuery,
    mine,
    validation_queries,
    without_misled_teacher,
)
from rerank.training.run import Trained, TrainingRun, run_training
from rerank.training.settings import EncoderConfig, FinetuneConfig, TrainingConfig
from rerank.training.training_sets import (
    TrainingSet,
    examples_per_set,
    split_validation,
    without_overlap,
)
from rerank.workspace import Workspace

CHUNK = 512  # pairs that a teacher scores between two updates of the progress bar


def finetune(
    sets: Sequence[TrainingSet],
    out: Path,
    config: FinetuneConfig,
    *,
    work: str | Path,
    overwrite: bool = False,
) -> TrainingRun:
    """Run the whole job and write the model folder `out`, whole or not at all.

    Indexes, a teacher's scores and checkpoints are kept under `work`; after an interruption, the
    same call resumes from them. If `out` already holds the model of the same sets and settings, it
    is not rebuilt; it is sent to MLflow if it has no run yet. `out/finetune.json` names each set
    with its digest, and holds the curves, and the report of the base if that was fine-tuned too.
    `out/trained_on.txt` holds a hash of every query trained or validated on, those of the base
    included, so that calibration can exclude these: the logits of trained-on queries are too good.

    Raises:
        InputError: there is no set, or a model does not exist.
        FolderError: `out` exists, is another model, and `overwrite` is False; or another job uses
            it.
        TrackingError: the model is written, but MLflow did not accept its record.
    """
    workspace = Workspace(Path(work))
    base, encoder = resolve(config.base), resolve(config.encoder)
    teacher = resolve(config.teacher) if config.teacher else None

    def train_on_lists(made_from: Mapping[str, Any]) -> Trained:
        shape = _architecture(base, config.max_length)
        if classifies(base) and shape.num_labels != 1:
            raise InputError(
                f"{base.name} has {shape.num_labels} outputs; expected one, or no head"
            )
        if config.layers and getattr(shape, "layer_types", None):
            raise InputError(
                f"{base.name} has layers of several kinds: --layers cannot keep only some"
            )
        _check_layers(shape, config)
        if teacher and not (
            classifies(teacher) and _architecture(teacher, config.max_length).num_labels == 1
        ):
            raise InputError(
                f"{teacher.name} gives no score; expected a cross-encoder with one output"
            )
        examples, validation, counts = _mine_all(sets, encoder, trained_on(base), config, workspace)
        lists = [*map(asdict, examples), *map(asdict, validation)]
        checkpoints = _checkpoints_of(workspace, made_from, lists)
        cache = ScoreCache(workspace.scores)
        if teacher:
            examples = [
                without_misled_teacher(example)
                for example in add_teacher_scores(examples, teacher, config, cache)
            ]
        from rerank.training.trainer import train

        with reserved(checkpoints):
            model, shown = train(examples, validation, base, checkpoints, config)
        queries = [e.altered_from or e.query for e in examples] + [q.query for q in validation]
        return Trained(model, checkpoints, queries, counts, asdict(shown))

    return run_training(
        "cross-encoder",
        sets,
        base,
        config,
        out,
        workspace,
        fingerprints={
            "base": base.fingerprint,
            "encoder": encoder.fingerprint,
            "teacher": teacher.fingerprint if teacher else None,
        },
        train=train_on_lists,
        overwrite=overwrite,
    )


def _mine_all(
    sets: Sequence[TrainingSet],
    encoder: ModelFiles,
    seen: frozenset[str],
    config: FinetuneConfig,
    work: Workspace,
) -> tuple[list[Example], list[ValidationQuery], list[dict[str, int]]]:
    """All training lists, all validation lists, and the number of each by set."""
    bi_encoder = Encoder.from_config(encoder, Config())
    examples: list[Example] = []
    validation: list[ValidationQuery] = []
    counts: list[dict[str, int]] = []
    parts = _split_sets(sets, seen, config)
    limits = _limits(sets, [ids for ids, _ in parts], config)
    for training_set, (ids, for_validation), limit in zip(sets, parts, limits, strict=True):
        labelled = training_set.labelled
        index = None
        if for_validation or not training_set.within:
            index = open_index(labelled, replace(Config(), encoder=config.encoder), work)
        if config.temperature:  # use any of the queries, not only the first groups
            random.Random(f"{config.seed}:{labelled.name}:mix").shuffle(ids)
        searched = None if training_set.within else index
        mined = mine(labelled, ids, searched, bi_encoder, config, limit=limit)
        lists = (
            validation_queries(labelled, for_validation, index, bi_encoder, depth=config.depth)
            if index is not None
            else []
        )
        examples += mined
        validation += lists
        counts.append({"examples": len(mined), "validation": len(lists)})
    return examples, validation, counts


def _split_sets(
    sets: Sequence[TrainingSet], seen: frozenset[str], config: FinetuneConfig
) -> list[tuple[list[str], list[str]]]:
    """The ids of each set to train on, and those to validate on, which share no query or group.

    Each set gives an equal part of the validation; what small ones lack, the next ones give.
    """
    parts: list[tuple[list[str], list[str]]] = []
    room = config.validation
    for number, one in enumerate(sets):
        share = room // (len(sets) - number)
        part = split_validation(
            one.labelled, one.split, share, seed=config.seed, seen=seen, limit=one.limit
        )
        room -= len(part[1])
        parts.append(part)
    validated_on = frozenset(
        query_hash(one.labelled.queries[i].text)
        for one, (_, for_validation) in zip(sets, parts, strict=True)
        for i in for_validation
    )
    apart = []
    for one, (ids, for_validation) in zip(sets, parts, strict=True):
        left = without_overlap(one.labelled, ids, for_validation, validated_on)
        if ids and not left:
            raise InputError(
                f"{one.labelled.name}: all of its {one.split!r} shares a question or a right "
                "passage with the queries to validate on; train with --validation 0"
            )
        if not left:
            raise _too_large_groups(one)
        apart.append((left, for_validation))
    return apart


def _limits(
    sets: Sequence[TrainingSet], trained: Sequence[Sequence[str]], config: FinetuneConfig
) -> list[int | None]:
    """How many examples each set gives; None: one per query."""
    if config.temperature:
        sizes = [one.limit or len(ids) for one, ids in zip(sets, trained, strict=True)]
        return list(examples_per_set(sizes, config.steps * config.batch, config.temperature))
    return [
        one.limit if one.limit and one.limit > len(one.labelled.splits[one.split]) else None
        for one in sets
    ]


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
    those of `finetune`.

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
        _check_layers(_architecture(base, config.max_length), config)
        mined = _mine_pairs(sets, base, config, workspace)
        lists = {name: list(map(asdict, examples)) for name, examples in mined.items()}
        checkpoints = _checkpoints_of(workspace, made_from, lists)
        from rerank.training.trainer import train_encoder

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


def _mine_pairs(
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
            raise _too_large_groups(training_set)
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


def add_teacher_scores(
    examples: Sequence[Example], teacher: ModelFiles, config: FinetuneConfig, cache: ScoreCache
) -> list[Example]:
    """The examples with another cross-encoder's logits of their passages."""
    reader = open_reranker(teacher, max_length=config.max_length, cache=cache)
    scores = in_chunks(
        [(e.query, passage) for e in examples for passage in e.passages],
        lambda pairs: reader.score(pairs)[0].tolist(),
        size=CHUNK,
        label=f"scoring with {teacher.name}",
        unit="pair",
    )
    logits = iter(scores)
    return [replace(e, teacher=tuple(next(logits) for _ in e.passages)) for e in examples]


def _architecture(files: ModelFiles, max_length: int) -> Any:
    """The configuration of a transformer that reads as many tokens as are trained on."""
    from transformers import AutoConfig

    try:
        shape = AutoConfig.from_pretrained(str(files.folder), **LOCAL)
    except Exception as error:  # broken files fail in many ways
        raise InputError(f"{files.name} is not a transformer: {error}") from error
    most = positions(files.folder)
    if max_length > most:
        raise InputError(f"{files.name} reads {most} tokens at most, --max-length is {max_length}")
    return shape


def _too_large_groups(training_set: TrainingSet) -> InputError:
    """The error for a set of which no group fits into its limit."""
    name, split, limit = training_set.labelled.name, training_set.split, training_set.limit
    return InputError(
        f"{name}: every group of its {split!r} has more than the {limit} queries asked for; ask "
        "for more, or group them more finely"
    )


def _checkpoints_of(work: Workspace, made_from: Mapping[str, Any], lists: Any) -> Path:
    """The folder for the checkpoints of a training: the same one for the same sets and lists."""
    inputs = json.dumps([made_from, lists], sort_keys=True)
    return work.checkpoints / hashlib.sha256(inputs.encode()).hexdigest()[:16]


def _check_layers(shape: Any, config: TrainingConfig) -> None:
    """Refuse to keep or freeze more layers than a transformer has, if it says how many."""
    layers, kept = getattr(shape, "num_hidden_layers", None), getattr(config, "layers", 0)
    for what, count in (("keep", kept), ("freeze", config.frozen_layers)):
        if layers is not None and count > layers:
            raise InputError(f"the model has {layers} layers, cannot {what} {count}")
        layers = kept or layers
