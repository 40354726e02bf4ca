"""How well each way knows when it is right: ours and others, on the same labels and questions.

    python tests/bench/few_labels.py score SET ... --out work/few
    python tests/bench/benchmark.py --out work/few [--labels 50 100 300] [--draws 3] [--page FILE]
        [--predictions NAME=SET=FILE ...]

Half of a set's groups of questions lend labels, drawn one by one at random; the other half is
measured. Every way sees the same candidates and logits. A way that learns gets the labels of the
draw, the others none. Ours starts from the bundled maps, which have seen none of these questions.

What is measured, and the tables, are those of `rerank evaluate --labels`. Writes one JSON file, and
the tables below the line `MARK` of a page.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import few_labels
import gates
import numpy as np

from calibration.arrays import sigmoid
from calibration.thresholds import lower_bound
from rerank.assessment.fitted_maps import FittedMaps, pooled_for
from rerank.config import Config
from rerank.data.labels import Labelled, hits
from rerank.evaluation.baselines import HEURISTICS, heuristic_confidences
from rerank.evaluation.measure import OURS
from rerank.fitting.scored_plan import ScoredPlan
from rerank.jobs.benchmark import POOLED, by_logit, by_maps
from rerank.jobs.evaluate import read_predictions
from rerank.jobs.pipelines import find_models
from rerank.report.benchmark import (
    Answers,
    Asked,
    Row,
    as_json,
    differences,
    mean,
    measured_rows,
    tables,
)
from rerank.report.sections import Section
from rerank.types import Floats, Ints, Ranking, Scored

ADVISORY = 0.7  # from this confidence an answer is accepted, and this share is promised
ENVIRONMENT = Path("work/gates")
MARK = "<!-- the tables, by make benchmark -->"
HAND_SET = ("sufficiency score", "seven-metric score", "coverage score")
Said = Iterator[tuple[str, Answers]]


@dataclass(frozen=True)
class Set:
    """The labels that can be drawn, and the questions that are measured, with copies of some."""

    labels: Labelled[Scored]
    measured: Labelled[Scored]
    asked: Asked
    config: Config
    pooled: FittedMaps | None  # the bundled maps
    environment: Path  # of other packages

    def drawn(self, rows: Ints) -> Labelled[Scored]:
        """The labels of one draw."""
        return self.labels.where(np.isin(np.arange(len(self.labels)), rows))

    def ours(self, rows: Ints) -> Said:
        """The bundled maps; with labels, a fit on these, with its certificates."""
        if len(rows):
            fitted = few_labels.fitted_on(
                self.drawn(rows), self.measured, self.pooled, self.config, to_keep=True
            )
            yield OURS, by_maps(self.measured, fitted.maps, self.config)
        elif self.pooled:
            yield POOLED, by_maps(self.measured, self.pooled, self.config)

    def others(self, rows: Ints) -> Said:
        """Each other way: its name, and what it says. One that learns needs labels."""
        known, asked = by_score(self.drawn(rows)), by_score(self.measured)
        y, orders = hits(known)[:, 0], [r.doc_ids for r in asked.items]
        x, logits = best(known.items), best(asked.items)
        p = sigmoid(logits)
        if not len(rows):
            single = [sigmoid(r.logits) for r in asked.items]
            yield "sigmoid of the best logit", Answers(orders, p, relevance=single)
            for name in HAND_SET:
                confidence = heuristic_confidences(HEURISTICS[name], asked.items)
                yield f"hand-set: {name}", Answers(orders, confidence)
        else:
            scale, offset = temperature(x, y)
            yield "Platt's scaling of it", Answers(orders, sigmoid(scale * logits + offset))
            bounded = Answers(orders, p, claims=False, promised=p >= tuned(sigmoid(x), y))
            yield "threshold tuned by a bound", bounded
        yield from self.packages(known.items, y, asked.items, orders)

    def packages(
        self, known: Sequence[Ranking], y: Any, asked: Sequence[Ranking], orders: Any
    ) -> Said:
        """What other packages say, each with its version."""
        lines = [
            {
                "query": r.query.text,
                "passages": [
                    {"text": c.full_text, "logit": float(x), "dense": float(d), "bm25": float(b)}
                    for c, x, d, b in zip(
                        r.passages[:10],
                        r.logits,
                        r.first_stage.dense,
                        r.first_stage.bm25,
                        strict=False,
                    )
                ],
            }
            for r in (*known, *asked)
        ]
        request = {"rows": lines, "labels": [*y.tolist(), *([None] * len(asked))]}
        run = subprocess.run(
            [self.environment / "bin" / "python", gates.__file__],
            input=json.dumps(request),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        for name, answer in json.loads(run.stdout).items():
            confidence = np.array(answer["confidence"][len(known) :])
            accepted = np.array(answer["accepted"][len(known) :])
            said = Answers(orders, confidence, claims=False)
            if name in gates.PROMISE_NOTHING:
                said = replace(said, accepted=accepted)
            else:
                said = replace(said, promised=accepted)
            yield f"{name} {answer['version']}", said


def by_score(labelled: Labelled[Scored]) -> Labelled[Ranking]:
    """The rankings by the cross-encoder alone: the order of all ways but ours."""
    return labelled.with_items([by_logit(s) for s in labelled.items])


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


def from_file(name: str, path: Path, asked: Asked) -> Any:
    """What a predictions file says: a line a question with `query_id`, `confidence`, `ranking`."""
    ids = [q.query_id for q in asked.queries.items]
    lines = read_predictions(path, [ids[i] for i in np.flatnonzero(~asked.copies)], "the benchmark")
    p, orders = zip(*(lines.get(i, (np.nan, [])) for i in ids), strict=True)
    said = Answers(orders, np.array(p))
    return lambda rows: [] if len(rows) else [(name, said)]


def rows_of(
    name: str, scored: ScoredPlan, config: Config, options: argparse.Namespace
) -> list[Row]:
    """All rows of one set."""
    bundled = pooled_for(*find_models(config)[0], config)
    labels, measured = few_labels.parts(scored, options.seed)
    both = scored.to_fit.where(np.isin(scored.to_fit.groups, measured.groups))
    asked = Asked.of(both.with_items([s.candidates for s in both.items]), config)
    pooled = bundled.maps["search"] if bundled else None
    one = Set(labels, both, asked, config, pooled, options.environment)
    given = [text.split("=", 2) for text in options.predictions]
    files = [from_file(way, Path(file), asked) for way, of_set, file in given if of_set == name]
    ways, sizes = [one.ours, one.others, *files], [0, *options.labels]
    how = {"lent": len(labels), "draws": options.draws, "seed": options.seed}
    return measured_rows(name, asked, ways, labels=sizes, **how)


def page(rows: Sequence[Row]) -> str:
    """The tables: the mean over all sets, the differences, then each set."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    of_key: dict[tuple[str, Any], list[Row]] = {}
    for row in rows:
        of_key.setdefault((row["way"], row["labels"]), []).append(row)
    whole = [
        {"way": way, "labels": n, "lent": [row["lent"] for row in ones], **mean(ones)}
        | {"threshold": ADVISORY}
        for (way, n), ones in of_key.items()
    ]
    parts = [
        f"## The mean over {len(sets)} sets\n\n{markdown(tables(whole))}",
        markdown([differences(rows)], level="##"),
    ]
    for name in sets:
        of_set = [row for row in rows if row["set"] == name]
        shown = markdown(tables(of_set), notes=False)
        parts.append(f"## {name}: {of_set[0]['questions']} questions\n\n{shown}")
    return "\n\n".join(parts) + "\n"


def markdown(sections: Sequence[Section], *, level: str = "###", notes: bool = True) -> str:
    """The tables in Markdown, under their titles."""
    shown = []
    for one in sections:
        head, *lines = ([*line] for line in one.table)
        cells = [head, ["---"] * len(head), *lines]
        table = "\n".join(f"| {' | '.join(line)} |" for line in cells)
        shown += [f"{level} {one.title}", table, *([one.note] if notes and one.note else [])]
    return "\n\n".join(shown)


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
        rows += rows_of(path.stem, scored, config, options)
        (options.out / "benchmark.json").write_text(json.dumps(as_json(rows), indent=1))
        of_set = [row for row in rows if row["set"] == path.stem]
        print(markdown(tables(of_set), notes=False), flush=True)
    text = page(rows)
    print(text)
    if options.page:
        method, mark, _ = options.page.read_text().partition(MARK)
        options.page.write_text(f"{method}{mark}\n\n{text}")


if __name__ == "__main__":
    main()
