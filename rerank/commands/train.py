"""`rerank train prior`; the other trainings are the room `rerank.training`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rerank.commands.command import Only, command
from rerank.commands.options import WORK, Json, OnBadLines, Work
from rerank.commands.printing import tell
from rerank.config import Config, Option


@command("sets/* --out models/minilm-reranker/pooled.json", resumes=True, networks=True)
def prior(
    datasets: Annotated[tuple[Path, ...], Option(metavar="SET")],
    config: Annotated[Config, Only(("encoder", "reranker", "max_length", "precision"))],
    *,
    out: Path,
    max_queries: Annotated[int, Option(ge=1)] = 300,
    on_bad_lines: OnBadLines = "refuse",
    work: Work = WORK,
    json: Json = False,
) -> None:
    """Fit the maps that a model starts from before it has labels, on other labelled sets.

    Args:
        datasets: BEIR folders, or folders with pairs.jsonl
        out: JSON file to write; read as FOLDER.pooled.json beside the FOLDER of a cross-encoder
        max_queries: use at most so many queries of a set
    """
    from rerank.jobs.pool import pool_sets

    made = pool_sets(
        datasets, out, config, work=work, max_queries=max_queries, on_bad_lines=on_bad_lines
    )
    count = len(made.sets)
    tell(json, f"{out}: maps pooled over {count} sets", maps=out, sets=count)
