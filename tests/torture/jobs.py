"""`index`, `calibrate` and the trainings, killed at random moments until they are done.

After each kill nothing, or a whole folder, stands under the final name; the same command goes on;
and what it makes in the end is, to the byte, what an uninterrupted run makes.

    python tests/torture/jobs.py datasets/pydata --kills 200
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from rerank.data.labelled_set import LabelledSet
from rerank.storage.folder import MANIFEST, verify_folder

JOBS = {  # and the options that make them short
    "data index": "--encoder-max-length 32",
    "calibrate": "--encoder-max-length 32 --max-length 64 --rerank-depth 3 --candidates 10 "
    "--pool 30 --max-queries 60",
    "train cross-encoder": "--max-length 32 --frozen-layers 5 --steps 12 --check-every 2 "
    "--validation 20",
    "train bi-encoder": "--max-length 16 --frozen-layers 5 --batch 8 --steps 12 --check-every 2",
}


def smaller(labelled: LabelledSet, passages: int) -> LabelledSet:
    """The first passages, the queries whose right ones are among them, and unanswerable ones."""
    corpus = dict(islice(labelled.corpus.items(), passages))
    qrels = {q: right for q, right in labelled.qrels.items() if right.keys() <= corpus.keys()}
    open_ones = [q for q in labelled.queries if q not in labelled.qrels]
    kept = {*qrels, *open_ones[: len(open_ones) * len(corpus) // len(labelled.corpus)]}
    return LabelledSet(
        corpus,
        {q: query for q, query in labelled.queries.items() if q in kept},
        qrels,
        {s: tuple(q for q in ids if q in kept) for s, ids in labelled.splits.items()},
        labelled.name,
    )


def command(job: str, labelled: Path, home: Path) -> list[str]:
    """The command line of a job whose folder and working folder lie in `home`."""
    given = [
        sys.executable,
        "-m",
        "rerank.cli",
        *job.split(),
        str(labelled),
        "--out",
        str(home / "out"),
    ]
    kept = [] if job == "data index" else ["--work", str(home / "work")]
    return [*given, *kept, *JOBS[job].split()]


def run(given: Sequence[str], *, after: float | None) -> int | None:
    """The exit code; None where it was killed `after` that many seconds."""
    with subprocess.Popen(
        given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            _, error = process.communicate(timeout=after)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None
    if process.returncode:
        raise SystemExit(f"{' '.join(given)} gave {process.returncode}: {error.decode()}")
    return process.returncode


def whole_or_not_there(out: Path) -> bool:
    """Whether the folder stands there, whole; raises where it is half-written."""
    if not out.exists():
        return False
    verify_folder(out)
    return True


def torture(job: str, labelled: Path, home: Path, *, kills: int, seed: int) -> None:
    """Kill the job so many times, over as many runs as that takes."""
    draw = random.Random(seed)
    reference = home / "reference"
    for place in (home / "warm", reference):  # the first run exports the models
        start = time.monotonic()
        run(command(job, labelled, place), after=None)
        usual = time.monotonic() - start
    expected = (reference / "out" / MANIFEST).read_bytes()
    print(f"{job}: {usual:.0f} s undisturbed", flush=True)
    killed, finished = 0, 0
    while killed < kills:
        place = home / f"run-{finished}"
        while not whole_or_not_there(place / "out"):
            if run(command(job, labelled, place), after=draw.uniform(0, usual)) is None:
                killed += 1
        if job != "data index":  # whose folder may stand while MLflow has not answered yet
            run(command(job, labelled, place), after=None)
        if (place / "out" / MANIFEST).read_bytes() != expected:
            raise SystemExit(f"{job}, seed {seed}: {place / 'out'} is not what it should be")
        shutil.rmtree(place)
        finished += 1
        print(f"{job}: {killed} kills, {finished} finished, each as undisturbed", flush=True)


def main() -> None:
    """Torture the jobs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--jobs", nargs="+", default=list(JOBS))
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--passages", type=int, default=500, help="of the set, that are used")
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args()
    for job in o.jobs:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
            labelled = Path(home) / "labelled"
            smaller(LabelledSet.read(o.dataset), o.passages).write(labelled)
            torture(job, labelled, Path(home), kills=o.kills, seed=o.seed)


if __name__ == "__main__":
    main()
