"""How good the orders are on many labelled sets: BM25, fused, cross-encoder, relevance.

    python tests/bench/ranking.py datasets/pydata SET ... [--max-queries 600] [--reranker NAME]

Each set is planned as `rerank calibrate` does it, so what is measured was neither fitted nor
trained on; the order by logit is of the `rerank_depth` likeliest passages, that by relevance of
those of them that the model reads. Differences are paired by query, with intervals from a
bootstrap by query group. The last columns ask how well each stage's own best score tells whether
its top passage is right.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ratios import table

from calibration.maps import sigmoid
from calibration.metrics import auroc
from rerank.calibrate import rank_planned
from rerank.config import Config
from rerank.fitting import fit_relevance
from rerank.labelled_set import LabelledSet, read_labelled_set
from rerank.models import resolve, trained_on
from rerank.pipeline import Pipeline, forget, order
from rerank.plan import plan
from rerank.ranking_metrics import order_quality, paired_bootstrap
from rerank.retrieval.fusion import top
from rerank.text import words
from rerank.types import InputError, Ranking
from rerank.workspace import open_pipeline

MEASURES = {"hit1": "hit@1", "mrr10": "MRR@10", "ndcg10": "nDCG@10"}


def bm25_order(pipeline: Pipeline, ranking: Ranking) -> tuple[str, ...]:
    """The ten best passages by BM25 alone."""
    index = pipeline.index
    scores = index.bm25.scores(words(ranking.query.text, language=index.language))
    return tuple(index.passage(row).doc_id for row in top(scores, 10) if scores[row] > 0)


def measure(labelled: LabelledSet, config: Config, work: Path, bound: int) -> dict[str, str]:
    """One row of the table."""
    seen = trained_on(resolve(config.reranker))
    planned = plan(labelled, trained_on=seen, max_queries=bound, seed=config.seed)
    pipeline = open_pipeline(labelled, config, work)
    to_fit, to_report, reading = rank_planned(pipeline, labelled, planned)
    relevance = fit_relevance(to_fit, labelled)
    by = {n: [order(r, relevance, rank_by=n) for r in to_report] for n in ("fused", "logit")}
    less = [forget(r, reading.floor) for r in to_report]
    orders: dict[str, list[tuple[str, ...]]] = {
        "BM25": [bm25_order(pipeline, r) for r in to_report],
        **{name: [r.doc_ids for r in ranked] for name, ranked in by.items()},
        "relevance": [order(r, relevance).doc_ids for r in less],
    }
    qrels = [labelled.qrels.get(r.query.query_id, {}) for r in to_report]
    quality = {name: order_quality(runs, qrels) for name, runs in orders.items()}
    groups = [labelled.group(r.query.query_id) for r in to_report]
    answered = [g for g, q in zip(groups, qrels, strict=True) if q]
    read = np.mean([r.read.sum() for r in less])
    row = {"queries": f"{len(to_report)}", "passages read": f"{read:.1f}"}
    for name, found in quality.items():
        values = [getattr(found, key).mean() for key in MEASURES]
        row[f"{name}: {' / '.join(MEASURES.values())}"] = " / ".join(f"{v:.3f}" for v in values)
    for better in ("logit", "relevance"):
        for worse in ("fused", "BM25"):
            gain = paired_bootstrap(quality[better].ndcg10, quality[worse].ndcg10, answered)
            row[f"nDCG@10, {better} less {worse}"] = "{:+.3f} [{:+.3f}, {:+.3f}]".format(*gain)
    best = np.array([max(r.logits[r.read], default=0.0) for r in by["logit"]])
    row["AUROC, top logit"] = f"{auroc(quality['logit'].hit1, sigmoid(best)):.3f}"
    nearest = np.array([r.candidates.dense.max(initial=0.0) for r in by["fused"]])
    row["AUROC, best cosine"] = f"{auroc(quality['fused'].hit1, np.minimum(nearest, 1)):.3f}"
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every set and print one table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--max-queries", type=int, default=600)
    parser.add_argument("--reranker", default=Config().reranker)
    parser.add_argument("--work", type=Path, default=Path("work"))
    o = parser.parse_args(arguments)
    config, rows = Config(reranker=o.reranker), {}
    for folder in o.sets:
        labelled = read_labelled_set(folder)
        try:
            rows[labelled.name] = measure(labelled, config, o.work, o.max_queries)
        except InputError as error:
            print(f"{folder}: {error}", file=sys.stderr)
        print(table(rows), flush=True)


if __name__ == "__main__":
    main()
