"""Decides which requests are accepted, which one is next, and which are dropped.

Work is counted in tokens; the pace, in seconds per token, is measured. A request that would not be
answered in time is refused on arrival. Accepted requests are worked on piece by piece, by two rules
in turn: the earliest deadline first, and the least work left first. So a short request does not
wait for a long one, a long one gets half of the machine, and a request may need half of its
time-out. A request that can no longer be in time is dropped in favour of the others.

It decides on numbers alone: it knows nothing of models, threads and HTTP; callers pass the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

SHARE = 0.5  # share of a request's time that its work, and the work before it, may take
MEMORY = 0.95  # factor by which each round reduces the weight of earlier ones in the pace
PIECE = 0.1  # seconds of work after which another request may run
TOKENS = (512, 65_536)  # least and most tokens of a piece, at any pace
UNMEASURED = 2_048  # tokens of a piece before the pace is known
FIRST = 4_096  # tokens after which the pace is known


@dataclass(slots=True, eq=False)
class Task:
    """An accepted request: when it must be answered, and about how many tokens are left."""

    deadline: float
    left: int


T = TypeVar("T", bound=Task)


class TooLarge(Exception):  # noqa: N818  # an answer, not an error of ours
    """A request that takes longer than is allowed, even alone."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"takes {seconds:.3g} seconds")
        self.seconds = seconds


class Busy(Exception):  # noqa: N818  # an answer, not an error of ours
    """A request that takes too long because of those in progress."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"would be answered in {seconds:.3g} seconds")
        self.seconds = seconds


class Pace:
    """Measured seconds per token: of the latest rounds and the best; 0 before `FIRST` tokens."""

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
    """The requests in progress. `seconds` is the time in which each must be answered."""

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
        """Whole seconds, 1 to 60, until the requests in progress are answered."""
        return min(60, max(1, math.ceil(self.backlog)))

    @property
    def piece(self) -> int:
        """Tokens of a piece; a round of work has about twice as many."""
        least, most = TOKENS
        return min(most, max(least, int(PIECE / self.pace.now))) if self.pace.now else UNMEASURED

    def add(self, task: T) -> None:
        """Accept a request.

        `TooLarge` is judged by the best pace, and `Busy` is never raised on an idle machine: so a
        pace that was measured at a bad moment is measured again.

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
        """Remove and return the requests that can no longer be in time.

        If that is all of them, the likeliest one stays, unless its deadline is past.
        """
        late = [t for t in self.tasks if now + self.pace.now * t.left > t.deadline]
        if late and len(late) == len(self.tasks):
            likeliest = max(late, key=lambda t: t.deadline - self.pace.now * t.left)
            if likeliest.deadline > now:
                late.remove(likeliest)
        self.tasks = [t for t in self.tasks if t not in late]
        return late

    def in_turn(self) -> Iterator[T]:
        """All requests, each once, by the two rules in turn; ties go to the earlier one."""
        by_deadline = sorted(self.tasks, key=lambda t: t.deadline)
        by_length = sorted(by_deadline, key=lambda t: t.left)
        given = set()
        for pair in zip(by_length, by_deadline, strict=True):
            for task in pair:
                if task not in given:
                    given.add(task)
                    yield task
