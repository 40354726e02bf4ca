"""Parquet bombs: small files that unpack to much, whole and broken, under a limit of memory.

    python tests/torture/parquet.py --seconds 600

Each file is made by chance (rows, sizes, compression, dictionaries, lists), half of them are then
broken in a few bytes, and read as `rescore` reads its input, in a process that may have `--memory`
MiB of address space. It must be read, or refused with a sentence: a process that is killed, fails
otherwise or takes a minute for one file is a failure, and the exit code is 1. Prints the counts.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rerank.batch.input import open_input
from rerank.errors import InputError

EACH = 10  # files that one process reads
PATIENCE = 60.0  # seconds for a file


def bomb(rng: random.Random) -> bytes:
    """A Parquet file of few bytes and many values, which are mostly equal."""
    rows = rng.choice((1, 16, 256, 4096))
    size = rng.choice((1, 1_000, 100_000, 2**20, 2**23))
    texts = pa.array(["a" * size, "b"])
    places = pa.array([0] * rows, pa.int32())
    columns = {
        "_id": pa.array([str(i) for i in range(rows)]),
        "text": pa.DictionaryArray.from_arrays(places, texts),
    }
    if rng.random() < 0.5:
        columns["passages"] = pa.array([["c" * rng.choice((1, 10_000))] * 8] * min(rows, 256))
        columns = {name: column[: min(rows, 256)] for name, column in columns.items()}
    out = io.BytesIO()
    compression = rng.choice(("none", "snappy", "gzip", "zstd", "brotli", "lz4"))
    pq.write_table(pa.table(columns), out, compression=compression)
    content = bytearray(out.getvalue())
    if rng.random() < 0.5:
        for _ in range(rng.randint(1, 8)):  # mostly in the footer, which says how large all is
            place = int(len(content) * (1 - rng.random() ** 3))
            content[min(place, len(content) - 1)] = rng.randrange(256)
    return bytes(content)


def inside(seed: int, memory: int) -> None:
    """Read some files in this process; prints what came of them."""
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "bomb.parquet"
        rng = random.Random(seed)
        files = [bomb(rng) for _ in range(EACH)]
        resource.setrlimit(resource.RLIMIT_AS, (memory * 2**20,) * 2)
        for number, content in enumerate(files):
            path.write_bytes(content)
            print(json.dumps({"reads": number, "bytes": len(content)}), flush=True)
            start = time.monotonic()
            try:
                for chunk in open_input(path).chunks(0):
                    list(chunk.rows)
                seen["read"] += 1
            except InputError as error:
                seen["refused" if str(error) else "refused without a sentence"] += 1
            if time.monotonic() - start > PATIENCE:
                seen["slow"] += 1
    print(json.dumps(seen), flush=True)


def main() -> int:
    """Read files in one process after another; prints how many there were."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--seconds", type=float, default=600.0)
    p.add_argument("--memory", type=int, default=3072, help="MiB of address space")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.inside:
        inside(o.seed, o.memory)
        return 0
    end, seen, seed = time.monotonic() + o.seconds, Counter[str](), o.seed
    while time.monotonic() < end:
        command = [sys.executable, __file__, "--inside", "--seed", str(seed)]
        done = subprocess.run(
            [*command, "--memory", str(o.memory)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            seen["died"] += 1
            print(f"seed {seed}: {done.returncode}\n{done.stdout[-200:]}{done.stderr[-2000:]}")
        else:
            seen.update(json.loads(done.stdout.splitlines()[-1]))
        seed += 1
    print(f"{sum(seen.values()):,} files under {o.memory} MiB: {dict(seen)}")
    return 1 if set(seen) - {"read", "refused"} else 0


if __name__ == "__main__":
    sys.exit(main())
