"""`rerank answer`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from rerank.commands.command import REJECTED, Command
from rerank.commands.inputs import load_model
from rerank.commands.journaling import add_kept_journal, journal_kept
from rerank.commands.options import add_json, add_model, from_options
from rerank.commands.printing import note, print_json, printable
from rerank.commands.queries import add_segment, typed_queries
from rerank.config import two_digits
from rerank.errors import EndpointError, InputError
from rerank.rag.settings import AnswerConfig


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument("query", nargs="?", metavar="QUERY", help="question in plain words")
    p.add_argument(
        "--queries",
        type=Path,
        help="JSONL of _id and query, and of passages where a query brings its own, instead of "
        "QUERY",
    )
    add_segment(p)
    p.add_argument("--out", type=Path, help="JSONL to write, with --queries: one answer per line")
    p.add_argument("--overwrite", action="store_true", help="replace the file of --out")
    p.add_argument(
        "--restart",
        action="store_true",
        help="throw away what an interrupted run of another model, other queries or options left",
    )
    add_json(p)
    add_kept_journal(p)


def _run(o: argparse.Namespace) -> int:
    config = from_options(AnswerConfig, o)
    if (o.query is None) == (o.queries is None):
        raise InputError("expected a QUERY, or a file of them with --queries")
    if (o.queries is None) != (o.out is None):
        raise InputError("--queries and --out go together")
    if o.queries is not None:
        if o.segment:
            raise InputError(
                "--segment applies to QUERY only; in a file, name it in each row's metadata"
            )
        return _answer_file(o, config)
    if o.overwrite or o.restart:
        raise InputError("--overwrite and --restart apply only with --out")
    from rerank.rag.advisory import preset
    from rerank.rag.answer.model_answers import answer

    with journal_kept(o) as record:
        model = load_model(o)
        queries = typed_queries(model, [o.query], o.segment)
        (found,) = answer(model, queries, config, record=record)
        if found.error:
            raise EndpointError(found.error)
        if o.json:
            print(json.dumps(found.to_dict()))
            return 0
        print(printable(found.text()))
        if not found.refused and found.confidence is not None:
            level = found.level if found.calibrated else f"{found.level} (not calibrated)"
            bands = preset(config.policy)
            starts = (bands.low, bands.medium, bands.high, config.partial, config.sufficient)
            shown = two_digits(found.confidence, starts)
            print(f"\nConfidence that a source holds the answer: {shown} {level}")
    return 0


def _answer_file(o: argparse.Namespace, config: AnswerConfig) -> int:
    from rerank.batch.output_paths import check_places
    from rerank.data.beir import read_queries
    from rerank.data.containers import JSONL, ending
    from rerank.jobs.answer_file import answer_file

    if ending(o.out) not in (*JSONL, ""):
        raise InputError(f"{o.out}: expected a name that ends with .jsonl")
    queries = read_queries(o.queries, passages=True)
    check_places(o.model, o.queries, o.out)
    with journal_kept(o) as record:
        done = answer_file(
            load_model(o),
            queries,
            o.out,
            config,
            overwrite=o.overwrite,
            restart=o.restart,
            record=record,
        )
    if o.json:
        print_json(out=o.out, **asdict(done))
    else:
        if done.resumed:
            print(f"{done.resumed} of the answers were made before an interruption")
        print(f"{o.out}: {done.answers} answers")
    if done.failed:
        note(f"{done.failed} of them hold an error: the language model gave no answer")
    return REJECTED if done.failed else 0


COMMAND = Command(
    "answer",
    "answer from the sources alone, or refuse; exit code 3: the language model failed",
    'answer work/model "median along an axis while ignoring NaNs"',
    _arguments,
    _run,
    config=AnswerConfig,
    resumes=True,
)
