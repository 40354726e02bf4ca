"""How fast the bi-encoder reads passages, which is what `rerank data index` waits for.

python tests/bench/indexing.py --set datasets/pydata [--passages 192] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import numpy as np
import torch
from ratios import in_turns, ratios, table, versions
from sentence_transformers import SentenceTransformer

from rerank.config import Config, Graphs
from rerank.data.labelled_set import LabelledSet
from rerank.inference.model_files import resolve
from rerank.process import CORES
from rerank.retrieval.dense import Encoder, PassageText

PEER = "sentence-transformers, {}"


def main() -> None:
    """Encode the same passages in turns, and print the table."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--set", default="datasets/pydata")
    p.add_argument("--passages", type=int, default=192)
    p.add_argument("--rounds", type=int, default=3)
    o = p.parse_args()
    torch.set_num_threads(1)  # so that no thread waits for another: then its time is its work
    os.environ[CORES] = "1"
    files, length = resolve("minilm"), Config().encoder_max_length
    texts = [p.full_text for p in LabelledSet.read(o.set).corpus.values()]
    texts = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[: o.passages]]
    ways = {}
    for name, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        peer = SentenceTransformer(str(files.folder), device="cpu", model_kwargs={"dtype": kind})
        peer.max_seq_length = length
        ways[PEER.format(name)] = lambda peer=peer: peer.encode(texts, normalize_embeddings=True)
    graphs: tuple[Graphs, ...] = ("fp32", "int8")
    for name in graphs:
        ours = Encoder(files, max_length=length, precision=name)
        ways[f"ours, {name}"] = lambda ours=ours: ours.encode([*map(PassageText, texts)])
    seconds, vectors = in_turns(ways, o.rounds, time.process_time)
    exact = vectors["ours, fp32"].astype(np.float64)
    found = ratios(seconds, PEER.format("fp32"))
    rows = {
        name: {
            "passages a CPU second": f"{len(texts) / statistics.median(seconds[name]):.1f}",
            "times as fast": found[name],
            "smallest cosine to ours in fp32": f"{(exact * vectors[name]).sum(axis=1).min():.5f}",
        }
        for name in ways
    }
    print(f"{len(texts)} passages of at most {length} tokens, one core.\n\n{table(rows)}\n")
    print(f"- {versions(('sentence-transformers', 'torch', 'onnxruntime'))}")


if __name__ == "__main__":
    main()
