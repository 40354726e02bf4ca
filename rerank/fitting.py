"""Labelled rankings to maps, and maps to measurements: the fitting, without files or tracking.

Everything is cross-fitted by query group (Stone 1974): the maps that a query's features and scores
are computed from have not seen that query's group. Only the floor of reading, one number, is chosen
on all of the queries that are fitted on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibration import metrics
from calibration.maps import LogisticMap, TwoStageMap
from calibration.reliability import Comparison, comparison
from calibration.selection import Choice, choose, grouped_folds, grouped_standard_error
from rerank.assessor import Calibrators
from rerank.config import Config
from rerank.evidence import EVIDENCE
from rerank.features import FEATURES, feature_matrix
from rerank.heuristics import HEURISTICS, predict
from rerank.labelled_set import LabelledSet
from rerank.pipeline import Reading, order
from rerank.progress import progress
from rerank.ranking_metrics import order_quality, paired_bootstrap
from rerank.types import Floats, InputError, Ranking

if TYPE_CHECKING:
    import pandas as pd

OURS = "ours, {}"  # the name of a calibrator of ours among the ways of being confident
FLOORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)  # of the best prior relevance; see choose_floor
FLOOR_LOSS = 0.005  # share of nDCG@10 that reading less may cost
LEAST_GROUPS = 10  # of answerable queries, to choose a floor on
RELEVANCE_C = 1.0  # inverse penalty of the passage map, which has thousands of rows
Labels = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fitted:
    """The learned maps, the two ways of being confident, which was taken, and why."""

    calibrators: Calibrators
    ways: dict[str, TwoStageMap]  # "logistic" and "isotonic"
    taken: str
    choice: Choice

    @property
    def way(self) -> str:
        """The name of the taken one in an `Evaluation`."""
        return OURS.format(self.taken)

    def weights(self) -> pd.DataFrame:
        """What each input weighs, standardised: the relevance map's and the confidence's."""
        import pandas as pd

        maps = (
            ("prior", EVIDENCE, self.calibrators.reading.prior),
            ("relevance", EVIDENCE, self.calibrators.relevance),
            ("confidence", FEATURES, self.calibrators.confidence.first),
        )
        return pd.DataFrame(
            [
                {"map": name, "input": column, "weight": weight, "mean": mean, "scale": scale}
                for name, columns, learned in maps
                for column, weight, mean, scale in zip(
                    columns, learned.coef, learned.mean, learned.scale, strict=True
                )
            ]
        )


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Labelled rankings seen every way: confidences compared, and orders compared."""

    table: Comparison
    confidences: dict[str, Floats]  # name of the way -> (n,)
    right: Labels  # (n,) 1 where the top passage is right
    events: dict[str, dict[str, float]]  # sufficiency, relevance -> base rate, Brier, smECE, AUROC
    orders: dict[str, dict[str, float]]  # fused, logit, relevance -> nDCG@10, MRR@10, hit@1, ...
    passages_read: float  # by the cross-encoder, a query

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "confidence": self.table.to_dict(),
            "events": self.events,
            "orders": self.orders,
            "passages_read": self.passages_read,
        }

    def frame(self) -> pd.DataFrame:
        """The comparison, one row a way."""
        import pandas as pd

        return pd.DataFrame([{"way": n, **r.to_dict()} for n, r in self.table.rows])

    def flat(self, way: str) -> dict[str, float]:
        """Numbers for tracking: of one way of being confident, of other events, of the orders."""
        found: dict[str, float | None] = {"passages_read": self.passages_read}
        for key, value in self.table[way].to_dict().items():
            if isinstance(value, list):
                found |= {f"{key}_low": value[0], f"{key}_high": value[1]}
            else:
                found[key] = value
        for name, values in (self.events | self.orders).items():
            found |= {f"{name}_{key}": value for key, value in values.items()}
        return {key: float(value) for key, value in found.items() if value is not None}

    def events_table(self) -> str:
        """A text table of the probabilities beside the confidence."""
        lines = [f"{'event':<36}{'share':>7}{'AUROC':>8}{'Brier':>8}{'smECE':>8}"]
        for name, v in self.events.items():
            numbers = (v[key] for key in ("base_rate", "auroc", "brier", "smece"))
            lines.append(f"{name:<36}" + "".join(f"{x:>8.3f}" for x in numbers).replace(" ", "", 1))
        return "\n".join(lines)

    def orders_table(self) -> str:
        """A text table of the orders: each against the fused first stage, with its interval."""
        lines = [
            f"{'order':<12}{'hit@1':>8}{'MRR@10':>9}{'nDCG@10':>10}   nDCG@10 less fused [95 %]"
        ]
        for name, v in self.orders.items():
            gain = f"{v['gain']:+.3f} [{v['gain_low']:+.3f}, {v['gain_high']:+.3f}]"
            lines.append(
                f"{name:<12}{v['hit1']:>8.3f}{v['mrr10']:>9.3f}{v['ndcg10']:>10.3f}   "
                + ("" if name == "fused" else gain)
            )
        return "\n".join(lines)


def hits(rankings: Sequence[Ranking], labelled: LabelledSet, *, k: int = 1) -> Labels:
    """1 where one of the first k passages is right, shape (n,)."""
    return np.array(
        [int(bool(labelled.relevant(r.query.query_id) & set(r.doc_ids[:k]))) for r in rankings],
        dtype=np.int64,
    )


def cross_ordered(
    rankings: Sequence[Ranking], labelled: LabelledSet, config: Config, *, rank_by: str
) -> list[Ranking]:
    """Rankings in the order of a relevance map that has not seen their query's group."""
    folds = grouped_folds(_groups(rankings, labelled), config.folds, random_state=config.seed)
    pairs = list(zip(rankings, folds.tolist(), strict=True))
    unseen = {
        fold: fit_relevance([r for r, f in pairs if f != fold], labelled)
        for fold in set(folds.tolist())
    }
    return [order(r, unseen[f], rank_by=rank_by) for r, f in pairs]


def choose_floor(
    rankings: Sequence[Ranking],
    labelled: LabelledSet,
    config: Config,
    forget: Callable[[Ranking, float], Ranking],
) -> float:
    """How unlikely a passage may be and still be read; 0 where all of the first should be.

    The highest of `FLOORS` up to which reading less costs no more than 0.5 % of nDCG@10, with one
    standard error to spare. `rankings` were read whole, and `forget` gives one as it would have
    been read with a floor (see `Pipeline.read`); the orders are cross-fitted at each floor.
    """
    qrels = [labelled.qrels.get(r.query.query_id, {}) for r in rankings]
    groups = [g for g, q in zip(_groups(rankings, labelled), qrels, strict=True) if q]
    if len(set(groups)) < LEAST_GROUPS:
        return 0.0

    def quality(floor: float) -> Floats:
        read = [forget(r, floor) for r in rankings]
        ordered = cross_ordered(read, labelled, config, rank_by=config.rank_by)
        return order_quality([r.doc_ids for r in ordered], qrels).ndcg10

    whole = quality(0.0)
    taken = 0.0
    with progress(len(FLOORS), "choosing what to read", unit="floor") as bar:
        for floor in FLOORS:
            lost = whole - quality(floor)
            bar.update()
            error = grouped_standard_error(lost, np.asarray(groups))
            if lost.mean() + error > FLOOR_LOSS * whole.mean():
                break
            taken = floor
    return taken


def fit(
    rankings: Sequence[Ranking],
    labelled: LabelledSet,
    reading: Reading,
    config: Config,
) -> Fitted:
    """Fit relevance, confidence and rescue on labelled rankings, cross-fitted by query group.

    The features of a query are computed on the order that a relevance map gives which has not
    seen the query's group; the maps that are kept are refitted on everything. `reading` is how
    the passages to read were chosen.
    """
    from calibration.calibrators import TwoStageCalibrator

    groups = _groups(rankings, labelled)
    ordered = cross_ordered(rankings, labelled, config, rank_by=config.rank_by)
    features = feature_matrix(ordered)
    top, first_k = hits(ordered, labelled), hits(ordered, labelled, k=config.sufficiency_k)

    def two_stage(then: str, X: Floats, y: Labels, g: NDArray[Any]) -> TwoStageMap:
        made = TwoStageCalibrator(then=then, folds=config.folds, random_state=config.seed)
        found: TwoStageMap = made.fit(X, y, g).map_
        return found

    ways = {then: two_stage(then, features, top, groups) for then in ("logistic", "isotonic")}
    choice = choose(
        {then: partial(two_stage, then) for then in ways},
        features,
        top,
        groups,
        folds=config.folds,
        random_state=config.seed,
    )
    taken = choice.name if config.calibrator == "auto" else config.calibrator
    missed = top == 0
    if not missed.any():
        missed = ~missed  # nothing was missed: the rescue is then the smoothed base rate
    rescue = two_stage("logistic", features[missed], (first_k - top)[missed], groups[missed])
    relevance = fit_relevance(rankings, labelled)
    return Fitted(Calibrators(reading, relevance, ways[taken], rescue), ways, taken, choice)


def _groups(rankings: Sequence[Ranking], labelled: LabelledSet) -> NDArray[np.str_]:
    return np.array([labelled.group(r.query.query_id) for r in rankings])


def fit_relevance(rankings: Sequence[Ranking], labelled: LabelledSet) -> LogisticMap:
    """A passage's evidence to P(it is right): logistic regression over all candidates."""
    from calibration.fitting import fit_logistic

    filled = [r for r in rankings if len(r)]
    if not filled:
        raise InputError("no query brought back a passage; is the corpus the one of the queries?")
    X = np.concatenate([r.evidence for r in filled])
    y = np.concatenate([passage_labels(r, labelled) for r in filled])
    return fit_logistic(X, y, C=RELEVANCE_C)


def evaluate(
    rankings: Sequence[Ranking],
    whole: Sequence[Ranking],
    labelled: LabelledSet,
    calibrators: Calibrators,
    ways: dict[str, TwoStageMap],
    config: Config,
) -> Evaluation:
    """Every way of being confident on the same labelled rankings, and every order of them.

    `rankings` are read as the model reads, `whole` are the same with the first `rerank_depth` all
    read: what does not come from this model, the formulas and the order by logit, is given those.
    """
    ordered = [order(r, calibrators.relevance, rank_by=config.rank_by) for r in rankings]
    alike = [_in_order_of(one, w) for one, w in zip(ordered, whole, strict=True)]
    features = feature_matrix(ordered)
    filled = np.array([len(r) > 0 for r in ordered])
    confidences = {name: predict(rule, alike) for name, rule in HEURISTICS.items()}
    for name, way in ways.items():
        confidences[OURS.format(name)] = np.where(filled, way.predict(features), 0.0)
    right, first_k = hits(ordered, labelled), hits(ordered, labelled, k=config.sufficiency_k)
    sufficient = np.where(filled, calibrators.probabilities(features)[1], 0.0)
    table = comparison(
        confidences,
        right,
        groups=[labelled.group(r.query.query_id) for r in ordered],
        threshold=config.thresholds.medium,
        random_state=config.seed,
    )
    return Evaluation(
        table,
        confidences,
        right,
        {
            f"sufficiency: one of the first {config.sufficiency_k}": _event(first_k, sufficient),
            "relevance: each passage": _event(
                np.concatenate([passage_labels(r, labelled) for r in ordered]),
                np.concatenate([r.relevance for r in ordered]),
            ),
        },
        _orders(
            {
                name: [order(r, calibrators.relevance, rank_by=name) for r in given]
                for name, given in (("fused", whole), ("logit", whole), ("relevance", rankings))
            },
            labelled,
        ),
        float(np.mean([r.read.sum() for r in rankings])) if rankings else 0.0,
    )


def _in_order_of(ordered: Ranking, other: Ranking) -> Ranking:
    """`other`, which holds the same passages, in the order of `ordered`."""
    place = {row: i for i, row in enumerate(other.candidates.rows.tolist())}
    return other.reorder(np.array([place[row] for row in ordered.candidates.rows], dtype=np.int64))


def _event(y: Labels, p: Floats) -> dict[str, float]:
    """How well probabilities p (n,) tell an event y (n,)."""
    if not len(y):
        return dict.fromkeys(("base_rate", "auroc", "brier", "smece"), 0.0)
    area = metrics.auroc(y, p)
    return {
        "base_rate": float(y.mean()),
        "auroc": 0.5 if np.isnan(area) else area,
        "brier": metrics.brier(y, p),
        "smece": metrics.smece(y, p),
    }


def passage_labels(ranking: Ranking, labelled: LabelledSet) -> Labels:
    """1 where a passage of the ranking is right, shape (n,)."""
    right = labelled.relevant(ranking.query.query_id)
    return np.array([d in right for d in ranking.doc_ids], dtype=np.int64)


def _orders(orders: dict[str, list[Ranking]], labelled: LabelledSet) -> dict[str, dict[str, float]]:
    """The quality of each order of the same queries, and its gain on the one called `fused`."""
    asked = [r.query.query_id for r in orders["fused"]]
    qrels = [labelled.qrels.get(i, {}) for i in asked]
    groups = [labelled.group(i) for i, q in zip(asked, qrels, strict=True) if q]
    measured = {
        name: order_quality([r.doc_ids for r in ranked], qrels) for name, ranked in orders.items()
    }
    found = {}
    for name, quality in measured.items():
        gain, low, high = paired_bootstrap(quality.ndcg10, measured["fused"].ndcg10, groups)
        found[name] = {
            "hit1": float(quality.hit1.mean()),
            "mrr10": float(quality.mrr10.mean()) if len(quality.mrr10) else 0.0,
            "ndcg10": float(quality.ndcg10.mean()) if len(quality.ndcg10) else 0.0,
            "gain": gain,
            "gain_low": low,
            "gain_high": high,
        }
    return found
