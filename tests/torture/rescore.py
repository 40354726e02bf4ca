"""SIGKILL at any point of `rescore`: the finished files are those of a run that was left alone.

    python tests/torture/rescore.py work/model datasets/pydata/queries.jsonl --kills 300

Runs are forked from a process that holds the model, and die at a random moment, before a random
line of rerank/batch, or in the middle of a write; each is then started again until one finishes.
After each death, what stands under a final name must be whole.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rerank.assessment.model import CalibratedReranker
from rerank.batch import parquet, rows
from rerank.batch.job import rescore
from rerank.inference.score_cache import ScoreCache

OLDER_SIDE = b'{"line": 1, "reason": "of an older run"}\n'
Files = tuple[bytes | None, bytes | None]  # the output and its side file
CODE = str(Path(rows.__file__).parent)
CHUNK = 4  # rows, so that a short file has many chunks
BAD = [
    b'{"_id": "torn", "text": "no end',
    b'{"_id": 7, "text": ""}',
    b"\xff\xfe",
    b"[]",
    b'{"text": "no id"}',
    b'{"_id": "' + b"x" * 600 + b'", "text": "long id"}',
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill and compare; 0 where nothing differed."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("model", type=Path)
    p.add_argument("queries", type=Path)
    p.add_argument("--kills", type=int, default=300)
    p.add_argument("--rows", type=int, default=24)
    p.add_argument("--seed", type=int, default=0)
    o = p.parse_args(arguments)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    rows.CHUNK_ROWS = parquet.CHUNK_ROWS = CHUNK  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        return torture(o, Path(folder), random.Random(o.seed))


def older_parquet() -> bytes:
    """A file of predictions without any."""
    file = io.BytesIO()
    pq.write_table(pa.table({"ranking": pa.array([], pa.list_(pa.string()))}), file)
    return file.getvalue()


OLDER = {"jsonl": b'{"query_id": "1", "ranking": []}\n', "parquet": older_parquet()}


def torture(o: argparse.Namespace, folder: Path, draw: random.Random) -> int:
    """The whole of it in `folder`."""
    inputs = write_inputs(o.queries, o.rows, folder)
    model = CalibratedReranker.load(o.model, cache=ScoreCache(folder / "scores.sqlite"))
    remember(model)
    expected: dict[tuple[str, str], Files] = {}
    took: dict[tuple[str, str], float] = {}
    for given in inputs:
        for ending in ("jsonl", "parquet"):
            pair = given.suffix, ending
            place = new_place(folder)
            rescore(model, given, place / f"out.{ending}")  # here, so that all is remembered
            expected[pair] = found(place / f"out.{ending}")
            shutil.rmtree(place)
            begun = time.monotonic()
            assert run(model, given, place / f"out.{ending}", place.mkdir) == 0
            took[pair] = time.monotonic() - begun
            shutil.rmtree(place)
    wrong, kills, lives = 0, Counter[str](), 0
    while kills.total() < o.kills:
        given, ending = draw.choice(inputs), draw.choice(["jsonl", "parquet"])
        pair = given.suffix, ending
        place = new_place(folder)
        out = place / f"out.{ending}"
        older = draw.random() < 0.3
        before: Files = (OLDER[ending], OLDER_SIDE) if older else (None, None)
        if older:
            out.write_bytes(OLDER[ending])
            Path(f"{out}.rejected.jsonl").write_bytes(OLDER_SIDE)
        for _ in range(draw.choice([1, 1, 2, 5])):
            how, arm, wait = weapon(draw, took[pair])
            status = run(model, given, out, arm, wait=wait)
            if status == 0:
                break
            assert status == -signal.SIGKILL, status
            kills[how] += 1
            for now, old, new in zip(found(out), before, expected[pair], strict=True):
                if now not in (old, new):
                    wrong += 1
                    print(f"half a file after {how}, {pair}", file=sys.stderr)
        lives += 1
        status = run(model, given, out, lambda: None)
        left = {p.name for p in place.iterdir()} - {out.name, f"{out.name}.rejected.jsonl"}
        if status or left or found(out) != expected[pair]:
            wrong += 1
            print(f"differs: {pair}, exit {status}, left {left}", file=sys.stderr)
        shutil.rmtree(place)
    named = ", ".join(f"{count} {how}" for how, count in sorted(kills.items()))
    print(f"{kills.total()} kills ({named}) of {lives} rescorings: {wrong} wrong")
    return 1 if wrong else 0


def remember(model: CalibratedReranker) -> None:
    """Keep the vectors of texts, as scores are kept: hundreds of runs ask the same."""
    encode, kept = model.pipeline.encoder.encode, dict[str, Any]()

    def remembering(texts: Sequence[str]) -> Any:
        new = [text for text in texts if text not in kept]
        kept.update(zip(new, encode(new) if new else (), strict=True))
        return np.stack([kept[text] for text in texts])

    model.pipeline.encoder.encode = remembering  # type: ignore[assignment]


def weapon(draw: random.Random, took: float) -> tuple[str, Callable[[], None], float | None]:
    """How a run dies: its name, what arms it, and after how many seconds it is killed."""
    kind = draw.choice(["at a moment", "before a line", "in a write"])
    if kind == "at a moment":
        return kind, lambda: None, draw.uniform(0, took)
    count = draw.randint(1, 900) if kind == "before a line" else draw.randint(1, 30)
    share = draw.random()
    return (
        kind,
        (lambda: die_at_line(count))
        if kind == "before a line"
        else (lambda: die_in_write(count, share)),
        None,
    )


def die_at_line(count: int) -> None:
    """Die before the `count`-th line of rerank/batch, those that decode and score rows aside."""
    left = count

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        name, function = frame.f_code.co_filename, frame.f_code.co_qualname
        aside = name.endswith("rows.py") or function.startswith(("score_chunk", "_length"))
        if not name.startswith(CODE) or aside:
            return None
        if event == "line":
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def die_in_write(count: int, share: float) -> None:
    """Die in the `count`-th write of the checkpoint, when a share of it is written."""
    left, write = count, os.write

    def torn(handle: int, data: Any) -> int:
        nonlocal left
        left -= 1
        if left <= 0:
            write(handle, bytes(data)[: int(share * len(data))])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(handle, data)

    os.write = torn


def run(
    model: CalibratedReranker,
    given: Path,
    out: Path,
    arm: Callable[[], None],
    *,
    wait: float | None = None,
) -> int:
    """Rescore in a fork; its exit code, or the signal that it died of, below 0."""
    child = os.fork()
    if not child:
        try:
            sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
            arm()
            rescore(model, given, out)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.__stderr__)
            os._exit(1)
    if wait is not None:
        time.sleep(wait)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def write_inputs(queries: Path, rows: int, folder: Path) -> list[Path]:
    """The same queries as JSONL, bad lines and own passages among them, and as Parquet."""
    lines = queries.read_bytes().splitlines()[:rows]
    asked = [json.loads(line) for line in lines]
    for i, row in enumerate(asked):
        if i % 5 == 4:
            row["passages"] = [{"_id": str(k), "text": q["text"]} for k, q in enumerate(asked[:4])]
    given = [json.dumps(row).encode() for row in asked]
    for i, line in enumerate(BAD):
        given.insert(i * len(given) // len(BAD), line)
    (folder / "queries.jsonl").write_bytes(b"\n".join(given) + b"\n")
    columns: dict[str, list[Any]] = {
        "_id": [row["_id"] for row in asked],
        "text": [None if i % 9 == 3 else row["text"] for i, row in enumerate(asked)],
        "passages": [row.get("passages") for row in asked],
    }
    pq.write_table(pa.table(columns), folder / "queries.parquet", row_group_size=20)
    return [folder / "queries.jsonl", folder / "queries.parquet"]


def new_place(folder: Path) -> Path:
    """An empty folder for one output."""
    return Path(tempfile.mkdtemp(dir=folder))


def found(out: Path) -> Files:
    """What stands under both names."""
    side = Path(f"{out}.rejected.jsonl")
    return tuple(p.read_bytes() if p.exists() else None for p in (out, side))  # type: ignore[return-value]


if __name__ == "__main__":
    sys.exit(main())
