"""Lists that others fixed: order, "nothing relevant here", and the truth of each probability.

    python tests/bench/fixed_lists.py SET/scifact --lists SET/scifact/bm25_30.jsonl [--labels 300]

A line of the lists is a question with its passages twice, as ids of the set's corpus: `present` has
the `relevant` ones among them, `absent` has none; null: left out. Ours is calibrated on questions
of the set's training split (`--labels 0`: the bundled maps), and ranks both.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import rerank
from calibration.metrics import auroc
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.evaluation.measure import ndcg
from rerank.report.benchmark import BINS, KEPT, ece
from rerank.types import Assessment, Query


def main() -> None:
    """Calibrate, rank, and print one row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", type=Path)
    parser.add_argument("--lists", type=Path, required=True)
    parser.add_argument("--labels", type=int, default=300)
    parser.add_argument("--work", type=Path, default=Path("work"))
    options = parser.parse_args()
    labelled = LabelledSet.read(options.set)
    if options.labels:
        config = Config(expected_unanswerable=0.5)  # half of the lists are absent ones
        out = options.work / f"fixed-{options.labels}"
        run = rerank.calibrate(
            labelled, out, config, max_queries=options.labels, work=options.work, overwrite=True
        )
        model = rerank.load(run.folder)
    else:
        model = rerank.load("default")
    lines = [json.loads(line) for line in options.lists.read_text().splitlines()]
    lines = [line for line in lines if line["present"] and line["absent"]]

    def ranked(kind: str) -> list[Assessment]:
        return model.assess(
            [
                Query(line["query"], passages=tuple(labelled.corpus[i] for i in line[kind]))
                for line in lines
            ]
        )

    present, absent = ranked("present"), ranked("absent")
    orders = [list(found.ranking.doc_ids) for found in present]
    first = [order[0] in line["relevant"] for order, line in zip(orders, lines, strict=True)]
    grades = [line["relevant"] for line in lines]
    gains = [
        ndcg([of.get(doc_id, 0.0) for doc_id in ids], list(of.values()))
        for of, ids in zip(grades, orders, strict=True)
    ]
    p = np.array([found.sufficiency_at[-1] for found in (*present, *absent)])
    here = np.repeat([1.0, 0.0], len(lines))
    least = np.quantile(p[here > 0], 1 - KEPT)
    labels = [i in line["relevant"] for ids, line in zip(orders, lines, strict=True) for i in ids]
    labels += [False for found in absent for _ in found.ranking.doc_ids]
    pairs = np.concatenate([found.relevance for found in (*present, *absent)])
    print(
        f"{len(lines)} questions: nDCG@10 {np.mean(gains):.3f}, first right {np.mean(first):.3f}, "
        f"AUROC of present {auroc(here, p):.3f}, false accepts where {KEPT:.0%} are kept "
        f"{(p[here == 0] >= least).mean():.3f}, pair ECE ({BINS} bins) "
        f"{ece(np.array(labels, dtype=float), pairs):.3f}"
    )


if __name__ == "__main__":
    main()
