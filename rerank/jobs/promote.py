"""The promotion gate: a model and the best champion so far, measured again on labelled queries."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.group_tests import mean_lower_bound, mean_upper_bound
from calibration.metrics.intervals import Estimate, paired_difference, surely_better
from calibration.thresholds import Certificate, percent
from rerank.assessment.fitted_maps import read_maps
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import ModelFolder, open_folder
from rerank.config import PromotionGate
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import drawn_at_random
from rerank.errors import InputError
from rerank.evaluation.measure import OURS, Evaluation
from rerank.fitting.plan import unseen
from rerank.inference.score_cache import ScoreCache
from rerank.jobs.evaluate import evaluate, grouped_as
from rerank.jobs.track import model_name, track_model
from rerank.storage.folder import Workspace
from rerank.tracking.registry import BEST, CHAMPION, aliases, fetch, set_champion

MAX_TIMES = 100  # times the queries given; a check is never said to need more


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the gate."""

    name: str
    asked: str
    measured: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Promotion:
    """The result of the gate, and the versions of the registered model `name` with its aliases."""

    name: str
    checks: tuple[Check, ...]
    before: str | None  # version that was the champion; None if there was none
    version: str | None  # version that is the champion now; None if a check failed
    best: str | None  # version that the next model is compared with; None if there is none
    notes: tuple[str, ...] = ()  # what makes the measurements look too good, or was left out

    @property
    def sentence(self) -> str:
        """Which version production loads now, and which one the next model is compared with."""
        if self.version is None:
            if self.before is None:
                return f"not promoted; {self.name} has no champion yet"
            return f"not promoted; version {self.before} stays the champion: {self.name}"
        sentence = f"version {self.version} is the champion now: models:/{self.name}@{CHAMPION}"
        if self.best != self.version:
            sentence += f"; the best so far, which new ones are compared with, is {self.best}"
        return sentence

    def table(self) -> str:
        """A plain text table of the checks."""
        return "\n".join(
            f"{'passed' if c.holds else 'FAILED'}  {c.name}: {c.measured}\n        asked: {c.asked}"
            for c in self.checks
        )


def promote(
    folder: str | Path,
    labelled: LabelledSet,
    split: str = "test",
    gate: PromotionGate | None = None,
    *,
    work: str | Path = "work",
    new_corpus: bool = False,
) -> Promotion:
    """Make a model the champion of its name in MLflow, if it passes every check of the gate.

    The model is sent to MLflow if it is not there yet. It is compared with the best champion so
    far, not with the last one; otherwise each could be a little worse than the one before. The
    alias `best` moves only if the model is surely better.

    Only models that search the same corpus are compared. Else the gate refuses, because production
    would search other passages; with `new_corpus` the model's own checks decide, and it becomes the
    best so far.

    Raises:
        InputError: not a model folder, no such split, queries drawn by confidence, or a champion
            that cannot be loaded here.
        MissingExtraError: MLflow is not installed.
        MovedError: the champion or the best so far was moved meanwhile; neither is changed.
        TrackingError: MLflow does not answer, or refuses.
    """
    folder, workspace, gate = Path(folder), Workspace(Path(work)), gate or PromotionGate()
    cache, uri = ScoreCache(workspace.scores), workspace.tracking_uri
    candidate = CalibratedReranker.load(folder, cache=cache)
    labelled = grouped_as(labelled, candidate)
    if not drawn_at_random(labelled.select(labelled.split(split)).items):
        raise InputError(
            f"{labelled.name}: queries of {split!r} are no random sample (they were drawn by their "
            "confidence, or different shares of several files), as their metadata `weight` or "
            "`chosen` says; a promotion needs queries drawn at random (`rerank label --draw even`)"
        )
    name = model_name(candidate.manifest)
    before = aliases(name, tracking_uri=uri)
    champion = before.get(CHAMPION)
    best = before.get(BEST, champion)
    measured = evaluate(candidate, labelled, split, work=work)
    checks, notes = own_checks(candidate, measured, labelled, gate), list(measured.notes)
    best_kept = None  # the version that stays the best so far
    if best is not None:
        place, temporary = fetch(f"models:/{name}/{best}", tracking_uri=uri)
        try:
            other = open_folder(place)
            if _ranks_the_same(candidate, other):
                model = CalibratedReranker.load(place, cache=cache)
                of_best = evaluate(model, labelled, split, work=work)
                notes += [f"version {best}: {note}" for note in of_best.notes]
                lost, common = losses_to(measured, of_best)
                checks += best_checks(lost, gate, common, version=best)
                best_kept = None if surely_better(list(lost.values())) else best
            else:
                dataset = other.manifest["dataset"]
                checks.append(_other_corpus(best, dataset, allowed=new_corpus))
        finally:
            if temporary is not None:  # a copy that was downloaded
                shutil.rmtree(temporary, ignore_errors=True)
    if not all(check.holds for check in checks):
        return Promotion(name, tuple(checks), champion, None, best, tuple(notes))
    run = track_model(folder, work=workspace)
    now = set_champion(name, run.run_id, best=best_kept, before=before, tracking_uri=uri)
    return Promotion(name, tuple(checks), champion, now, best_kept or now, tuple(notes))


def _ranks_the_same(candidate: CalibratedReranker, other: ModelFolder) -> bool:
    """Whether two models can be compared; a folder that this version cannot read cannot."""
    try:
        both = ((candidate.files, candidate.maps), (other, read_maps(other)))
    except InputError:
        return False
    ours, theirs = (m.source.comparison_key(files.manifest, m.main.kind) for files, m in both)
    return bool(ours == theirs)


def _other_corpus(version: str, dataset: dict[str, object], *, allowed: bool) -> Check:
    measured = f"version {version} searches another one: {dataset.get('name')}"
    if isinstance(dataset.get("passages"), int):
        measured += f", {dataset['passages']} passages"
    return Check(
        "same corpus",
        "the best champion so far searches the same passages, or --new-corpus is given",
        f"{measured}; not compared with it" if allowed else measured,
        allowed,
    )


def own_checks(
    model: CalibratedReranker, measured: Evaluation, labelled: LabelledSet, gate: PromotionGate
) -> list[Check]:
    """The checks of the model alone: unseen queries, a calibrated confidence, a certified share."""
    n = len(measured.query_ids)
    seen = n - len(unseen(labelled, measured.query_ids, model.fitted_on))
    fitted_on = f"{seen} of {n} were fitted on, or their group was"
    smece, (low, high) = measured.table[OURS].smece, measured.table[OURS].smece_interval
    return [
        Check(
            "unseen",
            "none of the queries, nor of their `metadata.group`, was fitted on",
            fitted_on if seen else f"none of {n} was fitted on",
            not seen,
        ),
        Check(
            "calibrated",
            f"the upper end of smECE's 95% interval is {gate.most_smece:g} at most",
            f"smECE is {smece:.3f} [{low:.3f}, {high:.3f}]"
            + queries_needed(len(measured.right), smece, low, high, limit=gate.most_smece),
            bool(high <= gate.most_smece),
        ),
        certified_check(model.maps[labelled.mode].certificate, measured, gate),
    ]


def certified_check(certificate: Certificate, measured: Evaluation, gate: PromotionGate) -> Check:
    """Check that enough queries are certified, and that these labels confirm the certificate: the
    lower bound of the share that is right, by group, reaches the target.
    """
    certified = measured.certified
    right, groups = measured.right[certified], measured.labelled.groups[certified]
    share, target, n = float(certified.mean()), certificate.target, len(right)
    outcome, confirmed = f"{share:.1%} are certified", True
    if n:
        low, high = mean_lower_bound(right, groups), mean_upper_bound(right, groups)
        confirmed = low >= target
        outcome += f", {right.sum()} of {n} of them right: at least {low:.1%}, with 95% confidence"
        outcome += queries_needed(len(certified), float(right.mean()), low, high, limit=target)
    elif more := certificate.labels_missing:
        outcome += f"; with about {more:,} more labelled queries to calibrate on, some would be"
    return Check(
        "certified",
        f"{percent(gate.least_certified)} of the queries or more are certified, and at least "
        f"{percent(target)} of these are right, confirmed on these labels by group",
        outcome,
        bool(share >= gate.least_certified and confirmed),
    )


def losses_to(candidate: Evaluation, best: Evaluation) -> tuple[dict[str, Estimate], int]:
    """What the candidate loses to the best champion so far, by metric, and on how many queries.

    These are the queries that both were measured on. Each has its own top passages, so two metrics
    are compared: how often it is wrong, and the Brier score of its confidence; paired by query and
    clustered by group.
    """
    common, rows, others = np.intersect1d(candidate.query_ids, best.query_ids, return_indices=True)
    if not len(common):
        raise InputError("the cross-encoder of one model was trained on all queries of the other")
    groups = candidate.labelled.groups[rows].tolist()

    def lost(error: Callable[[Evaluation], Any]) -> Estimate:
        return paired_difference(error(candidate)[rows], error(best)[others], groups)

    by_metric = {
        "right answers": lost(lambda of: 1.0 - of.right),
        "Brier score": lost(lambda of: np.square(of.confidences[OURS] - of.right)),
    }
    return by_metric, len(common)


def best_checks(
    lost: Mapping[str, Estimate], gate: PromotionGate, n: int, *, version: str
) -> list[Check]:
    """Check that the upper bound of what a model loses on n queries lies below the margin."""
    margins = {"right answers": gate.margin, "Brier score": gate.brier_margin}
    checks = []
    for name, d in lost.items():
        outcome = f"gains {-d.mean:.3f} on" if d.mean < 0 else f"loses {d.mean:.3f} to"
        checks.append(
            Check(
                f"no worse than the best champion so far: {name}",
                f"the model loses less than {margins[name]:g} a query, with 95% confidence",
                f"on {n} queries the model {outcome} version {version}, and at most {d.high:+.3f} "
                "is lost" + queries_needed(n, d.mean, d.low, d.high, limit=margins[name]),
                bool(d.high < margins[name]),
            )
        )
    return checks


def queries_needed(n: int, value: float, low: float, high: float, *, limit: float) -> str:
    """How many queries would decide, in words; "" if the interval of n queries excludes the limit.

    An interval narrows with the square root of the number of queries.
    """
    if math.isnan(high):
        return "; too few queries for an interval"
    if not low <= limit < high:
        return ""
    reach = high - value if value < limit else value - low
    distance = abs(limit - value)
    if reach > math.sqrt(MAX_TIMES) * distance:
        return f"; too few queries to decide, as {MAX_TIMES * n:,} would be"
    needed = n * (reach / distance) ** 2
    unit = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return f"; too few queries to decide: about {math.ceil(round(needed / unit, 6)) * unit:,} would"
