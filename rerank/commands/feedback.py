"""`rerank feedback`."""

from __future__ import annotations

import argparse

from rerank.commands.command import Command
from rerank.commands.options import add_journal, add_json
from rerank.commands.printing import print_json
from rerank.errors import InputError


def _arguments(p: argparse.ArgumentParser) -> None:
    add_journal(p)
    p.add_argument("answer", metavar="ANSWER_ID", help="`id` of the answer")
    p.add_argument(
        "word", choices=("right", "wrong"), help="whether it was right; the latest judgement counts"
    )
    p.add_argument("--comment", default="", help="why, in words")
    add_json(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.journal.store import JournalStore

    with JournalStore(o.journal) as store:
        if not store.judge(o.answer, o.word == "right", o.comment):
            raise InputError(
                f"the journal {store.name} has no answer {o.answer!r:.100}; expected the `id` that "
                "came with an answer"
            )
    if o.json:
        print_json(id=o.answer, right=o.word == "right")
    else:
        print(f"recorded: {o.answer} was {o.word}")


COMMAND = Command(
    "feedback",
    "record in the journal whether an answer was right",
    "feedback sqlite:///journal.db 0f8fad5bd9cb469fa16570867728950e right",
    _arguments,
    _run,
)
