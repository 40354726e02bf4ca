"""How good the orders are on many labelled sets: BM25, fused, cross-encoder, relevance.

    python tests/bench/ranking.py datasets/pydata SET ... [--max-queries 600] [--reranker NAME]

The order by logit is of the `rerank_depth` likeliest passages, that by relevance of those of them
that the model reads. Differences are paired by query, with intervals from a bootstrap by query
group. The last columns ask how well each stage's own best score tells whether its top passage is
right.
"""

from __future__ import annotations

import numpy as np
from planned import Planned, measure_sets

from calibration.arrays import sigmoid
from calibration.metrics import auroc
from rerank.assessment.pipeline import Pipeline, limit_scored, order
from rerank.data.labels import grades_of, groups_of
from rerank.data.text import words
from rerank.evaluation.ranking_metrics import order_quality, paired_bootstrap
from rerank.fitting.fit import fit_relevance
from rerank.retrieval.fusion import top
from rerank.types import Ranking

MEASURES = {"hit1": "hit@1", "mrr10": "MRR@10", "ndcg10": "nDCG@10"}


def bm25_order(pipeline: Pipeline, ranking: Ranking) -> tuple[str, ...]:
    """The ten best passages by BM25 alone."""
    index = pipeline.index
    scores = index.bm25.scores(words(ranking.query.text, language=index.language))
    return tuple(index.passage(row).doc_id for row in top(scores, 10) if scores[row] > 0)


def measure(planned: Planned) -> dict[str, dict[str, str]]:
    """One row of the table, by the set's name."""
    labelled, ranked = planned.labelled, planned.ranked
    to_report, floor = ranked.to_report, ranked.reading.floor
    relevance = fit_relevance([limit_scored(r, floor) for r in ranked.to_fit], labelled)
    by = {n: [order(r, relevance, rank_by=n) for r in to_report] for n in ("fused", "logit")}
    less = [limit_scored(r, floor) for r in to_report]
    orders: dict[str, list[tuple[str, ...]]] = {
        "BM25": [bm25_order(planned.pipeline, r) for r in to_report],
        **{name: [r.doc_ids for r in ranked] for name, ranked in by.items()},
        "relevance": [order(r, relevance).doc_ids for r in less],
    }
    qrels = grades_of(to_report, labelled)
    quality = {name: order_quality(runs, qrels) for name, runs in orders.items()}
    answered = [g for g, q in zip(groups_of(to_report, labelled), qrels, strict=True) if q]
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
    return {labelled.name: row}


if __name__ == "__main__":
    measure_sets(measure, "the orders on labelled sets")
