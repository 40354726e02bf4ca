"""The gate before champion: what a model must show before production takes it.

It is measured anew on labelled queries, beside the present champion on the same ones. How a
registry keeps its names is `rerank.tracking.registry`'s.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.selection import row_losses
from calibration.thresholds import upper_bound
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import open_folder
from rerank.config import PromotionGate
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import Labels
from rerank.data.text import query_hash
from rerank.evaluation.evaluate import OURS, Evaluation
from rerank.evaluation.ranking_metrics import paired_bootstrap
from rerank.inference.score_cache import ScoreCache
from rerank.jobs.evaluate import evaluate
from rerank.jobs.track import model_name, track_model
from rerank.tracking.registry import CHAMPION, champion, crown
from rerank.types import Floats
from rerank.workspace import Workspace

MOST_TIMES = 100  # as many queries as there are: what is said to decide a check goes no further


@dataclass(frozen=True, slots=True)
class Check:
    """One threshold: what was asked, what was measured, and whether it holds."""

    name: str
    asked: str
    measured: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Promotion:
    """What the gate said, and the champion of the registered model `name` before and after it."""

    name: str
    checks: tuple[Check, ...]
    before: str | None  # version that was the champion; None where there was none
    version: str | None  # version that is the champion now; None where a check failed

    @property
    def sentence(self) -> str:
        """Which version production loads now."""
        if self.version is not None:
            return f"version {self.version} is the champion now: models:/{self.name}@{CHAMPION}"
        stays = f"version {self.before} stays the champion" if self.before else "it has no champion"
        return f"not promoted; {stays}: {self.name}"

    def table(self) -> str:
        """A plain text table of the checks."""
        lines = []
        for check in self.checks:
            lines.append(f"{'passed' if check.holds else 'FAILED'}  {check.name}: {check.measured}")
            lines.append(f"        asked: {check.asked}")
        return "\n".join(lines)


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

    A model that MLflow does not have yet is sent to it. The model is compared with the champion of
    its name only where both search the same corpus. Where they do not, the gate refuses, because
    production would search other passages; with `new_corpus` the model's own checks decide.

    Raises:
        InputError: not a model folder, no such split, or a champion that cannot be loaded here.
        MissingExtraError: MLflow is not installed.
        TrackingError: MLflow does not answer, or refuses.
    """
    folder, workspace, gate = Path(folder), Workspace(Path(work)), gate or PromotionGate()
    cache = ScoreCache(workspace.scores)
    candidate = CalibratedReranker.load(folder, cache=cache)
    name = model_name(candidate.manifest)
    present = champion(name, tracking_uri=workspace.tracking_uri)
    measured = evaluate(candidate, labelled, split, work=work)
    checks = own_checks(candidate, measured, labelled, gate)
    if present is not None:
        version, (place, temporary) = present
        try:
            other = open_folder(place).manifest
            if other["corpus_digest"] == candidate.manifest["corpus_digest"]:
                model = CalibratedReranker.load(place, cache=cache)
                figures = evaluate(model, labelled, split, work=work)
                checks += champion_checks(measured, figures, gate, version=version)
            else:
                checks.append(_other_corpus(version, other["dataset"], allowed=new_corpus))
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
    before = present[0] if present else None
    if not all(check.holds for check in checks):
        return Promotion(name, tuple(checks), before, None)
    run = track_model(folder, work=workspace)
    now = crown(name, run.run_id, tracking_uri=workspace.tracking_uri)
    return Promotion(name, tuple(checks), before, now)


def _other_corpus(version: str, dataset: dict[str, object], *, allowed: bool) -> Check:
    said = f"version {version} searches another one: {dataset.get('name')}"
    if isinstance(dataset.get("passages"), int):
        said += f", {dataset['passages']} passages"
    return Check(
        "same corpus",
        "the champion searches the same passages, or --new-corpus is given",
        f"{said}; not compared with it" if allowed else said,
        allowed,
    )


def own_checks(
    model: CalibratedReranker, measured: Evaluation, labelled: LabelledSet, gate: PromotionGate
) -> list[Check]:
    """What a model must show by itself: unseen queries, a true confidence, a certified share."""
    known = [i for i, q in labelled.queries.items() if query_hash(q.text) in model.fitted_on]
    asked_again = frozenset[str]().union(*map(labelled.duplicate_keys, known))
    seen = sum(not labelled.duplicate_keys(i).isdisjoint(asked_again) for i in measured.query_ids)
    smece, (low, high) = measured.table[OURS].smece, measured.table[OURS].smece_interval
    promises = model.maps["search"].certificate.promises
    certified = np.array([promises(c) for c in measured.confidences[OURS].tolist()])
    right = measured.right[certified]
    most = upper_bound(int(right.sum()), len(right))
    target = model.maps["search"].certificate.target
    return [
        Check(
            "unseen",
            "none of the queries, nor of their groups, was fitted on",
            f"{seen} were",
            not seen,
        ),
        Check(
            "calibrated",
            f"the upper end of smECE's 95 % interval is {gate.most_smece:g} at most",
            f"smECE is {smece:.3f} [{low:.3f}, {high:.3f}]"
            + undecided(len(measured.right), smece, low, high, limit=gate.most_smece),
            bool(high <= gate.most_smece),
        ),
        Check(
            "certified",
            f"{gate.least_certified:.0%} of the queries or more reach the certified threshold, and "
            f"the data are consistent with {target:.0%} accuracy of these",
            f"{certified.mean():.1%}"
            + (f", {right.mean():.1%} of them right" if len(right) else ""),
            bool(certified.mean() >= gate.least_certified and most >= target),
        ),
    ]


def champion_checks(
    candidate: Evaluation, champion: Evaluation, gate: PromotionGate, *, version: str
) -> list[Check]:
    """Whether the candidate is no worse than the champion on the queries that both answered.

    Each is right of its own top passages, so both are compared: how often it is right, and how well
    it knows. Non-inferiority: the 95 % interval of what is lost, paired by query and resampled by
    group, must lie below the gate's margin. So few queries prove nothing.
    """
    group_of = dict(zip(candidate.query_ids, candidate.labelled.groups.tolist(), strict=True))
    common = sorted(set(candidate.query_ids) & set(champion.query_ids))
    lost = {
        "right answers": (
            _of(champion, champion.right, common),
            _of(candidate, candidate.right, common),
        ),
        "log loss": (_losses(candidate, common), _losses(champion, common)),
    }
    made = []
    for name, (worse, better) in lost.items():
        gap, low, high = paired_bootstrap(worse, better, [group_of[i] for i in common])
        outcome = f"gains {-gap:.3f} on" if gap < 0 else f"loses {gap:.3f} to"
        made.append(
            Check(
                f"no worse than the champion: {name}",
                f"the model loses at most {gate.margin:g} a query, with 95 % confidence",
                f"on {len(common)} queries the model {outcome} version {version}: between "
                f"{low:+.3f} and {high:+.3f} lost"
                + undecided(len(common), gap, low, high, limit=gate.margin),
                bool(high <= gate.margin),
            )
        )
    return made


def undecided(n: int, value: float, low: float, high: float, *, limit: float) -> str:
    """How many queries would decide, where the interval of n queries has the limit in it.

    An interval narrows with the square root of the queries: so many put the end that is beyond the
    limit on the side of the value, should the value stay.
    """
    if math.isnan(high):
        return "; too few queries for an interval"
    if not low <= limit < high:
        return ""
    reach = high - value if value < limit else value - low
    distance = abs(limit - value)
    if reach > math.sqrt(MOST_TIMES) * distance:
        return f"; too few queries to decide, as {MOST_TIMES * n:,} would be"
    needed = n * (reach / distance) ** 2
    unit = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return f"; too few queries to decide: about {math.ceil(round(needed / unit, 6)) * unit:,} would"


def _losses(measured: Evaluation, ids: Sequence[str]) -> Floats:
    return _of(measured, row_losses(measured.right, measured.confidences[OURS]), ids)


def _of(measured: Evaluation, values: Floats | Labels, ids: Sequence[str]) -> Floats:
    """The values (n,) of the measured queries, of those `ids`."""
    by_id = dict(zip(measured.query_ids, values.tolist(), strict=True))
    return np.array([by_id[i] for i in ids], dtype=np.float64)
