"""Answers to many questions, one JSON object per line; if interrupted, the same call resumes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rerank.advice.settings import AnswerConfig
from rerank.assessment.model import CalibratedReranker
from rerank.batch.checkpoint import PREDICTIONS, CheckpointProgress, open_checkpoint
from rerank.config import Thresholds
from rerank.data.checks import to_json
from rerank.data.lines import Problems
from rerank.data.records import query_row
from rerank.errors import FolderError, InputError
from rerank.progress import progress
from rerank.protocols import Record, unrecorded
from rerank.rag.answer.answering import answer
from rerank.storage.files import package_version
from rerank.types import Query

NO_TEXT = "the passages have no text to answer from"
FORMAT = 4  # of the unfinished work


@dataclass(frozen=True, slots=True)
class AnswerFileSummary:
    """Answers written, those with an error of the language model, and those made before."""

    answers: int
    failed: int
    resumed: int


def answer_file(
    model: CalibratedReranker,
    queries: Sequence[Query],
    out: Path,
    config: AnswerConfig = AnswerConfig(),
    *,
    thresholds: Thresholds | None = None,
    overwrite: bool = False,
    restart: bool = False,
    record: Record = unrecorded,
) -> AnswerFileSummary:
    """Answer each query into a line of `out`, in their order.

    A query that brings passages is answered from these, any other from the model's index. The file
    appears when it is complete. If the run is killed, the same call resumes from what is in
    `.OUT.answer`, and tries those again on which the language model failed. `restart` discards work
    that was begun with another model, configuration, version or other queries.
    """
    if out.exists() and not overwrite:
        raise FolderError(f"{out} exists; pass --overwrite to replace it")
    problems = Problems()  # told before a language model is paid for an answer
    for number, query in enumerate(queries, start=1):
        try:
            model.check(query)
            if query.passages and not any(p.full_text.strip() for p in query.passages):
                raise InputError(NO_TEXT)
        except InputError as error:
            problems.add(f"query {number}, {query.query_id!r:.80}", str(error))
    problems.raise_if_any("queries that this model cannot answer")
    header = {
        "format": FORMAT,
        "model": model.files.sha256(),
        "input": _digest([query_row(q) for q in queries]),
        # only its digest: the URL may have a password
        "configuration": _digest(
            [asdict(config), config.language_model.prompt, thresholds and asdict(thresholds)]
        ),
        "version": package_version(),
    }
    with open_checkpoint(out, None, header, restart=restart, kind="answer") as checkpoint:
        resumed = checkpoint.state.line
        if checkpoint.state.stage == "scoring":
            made_before = _newest(checkpoint.folder / PREDICTIONS)
            failed = {row for row, line in made_before.items() if "error" in json.loads(line)}
            left = [r for r in range(len(queries)) if r in failed or r not in made_before]
            resumed = len(queries) - len(left)
            asked = [queries[row] for row in left]
            answers = answer(model, asked, config, thresholds=thresholds, record=record)
            with progress(len(queries), "answering", unit="query", done=resumed) as bar:
                for row, made in zip(left, answers, strict=True):
                    before, again, no_answer = checkpoint.state, row in failed, bool(made.error)
                    after = CheckpointProgress(
                        line=before.line + (not again),  # else it replaces one that failed
                        answered=before.answered + (not no_answer),
                        rejected=before.rejected + no_answer - again,
                    )
                    checkpoint.append(after, f"{row}\t{to_json(made.to_dict())}\n".encode(), b"")
                    bar.update()
            checkpoint.scored()
        checkpoint.install(out, None, _write_in_order)
        return AnswerFileSummary(checkpoint.state.line, checkpoint.state.rejected, resumed)


def _newest(work: Path) -> dict[int, bytes]:
    """The last line of each query in the unfinished work, by the query's place, without it."""
    with work.open("rb") as lines:
        return {int(row): line for row, line in (one.split(b"\t", 1) for one in lines)}


def _write_in_order(work: Path, out: Path) -> None:
    with out.open("wb") as file:
        file.writelines(line for _, line in sorted(_newest(work).items()))


def _digest(value: object) -> str:
    return hashlib.sha256(to_json(value).encode()).hexdigest()
