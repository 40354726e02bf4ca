"""The job: read, score, keep the results, and give the finished files their names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from rerank.assessment.model import CalibratedReranker
from rerank.batch.checkpoint import (
    REJECTED,
    Checkpoint,
    CheckpointProgress,
    Convert,
    open_checkpoint,
)
from rerank.batch.input import Input, check_places, is_parquet, open_input
from rerank.batch.rows import QueryRow, RejectedRow, Row
from rerank.data.records import LONGEST_RECORD
from rerank.errors import InputError, RerankError, RetrieverError, check_one_of, optional
from rerank.progress import by_size, progress
from rerank.rooms import offered
from rerank.storage.files import package_version
from rerank.types import Assessment, Query

ENGINES = ("local", "ray")
MOST_ENDS = 2  # of the process, while it scored one row alone
ENDED_TWICE = "scoring this row ended the process twice"
PART_LENGTH = 2**21  # most characters scored together, except for a single longer row
MIN_LENGTH = 2**9  # shorter texts count as this many: a vector takes memory too
PREDICTION_FIELD = "ranking"  # a field of every prediction, and of no other file of this project


@dataclass(frozen=True, slots=True)
class RescoreSummary:
    """The result of a rescoring: rows answered, rows rejected, and the file that says why."""

    answered: int
    rejected: int
    side: Path  # the file of rejected rows, as in `rescore --json`
    resumed: int  # of these rows, those that an interrupted run had done


def rescore(
    model: CalibratedReranker,
    queries: Path,
    out: Path,
    *,
    strict: bool = False,
    restart: bool = False,
    engine: str = "local",
    actors: int | None = None,
) -> RescoreSummary:
    """Assess every row of a JSONL or Parquet file into `out`, JSONL or Parquet, in their order.

    A row is a query, `_id` and `query`, for the model's index; or one with `passages` of its own
    (see `rerank.data.records`). A row that cannot be scored is left out and listed in
    `OUT.rejected.jsonl`, one line each with `line`, `reason` and, if it has one, `_id`. With
    `strict` the first bad row is an error, raised before any row is scored.

    Both files appear when they are complete. If the run is killed at any moment, the same call
    resumes from what is in `.OUT.rescore`, with either engine; the files are then bit-identical to
    those of an uninterrupted run. `restart` discards work that was begun with another model, input
    or version; without it, such work is an error. A row at which the process ended twice, scored
    alone, is rejected. Memory is at most 512 MiB beside the model's own, however long the input.

    `engine` is `local`, or `ray` for a pool of `actors` (see `rerank.cluster`).

    Raises:
        InputError: the input is empty, cannot be read, or changes meanwhile; `out` is the input, is
            in no existing folder or in the model's, holds something else than predictions, or
            another run writes it; a bad row, with `strict`; there is no such `engine`, or no room
            for so many `actors`.
        OSError: the disk fails, is full, or read-only, or Ray fails; finished work is kept.
        RetrieverError: the model's search system does not answer; finished work is kept.
    """
    queries, out = Path(queries), Path(out)
    rejected_file = out.with_name(f"{out.name}.rejected.jsonl")
    check_one_of("`engine` (--engine)", engine, ENGINES)
    if engine == "local" and actors is not None:
        raise InputError("`actors` (--actors) are of Ray: give --engine ray, too")
    on_ray = None if engine == "local" else offered("rescoring on Ray")()
    convert = _converter(out, model)
    queries_in = open_input(queries, model.query_key)
    check_places(model.folder, queries, out, rejected_file)
    _check_replaceable(out, "predictions", PREDICTION_FIELD)
    _check_replaceable(rejected_file, "rejected rows", "reason")
    chunks = queries_in.chunks(0) if strict else ()
    for row in chain.from_iterable(chunk.rows for chunk in chunks):
        if isinstance(row, RejectedRow):
            raise InputError(_told(queries_in.path, row.to_dict()))
        try:
            model.check(row.query)
        except InputError as error:
            raise InputError(_told(queries_in.path, row.rejected(str(error)).to_dict())) from None
    header = {
        "model": model.files.sha256(),
        "input": f"{queries_in.identity.size} bytes, sha256 {queries_in.identity.sha256}",
        "version": package_version(),
    }
    with open_checkpoint(out, rejected_file, header, restart=restart) as checkpoint:
        resumed = checkpoint.state.answered + checkpoint.state.rejected
        try:
            if checkpoint.state.stage == "scoring":
                if on_ray:
                    results = on_ray(model, queries_in, checkpoint.state.line, actors=actors)
                else:
                    results = _score_locally(model, queries_in, checkpoint)
                _keep(results, queries_in, checkpoint, strict=strict)
            checkpoint.install(out, rejected_file, convert)
        except BaseException as error:
            if not isinstance(error, MemoryError):  # for any other, no row is to blame
                checkpoint.remove_note()
            if not isinstance(error, (OSError, MemoryError, RetrieverError)):
                raise
            kind = RetrieverError if isinstance(error, RetrieverError) else OSError
            why = "the memory is not enough" if isinstance(error, MemoryError) else error
            raise kind(
                f"{why}; {checkpoint.state.line} of {queries_in.total} rows are done and kept in "
                f"{checkpoint.folder}: run the same command again to resume"
            ) from error
        state = checkpoint.state
        return RescoreSummary(state.answered, state.rejected, rejected_file, resumed)


def _score_locally(
    model: CalibratedReranker, queries_in: Input, checkpoint: Checkpoint
) -> Iterator[tuple[int, ScoredChunk]]:
    for chunk in queries_in.chunks(checkpoint.state.line):
        if checkpoint.state.ended_at:
            yield chunk.end, _one_by_one(model, chunk.rows, checkpoint)
        else:
            checkpoint.note(0)
            yield chunk.end, score_chunk(model, chunk.rows)


def _one_by_one(
    model: CalibratedReranker, rows: Iterator[Row], checkpoint: Checkpoint
) -> ScoredChunk:
    """Score the rows of a chunk at which processes ended; a row that ended two is rejected."""
    scored = ScoredChunk(b"", b"", 0, 0)
    for number in count(1):
        checkpoint.note(number)  # before the row is decoded, so that no other is blamed for that
        row = next(rows, None)
        if row is None:
            break
        if checkpoint.state.ended_at.count(number) >= MOST_ENDS and isinstance(row, QueryRow):
            row = row.rejected(ENDED_TWICE)
        scored += score_chunk(model, [row])
    return scored


def _keep(
    results: Iterator[tuple[int, ScoredChunk]],
    queries_in: Input,
    checkpoint: Checkpoint,
    *,
    strict: bool,
) -> None:
    total, done = queries_in.total, checkpoint.state.line
    with progress(total, "rescoring queries", unit="query", done=done) as bar:
        for end, scored in results:
            queries_in.check()
            before = checkpoint.state
            if strict and scored.rejections:
                first = scored.rejections.splitlines()[0]
                raise InputError(_told(queries_in.path, json.loads(first)))
            if strict and before.rejected:
                raise InputError(
                    f"{queries_in.path}: {before.rejected} rows were rejected earlier, see "
                    f"{checkpoint.folder / REJECTED}; correct them, and run again with --restart"
                )
            after = CheckpointProgress(
                line=end,
                answered=before.answered + scored.answered,
                rejected=before.rejected + scored.rejected,
            )
            checkpoint.append(after, scored.predictions, scored.rejections)
            bar.update(end - before.line)
        queries_in.check()
    assert checkpoint.state.line == total
    checkpoint.scored()


def _told(path: Path, row: Mapping[str, Any]) -> str:
    line = row.get("line_in_part", row["line"])
    return f"{path / row.get('part', '')}:{line}: {row['reason']}"


def _check_replaceable(out: Path, holds: str, field: str) -> None:
    """Refuse to replace a file that is not empty and holds something else."""
    if not out.exists() or not out.stat().st_size:
        return
    if is_parquet(out):
        from rerank.batch.parquet import has_column

        ours = has_column(out, field)
    else:
        with out.open("rb") as file:
            ours = f'"{field}":'.encode() in file.readline(LONGEST_RECORD)
    if not ours:
        raise InputError(f"{out} exists and holds no {holds}; move it away, or give another --out")


def _converter(out: Path, model: CalibratedReranker) -> Convert | None:
    """What converts the checkpoint's lines to the output format; None if that is these lines."""
    if not is_parquet(out):
        return None
    with optional():  # fail before the hours that scoring may take
        from rerank.batch.parquet import write_parquet

    def convert(lines: Path, parquet: Path) -> None:
        with lines.open("rb") as file:
            kinds = {"other_stages": bool(model.source.kind.stages)}
            write_parquet(file, parquet, two_models=model.second is not None, **kinds)

    return convert


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    """Lines of predictions and of rejected rows, in the order of the input, and their counts."""

    predictions: bytes
    rejections: bytes
    answered: int
    rejected: int

    def __add__(self, later: ScoredChunk) -> ScoredChunk:
        return ScoredChunk(*(getattr(self, n) + getattr(later, n) for n in self.__slots__))


def score_chunk(model: CalibratedReranker, rows: Iterable[Row]) -> ScoredChunk:
    """The lines of a chunk. A row on which the model fails is rejected.

    Raises:
        OSError, MemoryError, RetrieverError: the machine fails, or a search system does.
        Exception: what the model raises, if it fails on a plain question too.
    """
    by_line: dict[int, bytes | RejectedRow] = {}

    def readable() -> Iterator[QueryRow]:
        for row in rows:
            if isinstance(row, QueryRow):
                yield row
            else:
                by_line[row.line] = row

    for batch in by_size(readable(), lambda row: _length(row.query), PART_LENGTH):
        results = model.assess_each([row.query for row in batch])
        for row, result in zip(batch, results, strict=True):
            if isinstance(result, Assessment):
                by_line[row.line] = _to_line(result.to_dict())
            else:
                by_line[row.line] = _rejected(model, row, result)
    in_order = [by_line[line] for line in sorted(by_line)]
    answers = [line for line in in_order if isinstance(line, bytes)]
    rejections = [_to_line(row.to_dict()) for row in in_order if isinstance(row, RejectedRow)]
    return ScoredChunk(b"".join(answers), b"".join(rejections), len(answers), len(rejections))


def _length(query: Query) -> int:
    """Characters that the models process: the query, and the query again with each passage."""
    texts = [query.text, *(query.text + passage.full_text for passage in query.passages or ())]
    return sum(max(len(text), MIN_LENGTH) for text in texts)


def _rejected(model: CalibratedReranker, row: QueryRow, error: Exception) -> RejectedRow:
    """The row as a rejected one, if the row is the cause, not the machine or the model."""
    if isinstance(error, (OSError, MemoryError, RetrieverError)):
        raise error
    mode = model.mode_of(row.query)
    model.assess([probe for probe in model.probes() if model.mode_of(probe) == mode])
    kind = "" if isinstance(error, RerankError) else f"{type(error).__name__}: "
    return row.rejected(f"cannot be scored ({kind}{str(error)[:200]})")


def _to_line(value: dict[str, Any]) -> bytes:
    return f"{json.dumps(value, ensure_ascii=False, allow_nan=False)}\n".encode()
