"""How fast pairs are scored: our engine against sentence-transformers, as ratios of one run.

    python tests/bench/scoring.py [--set datasets/pydata] [--pairs 192] [--rounds 3]

Ways are interleaved, round by round, on the same real pairs, once with one core and once with all;
a ratio is to `CrossEncoder.predict` with its defaults in that round. Beside it stands what the
machine could do: the rate of a plain product of matrices of the model's size, over the floating
point operations that a pair needs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

import numpy as np
import torch
from ratios import in_turns, ratios, table
from sentence_transformers import CrossEncoder as Reference
from threadpoolctl import threadpool_limits
from transformers import AutoConfig

from rerank.beir import read_labelled_set
from rerank.config import Config
from rerank.engine import Engine, Tokenizer, Tokens, cores, open_cross_encoder
from rerank.models import ModelFiles, resolve
from rerank.types import Precision

Pairs = list[tuple[str, str]]
Way = Callable[[Pairs], np.ndarray]
PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")


def ways(files: ModelFiles, max_length: int, workers: int) -> dict[str, Way]:
    """The reference first; each takes pairs and gives logits."""
    reference = Reference(str(files.folder), max_length=max_length, device="cpu")
    tokenizer = Tokenizer(files.folder, max_length=max_length)
    ours = {p: Engine(open_cross_encoder(files, p).run, workers=workers) for p in PRECISIONS}

    def predict(batch: int) -> Way:
        def run(pairs: Pairs) -> np.ndarray:
            torch.set_num_threads(workers)
            return reference.predict(
                pairs, batch_size=batch, activation_fn=torch.nn.Identity(), show_progress_bar=False
            )

        return run

    return {
        "`predict`, batches of 32": predict(32),
        "`predict`, batches of 8": predict(8),
        "our engine, fp32": lambda pairs: ours["fp32"](tokenizer(pairs))[:, 0],
        "our engine, int8": lambda pairs: ours["int8"](tokenizer(pairs))[:, 0],
    }


def operations(files: ModelFiles, tokens: list[Tokens]) -> float:
    """Floating point operations of the mean pair, the last layer for the first token alone."""
    c = AutoConfig.from_pretrained(str(files.folder))
    found = []
    for length in (len(t.ids) for t in tokens):
        maps = 4 * c.hidden_size**2 + 2 * c.hidden_size * c.intermediate_size
        layer = 2 * length * maps + 4 * length**2 * c.hidden_size
        last = 4 * length * c.hidden_size**2 + 2 * maps
        found.append((c.num_hidden_layers - 1) * layer + last)
    return statistics.fmean(found)


def product_rate(workers: int, length: int) -> float:
    """Operations a second of a feed-forward layer's product in fp32: the best library, of ten."""
    torch.set_num_threads(1)
    a, b = torch.rand(length, 384), torch.rand(384, 1536)
    products = (lambda: a @ b, lambda: a.numpy() @ b.numpy())
    best = 0.0
    with ThreadPoolExecutor(workers) as pool, threadpool_limits(1, "blas"):
        for product in products * 10:
            start = time.perf_counter()
            wait([pool.submit(product) for _ in range(40)])
            best = max(best, 40 * 2 * a.shape[0] * b.numel() / (time.perf_counter() - start))
    return best


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
    files = resolve(config.reranker)
    tokens = Tokenizer(files.folder, max_length=config.max_length)(pairs)
    length = round(statistics.fmean(len(t.ids) for t in tokens))
    needed = operations(files, tokens)
    print(f"{o.pairs} pairs of {o.set.name}, {length} tokens in the mean, {o.rounds} rounds.")
    for workers in sorted({1, cores()}):
        measured = ways(files, config.max_length, workers)
        seconds, logits = in_turns(
            {n: partial(way, pairs) for n, way in measured.items()}, o.rounds
        )
        reference = next(iter(measured))
        limit = product_rate(workers, length) / needed
        rows = {}
        for name, ratio in ratios(seconds, reference).items():
            rate = o.pairs / statistics.median(seconds[name])
            rows[name] = {
                "times as fast": ratio,
                "share of the limit": f"{rate / limit:.0%}",
                "largest deviation": f"{np.abs(logits[name] - logits[reference]).max():.0e}",
            }
        print(f"\n### Scoring pairs, {workers} of {cores()} cores\n\n{table(rows)}")


if __name__ == "__main__":
    main()
