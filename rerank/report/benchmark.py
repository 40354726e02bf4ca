"""The figures of a benchmark: how well each way knows when it is right, on the same questions.

Every way has an order of its own. A figure has one name: in the code, in JSON and on the page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.arrays import plain
from calibration.metrics import aurc, auroc
from calibration.reliability import measure
from rerank.config import Config
from rerank.data.grouping import sampled_units
from rerank.data.labels import Labelled
from rerank.evaluation.measure import OURS, order_quality
from rerank.fitting.scored_plan import copies_in
from rerank.report.sections import Section
from rerank.types import Bools, Candidates, Floats, Ints, Query

KEPT = 0.9  # share of the questions with an answer that a threshold keeps
DEPTH, BINS = 10, 15  # passages of a list whose probabilities are measured; bins of their error
RESAMPLES = 400  # of groups, for the interval of a difference
COMPARED: dict[str, Callable[[Any, Floats], float]] = {"AUROC": auroc, "AURC": aurc}
TABLES = {  # heads of the page: the names of figures, and what they say
    "Who knows when it is right?": (
        ("hit@1", "nDCG@10", "AUROC", "AURC", "nAUC", "twins", "false accepts"),
        "Means over draws of labels; scaled: by Platt's scaling. nAUC is MTEB's: 0 chance, 1 an "
        "oracle. twins: AUROC of the confidence for an answer being there, from questions with "
        "their answers and without; false accepts: of those without, where 90% of the others are "
        "kept.",
    ),
    "Is the number true?": (
        ("smECE", "above", "log loss", "Brier", "pair ECE", "accepted", "right", "at least"),
        "above: smECE less the 95% point of an exactly calibrated confidence. pair ECE: of the "
        "first ten passages. accepted: the share with a confidence of {:g} or more; right: of "
        "these; at least: its 95% lower bound.",
    ),
    "Is the promise kept?": (
        ("certified", "certified right", "kept", "context", "context right", "context kept"),
        "certified: the share accepted with a promise at 95% confidence that {:.0%} of these are "
        "right (context: have a right one among the first passages); kept: the share of draws in "
        "which it was so, or nothing was promised.",
    ),
}
SHARES = {"false accepts", "accepted", "right", "at least", *TABLES["Is the promise kept?"][0]}
Figures = dict[str, float | None]  # by the names above; without those that a way does not have
Row = dict[str, Any]  # the figures of a way with a number of labels on a set


@dataclass(frozen=True, slots=True)
class Asked:
    """The n questions that all ways answer: the measured ones, and copies without their answers."""

    queries: Labelled[Query]
    copies: Bools  # (n,)
    present: Bools  # (n,) measured ones with an answer among their candidates, and with a copy
    threshold: float = 0.7  # from this confidence an answer is accepted, and this share is promised
    k: int = 5  # passages of a context

    @classmethod
    def of(cls, found: Labelled[Candidates], config: Config) -> Asked:
        """The questions with their candidates, with copies among them."""
        copies = copies_in(found)
        copied = {c.query.text for c, copy in zip(found.items, copies, strict=True) if copy}
        has = [
            c.query.text in copied and any(p.doc_id in grades for p in c.passages)
            for c, grades in zip(found.items, found.grades, strict=True)
        ]
        queries = found.with_items([c.query for c in found.items])
        present = np.array(has, dtype=np.bool_) & ~copies
        return cls(queries, copies, present, config.thresholds.advisory, config.sufficiency_k)


@dataclass(frozen=True, slots=True)
class Answers:
    """What one way says of the n questions."""

    orders: Sequence[Sequence[str]]  # passage ids, best first
    confidence: Floats  # (n,) in [0, 1]; NaN of a copy that it was not asked
    claims: bool = True  # whether it says that its confidence is a probability
    accepted: Bools | None = None  # (n,) what it accepts, if not by the threshold
    promised: Bools | None = None  # (n,) what it accepts with a guarantee
    contexts: Bools | None = None  # (n,) where one of the first k is guaranteed to be right
    relevance: Sequence[Floats] | None = None  # P(right) of each passage of `orders`

    def right(self, queries: Labelled[Any], k: int = 1) -> Floats:
        """1.0 where one of the first k passages is right, (n,)."""
        both = zip(self.orders, queries.grades, strict=True)
        return np.array([any(d in of for d in ids[:k]) for ids, of in both], dtype=np.float64)


# what a way says after it learned from these rows of the lent labels (none: as it comes), by name
Way = Callable[[Ints], Iterable[tuple[str, Answers]]]


def figures(said: Answers, asked: Asked) -> Figures:
    """Measure what one way says, by `calibration.reliability.measure` for independent questions.

    The bound counts a question and its rephrasings once.
    """
    queries, t = asked.queries, asked.threshold
    rows: list[int] = np.flatnonzero(~asked.copies).tolist()
    orders, grades = [said.orders[i] for i in rows], [queries.grades[i] for i in rows]
    order, p = order_quality(orders, grades), said.confidence[rows]
    units = sampled_units([queries.items[i] for i in rows])
    one = measure(order.hit1, p, units=units, threshold=t, draws=40)
    found: Figures = {"hit@1": one.base_accuracy, "nDCG@10": _mean(order.ndcg10)}
    found |= {"AUROC": one.auroc, "AURC": one.aurc, "nAUC": one.nauc}
    accepted = said.accepted
    if said.claims:
        accepted = said.confidence >= t
        found |= {"smECE": one.smece, "above": one.smece - one.smece_floor95}
        found |= {"log loss": one.log_loss, "Brier": one.brier}
        found["at least"] = one.accuracy_accepted_lower95
    of_top, of_context = said.right(queries), said.right(queries, asked.k)
    for taken, right, names in (
        (accepted, of_top, ("accepted", "right", "")),
        (said.promised, of_top, ("certified", "certified right", "kept")),
        (said.contexts, of_context, ("context", "context right", "context kept")),
    ):
        if taken is not None:
            share = _mean(right[rows][taken[rows]])
            values = (_mean(taken[rows]), share, float(share is None or share >= t))
            found |= zip(names, values, strict=True)
    here, gone = said.confidence[asked.present], said.confidence[asked.copies]
    if min(len(here), len(gone)) > 1 and not np.isnan(gone).any():
        there = np.repeat([1.0, 0.0], [len(here), len(gone)])
        found["twins"] = auroc(there, np.concatenate([here, gone]))
        found["false accepts"] = _mean(gone >= np.quantile(here, 1 - KEPT))
    if said.relevance is not None:
        ids = [(doc_id, i) for i in rows for doc_id in said.orders[i][:DEPTH]]
        labels = np.array([float(doc_id in queries.grades[i]) for doc_id, i in ids])
        found["pair ECE"] = ece(labels, np.concatenate([said.relevance[i][:DEPTH] for i in rows]))
    return found


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None


def ece(labels: Floats, p: Floats) -> float:
    """The expected calibration error in `BINS` bins of equal width (Naeini et al. 2015)."""
    number = np.minimum((p * BINS).astype(int), BINS - 1)
    gaps = np.bincount(number, weights=labels - p, minlength=BINS)
    return float(np.abs(gaps).sum() / len(p))


def mean(rows: Sequence[Mapping[str, Any]]) -> Figures:
    """The mean of each figure over the rows that have it."""
    names = [name for names, _ in TABLES.values() for name in names]
    of = {name: [row[name] for row in rows if row.get(name) is not None] for name in names}
    return {name: _mean(values) for name, values in of.items() if values}


def measured_rows(
    name: str,
    asked: Asked,
    ways: Sequence[Way],
    *,
    lent: int,
    labels: Sequence[int],
    draws: int,
    seed: int = 0,
) -> list[Row]:
    """The rows of the set `name`: each way with each number of labels, drawn at random of `lent`.

    A row is the mean over `draws`. `less` is what is called `OURS`, with as many labels or with
    more than none, less the row: the difference on all questions, then on resamples of groups.
    """
    said: dict[tuple[str, int], list[Answers]] = defaultdict(list)
    sizes = sorted({min(n, lent) for n in labels})
    for n in sizes:
        for draw in range(1 if n in (0, lent) else draws):
            chosen = np.random.default_rng([seed, draw, n]).choice(lent, n, replace=False)
            for answered in ways:
                for way, answers in answered(np.sort(chosen)):
                    said[way, n].append(answers)
    values, rows = {key: _resampled(ones, asked) for key, ones in said.items()}, []
    for (way, n), ones in said.items():
        less = {
            "all" if size == lent else size: values[OURS, size] - values[way, n]
            for size in sizes
            if way != OURS and n in (0, size) and (OURS, size) in said
        }
        row: Row = {"set": name, "way": way, "labels": "all" if n == lent else n, "lent": lent}
        row |= {"questions": int((~asked.copies).sum()), "threshold": asked.threshold}
        rows.append(row | mean([figures(one, asked) for one in ones]) | {"less": less})
    return rows


def _resampled(said: Sequence[Answers], asked: Asked) -> Floats:
    """`COMPARED` of all questions, then of each resample, (1 + RESAMPLES, 2): means over draws."""
    measured = ~asked.copies
    _, groups = np.unique(asked.queries.groups[measured], return_inverse=True)
    members = [np.flatnonzero(groups == g) for g in range(groups.max() + 1)]
    rng = np.random.default_rng(0)  # the same resamples for every way
    samples = [np.arange(len(groups))] + [
        np.concatenate([members[g] for g in rng.integers(len(members), size=len(members))])
        for _ in range(RESAMPLES)
    ]
    both = [(one.right(asked.queries)[measured], one.confidence[measured]) for one in said]
    scores = COMPARED.values()
    of_draws = [[[score(y[s], p[s]) for score in scores] for s in samples] for y, p in both]
    return np.asarray(np.mean(of_draws, axis=0), dtype=np.float64)


def interval(of_sets: Sequence[Floats]) -> Floats:
    """The mean of differences over sets and its 95% interval, (3,) for each of `COMPARED`."""
    values = np.mean(of_sets, axis=0)
    return np.vstack([values[:1], np.nanquantile(values[1:], [0.025, 0.975], axis=0)]).T


def by_labels(labels: int | str) -> float:
    """A key that sorts numbers of labels, "all" last."""
    return float(str(labels).replace("all", "inf"))


def labels_shown(labels: int | str, lent: int | Sequence[int]) -> str:
    """A number of labels; of all that sets have `lent`, how many: `all 58`, or `all 58 to 310`."""
    if labels != "all" or not np.size(lent):
        return str(labels)
    low, high = np.min(lent), np.max(lent)
    return f"all {low}" if low == high else f"all {low} to {high}"


def tables(rows: Iterable[Row]) -> list[Section]:
    """The figures of the rows of one set, or of their means over sets."""
    found, rows = [], sorted(rows, key=lambda row: by_labels(row["labels"]))
    for title, (names, note) in TABLES.items():
        shown = [name for name in names if any(name in row for row in rows)]
        cells = [["way", "labels", *shown]]
        for row in rows:
            if any(name in row for name in shown):
                of_row = [_cell(name, row.get(name)) for name in shown]
                labels = labels_shown(row["labels"], row.get("lent", ()))
                cells.append([row["way"], labels, *of_row])
        if shown:
            said = note.format(rows[0]["threshold"])
            found.append(Section(title, table=cells, note=said, ours=OURS))
    return found


def _cell(name: str, value: float | None) -> str:
    """Such as 43% of a share, and .812 of another figure."""
    if value is None or np.isnan(value):
        return ""
    return f"{value:.0%}" if name in SHARES else f"{value:.3f}".replace("0.", ".", 1)


def differences(rows: Iterable[Row]) -> Section:
    """Ours less each other way, the mean over sets."""
    found: dict[tuple[Any, str], list[Floats]] = defaultdict(list)
    lent: list[int] = []
    for row in rows:
        lent.append(row["lent"])
        for labels, values in row["less"].items():
            found[labels, row["way"]].append(values)
    cells = [["way", "labels", *COMPARED]]
    for labels, way in sorted(found, key=lambda key: by_labels(key[0])):
        of_both = interval(found[labels, way]).tolist()
        shown = [
            "" if np.isnan(value) else f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"
            for value, low, high in of_both
        ]
        cells.append([way, labels_shown(labels, lent), *shown])
    note = "95% intervals, paired: the same questions, draws and resamples of groups."
    return Section(f"{OURS.capitalize()} less the others", table=cells, note=note)


def as_json(rows: Iterable[Row]) -> list[Row]:
    """Plain values; a difference is its value and the two ends of its interval."""
    found = []
    for row in rows:
        less = {n: dict(zip(COMPARED, interval([v]), strict=True)) for n, v in row["less"].items()}
        found.append(plain(row | {"less": less}))
    return found
