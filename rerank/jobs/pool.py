"""Fit maps pooled over many labelled sets: the usual fit, with each set as a group.

So cross-fitting leaves out whole sets. Splits called test are not used. Copies of queries with
their answers taken out teach the maps doubt, even where a user's own labels do not.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from rerank.assessment.fitted_maps import FittedMaps, PooledMaps, scored_by
from rerank.assessment.pipeline import ReadPolicy
from rerank.config import Config
from rerank.data.grouping import marks_of
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import Labelled
from rerank.errors import InputError
from rerank.fitting.certificates import refuse_certificates
from rerank.fitting.fit import fit
from rerank.fitting.passage_maps import fit_prior, limit_labelled
from rerank.fitting.plan import plan
from rerank.fitting.scored_plan import ScoredPlan, score_modes
from rerank.inference.model_files import trained_on
from rerank.jobs.pipelines import find_models, open_pipeline
from rerank.process import one_blas_thread
from rerank.storage.files import write_file
from rerank.storage.folder import Workspace
from rerank.types import MODES, Mode, Scored

logger = logging.getLogger(__name__)

MAX_QUERIES = 300  # per set, to fit on and to report on
MIN_SETS = 4
LOW = 0.25  # quantile of the sets' cutoffs
NO_LABELS = (
    "No label is of this corpus: the confidence is not calibrated here. Label queries and run "
    "`rerank calibrate`."
)
UNANSWERABLE = 0.2  # share of unanswerable queries, for sets that have too few of them


@one_blas_thread()
def pool_sets(
    folders: Sequence[str | Path],
    out: str | Path,
    config: Config | None = None,
    *,
    work: str | Path = "work",
    max_queries: int = MAX_QUERIES,
    on_bad_lines: str = "refuse",
) -> PooledMaps:
    """Score the labelled sets, and write the maps pooled over them to the file `out`."""
    out = Path(out)
    sets = _read_sets([Path(folder) for folder in folders], out, on_bad_lines)
    config = replace(config or Config(), expected_unanswerable=UNANSWERABLE)
    (models, config), workspace = find_models(config), Workspace(Path(work))
    described, marks = [], set[str]()
    plans: dict[Mode, dict[str, ScoredPlan]] = {mode: {} for mode in MODES}
    for folder, labelled in sets.items():
        ids = tuple(i for split, ids in labelled.splits.items() if split != "test" for i in ids)
        planned = plan(
            replace(labelled, splits={"train": ids}),
            trained_hashes=trained_on(*models),
            max_queries=max_queries,
            seed=config.seed,
        )
        marks |= marks_of(planned.fit.items)
        pipeline = open_pipeline(labelled, config, workspace)
        for mode, scored in score_modes(pipeline, planned, {}).items():
            plans[mode][labelled.name] = scored
        described.append(
            {
                "name": labelled.name,
                "digest": labelled.digest(),
                "licence": licence_of(folder),
                "queries": len(planned.fit),
                "answered": sum(bool(grades) for grades in planned.fit.grades),
            }
        )
    maps = {mode: fit_pooled_maps(plans[mode], config) for mode in MODES}
    pooled = PooledMaps(maps, scored_by(*models, config), described, frozenset(marks))
    write_file(out, json.dumps(pooled.to_dict(), indent=1) + "\n")
    return pooled


def _read_sets(folders: Sequence[Path], out: Path, on_bad_lines: str) -> Mapping[Path, LabelledSet]:
    """The sets, after refusing what would fail after hours of work."""
    if len(folders) < MIN_SETS:
        raise InputError(f"expected at least {MIN_SETS} labelled sets to pool, got {len(folders)}")
    name, count = Counter(folder.resolve().name for folder in folders).most_common(1)[0]
    if count > 1:
        raise InputError(f"{count} labelled sets are named {name!r}; rename the folders")
    if out.is_dir():
        raise InputError(f"{out} is a folder; expected the name of a file, such as pooled.json")
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out} cannot be written: there is no folder {out.parent}")
    sets = {folder: LabelledSet.read(folder, on_bad_lines=on_bad_lines) for folder in folders}
    for labelled in sets.values():
        labelled.refuse_lists()
        for one in labelled.reading.notes(len(labelled.queries)):
            logger.warning("%s: %s", labelled.name, one)
    return sets


def licence_of(folder: Path) -> str:
    """The licence in the line `Licence:` of the set's README.md; "" if there is none."""
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8", errors="replace") if readme.is_file() else ""
    line = re.search(r"^\W*Licence:\s*(.+)$", text, flags=re.MULTILINE)
    return line[1] if line else ""


def fit_pooled_maps(sets: Mapping[str, ScoredPlan], config: Config) -> FittedMaps:
    """Maps of one mode, fitted on the scored candidates of many sets, which have equal weight.

    Each set's candidates are scored down to its own cutoff; the pooled policy takes the lower
    quartile of these cutoffs. The maps certify nothing, of a set that they have not seen.
    """
    cutoffs = {name: planned.policy.cutoff for name, planned in sets.items()}
    limited = {n: limit_labelled(planned.to_fit, cutoffs[n]) for n, planned in sets.items()}
    scored = balance_sets(limited)
    prior, _ = fit_prior(scored.with_items([s.candidates for s in scored.items]), config)
    folds = min(config.folds, len(sets))
    pooled_config = replace(config, calibrator="logistic", segment_by="", folds=folds)
    maps = fit(ScoredPlan(scored, scored, ReadPolicy(prior)), pooled_config).maps
    policy = ReadPolicy(prior, float(np.quantile(list(cutoffs.values()), LOW)))
    return replace(refuse_certificates(maps, NO_LABELS), policy=policy, calibrated=False)


def balance_sets(sets: Mapping[str, Labelled[Scored]]) -> Labelled[Scored]:
    """All queries of the sets, each a group; smaller sets repeat theirs, until all are as large."""
    largest = max(map(len, sets.values()))

    def repeated(parts: Sequence[Sequence[Any]]) -> list[Any]:
        return list(chain.from_iterable(islice(cycle(values), largest) for values in parts))

    return Labelled(
        repeated([scored.items for scored in sets.values()]),
        np.repeat(np.array(list(sets)), largest),
        repeated([scored.grades for scored in sets.values()]),
    )
