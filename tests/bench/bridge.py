"""Pooled maps for a reranker that they were not fitted on: is a bridge of unlabelled pairs enough?

    python tests/bench/few_labels.py score SET ... --out work/few
    python tests/bench/few_labels.py score SET ... --out work/theirs --reranker NAME
    python tests/bench/bridge.py --ours work/few [--theirs work/theirs ...] [--draws 3]

Their scores are brought to the scale of our bundled reranker by a monotone map, fitted on pairs of
the set's own questions that both have scored; no label is used. The pooled maps are fitted over the
other sets, on our scores. `cosine` and `bm25` take the first stage's numbers for a reranker's. One
line a way and number of labels: log loss, AUROC and smECE of the confidence on the groups that lend
no label.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import few_labels
import numpy as np
from scipy.stats import t as student
from sklearn.isotonic import IsotonicRegression

from calibration.metrics import auroc, log_loss, smece
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.predictions import predict
from rerank.config import Config
from rerank.data.labels import Labelled, hits
from rerank.fitting.passage_maps import limit_labelled
from rerank.fitting.scored_plan import ScoredPlan
from rerank.jobs.pool import fit_pooled_maps
from rerank.types import Floats, Scored

LABELS = (0, 25, 50)
FIRST_STAGE: Mapping[str, Callable[[Scored], Floats]] = {
    "cosine": lambda s: s.candidates.first_stage.dense[: len(s.logits)],
    "bm25": lambda s: s.candidates.first_stage.bm25[: len(s.logits)],
}


def with_logits(labelled: Labelled[Scored], change: Callable[[Scored], Floats]) -> Labelled[Scored]:
    """The same lists with other logits."""
    return labelled.with_items([replace(s, logits=change(s)) for s in labelled.items])


def bridged(ours: Labelled[Scored], theirs: Labelled[Scored]) -> Labelled[Scored]:
    """Their lists with logits on our scale, by isotonic regression on the pairs of both."""
    known = {
        (s.query.query_id, p.doc_id): logit
        for s in ours.items
        for p, logit in zip(s.candidates.passages, s.logits, strict=False)
    }
    pairs = [
        (score, known[s.query.query_id, p.doc_id])
        for s in theirs.items
        for p, score in zip(s.candidates.passages, s.logits, strict=False)
        if (s.query.query_id, p.doc_id) in known
    ]
    x, y = np.array(pairs).T
    bridge = IsotonicRegression(out_of_bounds="clip").fit(x, y)
    return with_logits(theirs, lambda s: bridge.predict(s.logits) if len(s.logits) else s.logits)


def measured_by(maps: FittedMaps, asked: Labelled[Scored], config: Config) -> list[float]:
    """Log loss, AUROC and smECE of the confidence."""
    seen = limit_labelled(asked, maps.policy.cutoff)
    predicted = predict(seen.items, maps, config)
    right, p = hits(seen.with_items(predicted.rankings))[:, 0], predicted.confidence
    return [log_loss(right, p), auroc(right, p), smece(right, p), float(right.mean())]


def figures_of(
    lent: Labelled[Scored],
    measured: Labelled[Scored],
    prior: FittedMaps | None,
    count: int,
    draws: int,
    config: Config,
) -> Any:
    """The mean figures of fits on `count` labels; None without a label and without a prior."""
    if not count:
        return None if prior is None else np.array(measured_by(prior, measured, config))
    rows = []
    for draw in range(draws):
        rng = np.random.default_rng([0, draw])
        chosen = rng.choice(len(lent), min(count, len(lent)), replace=False)
        drawn = lent.where(np.isin(np.arange(len(lent)), chosen))
        fitted = few_labels.fitted_on(drawn, measured, prior, config)
        rows.append(measured_by(fitted.maps, measured, config))
    return np.mean(rows, axis=0)


def main() -> None:
    """Print the mean over sets and draws of each way and number of labels."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ours", type=Path, default=Path("work/few"))
    parser.add_argument("--theirs", type=Path, nargs="*", default=[])
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    config = Config()
    ours: dict[str, ScoredPlan] = {
        path.stem: pickle.loads(path.read_bytes())[0]
        for path in sorted(options.ours.glob("*.pickle"))
    }
    figures: dict[tuple[str, str, int], dict[str, Any]] = {}
    for name, scored in ours.items():
        others = {n: s for n, s in ours.items() if n != name}
        kept = options.ours / f"{name}-{'-'.join(others)}.maps"
        if not kept.exists():
            kept.write_bytes(pickle.dumps(fit_pooled_maps(others, config)))
        pooled = pickle.loads(kept.read_bytes())
        labels, asked = few_labels.parts(scored, 0)
        rerankers = {
            way: (with_logits(labels, change), with_logits(asked, change))
            for way, change in FIRST_STAGE.items()
        }
        for folder in options.theirs:
            path = folder / f"{name}.pickle"
            if path.exists():
                plan = pickle.loads(path.read_bytes())[0]
                rerankers[folder.name] = few_labels.parts(plan, 0)
        for way, (known, of_asked) in rerankers.items():
            near = {"labels": bridged(labels, known), "asked": bridged(asked, of_asked)}
            ways = {
                "none": (known, of_asked, None),
                "bridge": (near["labels"], near["asked"], pooled),
                "as it is": (known, of_asked, pooled),
            }
            for how, lists in ways.items():
                for count in LABELS:
                    row = figures_of(*lists, count, options.draws, config)
                    if row is not None:
                        figures.setdefault((way, how, count), {})[name] = row
            print(name, way, flush=True)
    for (way, how, count), by_set in figures.items():
        loss, area, error, right = np.mean(list(by_set.values()), axis=0)
        line = f"{way:10} {how:9} {count:3} labels: log loss {loss:.3f} AUROC {area:.3f}"
        line += f" smECE {error:.3f} hit@1 {right:.3f}"
        if how != "none" and count:
            without = figures[way, "none", count]
            gains = np.array([by_set[n][0] - without[n][0] for n in by_set])
            half = student.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / len(gains) ** 0.5
            line += f"; log loss less none {gains.mean():+.3f} +- {half:.3f}"
        print(line)


if __name__ == "__main__":
    main()
