"""How well each way knows when it is right: ours and others, on the same labels and questions.

    python tests/bench/few_labels.py score SET ... --out work/few
    python tests/bench/benchmark.py --out work/few [--labels 50 100 300] [--draws 3] [--page FILE]

Half of a set's groups of questions lend labels, drawn one by one at random; the other half is
measured. Every way sees the same candidates and logits. A way that learns gets the labels of the
draw, the others none. Ours starts from the bundled maps, which have seen none of these questions.

A row is the mean over draws. `hit@1` is of the way's own order. A guarantee of 70% is `kept` if 70%
of what it accepts of the measured questions are right. Writes one JSON file, and the
tables below the line `MARK` of a page.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import few_labels
import gates
import numpy as np

from calibration.arrays import sigmoid
from calibration.metrics import aurc, auroc, log_loss, nauc, smece, smece_floor
from calibration.thresholds import lower_bound
from rerank.assessment.fitted_maps import FittedMaps, pooled_for
from rerank.assessment.pipeline import ReadPolicy
from rerank.assessment.predictions import predict
from rerank.assessment.ranking import rank, reorder
from rerank.config import Config
from rerank.data.labels import Labelled, hits
from rerank.evaluation.baselines import HEURISTICS, heuristic_confidences
from rerank.fitting.fit import fit
from rerank.fitting.passage_maps import choose_cutoff, fit_prior, limit_labelled
from rerank.fitting.scored_plan import ScoredPlan
from rerank.jobs.pipelines import find_models
from rerank.types import Floats, Scored

ADVISORY = 0.7  # from this confidence an answer is accepted, and this share is promised
ENVIRONMENT = Path("work/gates")
MARK = "<!-- the tables, by make benchmark -->"
HAND_SET = ("sufficiency score", "seven-metric score", "coverage score")
HEAD = (
    *("way", "labels", "hit@1", "AUROC", "AURC", "nAUC", "smECE", "log loss", "at 0.7", "right"),
    *("guaranteed", "right", "kept"),
)
SCORES = ("hit1", "auroc", "aurc", "nauc", "smece", "log_loss")
SHARES = ("accepted", "right", "guaranteed", "kept_share", "kept")


@dataclass(frozen=True)
class Figures:
    """What was measured of one way; None where it has no such thing."""

    hit1: float
    auroc: float
    aurc: float
    nauc: float
    smece: float | None  # of what claims to be a probability
    above: float | None  # of the smECE, over its 95% point under exact calibration
    log_loss: float | None
    accepted: float | None  # share with a confidence of 0.7 or more
    right: float | None  # of these
    guaranteed: float | None  # share that is accepted with a promise of 70%
    kept_share: float | None  # of these that are right
    kept: float | None  # 1 if that is 70% or more, or nothing was promised


def figures(right: Any, p: Floats, *, claims: bool, promised: Any = None) -> Figures:
    """Measure confidences p (n,) of answers that are right (n,), and what is promised (n,)."""
    right, at = np.asarray(right), p >= ADVISORY
    share = None if promised is None or not promised.any() else float(right[promised].mean())
    inside = np.clip(p, 1e-6, 1 - 1e-6)
    return Figures(
        float(right.mean()), auroc(right, p), aurc(right, p), nauc(right, p),
        smece(right, p) if claims else None,
        smece(right, p) - smece_floor(p, draws=100)[1] if claims else None,
        log_loss(right, inside) if claims else None,
        float(at.mean()) if claims else None,
        float(right[at].mean()) if claims and at.any() else None,
        None if promised is None else float(promised.mean()),
        share, None if promised is None else float(share is None or share >= ADVISORY),
    )  # fmt: skip


def ours(
    labels: Labelled[Scored], measured: Labelled[Scored], pooled: FittedMaps, config: Config
) -> Figures:
    """A fit on these labels, with its certificate for new questions like these."""
    candidates = labels.with_items([s.candidates for s in labels.items])
    prior, _ = fit_prior(candidates, config, pooled.policy.prior)
    cutoff = choose_cutoff(labels, config, pooled)
    policy = ReadPolicy(prior, cutoff)
    fitted = fit(ScoredPlan(labels, measured, policy, pooled=pooled), config)
    seen = limit_labelled(measured, cutoff)
    predicted = predict(seen.items, fitted.maps, config)
    right = hits(seen.with_items(predicted.rankings))[:, 0]
    p, threshold = predicted.confidence, fitted.maps.certificate.threshold
    promised = np.zeros(len(p), dtype=bool) if threshold is None else p >= threshold
    return figures(right, p, claims=True, promised=promised)


def unlabelled(measured: Labelled[Scored], pooled: FittedMaps, config: Config) -> Figures:
    """The bundled maps, before the first label."""
    seen = limit_labelled(measured, pooled.policy.cutoff)
    predicted = predict(seen.items, pooled, config)
    right = hits(seen.with_items(predicted.rankings))[:, 0]
    return figures(right, predicted.confidence, claims=True)


def by_logit(labelled: Labelled[Scored], pooled: FittedMaps) -> Labelled[Any]:
    """The rankings by the cross-encoder alone: the order of all ways but ours."""
    ranked = [rank(s, pooled.score) for s in labelled.items]
    return labelled.with_items([reorder(r, rank_by="logit") for r in ranked])


def best(rankings: Sequence[Any]) -> Floats:
    """The best logit of each ranking; far below all others where nothing was found."""
    return np.array([r.logits[0] if len(r) else -50.0 for r in rankings])


def temperature(logits: Floats, right: Any) -> tuple[float, float]:
    """Scale and offset that a practitioner fits: Platt's, by scikit-learn's logistic regression."""
    from sklearn.linear_model import LogisticRegression

    if len(set(right.tolist())) == 1:
        return 0.0, float(np.log((right.sum() + 1) / (len(right) - right.sum() + 1)))
    fitted = LogisticRegression(C=1e6).fit(logits[:, None], right)
    return float(fitted.coef_[0, 0]), float(fitted.intercept_[0])


def tuned(p: Floats, right: Any) -> float:
    """The lowest threshold whose accepted labels have a Clopper-Pearson bound of 70%, or none."""
    passing = [
        t
        for t in np.unique(p)
        if lower_bound(right[p >= t].mean() * (p >= t).sum(), (p >= t).sum()) >= ADVISORY
    ]
    return float(min(passing, default=np.inf))


def others(
    labels: Labelled[Scored], measured: Labelled[Scored], pooled: FittedMaps, environment: Path
) -> Iterator[tuple[str, bool, Figures]]:
    """Each other way: its name, whether it learns from labels, and what was measured."""
    known, asked = by_logit(labels, pooled), by_logit(measured, pooled)
    y, right = hits(known)[:, 0], hits(asked)[:, 0]
    x, logits = best(known.items), best(asked.items)
    p = sigmoid(logits)
    yield "sigmoid of the best logit", False, figures(right, p, claims=True)
    for name in HAND_SET:
        confidences = heuristic_confidences(HEURISTICS[name], asked.items)
        yield f"hand-set: {name}", False, figures(right, confidences, claims=True)
    scale, offset = temperature(x, y)
    fitted = sigmoid(scale * logits + offset)
    yield "Platt's scaling of it", True, figures(right, fitted, claims=True)
    threshold = tuned(sigmoid(x), y)
    yield (
        "threshold tuned by a bound",
        True,
        figures(right, p, claims=False, promised=p >= threshold),
    )
    rows = [
        {
            "query": r.query.text,
            "passages": [
                {"text": c.full_text, "logit": float(logit), "dense": float(d), "bm25": float(b)}
                for c, logit, d, b in zip(
                    r.passages[:10], r.logits, r.first_stage.dense, r.first_stage.bm25, strict=False
                )
            ],
        }
        for r in (*known.items, *asked.items)
    ]
    request = {"rows": rows, "labels": [*y.tolist(), *([None] * len(asked))]}
    python = environment / "bin" / "python"
    run = subprocess.run(
        [python, gates.__file__],
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for name, answer in json.loads(run.stdout).items():
        confidences = np.array(answer["confidence"][len(known) :])
        accepted = np.array(answer["accepted"][len(known) :])
        found = figures(right, confidences, claims=False, promised=accepted)
        if learns := name not in gates.PROMISE_NOTHING:
            yield f"{name} {answer['version']}", learns, found
        else:
            share, hit = found.guaranteed, found.kept_share
            found = replace(found, accepted=share, right=hit, guaranteed=None, kept=None)
            yield f"{name} {answer['version']}", learns, replace(found, kept_share=None)


def measured_rows(
    name: str, scored: ScoredPlan, options: argparse.Namespace, pooled: FittedMaps, config: Config
) -> list[dict[str, Any]]:
    """All rows of one set."""
    labels, asked = few_labels.parts(scored, options.seed)
    sizes = sorted({min(n, len(labels)) for n in options.labels})
    found: dict[tuple[str, int], list[Figures]] = defaultdict(list)
    found["ours", 0].append(unlabelled(asked, pooled, config))
    for n in sizes:
        for draw in range(1 if n == len(labels) else options.draws):
            rng = np.random.default_rng([options.seed, draw, n])
            chosen = np.isin(np.arange(len(labels)), rng.choice(len(labels), n, replace=False))
            drawn = labels.where(chosen)
            found["ours", n].append(ours(drawn, asked, pooled, config))
            for way, learns, one in others(drawn, asked, pooled, options.environment):
                if learns or not found[way, 0]:
                    found[way, n if learns else 0].append(one)
    return [
        {"set": name, "way": way, "labels": n, "questions": len(asked), **mean(ones)}
        for (way, n), ones in found.items()
    ]


def mean(ones: Sequence[Any]) -> dict[str, float | None]:
    """The mean of each figure over those that have it."""
    rows = [one if isinstance(one, Mapping) else asdict(one) for one in ones]
    names = Figures.__dataclass_fields__
    values = {name: [row[name] for row in rows if row[name] is not None] for name in names}
    return {name: float(np.mean(of)) if of else None for name, of in values.items()}


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The tables: the mean over all sets, then each set."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    rows = sorted(rows, key=lambda row: (sets.index(row["set"]), row["labels"]))
    kinds = dict.fromkeys((row["way"], rank_of(rows, row)) for row in rows)
    kinds = dict(sorted(kinds.items(), key=lambda kind: str(kind[0][1]).zfill(5)))
    whole = []
    for way, place in kinds:
        same = [r for r in rows if (r["way"], rank_of(rows, r)) == (way, place)]
        whole.append({"way": way, "labels": place, **mean(same)})
    parts = [f"## The mean over {len(sets)} sets\n\n{table(whole)}"]
    for name in sets:
        of_set = [row for row in rows if row["set"] == name]
        parts.append(f"## {name}: {of_set[0]['questions']} questions\n\n{table(of_set)}")
    return "\n\n".join(parts) + "\n"


def rank_of(rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> Any:
    """The number of labels, or `all` if a set has no more."""
    most = max(r["labels"] for r in rows if r["set"] == row["set"])
    return "all" if row["labels"] == most else row["labels"]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows in Markdown."""
    lines = [" | ".join(HEAD), "|".join(["---"] * len(HEAD))]
    for row in rows:
        cells = [row["way"], str(row["labels"])]
        cells += [
            decimals(row[key]) for key in ("hit1", "auroc", "aurc", "nauc", "smece", "log_loss")
        ]
        cells += [
            percent(row[key]) for key in ("accepted", "right", "guaranteed", "kept_share", "kept")
        ]
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


def decimals(value: float | None) -> str:
    """Such as .812."""
    return "" if value is None else f"{value:.3f}".removeprefix("0")


def percent(value: float | None) -> str:
    """Such as 43%."""
    return "" if value is None else f"{value:.0%}"


def main() -> None:
    """Measure all scored sets, and write the JSON file and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("work/few"))
    parser.add_argument("--labels", type=int, nargs="*", default=[50, 100, 300])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--environment", type=Path, default=ENVIRONMENT)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    if not (options.environment / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", options.environment], check=True)
        pip = [options.environment / "bin" / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *gates.PACKAGES], check=True)
    models, config = find_models(Config())
    bundled = pooled_for(*models, config)
    assert bundled
    rows = []
    for path in sorted(options.out.glob("*.pickle")):
        if options.only and path.stem not in options.only:
            continue
        scored = pickle.loads(path.read_bytes())
        rows += measured_rows(path.stem, scored, options, bundled.maps["search"], config)
        (options.out / "benchmark.json").write_text(json.dumps(rows, indent=1))
        print(table([row for row in rows if row["set"] == path.stem]), flush=True)
    text = page(rows)
    print(text)
    if options.page:
        method, mark, _ = options.page.read_text().partition(MARK)
        options.page.write_text(f"{method}{mark}\n\n{text}")


if __name__ == "__main__":
    main()
