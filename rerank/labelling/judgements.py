"""The state of a file of judgements: questions in order, and who judged what. No model.

It is append-only and safe for several writers, one JSON object per line. Events are `draw` (a
question, its weight, how many it was drawn from, which earlier draws were from the same file, the
model's version and answer), and those of a person by name: `accept` (a proposed question, with its
text), `judge` (one grade for some passages), `skip`, and `undo`, which takes back that person's
latest event, if it can be. `gone` names passages that the corpus does not have any more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rerank.config import check_options, option
from rerank.data.checks import to_json
from rerank.errors import InputError
from rerank.storage.files import appending, whole_lines


@dataclass(frozen=True, slots=True)
class LabelConfig:
    """Which questions people are asked to label, and how many passages of each they see."""

    count: int = option(50, "questions to label; you can ask for more later", ge=1)
    draw: str = option(
        "auto",
        "which questions; even: at random, as `calibrate` needs them; accuracy, map: those most "
        "informative about a model's accuracy or its map, with weights; accepted: at random among "
        "those that it accepts, to certify it with few labels; auto: even before the first "
        "calibration and while all earlier draws of the set are even, else accuracy",
        choices=("auto", "even", "accuracy", "map", "accepted"),
    )
    depth: int = option(5, "top passages of each stage to show, merged", ge=1, le=100)
    shared: int = option(
        5, "every Nth question goes to all annotators, the others to one; 1: all", ge=1
    )
    partly_right: bool = option(False, "count passages that answer partly as right, with grade 1")
    show_verdicts: bool = option(
        False,
        "show what the --judge says of a passage; the key c confirms it, and labels keep that it "
        "was shown",
    )
    seed: int = option(0, "seed of the draw", ge=0)

    def __post_init__(self) -> None:
        check_options(self)


Event = Mapping[str, Any]


class JudgementFile:
    """The file at `path`; an unfinished last line, left by a killed process, is ignored."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Event]:
        """All complete lines, in order; empty if there is no file."""
        events: list[Event] = []
        for number, line in enumerate(whole_lines(self.path), start=1):
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if not isinstance(event, dict) or "do" not in event:
                raise InputError(
                    f'{self.path}:{number}: expected a JSON object with "do"; mend the line'
                )
            events.append(event)
        return events

    def append(self, events: Sequence[Event]) -> None:
        """Append lines durably, after waiting for other writers; see `locked`."""
        with self.locked() as append:
            append(events)

    @contextmanager
    def locked(self) -> Iterator[Callable[[Sequence[Event]], None]]:
        """Hold the write lock of the file, after waiting for it; yields what appends events."""
        with appending(self.path) as (append, is_locked):
            if not is_locked:
                raise InputError(f"{self.path}: this file system has no locks; use another folder")
            yield lambda events: append(map(to_json, events))


Grade = Literal["right", "partly", "wrong"]
# what a person says of what is asked
OnTask = Literal[Grade, "confirm", "only", "nothing", "accept", "skip"]
RIGHT_GRADE, PARTLY_GRADE = 2.0, 1.0  # in qrels
PROPOSED = "proposed"  # metadata key of a query made from the corpus and accepted by a person
GRADES: tuple[Grade, ...] = ("wrong", "partly", "right")  # rising

DRAWN = (
    *("query_id", "text", "metadata", "draw", "weight", "confidence", "top", "proposed"),
    *("pool", "continues", "drawn_by"),
)


@dataclass(slots=True)
class Person:
    """One person's judgements on a question."""

    grades: dict[str, Grade] = field(default_factory=dict)  # by passage id
    done: bool = False  # all that was shown is judged
    skipped: bool = False


@dataclass(slots=True)
class Question:
    """A question to label, and people's judgements."""

    query_id: str
    text: str
    metadata: Mapping[str, Any]
    draw: int  # the number of the draw, from 0
    weight: float  # how many questions of the pool of its draw it stands for
    confidence: float
    top: str | None
    proposed: bool = False  # and not accepted by anybody yet
    pool: int = 0  # number of questions that its draw was from; 0: the sum of the draw's weights
    continues: Sequence[int] = ()  # earlier draws from the same file
    drawn_by: str = ""  # version of the model that drew it
    verdict_shown: bool = False  # to a person who judged it
    people: dict[str, Person] = field(default_factory=dict)

    def person(self, name: str) -> Person:
        """A person's judgements; empty ones if there are none."""
        return self.people.get(name, Person())

    def answers(self) -> set[str]:
        """The passages that somebody calls right or partly right."""
        grades = (pair for person in self.people.values() for pair in person.grades.items())
        return {doc_id for doc_id, grade in grades if grade != "wrong"}

    @property
    def done(self) -> bool:
        """Whether a person has judged all that was shown."""
        return any(person.done for person in self.people.values())

    @property
    def judged(self) -> dict[str, list[Grade]]:
        """The grades of each passage by those who are done, from the lowest on."""
        found: dict[str, list[Grade]] = {}
        for person in self.people.values():
            for doc_id, grade in person.grades.items() if person.done else ():
                found.setdefault(doc_id, []).append(grade)
        return {doc_id: sorted(grades, key=GRADES.index) for doc_id, grades in found.items()}

    def right(self, *, partly_right: bool) -> dict[str, float]:
        """The grades of the passages that count as right: the lowest one if people disagree."""
        counted = {"right": RIGHT_GRADE} | ({"partly": PARTLY_GRADE} if partly_right else {})
        return {d: counted[low] for d, (low, *_) in self.judged.items() if low in counted}


def questions_of(events: Sequence[Event]) -> list[Question]:
    """The questions in the order in which they are asked, with all judgements that count."""
    found: dict[str, Question] = {}
    try:
        for event in without_undone(events):
            _add(event, found)
    except (KeyError, TypeError) as error:
        raise InputError(
            f"a line of the judgements lacks {error}, or the line that it is about is gone; "
            "put the line back"
        ) from None
    return list(found.values())


def _add(event: Event, found: dict[str, Question]) -> None:
    query_id = event["query_id"]
    if event["do"] == "draw":
        found[query_id] = Question(**{key: event[key] for key in DRAWN})
        return
    question = found[query_id]
    if event["do"] == "accept":
        if question.proposed:  # else another person was faster, and may have judged it already
            question.text, question.proposed = event["text"], False
            question.confidence, question.top = event["confidence"], event["top"]
    elif event["do"] == "gone":
        for person in question.people.values():
            lost = {person.grades.pop(doc_id, "wrong") for doc_id in event["doc_ids"]}
            person.done &= lost <= {"wrong"}  # else the question is open again
    else:
        person = question.people.setdefault(event["by"], Person())
        if event["do"] == "skip":
            person.skipped = True
            return
        person.grades |= dict.fromkeys(event["doc_ids"], event["grade"])
        person.done = event["done"]
        question.verdict_shown |= "shown" in event


def gone(questions: Sequence[Question], known: Set[str]) -> list[Event]:
    """The events for passages that count as right or partly right and are not `known` any more."""
    ids = {q.query_id: sorted(q.answers() - known) for q in questions}
    return [{"do": "gone", "query_id": i, "doc_ids": lost} for i, lost in ids.items() if lost]


def without_undone(events: Sequence[Event]) -> list[Event]:
    """The events that were not undone, without the `undo`s themselves."""
    kept: list[Event | None] = []
    for event in events:
        if event["do"] != "undo":
            kept.append(event)
            continue
        row = to_undo(kept, event["by"])
        if row is not None:
            kept[row] = None
    return [event for event in kept if event is not None]


def to_undo(events: Sequence[Event | None], name: str) -> int | None:
    """The position of a person's latest event; None if others have judged what it accepted."""
    rows = (i for i in reversed(range(len(events))) if (events[i] or {}).get("by") == name)
    if (row := next(rows, None)) is None:
        return None
    latest = events[row] or {}
    about = (e for e in events[row + 1 :] if e and e.get("query_id") == latest["query_id"])
    judged = latest["do"] == "accept" and any(event.get("by") != name for event in about)
    return None if judged else row


def next_question(
    questions: Sequence[Question], name: str, shared: int, *, without: Set[str] = frozenset()
) -> Question | None:
    """The first question that this person should judge, but for the ids in `without`; None: none.

    Every `shared`-th question is for everyone; the others belong to the person who starts them.
    """
    for place, question in enumerate(questions):
        own = question.person(name)
        others = any(p.grades or p.skipped for n, p in question.people.items() if n != name)
        mine = place % shared == 0 or not others or bool(own.grades)
        if mine and not own.done and not own.skipped and question.query_id not in without:
            return question
    return None


def weights(questions: Sequence[Question]) -> list[float]:
    """How many questions each one stands for, (n,), over all draws; all 0 if one was proposed.

    A draw from another file than the earlier ones stands for its own file. For a further draw from
    a file there are two unbiased estimates: the earlier draws alone, and the earlier draws as a
    known part plus the new draw as an estimate of the rest. Their weighted mean is unbiased too.
    The second has the weight m N / ((n + m) (N - n)), with n of N drawn before and m now: so
    uniform draws stay uniform. If the file has changed in between, the second is taken alone.
    """
    if any(question.metadata.get(PROPOSED) for question in questions):
        return [0.0] * len(questions)
    found = [question.weight for question in questions]
    for draw in sorted({question.draw for question in questions}):
        now = [i for i, question in enumerate(questions) if question.draw == draw]
        drawn, first = sum(found[i] for i in now), questions[now[0]]
        pool = first.pool or drawn
        for i in now:
            found[i] *= pool / drawn  # less was drawn than planned, if the process was killed
        before = [i for i, question in enumerate(questions) if question.draw in first.continues]
        n, m, whole = len(before), len(now), sum(found[i] for i in before)
        unchanged = abs(whole - n - pool) < 0.5
        if not before:
            continue
        share = min(1.0, m * whole / ((n + m) * pool)) if unchanged else 1.0
        for i in before:
            found[i] = (1 - share) * found[i] + share
        for i in now:
            found[i] *= share
    return found


def differ(weight: Sequence[float]) -> bool:
    """Whether weights (n,) differ by more than rounding."""
    return max(weight, default=0) - min(weight, default=0) > 1e-9 * max(weight, default=0)


def drawn_evenly(questions: Sequence[Question]) -> bool:
    """Whether all questions of a draw had the same chance to be drawn, in each draw."""
    chances = {(question.draw, question.weight) for question in questions}
    return len(chances) == len({draw for draw, _ in chances})


def chosen_without_weights(questions: Sequence[Question]) -> bool:
    """Whether questions were drawn by confidence, but have no weights: some were proposed."""
    return not any(weights(questions)) and not drawn_evenly(questions)
