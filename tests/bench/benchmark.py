"""How well each way knows when it is right: ours and others, on the same labels and questions.

    python tests/bench/few_labels.py score SET ... --out work/few
    python tests/bench/benchmark.py --out work/few [--labels 50 100 300] [--draws 3] [--page FILE]
        [--predictions NAME=SET=FILE ...]

Half of a set's groups of questions lend labels, drawn one by one at random; the other half is
measured. Every way sees the same candidates and logits. A way that learns gets the labels of the
draw, the others none. Ours starts from the bundled maps, which have seen none of these questions.

A row is the mean over draws. `hit@1` is of the way's own order. A guarantee of 70% is `kept` if 70%
of what it accepts of the measured questions are right. Twins are a question with its answer among
the passages and the same question without. Writes one JSON file, and the tables below the line
`MARK` of a page.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from rerank.assessment.predictions import predict
from rerank.assessment.ranking import read, reorder
from rerank.config import Config
from rerank.data.labels import Labelled, hits
from rerank.evaluation.baselines import HEURISTICS, heuristic_confidences
from rerank.fitting.passage_maps import limit_labelled
from rerank.fitting.scored_plan import ScoredPlan
from rerank.fitting.unanswerable import copies_in
from rerank.jobs.pipelines import find_models
from rerank.types import Bools, Floats, Ranking, Scored

ADVISORY = 0.7  # from this confidence an answer is accepted, and this share is promised
KEPT = 0.9  # share of the twins with an answer that a threshold keeps
DEPTH, BINS = 10, 15  # passages of a list whose probabilities are measured; bins of their ECE
RESAMPLES = 400  # of groups, for the interval of a difference
ENVIRONMENT = Path("work/gates")
MARK = "<!-- the tables, by make benchmark -->"
HAND_SET = ("sufficiency score", "seven-metric score", "coverage score")
COLUMNS = {  # heading: figure and whether it is a share, in the order of the tables
    "hit@1": ("hit1", False), "AUROC": ("auroc", False), "AURC": ("aurc", False),
    "nAUC": ("nauc", False), "smECE": ("smece", False), "above": ("above", False),
    "log loss": ("log_loss", False), "at 0.7": ("accepted", True), "right": ("right", True),
    "guaranteed": ("guaranteed", True), "right of these": ("kept_share", True),
    "kept": ("kept", True), "twins": ("twins", False), "false accepts": ("false_accepts", True),
    "pair ECE": ("pair_ece", False),
}  # fmt: skip
COMPARED: dict[str, Callable[[Any, Floats], float]] = {"AUROC": auroc, "AURC": aurc}


@dataclass(frozen=True)
class Measured:
    """The questions that are measured, and copies of the answered ones without their answers."""

    scored: Labelled[Scored]
    copies: Bools  # (n,) which are copies
    present: Bools  # (n,) which are questions with an answer among their passages, and a copy


@dataclass(frozen=True)
class Answers:
    """What one way says of the measured questions and copies. Arrays have shape (n,)."""

    right: Any  # whether its first passage is right
    confidence: Floats
    claims: bool = False  # whether it says that its confidence is a probability
    promised: Bools | None = None  # the questions that it accepts with a guarantee of 70%
    accepted: Bools | None = None  # the questions that it accepts without one
    pairs: tuple[Floats, Floats] | None = None  # labels and probabilities of single passages


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
    twins: float | None  # AUROC of the confidence for "an answer is among the passages"
    false_accepts: float | None  # of the copies, where 90% of the others are kept
    pair_ece: float | None  # of the first ten passages' probabilities


def figures(said: Answers, measured: Measured) -> Figures:
    """Measure what one way says."""
    asked = ~measured.copies
    right, p = np.asarray(said.right)[asked], said.confidence[asked]
    at = p >= ADVISORY if said.claims else None if said.accepted is None else said.accepted[asked]
    promised = None if said.promised is None else said.promised[asked]
    share = None if promised is None or not promised.any() else float(right[promised].mean())
    present, absent = said.confidence[measured.present], said.confidence[measured.copies]
    twins = np.r_[np.ones(len(present)), np.zeros(len(absent))]
    enough = min(len(present), len(absent)) > 1
    return Figures(
        float(right.mean()), auroc(right, p), aurc(right, p), nauc(right, p),
        smece(right, p) if said.claims else None,
        smece(right, p) - smece_floor(p, draws=100)[1] if said.claims else None,
        log_loss(right, np.clip(p, 1e-6, 1 - 1e-6)) if said.claims else None,
        None if at is None else float(at.mean()),
        None if at is None or not at.any() else float(right[at].mean()),
        None if promised is None else float(promised.mean()),
        share, None if promised is None else float(share is None or share >= ADVISORY),
        auroc(twins, np.r_[present, absent]) if enough else None,
        float((absent >= np.quantile(present, 1 - KEPT)).mean()) if enough else None,
        None if said.pairs is None else ece(*said.pairs),
    )  # fmt: skip


def ece(labels: Floats, p: Floats) -> float:
    """The expected calibration error in `BINS` bins of equal width (Naeini et al. 2015)."""
    number = np.minimum((p * BINS).astype(int), BINS - 1)
    gaps = np.bincount(number, weights=labels - p, minlength=BINS)
    return float(np.abs(gaps).sum() / len(p))


def pairs(rankings: Labelled[Ranking], probabilities: Sequence[Floats], asked: Bools) -> Any:
    """Labels and probabilities of the first passages of the questions that are no copies."""
    rows = np.flatnonzero(asked).tolist()
    ids = [(i, doc_id) for i in rows for doc_id in rankings.items[i].doc_ids[:DEPTH]]
    labels = [float(doc_id in rankings.grades[i]) for i, doc_id in ids]
    return np.array(labels), np.concatenate([probabilities[i][:DEPTH] for i in rows])


def by_maps(
    measured: Measured, maps: FittedMaps, config: Config, threshold: float | None
) -> Answers:
    """What our maps say, with a guarantee from the threshold up; None: no guarantee."""
    seen = limit_labelled(measured.scored, maps.policy.cutoff)
    said = predict(seen.items, maps, config)
    rankings = seen.with_items(said.rankings)
    return Answers(
        hits(rankings)[:, 0],
        said.confidence,
        claims=True,
        promised=None if threshold is None else said.confidence >= threshold,
        pairs=pairs(rankings, said.relevance, ~measured.copies),
    )


def ours(
    labels: Labelled[Scored], measured: Measured, pooled: FittedMaps | None, config: Config
) -> Answers:
    """A fit on these labels, with its certificate for new questions like these."""
    fitted = few_labels.fitted_on(labels, measured.scored, pooled, config)
    threshold = fitted.maps.certificate.threshold
    return by_maps(measured, fitted.maps, config, np.inf if threshold is None else threshold)


def by_logit(labelled: Labelled[Scored]) -> Labelled[Ranking]:
    """The rankings by the cross-encoder alone: the order of all ways but ours."""
    return labelled.with_items([reorder(read(s), rank_by="logit") for s in labelled.items])


def best(rankings: Sequence[Ranking]) -> Floats:
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
    labels: Labelled[Scored], measured: Measured, environment: Path
) -> Iterator[tuple[str, bool, Answers]]:
    """Each other way: its name, whether it learns from labels, and what it says."""
    known, asked = by_logit(labels), by_logit(measured.scored)
    y, right = hits(known)[:, 0], hits(asked)[:, 0]
    x, logits = best(known.items), best(asked.items)
    p = sigmoid(logits)
    single = pairs(asked, [sigmoid(r.logits) for r in asked.items], ~measured.copies)
    yield "sigmoid of the best logit", False, Answers(right, p, claims=True, pairs=single)
    for name in HAND_SET:
        confidence = heuristic_confidences(HEURISTICS[name], asked.items)
        yield f"hand-set: {name}", False, Answers(right, confidence, claims=True)
    scale, offset = temperature(x, y)
    yield "Platt's scaling of it", True, Answers(right, sigmoid(scale * logits + offset), True)
    threshold = tuned(sigmoid(x), y)
    yield "threshold tuned by a bound", True, Answers(right, p, promised=p >= threshold)
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
    run = subprocess.run(
        [environment / "bin" / "python", gates.__file__],
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for name, answer in json.loads(run.stdout).items():
        confidence = np.array(answer["confidence"][len(known) :])
        accepted = np.array(answer["accepted"][len(known) :])
        learns = name not in gates.PROMISE_NOTHING
        said = Answers(right, confidence)
        said = replace(said, promised=accepted) if learns else replace(said, accepted=accepted)
        yield f"{name} {answer['version']}", learns, said


def from_file(path: Path, measured: Measured) -> Answers:
    """What a predictions file says: a line a question with `query_id`, `confidence`, `ranking`."""
    lines = {line["query_id"]: line for line in map(json.loads, path.read_text().splitlines())}
    scored, asked = measured.scored, np.flatnonzero(~measured.copies).tolist()
    missing = [i for i in asked if scored.items[i].query.query_id not in lines]
    if missing:
        sample = scored.items[missing[0]].query.query_id
        sys.exit(f"{path}: no line of {len(missing)} of {len(asked)} questions, such as {sample!r}")
    right, confidence = np.zeros(len(scored)), np.full(len(scored), np.nan)
    for i in asked:
        line = lines[scored.items[i].query.query_id]
        first = (line["ranking"] or [None])[0]
        first = first["doc_id"] if isinstance(first, dict) else first
        right[i], confidence[i] = first in scored.grades[i], float(line["confidence"])
    return Answers(right, confidence, claims=True)


def measured_part(scored: ScoredPlan, asked: Labelled[Scored]) -> Measured:
    """The measured questions with the copies of the answered ones among them."""
    groups = np.isin(scored.to_fit.groups, asked.groups)
    both = scored.to_fit.where(groups)
    copies = copies_in(both)
    has = np.array(
        [
            any(p.doc_id in grades for p in s.candidates.passages)
            for s, grades in zip(both.items, both.grades, strict=True)
        ]
    )
    texts = {s.query.text for s, copy in zip(both.items, copies, strict=True) if copy}
    present = has & np.array([s.query.text in texts for s in both.items])
    return Measured(both, copies, present & ~copies)


def measured_rows(
    name: str, scored: ScoredPlan, config: Config, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """All rows of one set."""
    bundled = pooled_for(*find_models(config)[0], config)
    pooled = bundled.maps["search"] if bundled else None
    labels, asked = few_labels.parts(scored, options.seed)
    measured = measured_part(scored, asked)
    sizes = sorted({min(n, len(labels)) for n in options.labels})
    said: dict[tuple[str, int], list[Answers]] = defaultdict(list)
    if pooled:
        said["ours", 0].append(by_maps(measured, pooled, config, None))
    for given in options.predictions:
        way, of_set, file = given.split("=", 2)
        if of_set == name:
            said[way, 0].append(from_file(Path(file), measured))
    for n in sizes:
        for draw in range(1 if n == len(labels) else options.draws):
            rng = np.random.default_rng([options.seed, draw, n])
            chosen = np.isin(np.arange(len(labels)), rng.choice(len(labels), n, replace=False))
            drawn = labels.where(chosen)
            said["ours", n].append(ours(drawn, measured, pooled, config))
            for way, learns, one in others(drawn, measured, options.environment):
                if learns or not said[way, 0]:
                    said[way, n if learns else 0].append(one)

    def of_labels(n: int) -> int | str:
        return "all" if n == len(labels) else n

    return [
        {
            "set": name,
            "way": way,
            "labels": of_labels(n),
            "questions": len(asked),
            **mean([asdict(figures(one, measured)) for one in ones]),
            "resampled": {
                of_labels(size): resampled(said["ours", size], ones, measured)
                for size in (sizes if n == 0 else [n])
                if way != "ours"
            },
        }
        for (way, n), ones in said.items()
    ]


def resampled(
    ours: Sequence[Answers], theirs: Sequence[Answers], measured: Measured
) -> dict[str, list[float]]:
    """Ours less theirs, mean over draws: of all questions, then of each resample of the groups."""
    asked = ~measured.copies
    _, groups = np.unique(measured.scored.groups[asked], return_inverse=True)
    members = [np.flatnonzero(groups == g) for g in range(groups.max() + 1)]
    rng = np.random.default_rng(0)  # the same resamples for every way
    samples = [np.arange(len(groups))] + [
        np.concatenate([members[g] for g in rng.integers(len(members), size=len(members))])
        for _ in range(RESAMPLES)
    ]

    def of(said: Sequence[Answers], rows: Any, score: Callable[[Any, Floats], float]) -> float:
        values = [score(np.asarray(s.right)[asked][rows], s.confidence[asked][rows]) for s in said]
        return float(np.mean(values))

    return {
        name: [of(ours, rows, score) - of(theirs, rows, score) for rows in samples]
        for name, score in COMPARED.items()
    }


def mean(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The mean of each figure over those that have it."""
    values = {
        name: [row[name] for row in rows if row[name] is not None]
        for name in Figures.__dataclass_fields__
    }
    return {name: float(np.mean(of)) if of else None for name, of in values.items()}


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The tables: the mean over all sets, the differences, then each set."""
    sets = list(dict.fromkeys(row["set"] for row in rows))

    def place(row: Mapping[str, Any]) -> tuple[bool, Any, int]:
        return row["labels"] == "all", row["labels"], sets.index(row["set"])

    rows = sorted(rows, key=lambda row: (place(row)[0], str(place(row)[1]).zfill(5), place(row)[2]))
    whole = [
        {"way": way, "labels": labels, **mean([r for r in rows if key_of(r) == (way, labels)])}
        for way, labels in dict.fromkeys(map(key_of, rows))
    ]
    parts = [
        f"## The mean over {len(sets)} sets\n\n{table(whole)}",
        f"## Ours less the others\n\n{differences(rows)}",
    ]
    for name in sets:
        of_set = [row for row in rows if row["set"] == name]
        parts.append(f"## {name}: {of_set[0]['questions']} questions\n\n{table(of_set)}")
    return "\n\n".join(parts) + "\n"


def key_of(row: Mapping[str, Any]) -> tuple[str, Any]:
    """The way and the number of labels of a row."""
    return row["way"], row["labels"]


def differences(rows: Sequence[Mapping[str, Any]]) -> str:
    """The mean difference over sets with its 95% interval, and on how many sets ours is ahead."""
    lines = [
        "| ours less | labels | AUROC | better in | AURC | better in |",
        "|---|---|---|---|---|---|",
    ]
    found: dict[tuple[str, Any], list[dict[str, list[float]]]] = defaultdict(list)
    for row in rows:
        for labels, values in row["resampled"].items():
            found[row["way"], labels].append(values)
    for (way, labels), ones in sorted(found.items(), key=lambda item: str(item[0][1]).zfill(5)):
        cells = [way, str(labels)]
        for name, sign in (("AUROC", 1), ("AURC", -1)):
            values = np.array([one[name] for one in ones])
            low, high = np.nanquantile(values[:, 1:].mean(axis=0), [0.025, 0.975])
            ahead = int((sign * values[:, 0] > 0).sum())
            cells += [
                f"{values[:, 0].mean():+.3f} [{low:+.3f}, {high:+.3f}]",
                f"{ahead} of {len(ones)}",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows in Markdown."""
    lines = [["way", "labels", *COLUMNS], ["---"] * (len(COLUMNS) + 2)]
    for row in rows:
        cells = [cell(row[name], share=share) for name, share in COLUMNS.values()]
        lines.append([row["way"], str(row["labels"]), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: float | None, *, share: bool) -> str:
    """Such as 43% of a share, and .812 of another figure."""
    if value is None:
        return ""
    return f"{value:.0%}" if share else f"{value:.3f}".replace("0.", ".", 1)


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
    parser.add_argument("--predictions", nargs="*", default=[], metavar="NAME=SET=FILE")
    options = parser.parse_args()
    if not (options.environment / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", options.environment], check=True)
        pip = [options.environment / "bin" / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *gates.PACKAGES], check=True)
    rows = []
    for path in sorted(options.out.glob("*.pickle")):
        if options.only and path.stem not in options.only:
            continue
        scored, config = pickle.loads(path.read_bytes())
        rows += measured_rows(path.stem, scored, config, options)
        (options.out / "benchmark.json").write_text(json.dumps(rows, indent=1))
        print(table([row for row in rows if row["set"] == path.stem]), flush=True)
    text = page(rows)
    print(text)
    if options.page:
        method, mark, _ = options.page.read_text().partition(MARK)
        options.page.write_text(f"{method}{mark}\n\n{text}")


if __name__ == "__main__":
    main()
