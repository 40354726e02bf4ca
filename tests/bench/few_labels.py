"""What few labels are worth: fits on 50 questions beside one on all, and beside the base rate.

    python tests/bench/few_labels.py score SET ... --out work/few [--max-queries 360]
        [--reranker NAME] [--encoder NAME]
    python tests/bench/few_labels.py fit --out work/few [--labels 50] [--draws 5] [--shipped]

`score` finds and scores the candidates of each set once, and of each answered question once more
without its answers. `fit` draws the labels one by one at
random, and measures on other groups, by maps pooled over the other sets (with `--shipped`, by the
bundled ones, of which no query here was seen). The goal: AUROC within .015 of all labels; smECE
above its 95% point under exact calibration by .03 at most in the mean, and .06 at worst; log loss
never above that of the base rate.
"""

from __future__ import annotations

import argparse
import pickle
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration.metrics import auroc, log_loss, smece, smece_floor
from rerank.assessment.fitted_maps import FittedMaps, pooled_for
from rerank.assessment.pipeline import ReadPolicy
from rerank.assessment.predictions import predict
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import hits
from rerank.errors import InputError
from rerank.fitting.fit import Fitted, fit
from rerank.fitting.passage_maps import choose_cutoff, fit_prior, limit_labelled
from rerank.fitting.plan import plan
from rerank.fitting.scored_plan import ScoredPlan, add_copies, copies_in, score_planned
from rerank.inference.model_files import trained_on
from rerank.jobs.automatic import with_language
from rerank.jobs.benchmark import EVERY, halves
from rerank.jobs.pipelines import find_models, open_pipeline
from rerank.jobs.pool import fit_pooled_maps
from rerank.storage.folder import Workspace

SEED = 7


def score(folder: Path, out: Path, max_queries: int, chosen: Config) -> None:
    """Write the scored candidates of the queries of a set that no model and no map has seen."""
    labelled = LabelledSet.read(folder)
    config = with_language(chosen, labelled.corpus.values(), encodes=True)
    models, config = find_models(replace(config, expected_unanswerable=EVERY))
    pooled = pooled_for(*models, config)
    ids = tuple(i for split in labelled.splits.values() for i in split)
    planned = plan(
        replace(labelled, splits={"train": ids}),
        trained_hashes=trained_on(*models),
        max_queries=max_queries,
        seed=SEED,
        pooled_marks=pooled.marks if pooled else frozenset(),
    )
    pipeline = open_pipeline(labelled, config, Workspace(out))
    found = planned.fit.with_items(pipeline.retrieve(planned.fit.items))
    both = add_copies(pipeline, found)
    scored = score_planned(pipeline, both, both, cutoff=0.0)
    (out / f"{folder.name}.pickle").write_bytes(pickle.dumps((scored, config)))


def parts(scored: ScoredPlan, seed: int) -> tuple[Any, Any]:
    """The queries to draw from and those to measure on, without copies; no group is in both."""
    return halves(scored.to_fit.where(~copies_in(scored.to_fit)), seed)


def fitted_on(
    labels: Any,
    measured: Any,
    pooled: FittedMaps | None,
    config: Config,
    *,
    to_keep: bool = False,
) -> Fitted:
    """A fit on these labels: the prior, what is scored, and the maps."""
    prior, _ = fit_prior(
        labels.with_items([s.candidates for s in labels.items]),
        config,
        pooled.policy.prior if pooled else None,
    )
    policy = ReadPolicy(prior, choose_cutoff(labels, config, pooled))
    planned = ScoredPlan(labels, measured, policy, pooled=pooled)
    return fit(planned, config, to_keep=to_keep)


def figures(
    labels: Any, measured: Any, pooled: FittedMaps | None, config: Config
) -> dict[str, Any]:
    """What a fit on these labels measures on the others, and the base rate of these labels."""
    fitted = fitted_on(labels, measured, pooled, config)
    seen = limit_labelled(measured, fitted.maps.policy.cutoff)
    predicted = predict(seen.items, fitted.maps, config)
    right, p = hits(seen.with_items(predicted.rankings))[:, 0], predicted.confidence
    rate = (fitted.right.sum() + 1) / (len(fitted.right) + 2)
    return {
        "auroc": auroc(right, p),
        "smece": smece(right, p),
        "floor": smece_floor(p, draws=200)[1],
        "loss": log_loss(right, p),
        "base": log_loss(right, np.full(len(p), rate)),
        "hit1": float(right.mean()),
        "mean": float(p.mean()),
    }


def main() -> None:
    """Score, or fit and print one line a set."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=("score", "fit"))
    parser.add_argument("sets", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, default=Path("work/few"))
    parser.add_argument("--max-queries", type=int, default=360)
    parser.add_argument("--reranker", default=Config().reranker)
    parser.add_argument("--encoder", default=Config().encoder)
    parser.add_argument("--labels", type=int, default=50)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shipped", action="store_true")
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    if options.job == "score":
        options.out.mkdir(parents=True, exist_ok=True)
        chosen = Config(reranker=options.reranker, encoder=options.encoder)
        for folder in options.sets:
            if not (options.out / f"{folder.name}.pickle").exists():
                began = time.perf_counter()
                try:
                    score(folder, options.out, options.max_queries, chosen)
                except InputError as error:
                    print(f"{folder.name} is left out: {error}", flush=True)
                    continue
                print(folder.name, f"{time.perf_counter() - began:.0f} s", flush=True)
        return
    files = sorted(options.out.glob("*.pickle"))
    sets = {path.stem: pickle.loads(path.read_bytes())[0] for path in files}
    config = Config()
    models, resolved = find_models(config)
    shipped = pooled_for(*models, resolved) if options.shipped else None
    rows = []
    for name, scored in sets.items():
        if options.only and name not in options.only:
            continue
        kept = options.out / f"{name}-{'-'.join(n for n in sets if n != name)}.maps"
        if shipped:
            pooled = shipped.maps["search"]
        elif kept.exists():
            pooled = pickle.loads(kept.read_bytes())
        else:
            others = {n: s for n, s in sets.items() if n != name}
            pooled = fit_pooled_maps(others, config)
            kept.write_bytes(pickle.dumps(pooled))
        labels, measured = parts(scored, options.seed)
        whole = figures(labels, measured, pooled, config)
        draws = []
        for draw in range(options.draws):
            rng = np.random.default_rng([options.seed, draw])
            rows_of = rng.choice(len(labels), min(options.labels, len(labels)), replace=False)
            drawn = labels.where(np.isin(np.arange(len(labels)), rows_of))
            draws.append(figures(drawn, measured, pooled, config))
        rows.append((name, len(labels), len(measured), whole, draws))
        print(line(*rows[-1]), flush=True)
    lost = [w["auroc"] - d["auroc"] for *_, w, ds in rows for d in ds]
    above = [d["smece"] - d["floor"] for *_, ds in rows for d in ds]
    worse = [d["loss"] - d["base"] for *_, ds in rows for d in ds]
    print(
        f"all: AUROC lost {np.mean(lost):+.3f} (worst {max(lost):+.3f}), smECE above its point "
        f"{np.mean(above):+.3f} (worst {max(above):+.3f}), log loss "
        f"{np.mean([d['loss'] for *_, ds in rows for d in ds]):.4f}, less base "
        f"{np.mean(worse):+.3f} (worst {max(worse):+.3f}, above in {sum(w > 0 for w in worse)})"
    )


def line(name: str, n: int, m: int, whole: dict[str, Any], draws: list[dict[str, Any]]) -> str:
    """The figures of one set."""
    mean = {key: float(np.mean([d[key] for d in draws])) for key in whole}
    above = [d["smece"] - d["floor"] for d in draws]
    worse = [d["loss"] - d["base"] for d in draws]
    return (
        f"{name:20} {n}/{m} hit@1 {mean['hit1']:.2f} AUROC {whole['auroc']:.3f} "
        f"{mean['auroc']:.3f} smECE {whole['smece']:.3f} {mean['smece']:.3f} above its point "
        f"{np.mean(above):+.3f} worst {max(above):+.3f} log loss {whole['loss']:.3f} "
        f"{mean['loss']:.3f} base {mean['base']:.3f} worst {max(worse):+.3f}"
    )


if __name__ == "__main__":
    main()
