"""What scoring only the likeliest passages costs: the same model fitted with a cutoff and without.

    python tests/bench/reading.py datasets/pydata SET ... [--max-queries 600]

Two rows a set, on the same queries: the cross-encoder scores the `rerank_depth` likeliest
passages, or only those above the cutoff that was chosen on the fitted queries; everything else is
fitted anew for each. The difference in nDCG@10 is paired by query, its interval is Student's
by group.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from planned import Planned, measure_sets

from calibration.metrics.intervals import student_interval
from rerank.assessment.ranking import limit_scored, rank
from rerank.evaluation.measure import OURS, Part, order_quality
from rerank.evaluation.measure import measure as measure_all
from rerank.fitting.fit import fit
from rerank.types import Floats


def measure(planned: Planned) -> dict[str, dict[str, str]]:
    """The rows of one set."""
    labelled, config, scored = planned.labelled, planned.config, planned.scored
    report = scored.to_report
    answered = report.groups[[bool(grades) for grades in report.grades]].tolist()
    rows: dict[str, dict[str, str]] = {}
    whole: Floats = np.zeros(0)
    for name, cutoff in (("all", 0.0), ("likeliest", scored.policy.cutoff)):
        policy = replace(scored.policy, cutoff=cutoff)
        maps = fit(replace(scored, policy=policy), config).maps
        measured = measure_all([Part(report, maps)], config)
        ranked = [rank(limit_scored(s, cutoff), maps.score).doc_ids for s in report.items]
        ndcg10 = order_quality(ranked, report.grades).ndcg10
        if not rows:
            whole = ndcg10
        result = measured.table[OURS]
        low, high = result.smece_interval
        rows[f"{labelled.name}, {name}"] = {
            "scored": f"{measured.passages_scored:.1f}",
            "nDCG@10": f"{ndcg10.mean():.3f}",
            "less all": "{:+.3f} [{:+.3f}, {:+.3f}]".format(
                *student_interval(ndcg10 - whole, answered)
            ),
            "share of it": f"{(ndcg10.mean() - whole.mean()) / whole.mean():+.1%}",
            "Brier": f"{result.brier:.4f}",
            "smECE [95%]": f"{result.smece:.3f} [{low:.3f}, {high:.3f}]",
            "accepted": f"{result.accepted}",
            "right": f"{result.right_accepted}",
        }
    return rows


if __name__ == "__main__":
    measure_sets(measure, "the cost of scoring less")
