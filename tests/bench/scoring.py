"""How fast pairs are scored: our engine against sentence-transformers, as ratios of one run.

    python tests/bench/scoring.py [--set datasets/pydata] [--pairs 192] [--rounds 3]

Ways are interleaved, round by round, on the same real pairs, and each round's ratio is to
`CrossEncoder.predict` with its defaults in that round; the table shows the median and the range.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import CrossEncoder as Reference

from rerank.config import Config
from rerank.engine import Engine, Tokenizer, cores, open_cross_encoder
from rerank.labelled_set import read_labelled_set
from rerank.models import resolve

Way = Callable[[list[tuple[str, str]]], np.ndarray]


def ways(reranker: str, max_length: int) -> dict[str, Way]:
    """The reference first; each takes pairs and gives logits."""
    files = resolve(reranker)
    reference = Reference(str(files.folder), max_length=max_length, device="cpu")
    tokenizer = Tokenizer(files.folder, max_length=max_length)
    engine = open_cross_encoder(files)
    alone = Engine(engine._run, workers=1)

    def predict(batch: int) -> Way:
        return lambda pairs: reference.predict(
            pairs, batch_size=batch, activation_fn=torch.nn.Identity(), show_progress_bar=False
        )

    return {
        "predict, batches of 32": predict(32),
        "predict, batches of 8": predict(8),
        "engine, one worker": lambda pairs: alone(tokenizer(pairs))[:, 0],
        f"engine, {cores()} workers": lambda p: engine(tokenizer(p))[:, 0],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", type=Path, default=Path("datasets/pydata"))
    parser.add_argument("--pairs", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=3)
    o = parser.parse_args()
    labelled = read_labelled_set(o.set)
    queries, passages = list(labelled.queries.values()), list(labelled.corpus.values())
    pairs = [
        (queries[i * 7 % len(queries)].text, passages[i * 13 % len(passages)].full_text)
        for i in range(o.pairs)
    ]
    config = Config()
    measured = ways(config.reranker, config.max_length)
    seconds: dict[str, list[float]] = {name: [] for name in measured}
    logits = {name: way(pairs[:16]) for name, way in measured.items()}  # warm
    for _ in range(o.rounds):
        for name, way in measured.items():
            start = time.perf_counter()
            logits[name] = way(pairs)
            seconds[name].append(time.perf_counter() - start)
    reference, *_ = measured
    print(f"{o.pairs} pairs of {o.set.name}, {torch.get_num_threads()} cores, {o.rounds} rounds")
    print(f"{'':<26}{'times as fast':>14}{'range':>16}{'largest deviation':>20}")
    for name, took in seconds.items():
        ratios = [a / b for a, b in zip(seconds[reference], took, strict=True)]
        gap = float(np.abs(logits[name] - logits[reference]).max())
        span = f"{min(ratios):.2f}-{max(ratios):.2f}"
        print(f"{name:<26}{statistics.median(ratios):>14.2f}{span:>16}{gap:>20.1e}")


if __name__ == "__main__":
    main()
