"""What reading only the likeliest passages costs: the same model fitted behind it and without it.

    python tests/bench/reading.py datasets/pydata SET ... [--max-queries 600]

Two rows a set, on the same queries: the cross-encoder reads the `rerank_depth` likeliest passages,
or only those above the floor that was chosen on the fitted queries; everything else is fitted anew
for each. The difference in nDCG@10 is paired by query, its interval from a bootstrap by group.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from planned import Planned, measure_sets

from rerank.assessment.pipeline import limit_scored, order
from rerank.data.labels import grades_of, groups_of
from rerank.evaluation.evaluate import OURS, evaluate
from rerank.evaluation.ranking_metrics import order_quality, paired_bootstrap
from rerank.fitting.fit import fit
from rerank.types import Floats


def measure(planned: Planned) -> dict[str, dict[str, str]]:
    """The rows of one set."""
    labelled, config, to_report = planned.labelled, planned.config, planned.ranked.to_report
    qrels = grades_of(to_report, labelled)
    answered = [g for g, q in zip(groups_of(to_report, labelled), qrels, strict=True) if q]
    rows: dict[str, dict[str, str]] = {}
    whole: Floats = np.zeros(0)
    for name, floor in (("all", 0.0), ("likeliest", planned.ranked.reading.floor)):
        reading = replace(planned.ranked.reading, floor=floor)
        fitted = fit(
            [limit_scored(r, floor) for r in planned.ranked.to_fit], labelled, reading, config
        )
        learned = fitted.calibrators
        measured = evaluate(to_report, labelled, learned, config)
        ranked = [order(limit_scored(r, floor), learned.relevance).doc_ids for r in to_report]
        ndcg10 = order_quality(ranked, qrels).ndcg10
        if not rows:
            whole = ndcg10
        result = measured.table[OURS]
        low, high = result.smece_interval
        rows[f"{labelled.name}, {name}"] = {
            "read": f"{measured.passages_scored:.1f}",
            "nDCG@10": f"{ndcg10.mean():.3f}",
            "less all": "{:+.3f} [{:+.3f}, {:+.3f}]".format(
                *paired_bootstrap(ndcg10, whole, answered)
            ),
            "share of it": f"{(ndcg10.mean() - whole.mean()) / whole.mean():+.1%}",
            "Brier": f"{result.brier:.4f}",
            "smECE [95 %]": f"{result.smece:.3f} [{low:.3f}, {high:.3f}]",
            "accepted": f"{result.accepted}",
            "right": f"{result.right_accepted}",
        }
    return rows


if __name__ == "__main__":
    measure_sets(measure, "the cost of reading less")
