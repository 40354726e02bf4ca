"""Measure labelled rankings: the confidence of the maps and of baselines, and every order.

Orders have hit@k, reciprocal rank and nDCG@k. A query without a right passage has no ideal order
and is left out of nDCG and reciprocal rank, as in trec_eval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from calibration import metrics, reliability
from calibration.arrays import plain
from calibration.label_selection import weighted_mean
from calibration.metrics.intervals import UNKNOWN, Estimate, student_interval
from calibration.reliability import Accepted, Comparison, Curves, comparison
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.predictions import Predictions, certified, predict
from rerank.assessment.ranking import limit_scored, rank, reorder
from rerank.assessment.relevance import DEPTH
from rerank.config import Config
from rerank.data.grouping import sampled_units
from rerank.data.labels import Labelled, Labels, hits, passage_labels
from rerank.evaluation.baselines import HEURISTICS, Heuristic, heuristic_confidences
from rerank.types import Bools, Floats, Ints, Query, Ranking, Scored


def ndcg(gains: Sequence[float], ideal: Sequence[float], *, k: int = 10) -> float:
    """nDCG@k with linear gains and log2 discounts (Jarvelin & Kekalainen 2002), as trec_eval.

    `gains` are the grades in ranked order, `ideal` every positive grade of the query.
    """
    best = _dcg(sorted(ideal, reverse=True)[:k])
    return _dcg(gains[:k]) / best if best > 0 else 0.0


def _dcg(gains: Sequence[float]) -> float:
    return float(sum(g / np.log2(i + 2) for i, g in enumerate(gains)))


def reciprocal_rank(gains: Sequence[float], *, k: int = 10) -> float:
    """1 / rank of the first right passage among the first k; 0 if there is none."""
    return next((1.0 / (i + 1) for i, g in enumerate(gains[:k]) if g > 0), 0.0)


@dataclass(frozen=True, slots=True)
class OrderQuality:
    """Quality by answerable query, in order; hit@1 is by query and includes unanswerable ones."""

    ndcg10: Floats  # (answerable,)
    mrr10: Floats  # (answerable,)
    hit1: Floats  # (n,)

    @property
    def means(self) -> dict[str, float]:
        """The mean of each; NaN of no query."""
        each = {"hit1": self.hit1, "mrr10": self.mrr10, "ndcg10": self.ndcg10}
        return {name: float(v.mean()) if len(v) else math.nan for name, v in each.items()}


def order_quality(
    runs: Sequence[Sequence[str]], qrels: Sequence[Mapping[str, float]]
) -> OrderQuality:
    """Measure ranked ids against grades: one run and its grades per query, in the same order."""
    gains = [[q.get(d, 0.0) for d in run] for run, q in zip(runs, qrels, strict=True)]
    answerable = [(g, list(q.values())) for g, q in zip(gains, qrels, strict=True) if q]
    return OrderQuality(
        np.array([ndcg(g, ideal) for g, ideal in answerable]),
        np.array([reciprocal_rank(g) for g, _ in answerable]),
        np.array([float(bool(g) and g[0] > 0) for g in gains]),
    )


@dataclass(frozen=True, slots=True)
class WeightedAccuracy:
    """How many of all queries are accepted, and what share of these is right, estimated."""

    threshold: float
    queries: float  # that the measured ones stand for: the sum of their weights
    accepted: float  # of these
    right: Estimate | None  # of the accepted; None if there are none
    own_sample: bool = True  # whether this model drew it; only then there is an interval

    @property
    def sentence(self) -> str:
        """The estimate in words."""
        stood_for = f"the {self.queries:.0f} queries that these stand for"
        at = f"at a confidence of {self.threshold:g} or more,"
        if self.right is None:
            return f"{at} none of {stood_for} is accepted, as far as these say."
        interval = "too few for an interval"
        if not self.own_sample:
            interval = "no interval: this model is not known to have drawn the sample"
        elif np.isfinite(self.right.low):
            interval = f"between {self.right.low:.1%} and {self.right.high:.1%} with 95% confidence"
        return (
            f"{at} of {stood_for}, about {self.accepted:.0f} are accepted "
            f"({self.accepted / self.queries:.0%}), and {self.right.mean:.1%} of these are right "
            f"({interval})."
        )


def weighted_accuracy(
    confidence: Floats,
    right: Labels,
    weights: Floats,
    groups: Sequence[str],
    threshold: float,
    *,
    own_sample: bool = True,
) -> WeightedAccuracy:
    """The estimate from confidences, hits and weights (n,); groups (n,) as elsewhere.

    If the sample is not this model's (`own_sample`), queries of which nothing was drawn may be
    accepted, too: then there is no interval.
    """
    accepted = confidence >= threshold
    share = None
    if accepted.any():
        share = weighted_mean(right, weights, np.array(groups), among=accepted)
        share = share if own_sample else Estimate(share.mean, *UNKNOWN)
    reached = float(weights[accepted].sum())
    return WeightedAccuracy(threshold, float(weights.sum()), reached, share, own_sample)


OURS = "calibrated"  # name of this model's own confidence
SUFFICIENCY = "sufficiency: one of the first {}"
RANKS = {"1": (1, 1), "2": (2, 2), "3": (3, 3), "4-10": (4, 10)}  # whose relevance is measured
RELEVANCE = "relevance: passage at rank {}"
ORDERS = ("fused", "dense", "logit", "relevance")
SHOWN_K = (3, 5, 10)  # the k that a report shows; all are measured
ORDER_METRICS = ("hit1", "mrr10", "ndcg10", "gain", "gain_low", "gain_high")
EVENT_METRICS = ("base_rate", "auroc", "brier", "smece", "log_loss", "log_loss_of_base_rate")


@dataclass(frozen=True, slots=True)
class Part:
    """Labelled queries, scored without a cutoff, and what is measured on them.

    The maps and the baselines have not seen the queries' groups.
    """

    scored: Labelled[Scored]
    maps: FittedMaps
    baselines: Mapping[str, Heuristic] = field(default_factory=lambda: HEURISTICS)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Measurements of labelled rankings: confidences compared, and orders compared."""

    labelled: Labelled[Ranking]  # the rankings, with their labels
    features: Floats  # (n, len(maps.features.ranking))
    table: Comparison
    confidences: dict[str, Floats]  # name -> (n,)
    relevance: list[Floats]  # of each ranking: P(each passage is right)
    right: Labels  # (n,) 1 where the top passage is right
    certified: Bools  # (n,) see `rerank.assessment.predictions.certified`
    events: dict[str, dict[str, float]]  # sufficiency, relevance -> `EVENT_METRICS`
    orders: dict[str, dict[str, float]]  # of `ORDERS` -> nDCG@10, MRR@10, hit@1, ...
    passages_scored: float  # by the cross-encoder, mean per query
    fold_maps: tuple[FittedMaps, ...]  # that measured a part each; one if one model did all
    fold_of: Ints  # (n,) which of these measured a query
    notes: tuple[str, ...] = ()  # what was left out, and what makes the figures too good
    weighted: WeightedAccuracy | None = None  # if the queries have weights
    context_k: int = 5  # the passages that `context` is about
    context: Accepted | None = None  # at the threshold of SUFFICIENT; None: not measured

    @property
    def query_ids(self) -> tuple[str, ...]:
        """Ids of the queries, (n,)."""
        return tuple(r.query.query_id for r in self.labelled.items)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; undefined values are None."""
        context = {"k": self.context_k, **self.context._asdict()} if self.context else None
        values = {
            "confidence": self.table.to_dict(),
            "events": plain(self.events),
            "orders": plain(self.orders),
            "passages_scored": self.passages_scored,
            "context": plain(context),
        }
        return values | ({"weighted": plain(asdict(self.weighted))} if self.weighted else {})

    def examples(self) -> list[Query]:
        """One query that is accepted and right, one rightly doubted, one without an answer refused.

        Of each kind it is the first measured one by its id; a kind that there is not is left out.
        """
        accepted = self.confidences[OURS] >= self.table[OURS].threshold
        right = np.asarray(self.right, dtype=np.bool_)
        answerable = np.array([bool(grades) for grades in self.labelled.grades], dtype=np.bool_)
        kinds = (accepted & right, ~accepted & answerable & ~right, ~accepted & ~answerable)
        by_id = {r.query.query_id: r.query for r in self.labelled.items}
        ids = np.array(self.query_ids)
        return [by_id[min(ids[kind].tolist())] for kind in kinds if kind.any()]

    def curves(self) -> Curves:
        """The dots of the reliability diagram, and what each threshold accepts."""
        ours, groups = self.confidences[OURS], self.labelled.groups
        units = sampled_units(r.query for r in self.labelled.items).tolist()
        return Curves(
            reliability.reliability_bins(self.right, ours, groups=groups),
            reliability.at_thresholds(self.right, ours, np.linspace(0, 1, 101), groups=units),
        )

    def events_cells(self) -> list[tuple[str, ...]]:
        """The other probabilities, each compared with its base rate: a header, then rows.

        Of the sufficiency only that at `SHOWN_K`; `events` has all.
        """
        head = ("event", "base rate", "AUROC", "smECE", "log loss", "of base rate")
        keys = ("base_rate", "auroc", "smece", "log_loss", "log_loss_of_base_rate")
        left_out = {SUFFICIENCY.format(k) for k in range(2, DEPTH + 1) if k not in SHOWN_K}
        shown = {name: v for name, v in self.events.items() if name not in left_out}
        return [head, *((name, *(_format(v[key]) for key in keys)) for name, v in shown.items())]

    def orders_cells(self) -> list[tuple[str, ...]]:
        """The orders, each against the fused first stage with its interval: a header, then rows.

        The header gives the number of queries: an unanswerable query has no ideal order.
        """
        n, answerable = len(self.right), sum(map(bool, self.labelled.grades))
        means = (f"MRR@10 of {answerable} answerable", f"nDCG@10 of {answerable}")
        head = ("order", f"hit@1 of all {n}", *means, "nDCG@10 less fused [95%]")
        rows: list[tuple[str, ...]] = [head]
        for name, v in self.orders.items():
            gain, low, high = (_format(v[key], "+") for key in ("gain", "gain_low", "gain_high"))
            between = "-" if math.isnan(v["gain_low"]) else f"{low}, {high}"
            less = "" if name == "fused" else f"{gain} [{between}]"
            rows.append((name, *(_format(v[key]) for key in ("hit1", "mrr10", "ndcg10")), less))
        return rows


def _format(value: float, sign: str = "") -> str:
    return "-" if math.isnan(value) else f"{value:{sign}.3f}"


class _PredictedPart(NamedTuple):
    predictions: Predictions
    orders: Mapping[str, Sequence[Sequence[str]]]  # passage ids, best first
    confidences: dict[str, Floats]
    certified: Bools
    passages_scored: list[int]


def measure(parts: Sequence[Part], config: Config) -> Evaluation:
    """Measure every confidence and every order on the same labelled queries.

    This model's confidence and order are measured on the passages that the model scores; the
    baselines and the order by logit get all. Each part is measured by its own maps.
    """
    predicted = [_predict_part(part, config) for part in parts]
    labelled = Labelled(
        [ranking for part in predicted for ranking in part.predictions.rankings],
        np.concatenate([part.scored.groups for part in parts]),
        [grades for part in parts for grades in part.scored.grades],
    )
    confidences = {
        name: np.concatenate([part.confidences[name] for part in predicted])
        for name in predicted[0].confidences
    }
    orders = {n: [ids for part in predicted for ids in part.orders[n]] for n in predicted[0].orders}
    sufficiency = np.concatenate([part.predictions.sufficiency for part in predicted])
    relevance = [row for part in predicted for row in part.predictions.relevance]
    counts = [count for part in predicted for count in part.passages_scored]
    hit, k = hits(labelled, depth=DEPTH), config.sufficiency_k
    units = sampled_units(r.query for r in labelled.items).tolist()
    reached, enough = sufficiency[:, k - 1], [config.thresholds.sufficient]
    (context,) = reliability.at_thresholds(hit[:, k - 1], reached, enough, groups=units)
    return Evaluation(
        labelled=labelled,
        features=np.concatenate([part.predictions.features for part in predicted]),
        table=comparison(
            confidences,
            hit[:, 0],
            groups=labelled.groups.tolist(),
            units=units,
            threshold=config.thresholds.advisory,
            random_state=config.seed,
        ),
        confidences=confidences,
        relevance=relevance,
        right=hit[:, 0],
        certified=np.concatenate([part.certified for part in predicted]),
        events=_events(hit, sufficiency, passage_labels(labelled), relevance),
        orders=_orders(orders, labelled),
        passages_scored=float(np.mean(counts)) if counts else 0.0,
        fold_maps=tuple(part.maps for part in parts),
        fold_of=np.repeat(np.arange(len(parts)), [len(part.scored) for part in parts]),
        context_k=k,
        context=context,
    )


def _predict_part(part: Part, config: Config) -> _PredictedPart:
    maps = part.maps
    limited = [limit_scored(s, maps.policy.cutoff) for s in part.scored.items]
    predictions = predict(limited, maps, config)
    in_full = [rank(s, maps.score) for s in part.scored.items]  # without the cutoff
    names = [name for name in ORDERS[:-1] if name != "dense" or not maps.kind.stages]
    orders = {name: [reorder(r, rank_by=name).doc_ids for r in in_full] for name in names}
    orders["relevance"] = [reorder(r, rank_by="relevance").doc_ids for r in predictions.rankings]
    all_scored = []  # the same passages as in full, in the order of the predictions
    for ranking, other in zip(predictions.rankings, in_full, strict=True):
        place = {row: i for i, row in enumerate(other.first_stage.rows.tolist())}
        rows = np.array([place[row] for row in ranking.first_stage.rows], dtype=np.int64)
        all_scored.append(other.take(rows))
    rules = part.baselines.items()
    confidences = {name: heuristic_confidences(rule, all_scored) for name, rule in rules}
    confidences[OURS] = predictions.confidence
    return _PredictedPart(
        predictions,
        orders,
        confidences,
        certified(predictions, maps, config.thresholds),
        [len(s.logits) for s in limited],
    )


def _events(
    hit: Labels, sufficiency: Floats, labels: Sequence[Labels], relevance: Sequence[Floats]
) -> dict[str, dict[str, float]]:
    """Sufficiency at each k, of arrays (n, DEPTH); relevance at each range of `RANKS`."""
    every = range(2, DEPTH + 1)
    events = {SUFFICIENCY.format(k): _event(hit[:, k - 1], sufficiency[:, k - 1]) for k in every}
    for name, (first, last) in RANKS.items():
        y = np.concatenate([row[first - 1 : last] for row in labels])
        p = np.concatenate([row[first - 1 : last] for row in relevance])
        events[RELEVANCE.format(name)] = _event(y, p)
    return events


def _event(y: Labels, p: Floats) -> dict[str, float]:
    """How well probabilities p (n,) predict an event y (n,); undefined values are NaN."""
    if not len(y):
        return dict.fromkeys(EVENT_METRICS, float("nan"))
    base, measured = float(y.mean()), ("auroc", "brier", "smece", "log_loss")
    return {
        "base_rate": base,
        **{name: getattr(metrics, name)(y, p) for name in measured},
        "log_loss_of_base_rate": metrics.log_loss(y, np.full(len(y), base)),
    }


def _orders(
    orders: Mapping[str, Sequence[Sequence[str]]], labelled: Labelled[Ranking]
) -> dict[str, dict[str, float]]:
    """The quality of each order of the same queries, and its gain over the one called `fused`."""
    answerable = np.array([bool(grades) for grades in labelled.grades], dtype=np.bool_)
    groups = labelled.groups[answerable].tolist()
    qualities = {name: order_quality(runs, labelled.grades) for name, runs in orders.items()}
    figures = {}
    for name, quality in qualities.items():
        other = 0.0 if name == "fused" else 1.0  # nothing differs from itself
        gains = quality.ndcg10 - qualities["fused"].ndcg10
        row = (*quality.means.values(), *student_interval(gains, groups, unseen=other))
        figures[name] = dict(zip(ORDER_METRICS, row, strict=True))
    return figures
