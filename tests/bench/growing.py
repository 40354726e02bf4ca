"""A corpus that doubles after calibration: how far the confidence decays, and whether drift tells.

    python tests/bench/growing.py SET ... --out work/growing [--max-queries 300]

Half of the documents, drawn at random, are the first corpus. Half of the groups of questions about
it calibrate; the others are measured, first on this corpus and then on the whole one. So each of
these questions has the same right passages there: only wrong ones are added, or some that nobody
has judged. Prints one line a set and corpus.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from pathlib import Path

from rerank import LabelledSet, calibrate, load
from rerank.config import Config
from rerank.data.grouping import grouped
from rerank.jobs.evaluate import detect_drift, evaluate
from rerank.jobs.pipelines import pipeline_over
from rerank.workspace import Workspace


def halved(whole: LabelledSet, most: int, seed: int) -> tuple[LabelledSet, LabelledSet]:
    """The set over half of its documents, and the same questions over all of them."""
    rng = random.Random(seed)
    documents = {i: p.metadata.get("document") or p.title or i for i, p in whole.corpus.items()}
    asked = {i for split in whole.splits.values() for i in split}
    right = sorted({documents[d] for i in asked for d in whole.relevant(i)})
    others = sorted(set(documents.values()) - set(right))
    kept = {*rng.sample(right, len(right) // 2), *rng.sample(others, len(others) // 2)}
    corpus = {i: p for i, p in whole.corpus.items() if documents[i] in kept}
    ids = [i for i in sorted(asked) if all(d in corpus for d in whole.relevant(i))]
    ids = sorted(rng.sample(ids, min(most, len(ids))))
    groups = grouped(whole, ids).select(ids).groups.tolist()
    names = sorted(set(groups))
    rng.shuffle(names)
    fit = {name for at, name in enumerate(names) if at % 2}
    splits = {
        "train": tuple(i for i, g in zip(ids, groups, strict=True) if g in fit),
        "test": tuple(i for i, g in zip(ids, groups, strict=True) if g not in fit),
    }
    both = replace(
        whole,
        queries={i: whole.queries[i] for i in ids},
        qrels={i: whole.qrels[i] for i in ids if i in whole.qrels},
        splits=splits,
        grouping=None,
    )
    return replace(both, corpus=corpus, name=f"{whole.name}-half"), both


def main() -> None:
    """Calibrate on half of each set's corpus, and measure on both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("work/growing"))
    parser.add_argument("--max-queries", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for folder in options.sets:
        half, whole = halved(LabelledSet.read(folder), options.max_queries, options.seed)
        made = calibrate(half, options.out / half.name, Config(), work=options.out, overwrite=True)
        model = load(made.folder)
        for labelled in (half, whole):
            measured = evaluate(model, labelled, "test", work=options.out)
            ours = measured.table["calibrated"]
            pipeline = pipeline_over(labelled, model, Workspace(options.out))
            asked = grouped(labelled, measured.query_ids).select(measured.query_ids)
            drift = detect_drift(model, asked, pipeline=pipeline)
            mean = measured.confidences["calibrated"].mean()
            print(
                f"{labelled.name:16} {len(labelled.corpus):5} passages {ours.n:4} questions "
                f"hit@1 {ours.base_accuracy:.3f} mean confidence {mean:.3f} AUROC {ours.auroc:.3f} "
                f"smECE {ours.smece:.3f} (exact to {ours.smece_floor95:.3f}) log loss "
                f"{ours.log_loss:.3f}, at 0.7 {ours.right_accepted} of {ours.accepted} right. "
                f"{drift.sentence}",
                flush=True,
            )


if __name__ == "__main__":
    main()
