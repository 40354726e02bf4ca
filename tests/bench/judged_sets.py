"""What a real judge is worth: human labels for the same certificate, with its verdicts and without.

    python tests/bench/few_labels.py score SET ... --out work/few
    python tests/bench/judged_sets.py --out work/few [--draws 100]

On each set, the model is the first stage alone, and its confidence a logistic map that is fitted on
half of the groups. Of the other half it accepts the surer
half. The judge is the bundled cross-encoder: it says yes to the top passages with the highest
logits, as many as the confidences expect to be right. Human labels are the qrels. Printed are the
share of right answers and the judge's agreement, and how often 30 to 80 labels certify a target
that is .1 below the truth, by an even sample and beside the verdicts. `worth` is the median, over
draws, of the labels that one beside the verdicts stands for.
"""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from few_labels import parts

from calibration.label_selection import choose_judged, judged_strata
from calibration.prediction_powered import Strata, powered_mean
from calibration.thresholds import certify
from rerank.judging import says_yes
from rerank.types import Floats

LABELS = (30, 50, 80)
GAP = 0.1  # between the truth and the target


def answers(items: Any) -> tuple[Floats, Floats, Floats]:
    """Of each query with candidates: score and margin of the likeliest, whether it is right, logit.

    The score is the first stage's, which decided what the cross-encoder read.
    """
    rows = []
    for scored, grades in zip(items.items, items.grades, strict=True):
        if len(scored) > 1:
            first, second = scored.prior_scores[:2].tolist()
            right = scored.candidates.passages[0].doc_id in grades
            rows.append((first, first - second, right, float(scored.logits[0])))
    table = np.array(rows, dtype=float)
    return table[:, :2], table[:, 2], table[:, 3]


def measured(path: Path, draws: int) -> list[str]:
    """The cells of a set."""
    from sklearn.linear_model import LogisticRegression

    fitted, rest = parts(pickle.loads(path.read_bytes()), 0)
    x, y, _ = answers(fitted)
    features, right, logits = answers(rest)
    confidence = LogisticRegression().fit(x, y).predict_proba(features)[:, 1]
    kept = confidence >= np.median(confidence)
    y, p, logits = right[kept], confidence[kept], logits[kept]
    yes = says_yes(logits, p, probability=False)
    strata, target = judged_strata(p, yes, float(p.min())), float(y.mean()) - GAP
    rows = np.bincount(strata, minlength=6)
    cells = [path.stem, str(len(y)), f"{y.mean():.0%}", f"{(yes == y).mean():.0%}"]
    worth = []
    for n in LABELS:
        if n > 0.8 * len(y):
            cells += ["", ""]
            continue
        plain = judged = 0
        for seed in range(draws):
            even = np.random.default_rng(seed).permutation(len(y))[:n]
            told = np.full(n, 0.5)
            plain += certify(y[even], told, target=target, floor=0.5).threshold is not None
            drawn = choose_judged(strata, n, random_state=seed).rows
            found = Strata.of(y[drawn], strata[drawn], rows)
            judged += found.tail(target) <= 0.05
            worth.append(powered_mean(found).worth / n)
        cells += [f"{plain / draws:.0%}", f"{judged / draws:.0%}"]
    return [*cells, f"{np.median(worth):.2f}"]


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("work/few"))
    parser.add_argument("--draws", type=int, default=100)
    options = parser.parse_args()
    head = ["set", "accepted", "right", "judge agrees"]
    head += [f"{n}, {how}" for n in LABELS for how in ("even", "judged")]
    print(f"| {' | '.join([*head, 'worth'])} |\n|{'---|' * (len(head) + 1)}")
    for path in sorted(options.out.glob("*.pickle")):
        print(f"| {' | '.join(measured(path, options.draws))} |", flush=True)


if __name__ == "__main__":
    main()
