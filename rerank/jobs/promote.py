"""The gate before champion: what a model must show before production takes it.

It is measured anew on labelled queries, beside the present champion on the same ones. How a
registry keeps its names is `rerank.tracking.runs`'s.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.selection import row_losses
from calibration.thresholds import upper_bound
from rerank.assessment.model import CalibratedReranker
from rerank.config import PromotionGate
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import Labels
from rerank.data.text import query_hash
from rerank.errors import InputError
from rerank.evaluation.evaluate import OURS, Evaluation
from rerank.evaluation.ranking_metrics import paired_bootstrap
from rerank.jobs.evaluate import evaluate
from rerank.tracking.uris import NAME
from rerank.types import Floats
from rerank.workspace import score_cache, tracked_run


@dataclass(frozen=True, slots=True)
class Check:
    """One threshold: what was asked, what was measured, and whether it holds."""

    name: str
    asked: str
    measured: str
    holds: bool


def promote(
    folder: Path, labelled: LabelledSet, split: str, gate: PromotionGate, *, work: Path
) -> tuple[list[Check], str | None]:
    """Every check of the gate, and the version that is champion now; None where one failed.

    Raises:
        InputError: not a model folder, a model that no run in `work` registered, no such split, or
            a champion that cannot be loaded here.
    """
    from rerank.tracking.registry import champion, crown

    run = tracked_run(folder, work)
    if run is None:
        raise InputError(
            f"{folder}: no run of it is known in {work}; send it to MLflow first: "
            f"rerank track {folder} --work {work}"
        )
    candidate = CalibratedReranker.load(folder, cache=score_cache(work))
    measured = evaluate(candidate, labelled, split, work=work)
    present = champion(NAME, tracking_uri=run["tracking_uri"])
    made = own_checks(candidate, measured, labelled, gate)
    if present is not None:
        version, place, temporary = present
        try:
            theirs = CalibratedReranker.load(place, cache=score_cache(work))
            figures = evaluate(theirs, labelled, split, work=work)
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
        made += champion_checks(measured, figures, labelled, gate, version=version)
    if not all(check.holds for check in made):
        return made, None
    return made, crown(NAME, run["run_id"], tracking_uri=run["tracking_uri"])


def own_checks(
    model: CalibratedReranker, measured: Evaluation, labelled: LabelledSet, gate: PromotionGate
) -> list[Check]:
    """What a model must show by itself: unseen queries, a true confidence, a certified share."""
    known = [i for i, q in labelled.queries.items() if query_hash(q.text) in model.fitted_on]
    asked_again = frozenset[str]().union(*map(labelled.duplicate_keys, known))
    seen = sum(not labelled.duplicate_keys(i).isdisjoint(asked_again) for i in measured.query_ids)
    high = measured.table[OURS].smece_interval[1]
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
            f"{high:.3f}",
            bool(high <= gate.most_smece),
        ),
        Check(
            "certified",
            f"{gate.least_certified:.0%} of the queries or more reach the certified threshold, and "
            f"that {target:.0%} of these are right is not refuted",
            f"{certified.mean():.1%}"
            + (f", {right.mean():.1%} of them right" if len(right) else ""),
            bool(certified.mean() >= gate.least_certified and most >= target),
        ),
    ]


def champion_checks(
    candidate: Evaluation,
    champion: Evaluation,
    labelled: LabelledSet,
    gate: PromotionGate,
    *,
    version: str,
) -> list[Check]:
    """Whether the candidate is no worse than the champion on the queries that both answered.

    Each is right of its own top passages, so both are compared: how often it is right, and how well
    it knows. Non-inferiority: the 95 % interval of what is lost, paired by query and resampled by
    group, must lie below the gate's margin. So few queries prove nothing.
    """
    common = sorted(set(candidate.query_ids) & set(champion.query_ids))
    groups = [labelled.group(i) for i in common]
    lost = {
        "right answers": (
            _of(champion, champion.right, common),
            _of(candidate, candidate.right, common),
        ),
        "log loss": (_losses(candidate, common), _losses(champion, common)),
    }
    made = []
    for name, (worse, better) in lost.items():
        gap, low, high = paired_bootstrap(worse, better, groups)
        made.append(
            Check(
                f"no worse than the champion: {name}",
                f"at most {gate.margin:g} lost to version {version}, on {len(common)} queries",
                f"{gap:+.4f} [{low:+.4f}, {high:+.4f}]",
                bool(high <= gate.margin),
            )
        )
    return made


def _losses(measured: Evaluation, ids: Sequence[str]) -> Floats:
    return _of(measured, row_losses(measured.right, measured.confidences[OURS]), ids)


def _of(measured: Evaluation, values: Floats | Labels, ids: Sequence[str]) -> Floats:
    """The values (n,) of the measured queries, of those `ids`."""
    by_id = dict(zip(measured.query_ids, values.tolist(), strict=True))
    return np.array([by_id[i] for i in ids], dtype=np.float64)


def table(made: Sequence[Check]) -> str:
    """A plain text table of the checks."""
    lines = []
    for check in made:
        lines.append(f"{'passed' if check.holds else 'FAILED'}  {check.name}: {check.measured}")
        lines.append(f"        asked: {check.asked}")
    return "\n".join(lines)
