"""The signals of a ranking: what each one measures, what its value means, which features it has.

Each feature of the confidence belongs to one signal. It knows nothing of maps or of advice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from rerank.assessment.list_features import list_ranking_features
from rerank.assessment.ranking_features import RANKING_FEATURES
from rerank.rag.places import place_of
from rerank.types import Assessment, ListKind, metadata_name

TOP = 5  # passages that count as the top
CLOSE = 0.5  # the second passage is close if its relevance is this share of the first one's
FROM_GOOD_TO_BAD = {"top_score", "gap", "stage_agreement", "query_coverage"}  # order of the bands
MIN_CONTRIBUTION = 0.005  # smaller log-odds are shown as 0

OF_GROUP = {  # the signal of a feature, by its group, if it is not named below
    "logits": "top_score",
    "score": "top_score",
    "margins": "gap",
    "first stage": "spread",
    "agreement": "stage_agreement",
    "coverage": "query_coverage",
    "list": "spread",  # of lists that came with their scores
}
OF_STAGE_FEATURE = {  # of such lists: the last part of a name such as `keyword.margin`
    "top": "top_score",
    "margin": "gap",
    "margin_k": "gap",
    "gain": "spread",
    "winner_gap": "stage_agreement",
    "winner_rank": "stage_agreement",
    "correlation": "stage_agreement",
    "overlap": "stage_agreement",
}
OF_FEATURE = {
    "score_margin": "gap",
    "score_share": "gap",
    "cosine_margin": "gap",
    "bm25_margin": "gap",
    "top_cosine": "top_score",
    "logit_spread": "spread",
    "logit_consensus": "consensus",
    "passages_scored": "consensus",
    "reranker_impact": "reranker_impact",
    "diversity": "document_diversity",
}

Measure = Callable[[Assessment], float]
Meaning = Callable[[float], str]


def _banded(*bands: tuple[float, str]) -> Meaning:
    """The words of the first band whose start the value reaches; the starts descend."""
    return lambda value: next((words for start, words in bands if value >= start), bands[-1][1])


def _top_score(a: Assessment) -> float:
    return float(a.relevance[0])


def _gap(a: Assessment) -> float:
    """The lead of the first passage, in probability."""
    return float(a.relevance[0] - a.relevance[1]) if len(a.relevance) > 1 else _top_score(a)


def _spread(a: Assessment) -> float:
    return float(a.relevance[:TOP].std())


def _consensus(a: Assessment) -> float:
    return float((a.relevance[:TOP] >= CLOSE * a.relevance[0]).mean())


def _documents(a: Assessment) -> float:
    passages = a.ranking.passages[:TOP]
    return len({place_of(p).document for p in passages}) / len(passages)


def _graph_support(a: Assessment) -> float:
    best = a.ranking.passages[0].metadata
    named = [metadata_name(best, key) for key in ("graph_support", "graph_boost")]
    try:
        support = float(next(filter(None, named), "0"))
    except ValueError:
        return 0.0
    return support if math.isfinite(support) else 0.0  # JSON has no infinity


def _feature(name: str) -> Measure:
    return lambda assessment: RANKING_FEATURES[name](assessment.ranking)


SIGNALS: Mapping[str, tuple[Measure, Meaning]] = {
    "top_score": (
        _top_score,
        _banded(
            (0.7, "the best passage is probably right"),
            (0.4, "the best passage may be right"),
            (0.0, "the best passage is probably wrong"),
        ),
    ),
    "gap": (
        _gap,
        _banded(
            (0.3, "a clear winner"),
            (0.1, "a slight lead over the second passage"),
            (-1.0, "no clear winner"),
        ),
    ),
    "spread": (
        _spread,
        _banded(
            (0.15, "the first passages differ in relevance"),
            (0.0, "the first passages are about equally relevant"),
        ),
    ),
    "consensus": (
        _consensus,
        _banded(
            (0.6, "several passages are as good as the best"),
            (0.0, "no other passage is nearly as good as the best"),
        ),
    ),
    "stage_agreement": (
        _feature("stage_overlap"),
        _banded(
            (0.4, "word search and meaning search agree"),
            (0.2, "word search and meaning search agree in part"),
            (0.0, "word search and meaning search disagree"),
        ),
    ),
    "reranker_impact": (
        _feature("reranker_impact"),
        _banded(
            (0.5, "the cross-encoder kept the order of the first stage"),
            (-0.2, "the cross-encoder changed the order"),
            (-1.0, "the cross-encoder reversed the order"),
        ),
    ),
    "document_diversity": (
        _documents,
        _banded(
            (0.8, "the first passages come from many documents"),
            (0.0, "the first passages come from few documents"),
        ),
    ),
    "graph_support": (
        _graph_support,
        _banded((0.01, "linked from other passages"), (0.0, "no links are known")),
    ),
    "query_coverage": (
        _feature("top_idf_coverage"),
        _banded(
            (0.7, "the passages contain the words of the question"),
            (0.0, "important words of the question are missing"),
        ),
    ),
}


def signal_of(feature: str, group: str) -> str:
    """The signal that a feature of the confidence belongs to, by its name, else by its group."""
    if "." in feature:
        return OF_STAGE_FEATURE[feature.rpartition(".")[2]]
    return OF_FEATURE.get(feature) or OF_GROUP[group]


def signals_of_lists(kind: ListKind) -> Mapping[str, tuple[Measure, Meaning]]:
    """The signals of lists that came with their scores, which no stage of ours has read.

    Agreement is the mean share of the first ten passages that two stages both have, 1 for a single
    stage. Coverage is that of the first passage, and needs texts.
    """
    table, _ = list_ranking_features(kind)
    shares = [function for name, function in table.items() if name.endswith(".overlap")]

    def agreement(a: Assessment) -> float:
        return float(np.mean([share(a.ranking) for share in shares])) if shares else 1.0

    found = {
        **SIGNALS,
        "stage_agreement": (
            agreement,
            _banded(
                (0.4, "the stages agree"),
                (0.2, "the stages agree in part"),
                (0.0, "the stages disagree"),
            ),
        ),
        "reranker_impact": (
            SIGNALS["reranker_impact"][0],
            _banded(
                (0.5, "the last stage kept the order of the first one"),
                (-0.2, "the last stage changed the order"),
                (-1.0, "the last stage reversed the order"),
            ),
        ),
    }
    if not kind.texts:
        return {name: one for name, one in found.items() if name != "query_coverage"}
    covered, words = table["winner_term_coverage"], SIGNALS["query_coverage"][1]
    return {**found, "query_coverage": (lambda a: covered(a.ranking), words)}


def agreeing(
    name: str,
    value: float,
    contribution: float,
    table: Mapping[str, tuple[Measure, Meaning]] = SIGNALS,
) -> str:
    """The meaning of a value; adds a clause if its contribution has the opposite sign.

    `table` has the signal `name`. The meaning is that of the value alone; the contribution
    (log-odds) compares it with a usual question: few words of the question may be found, and yet
    more than usual. Only the best and the worst meaning can have an opposite.
    """
    meaning = table[name][1]
    words = meaning(value)
    against = meaning(math.inf if contribution < 0 else -math.inf)
    if name not in FROM_GOOD_TO_BAD or abs(contribution) < MIN_CONTRIBUTION or words != against:
        return words
    verb = "lowers" if contribution < 0 else "raises"
    return f"{words}, but compared with a usual question this {verb} the confidence"
