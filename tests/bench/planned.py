"""Labelled sets scored as `rerank calibrate` scores them: what the benchmarks of quality share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ratios import table

from rerank.assessment.pipeline import Pipeline
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.fitting.plan import plan
from rerank.fitting.scored_plan import ScoredPlan, score_search
from rerank.inference.model_files import resolve, trained_on
from rerank.jobs.pipelines import open_pipeline
from rerank.storage.files import write_file
from rerank.storage.folder import Workspace


@dataclass(frozen=True, slots=True)
class Planned:
    """A set's candidates, scored with no cutoff: what is measured was not fitted or trained on."""

    labelled: LabelledSet
    pipeline: Pipeline
    scored: ScoredPlan

    @property
    def config(self) -> Config:
        """What the candidates and their scores depend on."""
        return self.pipeline.config


def measure_sets(
    measure: Callable[[Planned], Mapping[str, Mapping[str, str]]],
    description: str,
    arguments: Sequence[str] | None = None,
) -> None:
    """Read a command line of sets, and print one table of the rows that `measure` gives for each.

    A set with too few queries is named and passed over. `--manifest` keeps the rows in a packed
    model's manifest, as its figures.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--max-queries", type=int, help="bound on queries to fit on and to report")
    parser.add_argument("--reranker", default=Config().reranker)
    parser.add_argument("--work", type=Path, default=Path("work"))
    parser.add_argument("--manifest", type=Path)
    o = parser.parse_args(arguments)
    manifest = json.loads(o.manifest.read_text(encoding="utf-8")) if o.manifest else {}
    config = Config(reranker=o.reranker)
    rows: dict[str, Mapping[str, str]] = {}
    for folder in o.sets:
        seen = trained_on(resolve(str(config.reranker)))
        try:
            labelled = LabelledSet.read(folder)
            drawn = plan(labelled, trained_hashes=seen, max_queries=o.max_queries, seed=config.seed)
        except InputError as error:
            print(error, file=sys.stderr)
            continue
        pipeline = open_pipeline(labelled, config, Workspace(o.work))
        rows |= measure(Planned(labelled, pipeline, score_search(pipeline, drawn)))
        print(table(rows), flush=True)
    if o.manifest and len(rows) < len(o.sets):
        raise SystemExit(f"{o.manifest} is left as it is: some of the sets were passed over")
    if o.manifest:
        write_file(o.manifest, json.dumps(manifest | {"figures": rows}, indent=2) + "\n")
