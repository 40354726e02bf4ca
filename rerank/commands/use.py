"""`rerank search`, `rescore` and `serve`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rerank.advice.settings import AnswerConfig, Strategy
from rerank.commands import options
from rerank.commands.command import REJECTED, Only, Typed, command, named_by_flags
from rerank.commands.printing import counted, print_json, print_passages, tell
from rerank.config import ON_RERANKER_ERROR, Option, two_digits
from rerank.errors import InputError
from rerank.inference.remote.client import METER, Budget
from rerank.rooms import offered
from rerank.serving.settings import Settings

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.types import Assessment


SHOWN = 3  # passages that are printed
OF_ANSWERS = (  # that a server gives
    *("min_score", "min_chunks", "llm", "llm_model", "llm_timeout", "llm_retries"),
    *("llm_max_tokens", "llm_prompt", "no_answer"),
)
STOPPED = {  # by the reason of a result
    "threshold": "they are enough",
    "max_k": "the most that are allowed (--max-k)",
    "least_gain": "the next ones would add too little (--least-gain)",
    "no_more": "there are no more",
    "no_results": "none is similar enough to the question (--similarity-floor)",
    "no_passages": "no passage was found",
}
HOW_MANY = ("strategy", "strategies", "guaranteed", "second_tries")
Answer = tuple[dict[str, Any], Callable[[], None]]  # the fields of its JSON, and what prints it


@command('work/model "median along an axis while ignoring NaNs"', networks=True)
def search(
    chosen: options.ModelChoice,
    queries: Annotated[tuple[str, ...], Option(metavar="QUERY")],
    settings: Annotated[Settings, Only(("journal", "journal_without_text"))],
    numbers: Strategy,
    typed: Typed,
    *,
    explain: bool = False,
    passages: bool = False,
    strategy: Annotated[str, Option(metavar="NAME")] = "",
    strategies: Path | None = None,
    guaranteed: bool = False,
    second_tries: bool = False,
    segment: options.Segment = "",
    where: options.Filter = "",
    entities: options.Entities = "",
    on_reranker_error: options.OnRerankerError = ON_RERANKER_ERROR[0],
    json: options.JsonLines = False,
) -> None:
    """Answer queries with passages and a confidence each.

    Args:
        queries: questions in plain words
        explain: explain the confidence: each signal, what it changed, and what to do
        passages: return as many passages as each query needs, with their texts
        strategy: with --passages: kind of task, such as debugging, whose settings are read from a
            file of strategies
        strategies: TOML file of strategies (default: the bundled one)
        guaranteed: with --passages: as few as possible, so that at most one question in twenty
            loses an answer among the first ten passages, with 95% confidence
        second_tries: with --passages: if the answer is not accepted, also search with words from
            its best passages
    """
    if explain and passages:
        raise InputError("--explain and --passages: one of them at a time")
    if not passages:
        typed.refuse("only with --passages", *HOW_MANY)
        typed.refuse("only with --passages", kind=Strategy)
    select = _strategy(numbers, strategy, strategies, typed) if passages else None
    with options.journal_kept(settings) as record:
        model = chosen.load_once(on_reranker_error)
        if "similarity_floor" in typed:
            from rerank.advice.adaptive import check_floor

            with named_by_flags():
                check_floor(model)
        asked = options.typed_queries(model, queries, segment, where, entities)
        if guaranteed:
            from rerank.advice.adaptive import guaranteed as guaranteed_strategy

            select = guaranteed_strategy(model.maps["search"], asked[0])
        start = time.perf_counter()
        assessed = model.assess(asked)
        latency = (time.perf_counter() - start) / len(asked)
        for found in assessed:
            answer_id = record(found, model=model.version, latency=latency)
            if select:
                fields, show = _selected(model, found, select, second_tries=second_tries)
            else:
                fields, show = (_explained if explain else ranked)(model, found)
            named = {"id": answer_id} if answer_id else {}
            if json:
                print_json(**named, query=found.ranking.query.text, **fields)
                continue
            show()
            if answer_id:
                print(f"  answer id {answer_id}")


def _strategy(numbers: Strategy, name: str, file: Path | None, typed: Typed) -> Strategy:
    from rerank.advice.settings import BUNDLED, strategy

    if "guaranteed" in typed:
        why = "not with --guaranteed, which chooses all numbers itself"
        typed.refuse(why, "strategy", "strategies", "second_tries")
        typed.refuse(why, kind=Strategy)
    elif name:
        typed.refuse("not with --strategy, which reads its numbers from a file", kind=Strategy)
        return strategy(name, file or BUNDLED)
    elif file:
        raise InputError("--strategies names a file; say with --strategy which one to take")
    return numbers


def ranked(model: CalibratedReranker, found: Assessment) -> Answer:
    """An answer as fields of a JSON object, and what prints its first passages."""
    record = found.to_dict()
    ranking = [
        {**numbers, "title": passage.title, "text": passage.text}
        for numbers, passage in zip(record["ranking"], found.passages, strict=True)
    ]

    def show() -> None:
        advice = "accepted" if found.accepted else "advisory only"
        advice = advice if found.calibrated else "not calibrated"
        advice += ", certified" if found.certified else ""
        confidence, sufficiency = map(two_digits, (found.confidence, found.sufficiency))
        print(
            f"\n{found.ranking.query.text}\n"
            f"  confidence {confidence}  {found.level}, {advice}; "
            f"sufficiency {sufficiency}  {found.verdict}"
        )
        print_passages(found.first(SHOWN), 60)
        for reason in found.reasons:
            print(f"     {reason}")

    return {**record, "ranking": ranking}, show


def _explained(model: CalibratedReranker, found: Assessment) -> Answer:
    from rerank.advice.explanation import explain

    why = explain(model, found)
    fields = {"query_id": found.ranking.query.query_id, **why.to_dict()}
    return fields, lambda: print(why.text())


def _selected(
    model: CalibratedReranker, found: Assessment, strategy: Strategy, *, second_tries: bool
) -> Answer:
    from rerank.advice.adaptive import take, with_second_try

    result = take(with_second_try(model, found) if second_tries else found, strategy)

    def show() -> None:
        sufficiency, stop = two_digits(result.sufficiency), result.stop_reason
        unsure = "" if result.assessment.calibrated else " (not calibrated)"
        print(
            f"{counted(result.k, 'passage')}, sufficiency {sufficiency} {result.verdict}{unsure}, "
            f"stopped by {stop}: {STOPPED[stop]}"
        )
        print_passages(result.passages, 200)

    return result.to_dict(), show


@command("work/model queries.jsonl --out predictions.jsonl", resumes=True, networks=True)
def rescore(
    chosen: options.ModelChoice,
    queries: Path,
    budget: Budget,
    *,
    out: Path,
    strict: bool = False,
    restart: options.Restart = False,
    engine: Annotated[str, Option(choices=("local", "ray"))] = "local",
    actors: Annotated[int | None, Option(ge=1)] = None,
    work: options.Work = options.WORK,
    json: options.Json = False,
) -> int:
    """Assess a file of queries; exit code 3: some rows were rejected.

    Args:
        queries: JSONL, CSV or Parquet (also .gz, .zst, a folder of parts) with _id, query and,
            optionally, the passages to rank
        out: JSONL or Parquet to write; rejected rows go to OUT.rejected.jsonl beside it
        strict: check all rows first: if one is bad, score none
        engine: this process, or Ray: the cluster of RAY_ADDRESS, else here
        actors: number of Ray actors, each with the model (default: one per 4 cores)
    """
    from rerank.batch.job import rescore

    with suppress(ValueError):  # in another thread than the main one
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops as Ctrl-C does
    METER.start(budget)
    on: Any = {"engine": engine, "actors": actors}
    done = rescore(chosen.load(work), queries, out, strict=strict, restart=restart, **on)
    lines = [f"{out}: {done.answered} predictions"]
    if done.resumed:
        lines.insert(0, f"{done.resumed} of the rows were done before an interruption")
    if done.rejected:
        lines.append(f"{done.side}: {done.rejected} rows were rejected")
    tell(json, *lines, out=out, **asdict(done))
    return REJECTED if done.rejected else 0


@command("work/model --port 8000", networks=True)
def serve(
    chosen: options.ModelChoice,
    settings: Settings,
    answers: Annotated[AnswerConfig, Only(OF_ANSWERS)],
    typed: Typed,
    *,
    mcp: bool = False,
    on_reranker_error: options.OnRerankerError = ON_RERANKER_ERROR[0],
    work: options.Work = options.WORK,
) -> None:
    """Answer queries over HTTP, and take over new models as they come; or over MCP.

    Args:
        mcp: serve the tools search and assess_retrieval_confidence over MCP instead, on standard
            input and output
    """
    if mcp:
        typed.refuse("not with --mcp, which starts no HTTP server", "work")
        typed.refuse("not with --mcp, which starts no HTTP server", kind=Settings)
        typed.refuse("not with --mcp, whose client writes the answers", *OF_ANSWERS)
        offered("MCP")(chosen.load(on_reranker_error=on_reranker_error)).run()
        return
    typed.refuse("only with --mcp", "download")
    from rerank.serving.model_source import place_of_model
    from rerank.serving.server import serve as serve_http

    place = place_of_model(str(chosen.model), work)
    how = {"manifest_sha256": chosen.manifest_sha256, "on_reranker_error": on_reranker_error}
    serve_http(place, settings, {"rag": answers}, **how)
