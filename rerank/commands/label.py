"""`rerank label`: people judge passages, one key per judgement, in a terminal or on a page."""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rerank.commands.command import Command
from rerank.commands.inputs import load_model
from rerank.commands.options import (
    add_model,
    add_options,
    add_work,
    from_options,
    typed_options,
)
from rerank.commands.printing import counted, note, printable
from rerank.config import LabelConfig
from rerank.errors import InputError, command_line
from rerank.serving.settings import Settings

if TYPE_CHECKING:
    from rerank.labelling.session import LabelTask, Session
    from rerank.labelling.state import Grade
    from rerank.types import Query

JUDGE = "r right  p partly  w wrong  n nothing (else) here answers this  s skip  u undo  q quit"
PROPOSE = "a accept this question  e enter other words  s skip  u undo  q quit"
WIDEST = 100  # columns of text
ESCAPE = "\x1b"
GRADE: dict[str, Grade] = {"r": "right", "p": "partly", "w": "wrong"}


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument("--out", type=Path, required=True, help="labelled set to write, or to continue")
    p.add_argument(
        "--questions",
        type=Path,
        help="file of questions: JSONL if its name ends with .jsonl, .json or .ndjson, otherwise "
        "text with one per line (default: some are proposed from headings and questions of the "
        "corpus)",
    )
    p.add_argument("--annotator", default="me", metavar="NAME", help="who is judging (default: me)")
    p.add_argument(
        "--page",
        action="store_true",
        help="judge on a page in a browser instead, also several people at once",
    )
    add_options(p, Settings, "host", "port")
    add_work(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.labelling.session import Session

    config = from_options(LabelConfig, o)
    if not o.page and (typed := typed_options(Settings, o)):
        raise InputError(f"{', '.join(typed)}: only with --page, which starts a server")
    queries = None if o.questions is None else _read_questions(o.questions)
    session = Session(load_model(o), o.out, config, annotator=o.annotator)
    drawn = session.prepare(queries)
    if drawn:
        note(f"{counted(drawn, 'question')} {'is' if drawn == 1 else 'are'} waiting in {o.out}")
    if o.page:
        del session  # with its model, as the server loads its own
        with suppress(KeyboardInterrupt):
            _serve(o, config)
        note(f"writing the labelled set to {o.out}")
        _finish(Session(load_model(o), o.out, config, annotator=o.annotator), o)
        return
    try:
        _ask(session, KeyReader())
    finally:
        _finish(session, o)


def _serve(o: argparse.Namespace, config: LabelConfig) -> None:
    """Serve the model with the labelling page, until Ctrl-C."""
    from rerank.serving.labelling import LabelSessions
    from rerank.serving.model_place import place_of_model
    from rerank.serving.server import serve, url_of

    settings = from_options(Settings, o)
    where = (
        f"{url_of(settings.host, settings.port)}/label"
        if settings.port
        else "/label of the address below"
    )
    note(f"open {where} in a browser; Ctrl-C ends")
    serve(place_of_model(str(o.model), o.work), settings, LabelSessions(o.out, config))


def _read_questions(path: Path) -> list[Query]:
    """The questions of a file: JSONL by its ending, or else text.

    Raises:
        InputError: there is no such file, it holds no question, or a line is not one.
    """
    from rerank.data.beir import read_queries
    from rerank.data.containers import JSONL
    from rerank.data.lines import Problems, holds_records, lines
    from rerank.data.records import read_query

    if holds_records(path):
        return read_queries(path)
    problems, found = Problems(), []
    for i, (where, line) in enumerate(lines(path), start=1):
        if i == 1 and _is_object(line):
            raise InputError(
                f"{where}: expected a question, got JSON; the name of a JSONL file ends with "
                f"{', '.join(JSONL)}"
            )
        try:
            found.append(read_query({"_id": f"{path.stem}-{i}", "text": line.strip()}))
        except InputError as error:
            problems.add(where, str(error))
    problems.raise_if_any(str(path))
    if not found:
        raise InputError(f"{path}: holds no question")
    return found


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _ask(session: Session, keys: KeyReader) -> None:
    """Ask until no question is left or the person quits."""
    from rerank.labelling.progress import EVERY

    shown_at = len(_done(session))
    asked_about = ""
    while (task := session.task()) is not None:
        if task.question.text != asked_about:
            asked_about = task.question.text
            _show_question(session, task)
        if not (_propose if task.question.proposed else _judge)(session, task, keys):
            return
        done = len(_done(session))
        if done // EVERY > shown_at // EVERY:
            print("\n" + "\n".join(session.so_far()))
        shown_at = done
    print(f"\nNo question is left; {_how_to_go_on(session)}.")


def _how_to_go_on(session: Session) -> str:
    """What to do for more labels."""
    if not session.nothing_left():
        return "run the same command again to continue"
    if len(session.questions()) >= session.config.count:
        return "a higher --count asks for more, if there are more"
    return "no more can be drawn: give others with --questions FILE"


def _done(session: Session) -> list[str]:
    """The ids of the questions that this person is done with."""
    return [q.query_id for q in session.questions() if q.person(session.annotator).done]


def _propose(session: Session, task: LabelTask, keys: KeyReader) -> bool:
    """Ask whether to accept a proposed question; False if the person quits."""
    key = keys.one(f"Proposed. {PROPOSE}", "aesuq")
    if key == "a":
        session.accept(task)
    elif key == "e":
        try:
            session.accept(task, keys.line("question: "))
        except InputError as error:
            note(error)
    else:
        return _handle_other_key(session, task, key)
    return True


def _judge(session: Session, task: LabelTask, keys: KeyReader) -> bool:
    """Ask for a judgement of one passage; False if the person quits."""
    passage = task.left[0].passage
    print(f"\n[{task.place} of {len(task.pool.shown)}] {printable(passage.title)}".rstrip())
    print(_wrapped(passage.text))
    key = keys.one(JUDGE, "rpwnsuq")
    if key in GRADE:
        session.judge(task, GRADE[key])
    elif key == "n":
        session.nothing(task)
    else:
        return _handle_other_key(session, task, key)
    return True


def _handle_other_key(session: Session, task: LabelTask, key: str) -> bool:
    """Skip, undo or quit; False if the person quits."""
    if key == "s":
        session.skip(task)
    elif key == "u" and not session.undo():
        print("There is nothing to undo.")
    return key != "q"


def _show_question(session: Session, task: LabelTask) -> None:
    count = len(_done(session))
    print(f"\n{'-' * 20} {count} labelled\n{_wrapped(task.question.text)}")


def _finish(session: Session, o: argparse.Namespace) -> None:
    """Write the set; print what the labels show, who agrees, and what to do next."""
    from rerank.assessment.decisions import CALIBRATED_FROM
    from rerank.labelling.progress import agreement_sentence, agreements

    count = session.write()
    if not count:
        print(f"\nNothing is labelled yet; {_how_to_go_on(session)}. Kept in {session.file.path}")
        return
    print(f"\n{o.out}: {counted(count, 'question')} labelled; {_how_to_go_on(session)}")
    print("\n".join(session.so_far()))
    for names, found in agreements(session.questions()).items():
        print(agreement_sentence(names, found))
    if session.model.calibrated:
        print(f"Next: {command_line('evaluate', o.model, o.out)}")
    elif count >= CALIBRATED_FROM:
        print(f"Next: {command_line('calibrate', o.out, '--out', 'work/calibrated')}")


class KeyReader:
    """Keys typed in a terminal, without Enter; or the first letter of each line of other input."""

    def __init__(self) -> None:
        self.terminal = sys.stdin.isatty()
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")

    def one(self, prompt: str, known: str) -> str:
        """The next key that is one of `known`; q at the end of the input."""
        print(prompt, flush=True)
        while True:
            key = (self._key() if self.terminal else sys.stdin.readline()[:1] or "q").lower()
            if key in ("", "\x04"):
                return "q"
            if key in known:
                return key
            if key.strip():
                note(f"{key!r} is not a key here: {prompt}")

    def line(self, prompt: str) -> str:
        """A line of text."""
        print(prompt, end="", flush=True)
        return sys.stdin.readline().strip()

    def _key(self) -> str:
        import termios
        import tty

        handle = sys.stdin.fileno()
        before = termios.tcgetattr(handle)
        try:
            tty.setcbreak(handle, termios.TCSADRAIN)  # keys typed before the prompt are kept
            return _without_escapes(sys.stdin)
        finally:
            termios.tcsetattr(handle, termios.TCSADRAIN, before)


def _without_escapes(keys: TextIO) -> str:
    """The next key; arrows and function keys, which send an escape and letters, are passed over."""
    while (key := keys.read(1)) == ESCAPE:
        key = keys.read(1)
        if key not in ("[", "O"):
            return key
        key = keys.read(1)
        if key == "[":  # the function keys of the Linux console
            key = keys.read(1)
        while key and not "@" <= key <= "~":
            key = keys.read(1)
    return key


def _wrapped(text: str) -> str:
    width = min(shutil.get_terminal_size().columns, WIDEST)
    return "\n".join(textwrap.fill(line, width) for line in printable(text).split("\n"))


COMMAND = Command(
    "label",
    "label questions at the terminal or on a page, one key a judgement; run it again to continue",
    "label work/model --out work/labelled --questions asked.jsonl",
    _arguments,
    _run,
    config=LabelConfig,
    resumes=True,
)
