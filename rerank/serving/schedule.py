"""Which request is let in, which is worked on next, and which is dropped.

Work is counted in tokens, and the pace, in seconds a token, is measured. A request that would not
be answered in time is refused when it comes. Those let in are worked on a piece at a time, by two
rules in turn: the one with the earliest deadline, and the one with the least work left. So a short
request does not wait for a long one, a long one has half of the machine, and half of its deadline
is what a request may need. One that cannot be in time any more makes way for the others.

Decisions on numbers alone: it knows nothing of models, threads and HTTP, and is told the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

SHARE = 0.5  # of a request's time: what its work, and that before it, may take at most
MEMORY = 0.95  # weight of the rounds before the last one in the pace
PIECE = 0.1  # seconds of work after which another request may come between
TOKENS = (512, 65_536)  # of a piece, least and most: at any pace
UNMEASURED = 2_048  # tokens of a piece before the pace is known
FIRST = 4_096  # tokens after which the pace is known


@dataclass(slots=True, eq=False)
class Task:
    """A request that is let in: when it must be answered, and about how many tokens are left."""

    deadline: float
    left: int


T = TypeVar("T", bound=Task)


class TooLarge(Exception):  # noqa: N818  # an answer, not an error of ours
    """A request that takes longer than is allowed, even alone."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"takes {seconds:.3g} seconds")
        self.seconds = seconds


class Busy(Exception):  # noqa: N818  # an answer, not an error of ours
    """A request that takes too long beside those that are there."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"would be answered in {seconds:.3g} seconds")
        self.seconds = seconds


class Pace:
    """Measured seconds a token: of the latest rounds, and at best; 0 before `FIRST` tokens."""

    def __init__(self) -> None:
        self._seconds = self._tokens = self._total = 0.0
        self.now = 0.0
        self.best = 0.0

    def add(self, tokens: float, seconds: float) -> None:
        """Count a round of work."""
        self._seconds = MEMORY * self._seconds + seconds
        self._tokens = MEMORY * self._tokens + tokens
        self._total += tokens
        if self._total >= FIRST:
            self.now = self._seconds / max(self._tokens, 1.0)
            self.best = min(self.best or self.now, self.now)


class Schedule(Generic[T]):
    """The requests that are in progress. `seconds` is the time in which one must be answered."""

    def __init__(self, seconds: float) -> None:
        self.allowed = SHARE * seconds
        self.pace = Pace()
        self.tasks: list[T] = []

    @property
    def backlog(self) -> float:
        """Seconds that the work in progress takes, at the present pace."""
        return self.pace.now * sum(task.left for task in self.tasks)

    @property
    def retry_after(self) -> int:
        """Whole seconds, 1 to 60, in which what is in progress is answered."""
        return min(60, max(1, math.ceil(self.backlog)))

    @property
    def piece(self) -> int:
        """Tokens of a piece; a round of work has about twice as many."""
        least, most = TOKENS
        return min(most, max(least, int(PIECE / self.pace.now))) if self.pace.now else UNMEASURED

    def add(self, task: T) -> None:
        """Let a request in.

        What takes too long is judged by the best pace, and nothing is too much for an idle machine:
        so a pace that was measured in a bad moment is measured again.

        Raises:
            TooLarge: alone it would take longer than `allowed`.
            Busy: it would not be done within `allowed`, by either of the two rules.
        """
        if task.left * self.pace.best > self.allowed:
            raise TooLarge(task.left * self.pace.best)
        shorter = sum(other.left for other in self.tasks if other.left <= task.left)
        done = self.pace.now * task.left + min(self.backlog, 2 * self.pace.now * shorter)
        if self.tasks and done > self.allowed:
            raise Busy(done)
        self.tasks.append(task)

    def drop_late(self, now: float) -> list[T]:
        """Take out those that cannot be in time any more; the last one of all is tried.

        A request whose deadline is past is taken out in any case.
        """
        late = [t for t in self.tasks if now + self.pace.now * t.left > t.deadline]
        if late and len(late) == len(self.tasks):
            likeliest = max(late, key=lambda t: t.deadline - self.pace.now * t.left)
            if likeliest.deadline > now:
                late.remove(likeliest)
        self.tasks = [t for t in self.tasks if t not in late]
        return late

    def in_turn(self) -> Iterator[T]:
        """All requests, each once, by the two rules in turn; of equals the earlier one first."""
        by_deadline = sorted(self.tasks, key=lambda t: t.deadline)
        by_length = sorted(by_deadline, key=lambda t: t.left)
        given = set()
        for pair in zip(by_length, by_deadline, strict=True):
            for task in pair:
                if task not in given:
                    given.add(task)
                    yield task
