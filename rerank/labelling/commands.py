"""`rerank label`: people judge passages, one key per judgement, in a terminal or on a page."""

from __future__ import annotations

import io
import shutil
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, cast

from rerank.advice.settings import LanguageModelConfig
from rerank.commands.command import Only, Typed, command
from rerank.commands.options import WORK, Json, ModelChoice, Overwrite, Work
from rerank.commands.printing import counted, note, printable, tell
from rerank.config import Option
from rerank.errors import InputError, command_line
from rerank.inference.remote.client import METER, Budget
from rerank.labelling.judgements import LabelConfig, OnTask
from rerank.rooms import offered
from rerank.serving.settings import Settings

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.labelling.labels import How, Verdicts
    from rerank.labelling.session import Session
    from rerank.types import Query

JUDGE = (
    "r right  o right, and the others are wrong  p partly  w wrong  "
    "n nothing (else) here answers this  s skip  u undo  q quit"
)
CONFIRM = "c confirm  "
PROPOSE = "a accept this question  e enter other words  s skip  u undo  q quit"
WIDEST = 100  # columns of text
ESCAPE = "\x1b"
DONE: dict[str, OnTask] = {
    **{"r": "right", "p": "partly", "w": "wrong"},
    **{"o": "only", "n": "nothing", "a": "accept", "e": "accept", "s": "skip", "c": "confirm"},
}
PAGE = ("host", "port")
OF_JUDGES = ("most_requests", "most_cost", "price_per_1000_requests")
LLM = ("llm", "llm_model", "llm_timeout", "llm_retries", "llm_max_tokens")


@command("work/model --out work/labelled --questions asked.jsonl", resumes=True, networks=True)
def label(
    chosen: ModelChoice,
    queries: Path | None = None,
    *,
    config: LabelConfig,
    settings: Annotated[Settings, Only(PAGE)],
    typed: Typed,
    out: Path,
    questions: Path | None = None,
    journal: Annotated[str | None, Option(metavar="URL")] = None,
    newest: Annotated[int, Option(ge=1)] = 1000,
    annotator: Annotated[str, Option(metavar="NAME")] = "me",
    page: bool = False,
    next: bool = False,
    judge: Annotated[str, Option(metavar="NAME")] = "",
    llm: Annotated[LanguageModelConfig, Only(LLM)],
    budget: Annotated[Budget, Only(OF_JUDGES)],
    overwrite: Overwrite = False,
    work: Work = WORK,
    json: Json = False,
) -> None:
    """Label questions at the terminal or on a page, one key per judgement.

    It continues where it stopped.

    Args:
        queries: with --next: JSONL file of queries without labels
        out: labelled set to write, or to continue; with --next the JSONL file to write
        questions: file of questions: JSONL if its name ends with .jsonl, .json or .ndjson,
            otherwise text with one per line (default: some are proposed from headings and questions
            of the corpus)
        journal: instead of a file: the questions of the searches in the journal of a server
        newest: with --journal: only the newest searches
        annotator: who is judging
        page: judge on a page in a browser, also several people at once
        judge: model that first judges whether the top passages answer: a reranker's name or
            address, or the folder of a calibrated model (a language model: --llm). Its verdicts are
            kept in `judged/` beside --out, and make people's labels more informative
        next: do not judge: choose the queries whose labels are most informative, with weights that
            keep estimates unbiased, and write them to a file
    """
    from rerank.data.labels import JUDGED
    from rerank.labelling.session import Session

    if not page:
        typed.refuse("only with --page, which starts a server", *PAGE)
    from_journal = None
    if journal is None:
        typed.refuse("only with --journal", "newest")
    elif queries or questions:
        raise InputError("expected one source of questions, a file or --journal; got both")
    else:
        from_journal = partial(offered("queries of a journal"), journal=journal, newest=newest)
    METER.start(budget)
    beside = out.parent if next else out
    verdicts: Verdicts | None = None
    if judge or llm.llm:
        verdicts = offered("verdicts of a judge")(judge, llm, beside, work)
    if next:
        why = "not with --next, which only chooses queries"
        judging = ("page", "depth", "shared", "partly_right", "show_verdicts")
        typed.refuse(why, "questions", "annotator", *judging)
        source = (chosen, queries, from_journal)
        _choose(*source, out, config, work, verdicts, overwrite=overwrite, json=json)
        return
    if queries is not None:
        raise InputError("QUERIES are only for --next; give a file of questions with --questions")
    typed.refuse("only with --next", "overwrite", "json")

    def session() -> Session:
        return Session(chosen.load(work), out, config, annotator=annotator)

    asked = _read_questions(questions) if questions else None
    current = session()
    if from_journal:
        asked = from_journal(current.model)
    drawn = current.prepare(asked, verdicts)
    if config.show_verdicts and not any(JUDGED in q.metadata for q in current.questions()):
        raise InputError("--show-verdicts: no question here was drawn with --judge or --llm")
    if drawn:
        note(f"{counted(drawn, 'question')} {'is' if drawn == 1 else 'are'} waiting in {out}")
    if page:
        del current  # with its model, as the server loads its own
        with suppress(KeyboardInterrupt):
            _serve(chosen.model, out, config, settings, work)
        note(f"writing the labelled set to {out}")
        _finish(session(), chosen.model, out)
        return
    note(current.outlook())
    try:
        _ask(current, KeyReader())
    finally:
        _finish(current, chosen.model, out)


def _choose(
    chosen: ModelChoice,
    queries: Path | None,
    from_journal: Callable[[CalibratedReranker], list[Query]] | None,
    out: Path,
    config: LabelConfig,
    work: Path,
    verdicts: Verdicts | None,
    *,
    overwrite: bool,
    json: bool,
) -> None:
    from rerank.batch.input import check_places
    from rerank.data.beir import read_queries
    from rerank.labelling.labels import label_next

    if config.draw == "even":
        raise InputError("--draw even: not with --next; expected accuracy, map or accepted")
    if queries is None and from_journal is None:
        raise InputError("expected QUERIES, a JSONL file of queries, or --journal, with --next")
    rows = [] if queries is None else read_queries(queries, passages=True)
    check_places(chosen.model, queries or chosen.model, out)
    model = chosen.load(work)
    many = label_next(
        model,
        from_journal(model) if from_journal else rows,
        config.count,
        out,
        how="accuracy" if config.draw == "auto" else cast("How", config.draw),
        seed=config.seed,
        overwrite=overwrite,
        verdicts=verdicts,
    )
    given = ("--labels", out, "--out", f"{chosen.model}-new")
    again = command_line("recalibrate", chosen.model, *given)
    found = f"{out}: {many} queries to label, with their top passages"
    then = 'Add "right": true or false to each line; then:'
    tell(json, found, then, f"  {again}", out=out, queries=many)


def _serve(model: Path, out: Path, config: LabelConfig, settings: Settings, work: Path) -> None:
    from rerank.labelling.server import LabelSessions
    from rerank.serving.model_source import place_of_model
    from rerank.serving.server import serve, url_of

    known = f"{url_of(settings.host, settings.port)}/label"
    where = known if settings.port else "/label of the address below"
    note(f"open {where} in a browser; Ctrl-C ends")
    serve(place_of_model(str(model), work), settings, {"labelling": LabelSessions(out, config)})


def _read_questions(path: Path) -> list[Query]:
    from rerank.data.beir import read_queries
    from rerank.data.lines import JSONL, Problems, holds_records, lines
    from rerank.data.records import read_query

    if holds_records(path):
        return read_queries(path)
    problems, found = Problems(), []
    for i, (where, line) in enumerate(lines(path), start=1):
        if i == 1 and line.lstrip().startswith("{") and line.rstrip().endswith("}"):
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


def _ask(session: Session, keys: KeyReader) -> None:
    from rerank.labelling.labels import EVERY

    shown_at, asked_about = _done(session), ""
    while (task := session.task()) is not None:
        if task.question.text != asked_about:
            asked_about = task.question.text
            print(f"\n{'-' * 20} {_done(session)} labelled\n{_wrapped(asked_about)}")
        if task.question.proposed:
            key = keys.one(f"Proposed. {PROPOSE}", "aesuq")
        else:
            passage = task.left[0].passage
            title = printable(passage.title)
            print(f"\n[{task.place} of {len(task.pool.shown)}] {title}".rstrip())
            print(_wrapped(passage.text))
            if task.judge:
                print(printable(f"{task.judge} says: {task.verdict}"))
            known = (CONFIRM + JUDGE, "cropwnsuq") if task.judge else (JUDGE, "ropwnsuq")
            key = keys.one(*known)
        if key == "q":
            return
        if key in DONE:
            try:
                session.act(task, DONE[key], keys.line("question: ") if key == "e" else None)
            except InputError as error:  # other words that are none
                note(error)
        elif not session.undo():
            print("There is nothing to undo.")
        done = _done(session)
        if done // EVERY > shown_at // EVERY:
            print("\n" + "\n".join(session.so_far()))
        shown_at = done
    print(f"\nNo question is left; {_how_to_go_on(session)}.")


def _how_to_go_on(session: Session) -> str:
    if session.next_question() is not None:
        return "run the same command again to continue"
    if len(session.questions()) >= session.config.count:
        return "a higher --count asks for more, if there are more"
    return "no more can be drawn: give others with --questions FILE"


def _done(session: Session) -> int:
    return sum(q.person(session.annotator).done for q in session.questions())


def _finish(session: Session, model: Path, out: Path) -> None:
    from rerank.assessment.predictions import CALIBRATED_FROM
    from rerank.labelling.labels import agreement_sentence, agreements

    count = session.write()
    if not count:
        print(f"\nNothing is labelled yet; {_how_to_go_on(session)}. Kept in {session.file.path}")
        return
    print(f"\n{out}: {counted(count, 'question')} labelled; {_how_to_go_on(session)}")
    print("\n".join(session.so_far()))
    for names, found in agreements(session.questions()).items():
        print(agreement_sentence(names, found))
    if session.model.calibrated:
        print(f"Next: {command_line('evaluate', model, out)}")
    elif count >= CALIBRATED_FROM:
        print(f"Next: {command_line('calibrate', out, '--out', 'work/calibrated')}")


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
