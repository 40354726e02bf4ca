"""How fast pairs are scored: our engine against other libraries, as ratios of one run.

    python tests/bench/scoring.py [--set datasets/pydata] [--pairs 192] [--rounds 3]

Ways are interleaved, round by round, on the same real pairs, once with one core and once with all;
a ratio is to `CrossEncoder.predict` with its defaults in that round. Peers that are not installed
are left out, and a line says how to install them. Beside the ways stands what the
machine could do: the rate of a plain product of matrices of the model's size, over the floating
point operations that a pair needs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from peers import ENVIRONMENT, Pairs, Way, scorers
from ratios import in_turns, ratios, table, versions
from sentence_transformers import CrossEncoder as Reference
from transformers import AutoConfig

from rerank.config import Config, Graphs
from rerank.data.labelled_set import LabelledSet
from rerank.inference.engine import Engine, open_engine
from rerank.inference.model_files import ModelFiles, resolve
from rerank.inference.tokenizer import Tokenizer, Tokens
from rerank.inference.torch_models import load
from rerank.inference.varlen import UnpaddedEngine, open_unpadded
from rerank.process import cores

PER_QUERY = 16  # pairs in a row that share their query, as a reranker's do
GRAPHS: tuple[Graphs, ...] = ("fp32", "int8")
USED = ("sentence-transformers", "transformers", "torch", "onnxruntime")
LIMIT = "limit: products of matrices"


def ways(files: ModelFiles, max_length: int, workers: int) -> dict[str, Way]:
    """The reference first; each takes pairs and gives logits, and needs no peer."""
    reference = Reference(str(files.folder), max_length=max_length, device="cpu")
    tokenizer = Tokenizer(files.folder, max_length=max_length)

    def predict(batch: int) -> Way:
        def run(pairs: Pairs) -> np.ndarray:
            torch.set_num_threads(workers)
            logits: np.ndarray = reference.predict(
                pairs, batch_size=batch, activation_fn=torch.nn.Identity(), show_progress_bar=False
            )
            return logits

        return run

    def ours(engine: Engine | UnpaddedEngine, threads: int = 1) -> Way:
        def run(pairs: Pairs) -> np.ndarray:
            torch.set_num_threads(threads)  # of an operator, where it runs in torch
            return engine(tokenizer(pairs))[:, 0]

        return run

    fallback = Engine(load(files, "cross_encoder").run, workers=1)
    unpadded = open_unpadded(files, workers=workers)
    return {
        "`predict`, batches of 32": predict(32),
        "`predict`, batches of 8": predict(8),
        "our engine, torch fallback": ours(fallback, threads=workers),
        **{
            f"our engine, {p}": ours(
                Engine(open_engine(files, "cross_encoder", p).run, workers=workers)
            )
            for p in GRAPHS
        },
        f"our engine, bf16 on {unpadded.device}": ours(unpadded),
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


def product_rate(workers: int, length: int, needed: float) -> float:
    """Pairs a second at the rate of a feed-forward layer's product in fp32.

    The best of ten runs of each library, a thread multiplying by itself.
    """
    torch.set_num_threads(1)
    inputs, weights = torch.rand(length, 384), torch.rand(384, 1536)
    out = [torch.empty(length, 1536) for _ in range(workers)]
    run = _product(weights.numpy())
    ways = (
        lambda i: torch.mm(inputs, weights, out=out[i]),
        lambda i: run(None, {"x": inputs.numpy()}),
    )

    def repeat(way: Callable[[int], object], worker: int) -> None:
        for _ in range(40):
            way(worker)

    best = 0.0
    with ThreadPoolExecutor(workers) as pool:
        for way in ways * 10:
            start = time.perf_counter()
            wait([pool.submit(repeat, way, i) for i in range(workers)])
            done = workers * 40 * 2 * length * weights.numel()
            best = max(best, done / (time.perf_counter() - start))
    return best / needed


def _product(weights: np.ndarray) -> Callable[..., Any]:
    """A session of ONNX Runtime that multiplies by `weights` and does nothing else."""
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        ends[:1],
        ends[1:],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    run: Callable[..., Any] = session.run
    return run


def sample(labelled: LabelledSet, count: int) -> Pairs:
    """Queries of the set beside its passages, drawn by counting, `PER_QUERY` passages per query."""
    queries, passages = list(labelled.queries.values()), list(labelled.corpus.values())
    return [
        (
            queries[i // PER_QUERY * 7 % len(queries)].text,
            passages[i * 13 % len(passages)].full_text,
        )
        for i in range(count)
    ]


def rows(
    measured: Mapping[str, Way], pairs: Pairs, rounds: int, limit: Callable[[], float]
) -> dict[str, dict[str, str]]:
    """A row a way, the first being the reference; `limit`, in pairs a second, has its own turn."""
    rates: list[float] = []
    turns: dict[str, Callable[[], Any]] = {n: partial(w, pairs) for n, w in measured.items()}
    turns[LIMIT] = lambda: rates.append(limit())
    seconds, logits = in_turns(turns, rounds)
    del seconds[LIMIT]
    reference = next(iter(measured))
    found = {}
    for name, ratio in ratios(seconds, reference).items():
        rate = len(pairs) / statistics.median(seconds[name])
        found[name] = {
            "pairs a second": f"{rate:.1f}",
            "times as fast": ratio,
            "share of the limit": f"{rate / max(rates):.0%}",
            "largest deviation": f"{np.abs(logits[name] - logits[reference]).max():.0e}",
        }
    return found | {LIMIT: {"pairs a second": f"{max(rates):.1f}"}}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", type=Path, default=Path("datasets/pydata"))
    parser.add_argument("--pairs", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", type=Path, default=ENVIRONMENT, help="of the backends")
    o = parser.parse_args()
    pairs = sample(LabelledSet.read(o.set), o.pairs)
    config = Config()
    files = resolve(str(config.reranker))
    tokens = Tokenizer(files.folder, max_length=config.max_length)(pairs)
    length = round(statistics.fmean(len(t.ids) for t in tokens))
    needed = operations(files, tokens)
    print(f"{o.pairs} pairs of {o.set.name}, {length} tokens in the mean, {o.rounds} rounds.")
    used = {"ours and `predict`": versions(USED)}
    for workers in sorted({1, cores()}):
        print(f"scoring pairs, {workers} of {cores()} cores", file=sys.stderr)
        with scorers(
            files.folder, max_length=config.max_length, threads=workers, environment=o.peers
        ) as peers:
            measured = ways(files, config.max_length, workers)
            measured |= {name: peer.score for name, peer in peers.items()}
            used |= {name: peer.versions for name, peer in peers.items()}
            limit = partial(product_rate, workers, length, needed)
            found = rows(measured, pairs, o.rounds, limit)
        print(f"\n### Scoring pairs, {workers} of {cores()} cores\n\n{table(found)}")
    print("\n" + "\n".join(f"- {name}: {of}" for name, of in used.items()))


if __name__ == "__main__":
    main()
