"""Attacks on one server, while an honest client goes on asking it: is that one always answered?

    python tests/torture/attacks.py work/model --seconds 60

It starts `rerank serve` with a key, and attacks it in turn, each for `--seconds`: a thousand idle
connections, bodies that come a byte at a time, requests with a wrong key, and requests of as many
passages as one may bring. The honest client must get the answer of a quiet server every time, or
be told to come again (429, 503); the memory and the log must not grow without bounds. Wrong keys
that begin like the right one must take as long as others. The exit code is 1 where anything fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent.parent
KEY = secrets.token_hex(16)
ASKED = {"query": "median", "documents": ["The middle value of a sorted sample.", "A mean."]}
HEAVY = {"query": "median", "documents": ["The middle value of a sorted sample. " * 100] * 1000}
IDLE = 1000  # connections
SLOW = 200  # clients
GROWTH = 256 * 2**20  # bytes that the server may gain in all
LOGGED = 2**20  # bytes of warnings; the lines of requests are not counted

Attack = Callable[[str, float], Awaitable[str]]


async def idle_connections(url: str, end: float) -> str:
    """Open a thousand connections that ask nothing, and open those again that are closed."""
    host, port = _place(url)
    opened = 0

    async def hold() -> None:
        nonlocal opened
        while time.monotonic() < end:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(host, port)
                opened += 1
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), max(0.0, end - time.monotonic()))
                writer.close()
            await asyncio.sleep(0.1)

    await asyncio.gather(*(hold() for _ in range(IDLE)))
    return f"{opened} opened"


async def slow_bodies(url: str, end: float) -> str:
    """Send bodies a byte a second."""
    host, port = _place(url)
    heard: Counter[str] = Counter()
    head = (
        f"POST /v1/rerank HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    )

    async def drip() -> None:
        while time.monotonic() < end:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(head.encode())
                answer = asyncio.ensure_future(reader.readline())
                while not answer.done() and time.monotonic() < end:
                    writer.write(b" ")
                    await asyncio.wait([answer], timeout=1)
                heard[answer.result().decode()[9:12] if answer.done() else "none yet"] += 1
                answer.cancel()
                writer.close()

    await asyncio.gather(*(drip() for _ in range(SLOW)))
    return f"answers {dict(heard)}"


async def wrong_keys(url: str, end: float) -> str:
    """Try keys that begin like the right one and keys that do not, in turn, as fast as it goes."""
    times: dict[str, list[float]] = {"near": [], "far": []}
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        while time.monotonic() < end:
            for kind in random.sample(sorted(times), 2):
                key = KEY[:-1] + "!" if kind == "near" else "!" + KEY[1:]
                start = time.perf_counter()
                answer = await client.post(
                    "/v1/rerank", json=ASKED, headers={"Authorization": f"Bearer {key}"}
                )
                times[kind].append(time.perf_counter() - start)
                if answer.status_code != 401:
                    raise SystemExit(f"a wrong key was answered {answer.status_code}")
    near, far = (statistics.median(times[kind]) for kind in ("near", "far"))
    spread = statistics.median(abs(t - far) for t in times["far"])
    if abs(near - far) > spread:
        raise SystemExit(f"a nearly right key takes {near:.6f} s, others {far:.6f} s")
    return f"{2 * len(times['far'])} tried; a nearly right one took {near / far:.2f} of the others"


async def heavy_requests(url: str, end: float) -> str:
    """Send every second the heaviest request that the server takes, to a factor of two."""
    heard: Counter[int] = Counter()
    documents = HEAVY["documents"]
    async with httpx.AsyncClient(base_url=url, timeout=180, headers=_authorized()) as client:

        async def sent_of(count: int) -> int:
            body = {**HEAVY, "documents": documents[:count]}
            return (await client.post("/v1/rerank", json=body)).status_code

        count = len(documents)
        while count > 1 and await sent_of(count) == 413:
            count //= 2

        async def one() -> None:
            heard[await sent_of(count)] += 1

        sent = []
        while time.monotonic() < end:
            sent.append(asyncio.create_task(one()))
            await asyncio.sleep(1)
        await asyncio.gather(*sent)
    return f"{count} documents each, statuses {dict(heard)}"


ATTACKS: tuple[Attack, ...] = (idle_connections, slow_bodies, wrong_keys, heavy_requests)


async def witnessed(url: str, attack: Attack, seconds: float) -> bool:
    """Attack, and ask meanwhile; prints what became of both."""
    async with httpx.AsyncClient(base_url=url, timeout=600, headers=_authorized()) as client:
        expected = (await client.post("/v1/rerank", json=ASKED)).json()["results"]
        seen: Counter[str] = Counter()
        times: list[float] = []
        running = asyncio.ensure_future(attack(url, time.monotonic() + seconds))
        while not running.done():
            start = time.perf_counter()
            try:
                answer = await client.post("/v1/rerank", json=ASKED)
            except httpx.HTTPError as error:
                seen[type(error).__name__] += 1
                continue
            times.append(time.perf_counter() - start)
            if answer.status_code != 200:
                seen[str(answer.status_code)] += 1
            else:
                seen["same" if answer.json()["results"] == expected else "differs"] += 1
            await asyncio.sleep(0.05)
        said = await running
    print(
        f"{attack.__name__}: {said}; meanwhile {dict(seen)}, median {statistics.median(times):.3f} "
        f"s, at most {max(times):.3f} s",
        flush=True,
    )
    return set(seen) <= {"same", "429", "503"} and seen["same"] > 0


def main(arguments: list[str] | None = None) -> int:
    """Start one server, attack it, and read its memory and its log."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("model", type=Path)
    p.add_argument("--seconds", type=float, default=60.0, help="of each attack")
    o = p.parse_args(arguments)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4 * IDLE), most))
    command = [sys.executable, "-m", "rerank.cli", "serve", str(o.model), "--port", "0"]
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        server = subprocess.Popen(
            [*command, "--poll", "0"],
            stderr=log,
            env=os.environ | {"PYTHONPATH": str(ROOT), "RERANK_API_KEYS": KEY},
        )
        try:
            while not (line := Path(log.name).read_text()).endswith("\n"):
                if server.poll() is not None:
                    raise SystemExit("the server did not start")
                time.sleep(0.1)
            url = json.loads(line)["address"]
            before = _resident(url)
            fine = [asyncio.run(witnessed(url, attack, o.seconds)) for attack in ATTACKS]
            grown = _resident(url) - before
        finally:
            server.terminate()
            server.wait(120)
        lines = Path(log.name).read_text().splitlines()
    other = [line for line in lines if '"event": "request"' not in line]
    size = sum(map(len, other))
    print(
        f"memory {grown / 2**20:+.0f} MiB; {len(other)} lines of the log besides those of "
        f"{len(lines) - len(other)} requests, {size} bytes; exit code {server.returncode}"
    )
    if KEY in "".join(lines):
        raise SystemExit("the key stands in the log")
    return 0 if all(fine) and grown < GROWTH and size < LOGGED and not server.returncode else 1


def _place(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


def _authorized() -> dict[str, str]:
    return {"Authorization": f"Bearer {KEY}"}


def _resident(url: str) -> float:
    lines = httpx.get(f"{url}/metrics", headers=_authorized(), timeout=600).text.splitlines()
    name = "process_resident_memory_bytes "
    return next(float(s.rpartition(" ")[2]) for s in lines if s.startswith(name))


if __name__ == "__main__":
    sys.exit(main())
