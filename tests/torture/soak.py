"""Many clients against one server, for a long time: no error, flat memory, the same answers.

    python tests/torture/soak.py work/model --seconds 600

It starts `rerank serve`, asks it from `--clients` threads on both routes, compares every answer
with that of one call in this process, swaps the model now and then for a copy that says the same,
and reads the server's memory. With `--heavy`, the heaviest request is sent every second as well;
the server may refuse it, but the other clients must not notice. The exit code is 1 where anything
differed, or where the memory of a run of two minutes or more grew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
from attacks import heavy_requests

from rerank.assessment.model import CalibratedReranker
from rerank.storage.folder import with_digest

ROOT = Path(__file__).parent.parent.parent
QUERIES = [
    *("median along an axis", "fill gaps in a time series", "train a network on a GPU"),
    *("sort an array", "inverse of a matrix", "read a table from a file", "book a flight"),
]
GROWTH = 64 * 2**20  # bytes that the server may gain from the second quarter to the last
HEAVIER = 4  # times as much where requests of 4 MB come in between: what is freed stays in pieces
SETTLED = 120.0  # seconds of a run from which on its memory is judged: before, it still warms up


def main(arguments: list[str] | None = None) -> int:
    """Soak one server; prints what was seen."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("model", type=Path)
    p.add_argument("--seconds", type=float, default=600.0)
    p.add_argument("--clients", type=int, default=64)
    p.add_argument("--swaps", type=int, default=5, help="times that the model is replaced")
    p.add_argument("--patience", type=float, default=120.0, help="seconds for an answer")
    p.add_argument("--heavy", action="store_true", help="send the heaviest request every second")
    o = p.parse_args(arguments)
    expected = expected_answers(CalibratedReranker.load(o.model))
    with tempfile.TemporaryDirectory(prefix="soak-") as kept:
        place = Path(shutil.copytree(o.model, Path(kept) / "model"))
        command = [sys.executable, "-m", "rerank.cli", "serve", str(place), "--port", "0"]
        with (Path(kept) / "log").open("w+") as log:
            server = subprocess.Popen(
                [*command, "--poll", "0.5", "--timeout", str(o.patience)],
                stderr=log,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
            try:
                seen, memory = soak(_address(server, Path(log.name)), place, expected, o)
            finally:
                server.terminate()
                server.wait(o.patience)
    quarter = len(memory) // 4 or 1
    second, last = memory[quarter : 2 * quarter] or memory, memory[-quarter:]
    grown = float(np.median(last) - np.median(second))
    print(
        f"{o.clients} clients, {o.seconds:g} s: {dict(seen)}; median memory of the last quarter "
        f"{np.median(last) / 2**20:.0f} MiB, {grown / 2**20:+.0f} MiB on that of the second; at "
        f"most {max(memory) / 2**20:.0f} MiB; exit code {server.returncode}"
    )
    leaks = o.seconds >= SETTLED and grown > GROWTH * (HEAVIER if o.heavy else 1)
    return 1 if set(seen) - {"same"} or not seen or leaks or server.returncode else 0


def expected_answers(model: CalibratedReranker) -> list[tuple[str, dict[str, object], object]]:
    """Path, request and answer of every query on both routes, asked one at a time."""
    found: list[tuple[str, dict[str, object], object]] = []
    for i, query in enumerate(QUERIES):
        search = model.search(query)
        ranking = [[p.doc_id for p in search.first(10)], search.confidence]
        found.append(("/v1/search", {"query": query}, ranking))
        documents = [q for k, q in enumerate(QUERIES) if k != i]
        rerank = model.rerank(query, documents)
        ranked = [[p.row for p in rerank.passages], rerank.confidence]
        found.append(("/v1/rerank", {"query": query, "documents": documents}, ranked))
    return found


def soak(
    url: str,
    place: Path,
    expected: list[tuple[str, dict[str, object], object]],
    o: argparse.Namespace,
) -> tuple[Counter[str], list[float]]:
    """What the clients saw, counted, and the server's resident bytes, a value a second."""
    end = time.monotonic() + o.seconds
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def ask(number: int) -> None:
        with httpx.Client(base_url=url, timeout=1.5 * o.patience) as client:
            while time.monotonic() < end:
                path, request, answer = expected[number % len(expected)]
                number += 7
                outcome = _outcome(client, path, request, answer)
                with lock:
                    seen[outcome] += 1

    clients = [threading.Thread(target=ask, args=(i,)) for i in range(o.clients)]
    for client in clients:
        client.start()
    heavy = ThreadPoolExecutor(1)
    if o.heavy:
        heavies = heavy.submit(lambda: asyncio.run(heavy_requests(url, end)))
    memory, replaced = [_resident(url)], 0
    while time.monotonic() < end:
        time.sleep(min(1.0, max(0.0, end - time.monotonic())))
        memory.append(_resident(url))
        due = o.swaps * (1 - (end - time.monotonic()) / o.seconds) + 0.5
        if replaced < min(o.swaps, int(due)):
            replaced += 1
            _replace(place, f"soaked {replaced} times")
            _wait_for_swaps(url, replaced, o.patience)
    for client in clients:
        client.join()
    if o.heavy:
        print(f"the heaviest request, every second: {heavies.result()}")
    heavy.shutdown()
    memory.append(_resident(url))
    return seen, memory


def _wait_for_swaps(url: str, count: int, patience: float) -> None:
    """Until the server has taken over so many models.

    Raises:
        SystemExit: it does not within `patience` seconds.
    """
    given_up = time.monotonic() + patience
    while _metric(url, 'rerank_model_swaps_total{outcome="swapped"}') < count:
        if time.monotonic() > given_up:
            raise SystemExit(f"the model was replaced {count} times, and not taken over")
        time.sleep(0.2)


def _outcome(client: httpx.Client, path: str, request: dict[str, object], expected: object) -> str:
    """`same`, or what was wrong."""
    try:
        answer = client.post(path, json=request)
    except httpx.HTTPError as error:
        return type(error).__name__
    if answer.status_code != 200:
        return f"status {answer.status_code}"
    found = answer.json()
    order = "ranking" if path == "/v1/search" else "results"
    key = "doc_id" if path == "/v1/search" else "index"
    return (
        "same" if [[r[key] for r in found[order]], found["confidence"]] == expected else "differs"
    )


def _resident(url: str) -> float:
    return _metric(url, "process_resident_memory_bytes")


def _metric(url: str, name: str) -> float:
    """A metric of the server; 0 where it has none of that name yet."""
    lines = httpx.get(f"{url}/metrics", timeout=600).text.splitlines()
    return next((float(s.rpartition(" ")[2]) for s in lines if s.startswith(f"{name} ")), 0.0)


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    """The address that the server writes when it listens."""
    while server.poll() is None:
        for line in log.read_text().splitlines():
            if '"event": "serving"' in line:
                return str(json.loads(line)["address"])
        time.sleep(0.1)
    raise SystemExit(f"the server did not start:\n{log.read_text()}")


def _replace(place: Path, note: str) -> None:
    """Put another model folder there that says the same: only a note in its manifest differs."""
    new = Path(shutil.copytree(place, place.with_name("new")))
    manifest = json.loads((new / "manifest.json").read_text())
    (new / "manifest.json").write_text(json.dumps(with_digest({**manifest, "note": note})))
    place.rename(place.with_name("old"))
    new.rename(place)
    shutil.rmtree(place.with_name("old"))


if __name__ == "__main__":
    sys.exit(main())
