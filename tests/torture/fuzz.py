"""Coverage-guided fuzzing of what reads bytes from outside: read, or refused with a sentence.

    pip install atheris && python tests/torture/fuzz.py --seconds 600

Each reader runs in a process of its own, from a few whole inputs and those of `corpus/` on.
Anything but `InputError` (of HTTP bodies pydantic's `ValidationError`), ten seconds for one input,
or two gigabytes of memory is a failure: the input is left in the present folder, as `crash-...`,
and the exit code is 1. Model folders have `model_folder.py`, and whole requests
tests/rerank/serving/test_middleware.py.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import atheris

watched = atheris.instrument_imports(include=["calibration", "rerank", "readers"])
with watched if "--inside" in sys.argv else nullcontext():  # the parent runs no reader
    from readers import READERS, read

CORPUS = Path(__file__).parent / "corpus"  # a folder a reader


def inside(name: str, seconds: int, seeds: Path) -> None:
    """Fuzz one reader in this process, which ends with it."""
    with tempfile.TemporaryDirectory() as place:

        def once(data: bytes) -> None:
            read(name, Path(place), data)

        limits = [f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048"]
        atheris.Setup([sys.argv[0], *limits, "-max_len=16384", str(seeds)], once)
        atheris.Fuzz()


def main() -> int:
    """Fuzz the readers one after another; prints how many inputs each was given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=int, default=600, help="of each reader")
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--seeds", type=Path, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.inside:
        inside(o.inside, o.seconds, o.seeds)
    failed = 0
    for name in o.readers:
        with tempfile.TemporaryDirectory() as seeds:
            for i, seed in enumerate(READERS[name][1]):
                (Path(seeds) / str(i)).write_bytes(seed)
            for path in sorted((CORPUS / name).glob("*")):
                shutil.copy(path, seeds)
            given = ["--inside", name, "--seconds", str(o.seconds), "--seeds", seeds]
            done = subprocess.run(
                [sys.executable, __file__, *given], stderr=subprocess.PIPE, text=True, check=False
            )
        runs = re.findall(r"^Done (\d+) runs", done.stderr, re.MULTILINE)
        if done.returncode or not runs:
            failed += 1
            print(f"{name}: FAILED\n{done.stderr[-3000:]}", flush=True)
        else:
            print(f"{name}: {int(runs[0]):,} inputs, read or refused", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
