"""`rerank answer`."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from rerank.advice.settings import AnswerConfig
from rerank.commands import options
from rerank.commands.command import REJECTED, Instead, Only, Typed, command, named_by_flags
from rerank.commands.printing import note, print_json, printable
from rerank.config import ON_RERANKER_ERROR, Thresholds, two_digits
from rerank.errors import EndpointError, InputError
from rerank.serving.settings import Settings


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
        queries: JSONL file of questions, instead of QUERY: _id, query and, optionally, the passages
            to answer from
        out: JSONL to write, with --queries: one answer per line
    """
    from rerank.rag.answer.answering import answer as answers
    from rerank.rag.answer_file import answer_file

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
