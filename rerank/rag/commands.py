"""`rerank answer`: one question, or a file of them, which is resumed if it was interrupted."""

from __future__ import annotations

import hashlib
import json as json_lines
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rerank.advice.settings import AnswerConfig
from rerank.commands import options
from rerank.commands.command import REJECTED, Instead, Only, Typed, command, named_by_flags
from rerank.commands.printing import note, print_json, printable
from rerank.config import ON_RERANKER_ERROR, Thresholds, two_digits
from rerank.data.checks import to_json
from rerank.data.lines import Problems
from rerank.data.records import query_row
from rerank.errors import EndpointError, FolderError, InputError
from rerank.progress import progress
from rerank.protocols import Record, unrecorded
from rerank.serving.settings import Settings
from rerank.storage.files import package_version

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.types import Query

NO_TEXT = "the passages have no text to answer from"
FORMAT = 4  # of the unfinished work


@command('work/model "median along an axis while ignoring NaNs"', resumes=True, networks=True)
def answer(
    chosen: options.ModelChoice,
    query: str | None = None,
    *,
    config: AnswerConfig,
    thresholds: Annotated[dict[str, Any], Instead(Thresholds, "the model's")],
    settings: Annotated[Settings, Only(("journal", "journal_without_text"))],
    typed: Typed,
    queries: Path | None = None,
    segment: options.Segment = "",
    where: options.Filter = "",
    entities: options.Entities = "",
    on_reranker_error: options.OnRerankerError = ON_RERANKER_ERROR[0],
    out: Path | None = None,
    overwrite: options.Overwrite = False,
    restart: options.Restart = False,
    json: options.Json = False,
) -> int:
    """Answer from the sources alone, or refuse; exit code 3: the language model failed.

    Args:
        query: question in plain words
        queries: JSONL of _id and query, and of passages where a query brings its own, instead of
            QUERY
        out: JSONL to write, with --queries: one answer per line
    """
    from rerank.rag.answer.answering import answer as answers

    if (query is None) == (queries is None):
        raise InputError("expected a QUERY, or a file of them with --queries")
    if (queries is None) != (out is None):
        raise InputError("--queries and --out go together")
    if queries is None:
        typed.refuse("only with --out", "overwrite", "restart")
    else:
        typed.refuse(
            "only with QUERY; a row of a file names it in its metadata", "segment", "entities"
        )
        typed.refuse("only with QUERY; a row of a file has it as `filter`", "where")
    rows = _read(queries, chosen.model, out) if queries and out else None
    with options.journal_kept(settings) as record:
        model = chosen.load_once(on_reranker_error)
        with named_by_flags():
            t = replace(model.pipeline.config.thresholds, **thresholds)
        if rows is not None and out:
            kept = {"overwrite": overwrite, "restart": restart}
            done = answer_file(model, rows, out, config, thresholds=t, record=record, **kept)
            if json:
                print_json(out=out, **asdict(done))
            else:
                if done.resumed:
                    print(f"{done.resumed} of the answers were made before an interruption")
                print(f"{out}: {done.answers} answers")
            if done.failed:
                note(f"{done.failed} of them hold an error: the language model gave no answer")
            return REJECTED if done.failed else 0
        asked = options.typed_queries(model, [query or ""], segment, where, entities)
        (found,) = answers(model, asked, config, thresholds=t, record=record)
        if found.error:
            raise EndpointError(found.error)
        if json:
            print_json(**found.to_dict())
            return 0
        print(printable(found.text()))
        if not found.refused and found.sufficiency is not None:
            verdict = found.verdict if found.calibrated else f"{found.verdict} (not calibrated)"
            shown = two_digits(found.sufficiency)
            print(f"\nSufficiency, P(a source holds the answer): {shown} {verdict}")
    return 0


def _read(queries: Path, model: Path, out: Path) -> Any:
    from rerank.batch.input import check_places
    from rerank.data.beir import read_queries
    from rerank.data.lines import JSONL, ending

    if ending(out) not in (*JSONL, ""):
        raise InputError(f"{out}: expected a name that ends with .jsonl")
    rows = read_queries(queries, passages=True)
    check_places(model, queries, out)
    return rows


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
    from rerank.batch.checkpoint import PREDICTIONS, CheckpointProgress, open_checkpoint
    from rerank.rag.answer.answering import answer as answers_to

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
            failed = {row for row, line in made_before.items() if "error" in json_lines.loads(line)}
            left = [r for r in range(len(queries)) if r in failed or r not in made_before]
            resumed = len(queries) - len(left)
            asked = [queries[row] for row in left]
            answers = answers_to(model, asked, config, thresholds=thresholds, record=record)
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
