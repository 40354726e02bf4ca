"""Who is let in, who is next, who is dropped: decisions at a time that the test sets."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from rerank.serving.admission import (
    MIN_PIECE,
    PIECE,
    PRIOR_SECONDS,
    RESET_AFTER,
    Busy,
    Pace,
    Schedule,
    ScheduledRequest,
    TooLarge,
)

ALLOWED = 10.0  # seconds of work, where a request must be answered in 20


@pytest.fixture
def schedule() -> Schedule[ScheduledRequest]:
    """One of a machine that is as fast as at loading, with nothing in it."""
    return Schedule[ScheduledRequest](2 * ALLOWED)


def request(seconds: float, deadline: float = 20.0) -> ScheduledRequest:
    """A request of so many seconds of work."""
    return ScheduledRequest(deadline, seconds)


def test_the_first_request_has_an_estimate() -> None:
    """That of the speed at loading: nobody is let in whom the machine cannot answer."""
    fresh = Schedule[ScheduledRequest](20.0)
    with pytest.raises(TooLarge):
        fresh.add(request(11), 0.0)
    fresh.add(request(9), 0.0)
    assert (fresh.backlog, fresh.retry_after, fresh.piece) == (9.0, 9, PIECE)


def test_too_much_is_refused_with_the_estimate(schedule: Schedule[ScheduledRequest]) -> None:
    """What takes longer than allowed alone, and what takes longer beside the others."""
    with pytest.raises(TooLarge) as large:
        schedule.add(request(10.5), 0.0)
    assert large.value.seconds == pytest.approx(10.5)
    schedule.add(request(6), 0.0)
    with pytest.raises(Busy) as busy:
        schedule.add(request(6), 0.0)
    assert busy.value.seconds == pytest.approx(12)
    assert schedule.retry_after == 6
    schedule.add(request(4), 0.0)


def test_a_short_request_passes_a_long_one(schedule: Schedule[ScheduledRequest]) -> None:
    """It is let in although the longer ones fill the time, as it need not wait for them."""
    for _ in range(2):
        schedule.add(request(5), 0.0)
    schedule.add(request(1), 0.0)
    with pytest.raises(Busy):
        schedule.add(request(6), 0.0)


def test_two_rules_take_turns(schedule: Schedule[ScheduledRequest]) -> None:
    """The shortest, the oldest, the next shortest: each request once, a long one second."""
    long, middle, short = request(4, 20), request(2, 21), request(1, 22)
    for one in (long, middle, short):
        schedule.add(one, 0.0)
    assert list(schedule.in_turn()) == [short, long, middle]
    equals = Schedule[ScheduledRequest](20)
    equals.requests = [request(1, deadline) for deadline in (3, 1, 2)]
    assert [t.deadline for t in equals.in_turn()] == [1, 2, 3]


def test_who_cannot_be_in_time_makes_way(schedule: Schedule[ScheduledRequest]) -> None:
    """Where others wait; the last one is tried until its time is over."""
    late, timely = request(5, 20), request(5, 30)
    schedule.requests = [late, timely]
    assert schedule.drop_late(14.9) == []
    assert schedule.drop_late(15.1) == [late]
    assert schedule.drop_late(26.0) == []
    assert schedule.requests == [timely]
    assert schedule.drop_late(30.0) == [timely]
    assert schedule.requests == []


def test_a_hopeless_request_makes_way_at_once(schedule: Schedule[ScheduledRequest]) -> None:
    """Even where nobody waits, if the machine had to be more than twice as fast as it is."""
    schedule.requests = [request(9, 10)]
    assert schedule.drop_late(5.0) == []
    assert len(schedule.drop_late(6.0)) == 1


def test_a_bad_moment_is_forgotten(schedule: Schedule[ScheduledRequest]) -> None:
    """A stall that would refuse everything is not believed for ever, once nothing is measured."""
    schedule.worked(1, 100, 50.0)
    with pytest.raises(TooLarge):
        schedule.add(request(2), 50.0 + RESET_AFTER)
    schedule.add(request(2), 51.0 + RESET_AFTER)
    assert schedule.pace.now == 1.0


def test_the_pace_is_that_of_the_latest_rounds() -> None:
    """By work, not by rounds; a short round moves it little."""
    pace = Pace()
    assert pace.now == 1.0
    pace.add(PRIOR_SECONDS / 100, PRIOR_SECONDS / 10)
    assert pace.now < 1.1
    for _ in range(200):
        pace.add(1.0, 5.0)
    pace.add(0, 0.0)
    assert pace.now == pytest.approx(5.0, rel=0.01)


def test_a_piece_takes_the_same_time_at_any_pace() -> None:
    """But for a bound: a piece is not a single token."""
    found = []
    for pace in (0.1, 1.0, 100.0):
        made = Schedule[ScheduledRequest](30.0)
        made.pace.now = pace
        found.append(made.piece)
    assert found == [10 * PIECE, PIECE, MIN_PIECE]


@dataclass
class Seen:
    """What a simulated machine did, in numbers of requests."""

    answered: int = 0
    late: int = 0
    refused: int = 0
    short: int = 0  # of the answered, those of a tenth of the usual work


def simulate(load: float, *, seconds: float = 100.0, heavy: float = 0.0) -> Seen:
    """A machine of one second of work a second, and `load` times as much that comes by chance.

    Requests take about 0.2 seconds; a share `heavy` takes 30 times that. The machine's pace, and
    what a request takes beside its estimate, vary by half.
    """
    noise = 0.5
    rng = random.Random(0)
    schedule, seen, now = Schedule[ScheduledRequest](20.0), Seen(), 0.0
    usual = 0.2 * (1 + 29 * heavy)
    following = 0.0
    true: dict[ScheduledRequest, float] = {}
    while now < seconds:
        while following <= now:
            size = 0.2 * rng.choice((0.1, 1.0, 1.9)) * (30 if rng.random() < heavy else 1)
            came = request(size, following + 20.0)
            following += rng.expovariate(load / usual)
            try:
                schedule.add(came, now)
                true[came] = came.left * rng.uniform(1 - noise, 1 + noise)
            except (Busy, TooLarge):
                seen.refused += 1
        seen.late += len(schedule.drop_late(now))
        done, start = 0.0, now
        for one in schedule.in_turn():
            if done >= 2 * schedule.piece:
                break
            part = min(schedule.piece, true[one])
            true[one] -= part
            one.left = max(0.001, one.left - part)
            done += part
            if true[one] <= 0:
                schedule.requests.remove(one)
                taken = start + done
                seen.answered += taken <= one.deadline
                seen.late += taken > one.deadline
                seen.short += one.whole < 0.03
        if not done:
            now = following
            continue
        now += done * rng.uniform(1 - noise, 1 + noise)
        schedule.worked(done, now - start, now)
    return seen


def test_overload_costs_no_answers() -> None:
    """At ten times what the machine can do it answers as much as at its best, nearly none late."""
    best = max(simulate(load).answered for load in (0.8, 0.9, 1.0))
    flooded = simulate(10.0)
    assert flooded.answered >= 0.9 * best
    assert flooded.refused > flooded.answered
    assert flooded.late <= 0.01 * flooded.answered


def test_heavy_requests_do_not_starve_others() -> None:
    """With some among them that take 30 times as long, at twice the load: the others go on."""
    mixed = simulate(2.0, heavy=0.05)
    assert mixed.answered >= 0.5 * simulate(1.0, heavy=0.05).answered
    assert mixed.late <= 0.02 * mixed.answered
