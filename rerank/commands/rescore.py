"""`rerank rescore`."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rerank.commands.command import REJECTED, command
from rerank.commands.options import (
    WORK,
    Json,
    ModelChoice,
    MostRequests,
    Restart,
    Work,
    limit_requests,
)
from rerank.commands.printing import print_json
from rerank.config import Option


@command("work/model queries.jsonl --out predictions.jsonl", resumes=True)
def rescore(
    chosen: ModelChoice,
    queries: Path,
    *,
    out: Path,
    strict: bool = False,
    restart: Restart = False,
    engine: Annotated[str, Option(choices=("local", "ray"))] = "local",
    actors: Annotated[int | None, Option(ge=1)] = None,
    most_requests: MostRequests = None,
    work: Work = WORK,
    json: Json = False,
) -> int:
    """Assess a file of queries; exit code 3: some rows were rejected.

    Args:
        queries: JSONL, CSV or Parquet (also .gz, .zst, a folder of parts) of _id and query, and of
            passages where a query brings its own
        out: JSONL or Parquet to write; rejected rows go to OUT.rejected.jsonl beside it
        strict: check all rows first: if one is bad, score none
        engine: this process, or Ray: the cluster of RAY_ADDRESS, else here
        actors: how many actors of Ray, each with the model (default: one per 4 cores)
    """
    from rerank.batch import rescore

    with suppress(ValueError):  # in another thread than the main one
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops as Ctrl-C does
    limit_requests(most_requests)
    done = rescore(
        chosen.load(work),
        queries,
        out,
        strict=strict,
        restart=restart,
        engine=engine,
        actors=actors,
    )
    if json:
        print_json(out=out, **asdict(done))
        return REJECTED if done.rejected else 0
    if done.resumed:
        print(f"{done.resumed} of the rows were done before an interruption")
    print(f"{out}: {done.answered} predictions")
    if done.rejected:
        print(f"{done.side}: {done.rejected} rows were rejected")
    return REJECTED if done.rejected else 0
