"""Answers a second when ten times too many requests come, beside the best when they do not.

    python tests/bench/overload.py work/model --rounds 3 --seconds 20 --timeout 5

It starts `rerank serve` and asks it in turns, round by round: by a few clients that wait for their
answers, which is the most that the machine can do, and at `--times` that rate by clients that do
not wait. Searches and passages to order are mixed; `--heavy` sends besides, every second, as many
passages as one request may bring. Counted are answers within the time-out, after the first fifth
of a turn. A ratio is taken within a round. The exit code is 1 where the median ratio is below .9 or
the 99th percentile of the answers is later than the time-out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx
import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
TEXTS = [
    "The median is the middle value of a sorted sample.",
    "numpy.nanmedian computes the median along an axis and ignores NaNs.",
    "An array can be sorted along an axis, by one of several algorithms.",
    "Missing values of a time series are filled by those before them.",
    "A table is read from a file, with types that are found out or given.",
]
Request = tuple[str, dict[str, object]]  # path and body
WAITING = 8  # clients that wait for their answers
GOAL = 0.9


@dataclass
class Turn:
    """What came of one turn: answers, by when they came, and all outcomes counted."""

    start: float
    seconds: float
    outcomes: Counter[str] = field(default_factory=Counter)
    answered: list[tuple[float, float]] = field(default_factory=list)  # when, and how long it took

    @property
    def rate(self) -> float:
        """Answers a second after the first fifth."""
        begin = self.start + self.seconds / 5
        in_time = sum(begin <= at <= self.start + self.seconds for at, _ in self.answered)
        return in_time / (self.seconds * 4 / 5)


def question(number: int) -> Request:
    """Path and body of one request; no two are the same."""
    if number % 2:
        return "/v1/search", {"query": f"median of array number {number}"}
    documents = [f"{text} ({number})" for text in TEXTS]
    return "/v1/rerank", {"query": f"median {number}", "documents": documents}


HEAVY: Request = (
    "/v1/rerank",
    {"query": "median", "documents": [" ".join(TEXTS * 12) for _ in range(1000)]},
)


async def ask(client: httpx.AsyncClient, request: Request, turn: Turn, timeout: float) -> None:
    """Send one request, and note what came of it."""
    path, body = request
    sent = time.monotonic()
    try:
        answer = await client.post(path, json=body, timeout=timeout)
    except httpx.HTTPError as error:
        turn.outcomes[type(error).__name__] += 1
        return
    turn.outcomes[str(answer.status_code)] += 1
    if answer.status_code == 200:
        turn.answered.append((time.monotonic(), time.monotonic() - sent))


async def sustained(client: httpx.AsyncClient, seconds: float, timeout: float) -> Turn:
    """A few clients, of which each waits for its answer before it asks again."""
    turn = Turn(time.monotonic(), seconds)
    numbers = iter(range(10**9))

    async def wait() -> None:
        while time.monotonic() < turn.start + seconds:
            await ask(client, question(next(numbers)), turn, timeout)

    await asyncio.gather(*(wait() for _ in range(WAITING)))
    return turn


async def flooded(
    client: httpx.AsyncClient, rate: float, seconds: float, timeout: float, *, heavy: bool
) -> Turn:
    """Requests that come by chance, `rate` a second, whatever has become of those before."""
    turn, rng = Turn(time.monotonic(), seconds), random.Random(0)
    sent: list[asyncio.Task[None]] = []
    others = Turn(turn.start, seconds)
    due, number, heavies = turn.start, 10**6, 0
    while due < turn.start + seconds:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        sent.append(asyncio.create_task(ask(client, question(number), turn, timeout)))
        if heavy and time.monotonic() - turn.start > heavies:
            heavies += 1
            sent.append(asyncio.create_task(ask(client, HEAVY, others, timeout)))
        due, number = due + rng.expovariate(rate), number + 1
    await asyncio.gather(*sent)
    if heavy:
        print(f"  heavy requests: {dict(others.outcomes)}")
    return turn


async def measure(url: str, o: argparse.Namespace) -> bool:
    """Ask in turns, print what came of each, and whether the goal is reached."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=500)
    ratios, latencies = [], []
    async with httpx.AsyncClient(base_url=url, limits=limits) as client:
        await sustained(client, o.seconds / 2, 60.0)  # not counted
        for _ in range(o.rounds):
            best = await sustained(client, o.seconds, o.timeout)
            flood = await flooded(client, o.times * best.rate, o.seconds, o.timeout, heavy=o.heavy)
            ratios.append(flood.rate / best.rate)
            latencies += [took for _, took in flood.answered]
            print(f"  {best.rate:.3g} a second: {dict(best.outcomes)}")
            print(f"  {flood.rate:.3g} a second: {dict(flood.outcomes)}", flush=True)
    p50, p99 = (float(q) / o.timeout for q in np.percentile(latencies, [50, 99]))
    ratio = median(ratios)
    print(
        f"at {o.times:g} times the sustainable rate: {ratio:.2f} of the best answers a second "
        f"({min(ratios):.2f} to {max(ratios):.2f} of {o.rounds} rounds); of those answered, the "
        f"median took {p50:.2f} of the time-out, the 99th percentile {p99:.2f}"
    )
    return bool(ratio >= GOAL and p99 <= 1)


def main() -> int:
    """Start a server, flood it, and end it."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("model", type=Path)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=20.0, help="of a turn")
    p.add_argument("--timeout", type=float, default=5.0, help="seconds, of server and clients")
    p.add_argument("--times", type=float, default=10.0)
    p.add_argument("--heavy", action="store_true")
    o = p.parse_args()
    command = [sys.executable, "-m", "rerank.cli", "serve", str(o.model), "--port", "0"]
    with subprocess.Popen(
        [*command, "--poll", "0", "--timeout", str(o.timeout)],
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as server:
        assert server.stderr is not None
        first = server.stderr.readline()
        drained = subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)
        try:
            reached = asyncio.run(measure(json.loads(first)["address"], o))
        finally:
            server.terminate()
            server.wait(120)
            drained.wait()
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
