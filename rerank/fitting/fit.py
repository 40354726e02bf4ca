"""Labelled rankings to maps: the fitting, without files or tracking.

Everything is cross-fitted by query group (Stone 1974): the maps that a query's features and scores
are computed from have not seen that query's group. Only the floor of reading, one number, is chosen
on all of the queries that are fitted on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from calibration.by_kind import ByKind, cross_fit_by_kind, fit_by_kind
from calibration.drift import Sketch, sketch
from calibration.effective import effective_n
from calibration.maps import LogisticMap
from calibration.metrics import LEAST_GROUPS
from calibration.selection import choose, enough_rows, grouped_folds, grouped_standard_error
from calibration.thresholds import ABOUT, certify
from rerank.config import Config
from rerank.features import FEATURES, feature_matrix
from rerank.fitting.labels_taught import refuse_untaught
from rerank.heuristics import best_logit
from rerank.learned import Calibrators, kinds_of
from rerank.pipeline import Reading, forget, order
from rerank.progress import progress
from rerank.ranking_metrics import order_quality
from rerank.sets.labelled_set import LabelledSet
from rerank.sets.labels import Labels, grades_of, groups_of, hits, passage_labels
from rerank.sufficiency import fit_hazard
from rerank.types import Floats, InputError, Ranking

AUTO = ("logistic", "beta", "isotonic")  # what `auto` chooses from, simple to complex
FLOORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)  # of the best prior relevance; see choose_floor
FLOOR_LOSS = 0.005  # share of nDCG@10 that reading less may cost
RELEVANCE_C = 1.0  # inverse penalty of the passage map, which has thousands of rows


@dataclass(frozen=True, slots=True)
class Fitted:
    """What was learned, which calibrator was taken and why, and the baseline that learns too."""

    calibrators: Calibrators
    taken: str
    reason: str  # one sentence
    temperature: LogisticMap  # the best logit divided by one number, to P(the top one is right)
    sketch: Sketch  # of the features, for the alarm of drift
    groups: int  # that the queries fitted on are
    effective: float  # independent queries that they are worth, by how errors hang together
    # of the queries fitted on, in orders that had not seen them: (n, len(FEATURES)), and (n,)
    features: Floats = field(compare=False, repr=False)
    right: Labels = field(compare=False, repr=False)

    def scaled_logit(self, ranking: Ranking) -> float:
        """The baseline's confidence in a ranking, in [0, 1]."""
        return float(self.temperature.predict([best_logit(ranking)])[0])


def cross_ordered(
    rankings: Sequence[Ranking], labelled: LabelledSet, config: Config, *, rank_by: str
) -> list[Ranking]:
    """Rankings in the order of a relevance map that has not seen their query's group."""
    folds = grouped_folds(groups_of(rankings, labelled), config.folds, random_state=config.seed)
    pairs = list(zip(rankings, folds.tolist(), strict=True))
    unseen = {
        fold: fit_relevance([r for r, f in pairs if f != fold], labelled)
        for fold in set(folds.tolist())
    }
    return [order(r, unseen[f], rank_by=rank_by) for r, f in pairs]


def choose_floor(rankings: Sequence[Ranking], labelled: LabelledSet, config: Config) -> float:
    """How unlikely a passage may be and still be read; 0 where all of the first should be.

    The highest of `FLOORS` up to which reading less costs no more than 0.5 % of nDCG@10, with one
    standard error to spare. `rankings` were read whole; the orders are cross-fitted at each floor.
    """
    qrels = grades_of(rankings, labelled)
    answered = groups_of(rankings, labelled)[np.array([bool(q) for q in qrels], dtype=np.bool_)]
    if len(set(answered)) < LEAST_GROUPS:
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
            error = grouped_standard_error(lost, answered)
            if lost.mean() + error > FLOOR_LOSS * whole.mean():
                break
            taken = floor
    return taken


def fit(
    rankings: Sequence[Ranking],
    labelled: LabelledSet,
    reading: Reading,
    config: Config,
    *,
    whole: Sequence[Ranking] | None = None,
) -> Fitted:
    """Fit relevance, confidence and hazard on labelled rankings, cross-fitted by query group.

    The features of a query are computed on the order that a relevance map gives which has not
    seen the query's group, and the certificate rests on confidences of maps that have not; the
    maps that are kept are refitted on everything. `reading` is how the passages to read were
    chosen; `whole` are the rankings read with no floor, which the baseline is given.
    """
    from calibration.fitting import cross_fit_two_stage, fit_two_stage
    from calibration.score_fitting import fit_temperature

    groups = groups_of(rankings, labelled)
    ordered = cross_ordered(rankings, labelled, config, rank_by=config.rank_by)
    features, right = feature_matrix(ordered), hits(ordered, labelled)
    asked = AUTO if config.calibrator == "auto" else (config.calibrator,)
    worth = effective_n(right - right.mean(), groups)
    names = [name for name in asked if asked is not AUTO or enough_rows(name, worth)]
    out_of_fold = cross_fit_two_stage(
        names, features, right, groups, folds=config.folds, random_state=config.seed
    )
    left_out = [name for name in asked if name not in names]
    choice = choose(out_of_fold, right, groups, left_out=left_out, worth=worth)
    confidence, _, _ = fit_two_stage(
        features,
        right,
        groups,
        then=choice.name,
        folds=config.folds,
        random_state=config.seed,
    )
    unseen, kinds = out_of_fold[choice.name], ByKind()
    if config.correct_by:
        named = kinds_of(ordered, config.correct_by)
        kinds = fit_by_kind(unseen, right, named, groups)
        unseen = cross_fit_by_kind(
            unseen, right, named, groups, folds=config.folds, random_state=config.seed
        )
    certificate = certify(
        right,
        unseen,
        groups=groups,
        target=config.thresholds.medium,
        about=ABOUT if labelled.grouping is None else labelled.grouping.about,
    )
    answered = [bool(labelled.relevant(r.query.query_id)) for r in rankings]
    certificate = refuse_untaught(certificate, answered)
    return Fitted(
        Calibrators(
            reading,
            fit_relevance(rankings, labelled),
            confidence,
            fit_hazard(ordered, unseen, labelled),
            certificate,
            kinds,
        ),
        choice.name,
        choice.reason if asked is AUTO else "As asked for.",
        fit_temperature(np.array([best_logit(r) for r in whole or rankings]), right),
        sketch(features, list(FEATURES), groups),
        len(set(groups.tolist())),
        effective_n(right - unseen, groups),
        features,
        right,
    )


def fit_relevance(rankings: Sequence[Ranking], labelled: LabelledSet) -> LogisticMap:
    """A passage's evidence to P(it is right): logistic regression over all candidates."""
    from calibration.fitting import fit_logistic

    filled = [r for r in rankings if len(r)]
    if not filled:
        raise InputError("no query brought back a passage; is the corpus the one of the queries?")
    X = np.concatenate([r.evidence for r in filled])
    y = np.concatenate([passage_labels(r, labelled) for r in filled])
    return fit_logistic(X, y, C=RELEVANCE_C)
