"""How good the orders are on many labelled sets: BM25, fused, cross-encoder, relevance.

    python tests/bench/ranking.py datasets/pydata SET ... [--max-queries 600] [--reranker NAME]

The order by logit is of the `rerank_depth` likeliest passages, that by relevance of those of them
that the model scores. Differences are paired by query, with Student's intervals by query
group. The last columns ask how well each stage's own best score tells whether its top passage is
right.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from planned import Planned, measure_sets

from calibration.arrays import sigmoid
from calibration.metrics import auroc
from calibration.metrics.intervals import student_interval
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.ranking import limit_scored, rank
from rerank.data.words import words
from rerank.evaluation.measure import order_quality
from rerank.fitting.passage_maps import fit_rankings, read_labelled
from rerank.retrieval.fusion import top
from rerank.retrieval.index import Index

MEASURES = {"hit1": "hit@1", "mrr10": "MRR@10", "ndcg10": "nDCG@10"}


def bm25_order(pipeline: Pipeline, text: str) -> tuple[str, ...]:
    """The ten best passages by BM25 alone."""
    index = cast("Index", pipeline.index)  # a labelled set is searched in an index of its own
    scores = index.bm25.scores(words(text, language=index.language))
    return tuple(index.passage(row).doc_id for row in top(scores, 10) if scores[row] > 0)


def measure(planned: Planned) -> dict[str, dict[str, str]]:
    """One row of the table, by the set's name."""
    scored, cutoff = planned.scored, planned.scored.policy.cutoff
    report = scored.to_report
    unordered = read_labelled(scored.to_fit, cutoff)
    score, _ = fit_rankings(unordered, planned.pipeline.config)
    by = {n: [rank(s, score, rank_by=n) for s in report.items] for n in ("fused", "logit")}
    less = [limit_scored(s, cutoff) for s in report.items]
    orders: dict[str, list[tuple[str, ...]]] = {
        "BM25": [bm25_order(planned.pipeline, s.query.text) for s in report.items],
        **{name: [r.doc_ids for r in rankings] for name, rankings in by.items()},
        "relevance": [rank(s, score).doc_ids for s in less],
    }
    quality = {name: order_quality(runs, report.grades) for name, runs in orders.items()}
    answered = report.groups[[bool(grades) for grades in report.grades]].tolist()
    count = np.mean([len(s.logits) for s in less])
    row = {"queries": f"{len(report)}", "passages scored": f"{count:.1f}"}
    for name, found in quality.items():
        values = [getattr(found, key).mean() for key in MEASURES]
        row[f"{name}: {' / '.join(MEASURES.values())}"] = " / ".join(f"{v:.3f}" for v in values)
    for better in ("logit", "relevance"):
        for worse in ("fused", "BM25"):
            gain = student_interval(quality[better].ndcg10 - quality[worse].ndcg10, answered)
            row[f"nDCG@10, {better} less {worse}"] = (
                "{:+.3f}, too few groups for an interval"
                if np.isnan(gain[1])
                else "{:+.3f} [{:+.3f}, {:+.3f}]"
            ).format(*gain)
    best = np.array([s.logits.max(initial=-np.inf) if len(s.logits) else 0.0 for s in report.items])
    row["AUROC, top logit"] = f"{auroc(quality['logit'].hit1, sigmoid(best)):.3f}"
    nearest = np.array([r.first_stage.dense.max(initial=0.0) for r in by["fused"]])
    row["AUROC, best cosine"] = f"{auroc(quality['fused'].hit1, np.minimum(nearest, 1)):.3f}"
    return {planned.labelled.name: row}


if __name__ == "__main__":
    measure_sets(measure, "the orders on labelled sets")
