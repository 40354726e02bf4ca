"""Rescoring on Ray Data: actors that each load the model once, and find it and the input under the
same paths. The cluster is that of RAY_ADDRESS, or Ray is started on this machine for this job.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import GIVEN
from rerank.batch.input import FileIdentity, Input, open_input
from rerank.batch.job import ScoredChunk, score_chunk
from rerank.cluster.ray_process import guarded, ray_module
from rerank.errors import InputError, RetrieverError, optional
from rerank.process import CORES, cores

if TYPE_CHECKING:
    import pyarrow as pa

ACTOR_CORES = 4  # cores of an actor, unless the number of actors or GPUs decides
SPARE = 0.5  # share of its last core that an actor leaves to Ray, which hangs without any
MAX_BLOCKS = 10_000  # of the table of chunks: Ray plans each one
CAUSES = (InputError, RetrieverError)  # errors of an actor that are raised unchanged


def scoring() -> Any:
    """The function `on_ray`, if Ray is installed."""
    with optional():
        ray_module()
    return on_ray


def on_ray(
    model: CalibratedReranker, queries_in: Input, start: int, *, actors: int | None = None
) -> Iterator[tuple[int, ScoredChunk]]:
    """The end and the result of each chunk after `start` rows, in order.

    Memory: one chunk, and 8 bytes per chunk of the input.
    """
    import pyarrow as pa

    places = np.fromiter(queries_in.starts(start), dtype=np.int64)
    if not len(places):
        return
    if GIVEN in model.manifest:
        model.__reduce__()  # raises: an object is not sent to other processes
    with _ray(actors) as ray:
        on_gpus = model.pipeline.config.precision == "bf16"
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        reserved = _pool(machines, actors, len(places), on_gpus=on_gpus)
        count, threads = reserved.pop("actors"), reserved.pop("threads")
        table, count_of_blocks = pa.table({"start": places}), min(len(places), MAX_BLOCKS)
        ends = np.linspace(0, len(places), count_of_blocks + 1).astype(int).tolist()
        blocks = [table.slice(a, b - a) for a, b in pairwise(ends)]
        paths = model.folder.resolve(), queries_in.path.resolve()
        scored = ray.data.from_arrow(blocks).map_batches(
            _Actor,
            fn_constructor_args=(*paths, queries_in.identity),
            fn_constructor_kwargs={"threads": threads, "manifest_sha256": model.files.sha256()},
            batch_size=1,
            batch_format="pyarrow",
            zero_copy_batch=True,
            compute=ray.data.ActorPoolStrategy(size=count),
            **reserved,
        )
        due = start  # early chunks wait for those before
        waiting: dict[int, dict[str, Any]] = {}
        try:
            for batch in scored.iter_batches(batch_size=None, batch_format="pyarrow"):
                waiting |= {row.pop("start"): row for row in batch.to_pylist()}
                while (row := waiting.pop(due, None)) is not None:
                    due = row.pop("end")
                    yield due, ScoredChunk(**row)
        except ray.exceptions.RayError as error:
            raise _plain(error) from None


class _Actor:
    """A process of the pool: the model, loaded once, and the open input."""

    def __init__(
        self,
        model: Path,
        queries: Path,
        identity: FileIdentity,
        *,
        threads: int,
        manifest_sha256: str,
    ) -> None:
        os.environ[CORES] = str(threads)
        self._model = CalibratedReranker.load(model, manifest_sha256=manifest_sha256)
        self._input = open_input(queries, self._model.query_key, identity)

    def __call__(self, places: pa.Table) -> pa.Table:
        import pyarrow as pa

        schema = [(name, pa.int64()) for name in ("start", "end", "answered", "rejected")]
        schema += [(name, pa.large_binary()) for name in ("predictions", "rejections")]
        rows = []
        for start in places["start"].to_pylist():
            chunk = self._input.at(start)
            scored = score_chunk(self._model, chunk.rows)
            self._input.check()
            rows.append({"start": start, "end": chunk.end, **asdict(scored)})
        return pa.Table.from_pylist(rows, schema=pa.schema(schema))


def _pool(
    machines: Sequence[Mapping[str, float]], actors: int | None, chunks: int, *, on_gpus: bool
) -> dict[str, Any]:
    """How many actors, the threads of each, and what each reserves of a machine's resources.

    `on_gpus`: the model runs on GPUs, if there are any: one actor per GPU, or `actors` that share
    them evenly. An actor gets as many threads as leave room for all.
    """
    with_gpus = [m for m in machines if on_gpus and m.get("GPU")]
    hosts = with_gpus or machines
    gpus = int(sum(m["GPU"] for m in with_gpus))
    total = int(sum(m.get("CPU", 0) for m in machines))
    largest = int(max(m.get("CPU", 0) for m in hosts))
    most_actors = min(actors or gpus or max(1, total // ACTOR_CORES), chunks)
    for count in (most_actors,) if actors else range(most_actors, 0, -1):
        per_gpu = ceil(count / gpus) if gpus else 0
        for threads in range(max(1, min(total // count, largest)), 0, -1):
            reserved = threads - 1 if threads > 1 else SPARE
            room = 0
            for machine in hosts:
                by_cores = int(machine.get("CPU", 0) / (threads if threads > 1 else SPARE))
                by_gpus = int(machine["GPU"]) * per_gpu if per_gpu else by_cores
                room += min(by_cores, by_gpus)
            if room >= count and reserved * count < total:
                pool = {"threads": threads, "num_cpus": reserved, "actors": count}
                return pool | ({"num_gpus": 1 / per_gpu} if gpus else {})
    raise InputError(
        f"{most_actors} actors need more than the {total} cores that Ray has; give fewer"
    )


def _plain(error: Exception) -> Exception:
    """The error of an actor, if it is one of `CAUSES`; else an OSError that Ray failed."""
    last_line = (str(error).strip() or type(error).__name__).splitlines()[-1]
    for cause in CAUSES:  # Ray shows the class and the message
        _, named, sentence = last_line.rpartition(f"{cause.__module__}.{cause.__qualname__}: ")
        if named:
            return cause(sentence)
    return OSError(f"Ray failed ({last_line})")


@contextmanager
def _ray(actors: int | None) -> Iterator[Any]:
    """Ray, connected; shut down afterwards, unless it was running before.

    If it is started here, it listens on the loopback address only, and ends with this process. Ray
    Data shows no progress bars, and gives its results in order.
    """
    ray, address = ray_module(), os.environ.get("RAY_ADDRESS")
    with ExitStack() as stack:
        if not ray.is_initialized():
            options: dict[str, Any] = {"address": address}
            if not address:
                options = {"address": "local", "_temp_dir": stack.enter_context(guarded())}
                options |= {"num_cpus": max(cores(), actors or 1), "include_dashboard": False}
            stack.callback(ray.shutdown)
            try:
                ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
            except Exception as error:  # of any type, as when a busy machine starts it too late
                raise OSError(f"Ray does not start: {error}") from error
        logging.getLogger("ray.data").setLevel(logging.ERROR)  # it would log every step
        data = ray.data.DataContext.get_current()
        for owner, name, value in (
            (data, "enable_progress_bars", False),
            (data.execution_options, "preserve_order", True),
        ):
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield ray
