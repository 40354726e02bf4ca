"""Fit pooled maps on many labelled sets and write them to one file, shipped beside the weights.

Scores each set, fits on all of them, and measures on each set how well the maps of the others do.
Splits called test are not used. Copies of queries with their answers taken out teach the maps
doubt, even if a user's own labels have no unanswerable query.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calibration.arrays import plain
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.pooled_maps import PooledMaps, scored_by
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.data.pairs import read_training_set
from rerank.errors import InputError
from rerank.fitting.leave_one_set_out import leave_one_set_out, summary
from rerank.fitting.plan import Plan, plan
from rerank.fitting.pooled_fit import MIN_SETS, fit_pooled_maps
from rerank.fitting.scored_plan import ScoredPlan, score_rerank, score_search
from rerank.inference.model_files import trained_on
from rerank.jobs.pipelines import find_models, open_pipeline
from rerank.progress import progress
from rerank.storage.files import write_file
from rerank.types import MODES, Mode
from rerank.workspace import Workspace

logger = logging.getLogger(__name__)

MAX_QUERIES = 300  # per set, to fit on and to report on
UNANSWERABLE = 0.2  # share of unanswerable queries, for sets that have too few of them


@dataclass(frozen=True, slots=True)
class ScoredSet:
    """One labelled set, scored in both modes, and the pipeline that scored it."""

    described: Mapping[str, Any]
    plans: Mapping[Mode, ScoredPlan]
    pipeline: Pipeline


def pool_sets(
    folders: Sequence[str | Path],
    out: str | Path,
    config: Config | None = None,
    *,
    work: str | Path = "work",
    max_queries: int = MAX_QUERIES,
    on_bad_lines: str = "refuse",
) -> PooledMaps:
    """Score the labelled sets, and write the maps pooled over them to the file `out`.

    Raises:
        InputError: fewer than five sets, two of one name, or one that cannot be read or is too
            small, or holds lists; or `out` cannot be written.
    """
    names = Counter(Path(folder).resolve().name for folder in folders)
    if len(folders) <= MIN_SETS:
        raise InputError(
            f"expected at least {MIN_SETS + 1} labelled sets, because each is measured by maps "
            f"of the others, got {len(folders)}"
        )
    name, count = names.most_common(1)[0]
    if count > 1:
        raise InputError(f"{count} labelled sets are named {name!r}; rename the folders")
    _check_out(Path(out))
    sets = {
        Path(folder): read_training_set(Path(folder), on_bad_lines=on_bad_lines)
        for folder in folders
    }
    for labelled in sets.values():
        labelled.refuse_lists()
        for one in labelled.reading.notes(len(labelled.queries)):
            logger.warning("%s: %s", labelled.name, one)
    config = replace(config or Config(), expected_unanswerable=UNANSWERABLE)
    workspace = Workspace(Path(work))
    scored = [
        _scored(original, licence_of(folder), config, workspace, max_queries)
        for folder, original in sets.items()
    ]
    return write_pooled(scored, out, config)


def write_pooled(scored: Sequence[ScoredSet], out: str | Path, config: Config) -> PooledMaps:
    """Fit on scored sets, measure, and write the file `out`."""
    by_mode = {
        mode: {labelled_set.described["name"]: labelled_set.plans[mode] for labelled_set in scored}
        for mode in MODES
    }
    maps = {mode: fit_pooled_maps(sets, config) for mode, sets in by_mode.items()}
    with progress(len(scored), "leaving one set out", unit="set") as bar:
        figures = leave_one_set_out(
            by_mode["search"],
            {labelled_set.described["name"]: labelled_set.pipeline for labelled_set in scored},
            config,
            fit_pooled=fit_pooled_maps,
            done=bar.update,
        )
    pooled = PooledMaps(
        maps,
        scored_by(*find_models(config)[0], config),
        [labelled_set.described for labelled_set in scored],
        {"sets": plain(figures), "mean": plain(summary(figures))},
    )
    write_file(Path(out), json.dumps(pooled.to_dict(), indent=1) + "\n")
    return pooled


def _check_out(out: Path) -> None:
    """Refuse a file that cannot be written, before hours of work."""
    if out.is_dir():
        raise InputError(f"{out} is a folder; expected the name of a file, such as pooled.json")
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out} cannot be written: there is no folder {out.parent}")


def _scored(
    original: LabelledSet, licence: str, config: Config, work: Workspace, max_queries: int
) -> ScoredSet:
    ids = tuple(i for split, ids in original.splits.items() if split != "test" for i in ids)
    labelled = replace(original, splits={"train": ids})
    planned = plan(
        labelled,
        trained_hashes=trained_on(*find_models(config)[0]),
        max_queries=max_queries,
        seed=config.seed,
    )
    pipeline = open_pipeline(original, config, work)
    search = score_search(pipeline, planned)
    plans: dict[Mode, ScoredPlan] = {
        "search": search,
        "rerank": score_rerank(pipeline, search),
    }
    return ScoredSet(set_entry(original, planned, licence), plans, pipeline)


def set_entry(labelled: LabelledSet, planned: Plan, licence: str) -> dict[str, Any]:
    """The entry of a set in the file of pooled maps."""
    return {
        "name": labelled.name,
        "digest": labelled.digest(),
        "licence": licence,
        "queries": len(planned.fit),
        "answered": sum(bool(grades) for grades in planned.fit.grades),
    }


def licence_of(folder: Path) -> str:
    """The licence in the line `Licence:` of the set's README.md; "" if there is none."""
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8", errors="replace") if readme.is_file() else ""
    line = re.search(r"^\W*Licence:\s*(.+)$", text, flags=re.MULTILINE)
    return line[1] if line else ""
