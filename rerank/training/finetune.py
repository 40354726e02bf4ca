"""The training jobs: labelled sets in; a tracked folder of a cross-encoder or a bi-encoder out.

They know nothing of calibration: a folder is one of sentence-transformers, for `--reranker` or
`--encoder`.
"""

from __future__ import annotations

import hashlib
import json
import random
import shlex
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
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
    training,
)
from rerank.inference.score_cache import ScoreCache
from rerank.inference.small_weights import TRAINED_ON, TRAINING
from rerank.inference.tokenizer import positions
from rerank.jobs.pipelines import open_index
from rerank.progress import in_chunks
from rerank.retrieval.dense import Encoder
from rerank.storage.files import sha256_file
from rerank.storage.folder import (
    MANIFEST,
    Workspace,
    is_made_from,
    output_folder,
    reserved,
    write_folder,
)
from rerank.tracking.registry import name_of
from rerank.tracking.runs import DataUsed, RunRecord, TrackedRun, if_installed, track
from rerank.training import mining
from rerank.training.settings import EncoderConfig, FinetuneConfig

CHUNK = 512  # pairs that a teacher scores between two updates of the progress bar
Models = Mapping[str, Any]  # the files of each by its role
LIBRARIES = ("sentence-transformers", "transformers", "torch")
JOBS = {"cross-encoder": "finetune", "bi-encoder": "finetune-encoder"}  # their names in MLflow


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """The model folder, its report (`finetune.json`), and its run (None without MLflow)."""

    folder: Path
    report: Mapping[str, Any]
    run: TrackedRun | None
    made: bool  # by this call; False if it existed already
    notes: tuple[str, ...] = ()  # what was not done, and what to do


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained model of sentence-transformers, and what its report says."""

    model: Any
    checkpoints: Path
    queries: Sequence[str]  # that it was trained or validated on
    counts: Sequence[Mapping[str, int]]  # of the lists of each set
    figures: Mapping[str, Any]  # such as the loss by step


def finetune(
    sets: Sequence[mining.TrainingSet],
    out: Path,
    config: FinetuneConfig | EncoderConfig,
    *,
    work: str | Path,
    overwrite: bool = False,
) -> TrainingRun:
    """Train a cross-encoder, or by an `EncoderConfig` a bi-encoder; write the model folder `out`,
    whole or not at all.

    A bi-encoder learns nothing from queries without a right passage. Indexes, a teacher's scores
    and checkpoints are kept under `work`; after an interruption, the same call resumes. A model of
    the same sets and settings is not made again, but sent to MLflow if it has no run yet.
    `out/finetune.json` names each set with its digest, and holds the curves, and the report of the
    base if that was fine-tuned too. `out/trained_on.txt` holds a hash of every query trained or
    validated on, those of the base included: calibration leaves them out.
    """
    if not sets:
        raise InputError("no labelled set to train on; expected at least one")
    workspace, base = Workspace(Path(work)), resolve(config.base)
    models: dict[str, Any] = {"base": base}
    if isinstance(config, FinetuneConfig):
        models["encoder"] = resolve(config.encoder)
        models["teacher"] = resolve(config.teacher) if config.teacher else None
    described = [
        {"name": one.labelled.name, "digest": one.labelled.digest()}
        | {key: getattr(one, key) for key in ("split", "limit", "within")}
        for one in sets
    ]
    made_from = {
        "config": asdict(config),
        "fingerprints": {role: files and files.fingerprint for role, files in models.items()},
        "sets": described,
    }
    kind = "cross-encoder" if isinstance(config, FinetuneConfig) else "bi-encoder"
    if not overwrite and is_made_from(out, made_from):
        report = json.loads((out / TRAINING).read_text(encoding="utf-8"))
        return _tracked(kind, out, report, workspace, made=False)
    with output_folder(out, overwrite=overwrite, kind=kind):
        if isinstance(config, FinetuneConfig):
            trained = _train_cross_encoder(sets, models, config, workspace, made_from)
        else:
            trained = _train_bi_encoder(sets, models, config, workspace, made_from)
        report = {
            "config": asdict(config),
            "examples": sum(count["examples"] for count in trained.counts),
            "sets": [a | {**c} for a, c in zip(described, trained.counts, strict=True)],
            **trained.figures,
            "packages": {name: version(name) for name in LIBRARIES},
            "base_fingerprint": base.fingerprint,
            "base_training": training(base),
        }
        seen = trained_on(base) | frozenset(map(query_hash, trained.queries))
        write_network(out, trained.model, seen, report, made_from, overwrite=overwrite, kind=kind)
        shutil.rmtree(trained.checkpoints, ignore_errors=True)
        return _tracked(kind, out, report, workspace, made=True)


def _train_cross_encoder(
    sets: Sequence[mining.TrainingSet],
    models: Models,
    config: FinetuneConfig,
    work: Workspace,
    made_from: Mapping[str, Any],
) -> Trained:
    base, encoder, teacher = models["base"], models["encoder"], models["teacher"]
    shape, length = _architecture(base, config), config.max_length
    if classifies(base) and shape.num_labels != 1:
        raise InputError(f"{base.name} has {shape.num_labels} outputs; expected one, or no head")
    if config.layers and getattr(shape, "layer_types", None):
        raise InputError(f"{base.name} has layers of several kinds: --layers cannot keep only some")
    if teacher and not (classifies(teacher) and _shape(teacher, length).num_labels == 1):
        raise InputError(f"{teacher.name} gives no score; expected a cross-encoder with one output")
    examples, validation, counts = _mine_all(sets, encoder, trained_on(base), config, work)
    lists = [*map(asdict, examples), *map(asdict, validation)]
    checkpoints = _checkpoints_of(work, made_from, lists)
    if teacher:
        taught = add_teacher_scores(examples, teacher, config, ScoreCache(work.scores))
        examples = [mining.without_misled_teacher(example) for example in taught]
    from rerank.training.trainer import train

    with reserved(checkpoints):
        model, shown = train(examples, validation, base, checkpoints, config)
    queries = [e.altered_from or e.query for e in examples] + [q.query for q in validation]
    return Trained(model, checkpoints, queries, counts, asdict(shown))


def _mine_all(
    sets: Sequence[mining.TrainingSet],
    encoder: ModelFiles,
    seen: frozenset[str],
    config: FinetuneConfig,
    work: Workspace,
) -> tuple[list[mining.Example], list[mining.ValidationQuery], list[dict[str, int]]]:
    """All training lists, all validation lists, and the number of each by set."""
    bi_encoder, indexed = (
        Encoder.from_config(encoder, Config()),
        replace(Config(), encoder=config.encoder),
    )
    examples: list[mining.Example] = []
    validation: list[mining.ValidationQuery] = []
    counts: list[dict[str, int]] = []
    parts = _split_sets(sets, seen, config)
    limits = [  # None: an example per query
        one.limit if one.limit and one.limit > len(one.labelled.splits[one.split]) else None
        for one in sets
    ]
    if config.temperature:
        sizes = [one.limit or len(ids) for one, (ids, _) in zip(sets, parts, strict=True)]
        total = config.steps * config.batch
        limits = [*mining.examples_per_set(sizes, total, config.temperature)]
    for one, (ids, held), limit in zip(sets, parts, limits, strict=True):
        labelled, index, lists = one.labelled, None, list[mining.ValidationQuery]()
        if held or not one.within:
            index = open_index(labelled, indexed, work)
        if config.temperature:  # use any of the queries, not only the first groups
            random.Random(f"{config.seed}:{labelled.name}:mix").shuffle(ids)
        searched = None if one.within else index
        mined = mining.mine(labelled, ids, searched, bi_encoder, config, limit=limit)
        if index is not None:
            lists = mining.validation_queries(labelled, held, index, bi_encoder, config.depth)
        examples += mined
        validation += lists
        counts.append({"examples": len(mined), "validation": len(lists)})
    return examples, validation, counts


def _split_sets(
    sets: Sequence[mining.TrainingSet], seen: frozenset[str], config: FinetuneConfig
) -> list[tuple[list[str], list[str]]]:
    """The ids of each set to train on, and those to validate on, which share no query or group.

    Each set gives an equal part of the validation; what small ones lack, the next ones give.
    """
    parts: list[tuple[list[str], list[str]]] = []
    room, validated_on = config.validation, set[str]()
    for number, one in enumerate(sets):
        share = room // (len(sets) - number)
        part = mining.split_validation(one, share, seed=config.seed, seen=seen)
        room -= len(part[1])
        parts.append(part)
        validated_on |= {query_hash(one.labelled.queries[i].text) for i in part[1]}
    apart = []
    for one, (ids, held) in zip(sets, parts, strict=True):
        left = mining.without_overlap(one.labelled, ids, held, validated_on)
        if not left:
            raise InputError(
                f"{one.labelled.name}: all of its {one.split!r} shares a question or a right "
                "passage with the queries to validate on; train with --validation 0"
            )
        apart.append((left, held))
    return apart


def _train_bi_encoder(
    sets: Sequence[mining.TrainingSet],
    models: Models,
    config: EncoderConfig,
    work: Workspace,
    made_from: Mapping[str, Any],
) -> Trained:
    base = models["base"]
    check_bi_encoder(base)
    _architecture(base, config)
    mined = _mine_pairs(sets, base, config, work)
    lists = {name: list(map(asdict, examples)) for name, examples in mined.items()}
    checkpoints = _checkpoints_of(work, made_from, lists)
    from rerank.training.trainer import train_encoder

    with reserved(checkpoints):
        model, loss = train_encoder(mined, base, checkpoints, config)
    queries = [example.query for examples in mined.values() for example in examples]
    counts = [{"examples": len(examples)} for examples in mined.values()]
    figures = {"loss": loss, "best_step": config.steps}
    return Trained(model, checkpoints, queries, counts, figures)


def _mine_pairs(
    sets: Sequence[mining.TrainingSet], base: ModelFiles, config: EncoderConfig, work: Workspace
) -> Mapping[str, list[mining.Example]]:
    """The lists of each set, by its name: a right passage, and a wrong one if one was found."""
    encoder, seed = Encoder(base, max_length=config.max_length), config.seed
    few = FinetuneConfig(encoder=config.base, hard=1, easy=0, depth=config.depth, seed=seed)
    name, count = Counter(s.labelled.name for s in sets).most_common(1)[0]
    if count > 1:
        raise InputError(f"{count} sets are named {name!r}; rename a folder")
    indexed = replace(Config(), encoder=config.base, encoder_max_length=config.max_length)
    mined: dict[str, list[mining.Example]] = {}
    for one in sets:
        whole, split = one.labelled, one.split
        answerable = tuple(i for i in whole.splits[split] if whole.relevant(i))
        labelled = replace(whole, splits={**whole.splits, split: answerable})
        mined[labelled.name] = []
        if answerable:
            ids, _ = mining.split_validation(replace(one, labelled=labelled), 0, seed=seed)
            random.Random(f"{seed}:{labelled.name}:mix").shuffle(ids)
            index = None if one.within else open_index(labelled, indexed, work, encoder)
            mined[labelled.name] = mining.mine(labelled, ids, index, encoder, few, limit=one.limit)
    if not any(mined.values()):
        raise InputError("no query of these sets has a right passage; a bi-encoder learns from one")
    return mined


def add_teacher_scores(
    examples: Sequence[mining.Example],
    teacher: ModelFiles,
    config: FinetuneConfig,
    cache: ScoreCache,
) -> list[mining.Example]:
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


def _architecture(base: ModelFiles, config: FinetuneConfig | EncoderConfig) -> Any:
    """The configuration of a base that has as many layers as should be kept and frozen."""
    shape = _shape(base, config.max_length)
    layers, kept = getattr(shape, "num_hidden_layers", None), getattr(config, "layers", 0)
    for what, count in (("keep", kept), ("freeze", config.frozen_layers)):
        if layers is not None and count > layers:
            raise InputError(f"the model has {layers} layers, cannot {what} {count}")
        layers = kept or layers
    return shape


def _shape(files: ModelFiles, max_length: int) -> Any:
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


def _checkpoints_of(work: Workspace, made_from: Mapping[str, Any], lists: Any) -> Path:
    """The folder for the checkpoints of a training: the same one for the same sets and lists."""
    inputs = json.dumps([made_from, lists], sort_keys=True)
    return work.checkpoints / hashlib.sha256(inputs.encode()).hexdigest()[:16]


def write_network(
    out: Path,
    model: Any,
    seen: frozenset[str],
    report: Mapping[str, Any],
    made_from: Mapping[str, Any],
    *,
    overwrite: bool,
    kind: str,
) -> None:
    """Write a model of sentence-transformers, which has `seen` these queries, in a folder."""
    if not all(bool(weight.isfinite().all()) for weight in model.parameters()):
        raise InputError(
            "the training diverged: its weights are not numbers any more; nothing is written; take "
            "a lower --learning-rate"
        )

    def fill(folder: Path) -> Mapping[str, Any]:
        model.save_pretrained(str(folder), create_model_card=False)  # it would quote the queries
        (folder / TRAINED_ON).write_text("\n".join(sorted(seen)) + "\n", encoding="utf-8")
        (folder / TRAINING).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        return made_from

    write_folder(out, fill, overwrite=overwrite, kind=kind)


def _tracked(
    kind: str, out: Path, report: Mapping[str, Any], work: Workspace, *, made: bool
) -> TrainingRun:
    """The training run of a written model folder, sent to MLflow if that is installed."""
    job = JOBS[kind]

    def record() -> RunRecord:
        return RunRecord(
            params={
                **report["config"],
                "sets": [s["name"] for s in report["sets"]],
                **{key: report[key] for key in ("examples", "base_fingerprint", "best_step")},
            },
            curves={
                name: {int(step): value for step, value in report.get(key, {}).items()}
                for name, key in (("loss", "loss"), ("validation_ndcg10", "ndcg10"))
            },
            tags={"job": job},
            inputs=[
                DataUsed(counts.pop("name"), counts.pop("digest"), "training", counts)
                for counts in map(dict, report["sets"])
            ],
            folder=out,
            key=sha256_file(out / MANIFEST),
        )

    run, notes = if_installed(
        lambda: track(
            record,
            experiment=name_of("", job),
            run_name=f"{job}-{out.name}",
            work=work,
            written=out,
            again=f"the same `rerank train {kind}` command, with "
            + shlex.join(["--out", str(out), "--work", str(work.path)]),
        )
    )
    return TrainingRun(out, report, run, made, notes)
