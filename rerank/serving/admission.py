"""Decides which requests are accepted, which one is next, and which are dropped.

Work is counted in seconds at the speed that was measured when the model was loaded; `Pace` measures
how many times as long it takes now. A request that would not be in time is refused on arrival, or
dropped later. Pieces are worked on by two rules in turn: the earliest deadline first, and the least
work left first, so short requests do not wait for long ones, which get half of the machine.
It decides on numbers alone: callers pass the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, TypeVar

SHARE = 0.5  # share of a request's time that its work, and the work before it, may take
DECAY = 0.95  # factor by which each round reduces the weight of earlier ones in the pace
PRIOR_SECONDS = 1.0  # seconds of work for which the speed at loading counts
RESET_AFTER = 60.0  # seconds without work after which the pace is that at loading again
MAX_SPEEDUP = 2.0  # times as fast as measured that a machine may get
PIECE = 0.1  # seconds of work after which another request may run
MIN_PIECE = 0.01  # seconds of a piece, at the speed at loading


@dataclass(slots=True, eq=False)
class ScheduledRequest:
    """An accepted request: its deadline, and its seconds of work, `whole` and what is `left`."""

    deadline: float
    left: float
    whole: float = field(init=False)

    def __post_init__(self) -> None:
        self.whole = self.left


T = TypeVar("T", bound=ScheduledRequest)


@dataclass(eq=False)
class TooLarge(Exception):  # noqa: N818  # an answer, not an error of ours
    """A request that takes longer than is allowed, even alone."""

    seconds: float


@dataclass(eq=False)
class Busy(Exception):  # noqa: N818  # an answer, not an error of ours
    """A request that takes too long because of those in progress."""

    seconds: float


class Pace:
    """How many times as long as expected the latest rounds took; 1 before any round."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all rounds."""
        self._seconds = self._expected = PRIOR_SECONDS
        self.now = 1.0

    def add(self, expected: float, seconds: float) -> None:
        """Count a round of work."""
        self._seconds = DECAY * self._seconds + seconds
        self._expected = DECAY * self._expected + expected
        self.now = self._seconds / max(self._expected, 1e-9)


class Schedule(Generic[T]):
    """The requests in progress, each of which must be answered within `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.allowed = SHARE * seconds
        self.pace = Pace()
        self.requests: list[T] = []
        self._worked = -math.inf  # when the last round ended

    @property
    def backlog(self) -> float:
        """Seconds that the work in progress takes, at the present pace."""
        return self.pace.now * sum(request.left for request in self.requests)

    @property
    def retry_after(self) -> int:
        """Whole seconds, 1 to 60, until the requests in progress are answered."""
        return min(60, max(1, math.ceil(self.backlog)))

    @property
    def piece(self) -> float:
        """Work of a piece, in seconds at loading; a round of work has about twice as much."""
        return max(MIN_PIECE, PIECE / self.pace.now)

    def add(self, request: T, now: float) -> None:
        """Accept a request.

        A pace measured at a bad moment is forgotten after `RESET_AFTER` seconds without work.

        Raises:
            TooLarge: alone it would take longer than `allowed`.
            Busy: it would not be done within `allowed`, by either of the two rules.
        """
        if not self.requests and now - self._worked > RESET_AFTER:
            self.pace.reset()
        alone = self.alone(request)
        if alone > self.allowed:
            raise TooLarge(alone)
        shorter = sum(other.left for other in self.requests if other.left <= request.left)
        done = self.pace.now * request.left + min(self.backlog, 2 * self.pace.now * shorter)
        if self.requests and done > self.allowed:
            raise Busy(done)
        self.requests.append(request)

    def alone(self, request: T) -> float:
        """Seconds that all work of a request takes at the present pace, if there is no other."""
        return self.pace.now * request.whole

    def worked(self, expected: float, seconds: float, now: float) -> None:
        """Count a round of work that ended now."""
        self.pace.add(expected, seconds)
        self._worked = now

    def drop_late(self, now: float) -> list[T]:
        """Remove and return the requests that can no longer be in time.

        Of all, the likeliest one stays, unless it would have to be `MAX_SPEEDUP` times as fast.
        """
        late = [t for t in self.requests if now + self.pace.now * t.left > t.deadline]
        if late and len(late) == len(self.requests):
            likeliest = max(late, key=lambda t: t.deadline - self.pace.now * t.left)
            if self.pace.now * likeliest.left <= MAX_SPEEDUP * (likeliest.deadline - now):
                late.remove(likeliest)
        self.requests = [t for t in self.requests if t not in late]
        return late

    def in_turn(self) -> Iterator[T]:
        """All requests, each once, by the two rules in turn; ties go to the earlier one."""
        by_deadline = sorted(self.requests, key=lambda t: t.deadline)
        by_length = sorted(by_deadline, key=lambda t: t.left)
        turns = chain.from_iterable(zip(by_length, by_deadline, strict=True))
        yield from dict.fromkeys(turns)
