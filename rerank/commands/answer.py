"""`rerank answer`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rerank.commands.command import REJECTED, Command
from rerank.commands.inputs import load_model, note, printable
from rerank.commands.journaling import add_kept_journal, journal_kept
from rerank.commands.options import add_json, add_model, from_options
from rerank.errors import EndpointError, InputError
from rerank.rag.settings import AnswerConfig


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument("query", nargs="?", metavar="QUERY", help="in plain words")
    p.add_argument("--queries", type=Path, help="JSONL of _id and text, instead of QUERY")
    p.add_argument("--out", type=Path, help="JSONL to write, with --queries: one answer a line")
    p.add_argument("--overwrite", action="store_true", help="replace the file of --out")
    add_json(p)
    add_kept_journal(p)


def _run(o: argparse.Namespace) -> int:
    from rerank.types import Query

    config = from_options(AnswerConfig, o)
    if (o.query is None) == (o.queries is None):
        raise InputError("expected a QUERY, or a file of them with --queries")
    if (o.queries is None) != (o.out is None):
        raise InputError("--queries and --out go together")
    if o.queries is not None:
        return _answer_file(o, config)
    from rerank.rag.answer.model_answers import answer

    with journal_kept(o) as record:
        (found,) = answer(load_model(o), [Query(o.query, "1")], config, record=record)
        if found.error:
            raise EndpointError(found.error)
        print(json.dumps(found.to_dict()) if o.json else printable(found.text()))
    return 0


def _answer_file(o: argparse.Namespace, config: AnswerConfig) -> int:
    from rerank.data.beir import read_queries
    from rerank.progress import progress
    from rerank.rag.answer.model_answers import answer, write_answers

    queries = read_queries(o.queries)
    if o.out.exists() and o.out.samefile(o.queries):
        raise InputError(f"{o.out}: this would replace the queries; give another --out")
    with journal_kept(o) as record:
        made = answer(load_model(o), queries, config, record=record)
        with progress(len(queries), "answering", unit="query") as bar:
            count, failed = write_answers(made, o.out, overwrite=o.overwrite, done=bar.update)
    print(f"{o.out}: {count} answers")
    if failed:
        note(f"{failed} of them hold an error: the language model gave no answer")
    return REJECTED if failed else 0


COMMAND = Command(
    "answer",
    "answer from the sources alone, or refuse; exit code 3: the language model failed",
    'answer work/model "median along an axis while ignoring NaNs"',
    _arguments,
    _run,
    config=AnswerConfig,
)
