"""The training job of the cross-encoder: labelled sets in, a model folder out.

Built on sentence-transformers' trainer. Each training query becomes one short list: a right
passage (if it has one), passages that the first stage ranks high but are not right, and one drawn
at random. It knows nothing of calibration.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from calibration.store import write_file
from rerank.config import FinetuneConfig
from rerank.labelled_set import LabelledSet
from rerank.models import ModelFiles, resolve, trained_on, training
from rerank.packing import TRAINED_ON, TRAINING
from rerank.retrieval.dense import Encoder
from rerank.retrieval.index import Index, build_index
from rerank.text import query_hash
from rerank.types import InputError

NEAR_DUPLICATE = 0.8  # Jaccard overlap of word sets above which a "negative" is the answer again


@dataclass(frozen=True, slots=True)
class Example:
    """One query and its short list; `labels` is 1 where the passage is right."""

    query: str
    passages: tuple[str, ...]
    labels: tuple[int, ...]


def mine(
    labelled: LabelledSet,
    split: str,
    index: Index,
    encoder: Encoder,
    config: FinetuneConfig,
    *,
    limit: int | None = None,
) -> list[Example]:
    """`limit` examples from the queries of `split`, drawn at random; by default one a query.

    A limit above the number of queries goes round again, and draws other wrong passages.

    Raises:
        InputError: the set has no such split, or `limit` is below 1.
    """
    _check(Source(labelled, split, limit))
    draw = random.Random(f"{config.seed}:{labelled.name}:{split}")
    ids = list(labelled.splits[split])
    draw.shuffle(ids)
    queries = [labelled.queries[i] for i in ids[:limit]]
    vectors = encoder.encode([q.text for q in queries], label=f"mining {labelled.name}")
    examples = []
    rounds = itertools.cycle(zip(queries, vectors, strict=True))
    for query, vector in itertools.islice(rounds, limit or len(queries)):
        right = sorted(labelled.relevant(query.query_id))
        found = index.candidates(query, vector, pool=50, count=config.depth + len(right), rrf_k=60)
        shown = [draw.choice(right)] if right else []
        answer = set(labelled.corpus[shown[0]].full_text.lower().split()) if right else set()
        wrong = [
            p.full_text
            for p in map(index.passage, found.rows)
            if p.doc_id not in right and _jaccard(answer, p.full_text) < NEAR_DUPLICATE
        ][: config.depth]
        hard = draw.sample(wrong, min(config.hard + (not right), len(wrong)))
        easy = [index.passage(draw.randrange(len(index))) for _ in range(config.easy)]
        texts = [labelled.corpus[d].full_text for d in shown] + hard
        texts += [p.full_text for p in easy if p.doc_id not in right]
        labels = (1,) * len(shown) + (0,) * (len(texts) - len(shown))
        examples.append(Example(query.text, tuple(texts), labels))
    return examples


def _jaccard(words: set[str], text: str) -> float:
    other = set(text.lower().split())
    return len(words & other) / len(words | other) if words else 0.0


def finetune(
    examples: Sequence[Example], base: ModelFiles, out: Path, config: FinetuneConfig
) -> Mapping[str, Any]:
    """Train a cross-encoder on `examples` and save it under `out`; returns the loss by step.

    Interrupted, the same call goes on from the last checkpoint in `out/checkpoints`.

    Raises:
        InputError: there is no example.
    """
    if not examples:
        raise InputError("no training example; expected at least one query with passages")
    import torch
    from datasets import Dataset
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import (
        CrossEncoderTrainer,
        CrossEncoderTrainingArguments,
    )
    from transformers.trainer_utils import get_last_checkpoint

    from rerank.reranking.losses import ListwiseOrNoneLoss

    torch.manual_seed(config.seed)
    model = CrossEncoder(
        str(base.folder),
        num_labels=1,
        max_length=config.max_length,
        local_files_only=True,
        config_kwargs=_dropout(base.folder, config.dropout),
    )
    _freeze(model.model, config.frozen_layers)
    shuffled = list(examples)
    random.Random(config.seed).shuffle(shuffled)
    data = Dataset.from_dict(
        {
            "query": [e.query for e in shuffled],
            "passages": [list(e.passages) for e in shuffled],
            "label": [[float(x) for x in e.labels] for e in shuffled],
        }
    )
    on_gpu = torch.cuda.is_available()
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(out / "checkpoints"),
        max_steps=config.steps,
        per_device_train_batch_size=config.batch,
        learning_rate=config.learning_rate,
        warmup_steps=config.warmup,
        bf16=on_gpu,
        use_cpu=not on_gpu,
        logging_steps=20,
        save_steps=100,
        save_total_limit=1,
        seed=config.seed,
        report_to="none",
        dataloader_pin_memory=False,
    )
    trainer = CrossEncoderTrainer(
        model=model, args=arguments, train_dataset=data, loss=ListwiseOrNoneLoss(model)
    )
    checkpoint = (
        get_last_checkpoint(str(out / "checkpoints")) if (out / "checkpoints").is_dir() else None
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    model.save_pretrained(str(out / "model"))
    losses = {row["step"]: row["loss"] for row in trainer.state.log_history if "loss" in row}
    return {"config": asdict(config), "examples": len(examples), "loss": losses}


def _dropout(folder: Path, rate: float) -> dict[str, float]:
    """Every dropout rate that the model's configuration names, set to `rate`."""
    from transformers import AutoConfig

    known = AutoConfig.from_pretrained(str(folder), local_files_only=True).to_dict()
    return {k: rate for k, v in known.items() if "dropout" in k and isinstance(v, float)}


def _freeze(model: Any, layers: int) -> None:
    """Keep the word embeddings, and the lowest `layers` with what lies below them, as they are.

    Raises:
        InputError: the model has fewer layers than that.
    """
    import torch

    model.get_input_embeddings().weight.requires_grad_(False)
    if not layers:
        return
    stacks = [m for m in model.base_model.modules() if isinstance(m, torch.nn.ModuleList)]
    stack = max(stacks, key=len)
    if layers > len(stack):
        raise InputError(f"the model has {len(stack)} layers, cannot freeze {layers}")
    for part in (model.base_model.embeddings, *stack[:layers]):
        part.requires_grad_(False)


@dataclass(frozen=True, slots=True)
class Source:
    """A labelled set to train on: its split, and how many examples (default: one a query)."""

    labelled: LabelledSet
    split: str = "train"
    limit: int | None = None


def run(sources: Sequence[Source], out: Path, config: FinetuneConfig) -> Mapping[str, Any]:
    """The whole job: index each set, mine, train, write `out/model`; returns the report.

    The report, `out/model/finetune.json`, names each set with its digest, and holds the report of
    the base where that was fine-tuned too. `out/model/trained_on.txt` holds a hash of every
    query trained on, those of the base included, so that calibration can leave these out: on them
    the logits flatter themselves.
    """
    base = resolve(config.base)
    for source in sources:
        _check(source)
    encoder = Encoder(resolve(config.encoder), max_length=128)
    examples: list[Example] = []
    sets = []
    for source in sources:
        digest = source.labelled.digest()
        home = out / "index" / digest[:16]
        corpus = source.labelled.corpus.values()
        index = Index(home) if home.is_dir() else build_index(corpus, home, encoder)
        mined = mine(source.labelled, source.split, index, encoder, config, limit=source.limit)
        examples += mined
        sets.append(
            {
                "name": source.labelled.name,
                "digest": digest,
                "split": source.split,
                "examples": len(mined),
            }
        )
    _claim(out, examples, config)
    report = finetune(examples, base, out, config)
    seen = sorted(trained_on(base) | {query_hash(e.query) for e in examples})
    write_file(out / "model" / TRAINED_ON, "\n".join(seen) + "\n")
    whole = {
        **report,
        "sets": sets,
        "base_fingerprint": base.fingerprint,
        "base_training": training(base),
    }
    write_file(out / "model" / TRAINING, json.dumps(whole, indent=2) + "\n")
    return whole


def _claim(out: Path, examples: Sequence[Example], config: FinetuneConfig) -> None:
    """Mark `out` as the place of this very run, so that no other resumes from its checkpoints.

    Raises:
        InputError: `out` holds another run.
    """
    whole = json.dumps([asdict(config), [asdict(e) for e in examples]], sort_keys=True)
    key = hashlib.sha256(whole.encode()).hexdigest()
    path = out / "run.txt"
    if (out / "checkpoints").is_dir() and (not path.is_file() or path.read_text() != key):
        raise InputError(f"{out} holds a run on other data or settings; give another folder")
    write_file(path, key)


def _check(source: Source) -> None:
    """Refuse a source before any work is done for it."""
    labelled, split, limit = source.labelled, source.split, source.limit
    if limit is not None and limit < 1:
        raise InputError(f"{labelled.name}: expected at least 1 query, got {limit}")
    if split not in labelled.splits:
        raise InputError(f"{labelled.name} has no split {split!r}; it has {list(labelled.splits)}")
