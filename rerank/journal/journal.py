"""A journal kept while questions are answered: entries are written in the background.

It never makes an answer fail: what cannot be written is counted, and reported on closing. A SIGKILL
loses at most what arrived in `GATHER` seconds and one commit.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice

from rerank.errors import JournalError, RerankError
from rerank.journal.store import Entry, JournalStore, RefusedValueError, entry_of
from rerank.protocols import GivenAnswer
from rerank.types import Assessment

GATHER = 0.2  # seconds to collect entries for one commit
BATCH = 500  # most entries of one commit
MAX_ENTRIES = 10_000  # in the queue
MAX_SIZE = 64 * 2**20  # characters of their texts
PAUSES = (0.5, 10.0)  # seconds between tries while the database fails: the first, the longest
PRUNE_EVERY = 600.0  # seconds
REPEATED = 60.0  # seconds between two log lines on dropped entries
FLUSH = 2.0  # seconds that feedback waits for its answer to be written
CLOSING = 10.0  # seconds to write the waiting entries at the end
OUTCOMES = ("written", "dropped", "rejected", "lost")  # of an entry

logger = logging.getLogger(__name__)


class Journal(AbstractContextManager["Journal"]):
    """A journal by its URL, created if there is none: see `JournalStore`; or by its open store.

    >>> with Journal("sqlite:///journal.db") as journal:  # doctest: +SKIP
    ...     assessment = model.search("median ignoring NaNs")
    ...     answer_id = journal.record(assessment, model=model.version)
    ...     journal.judge(answer_id, right=True)

    Entries older than `days`, and the oldest beyond `rows`, are removed; 0 is no limit.
    `without_text` keeps hashes of the texts. `count` is called with the outcome of entries:
    `written`; `dropped`, because the queue was full; `rejected`, because no entry could be made or
    the database does not accept a value; `lost`, because they were not written before the end.
    `failed` counts failed tries, which are repeated.

    Raises:
        InputError: another kind of URL, or a schema of a newer version.
        JournalError: the database cannot be reached, is locked, or damaged.
    """

    def __init__(
        self,
        url: str | JournalStore,
        *,
        days: float = 0,
        rows: int = 0,
        without_text: bool = False,
        count: Callable[[str, int], None] = lambda outcome, n: None,
    ) -> None:
        self.store = JournalStore(url, create=True) if isinstance(url, str) else url
        self._days = days
        self._rows = rows
        self._without_text = without_text
        self._told, self._outcomes, self._counting = count, Counter[str](), threading.Lock()
        self._entries: deque[Entry] = deque()  # an entry is removed when it is written
        self._size = 0
        self._changed = threading.Condition()
        self._hurry = False  # somebody waits for the queue to be written
        self._deadline: float | None = None  # set when closing
        self._pruned = float("-inf")
        self._dropped, self._logged_dropped = 0, float("-inf")
        self._failure = self._refused = ""  # why the last failed try failed; and the last entry
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """Close the journal, with a warning if entries were not written."""
        message = self.close()
        if message:
            warnings.warn(message, stacklevel=2)

    @property
    def waiting(self) -> int:
        """Entries that are not written yet."""
        return len(self._entries)

    def record(
        self,
        assessment: Assessment,
        *,
        model: str,
        latency: float = 0.0,
        answer: GivenAnswer | None = None,
        answer_id: str = "",
    ) -> str:
        """Queue an assessed question, and the answer based on it; never waits, never fails.

        `model` is the model's version, `model.version`; `latency` is in seconds.

        Returns:
            `answer_id`, which feedback uses; a new one if none is given.
        """
        answer_id = answer_id or secrets.token_hex(8)
        try:
            entry = entry_of(
                assessment,
                answer_id=answer_id,
                model=model,
                latency=latency,
                answer=answer,
                without_text=self._without_text,
            )
        except Exception as error:  # such as metadata that is not JSON
            self._refused = f"an entry could not be made ({type(error).__name__})"
            logger.error("not written to the journal: %s", self._refused)
            with suppress(Exception):
                self._count("rejected", 1)
        else:
            self.offer(entry)
        return answer_id

    def judge(self, answer_id: str, right: bool, comment: str = "") -> bool:
        """As `JournalStore.judge`; it also finds answers recorded just now.

        Raises:
            JournalError: also if there is no such answer, but some are not written yet.
        """
        written = self.flush()
        known = self.store.judge(answer_id, right, comment)
        if not known and not written:
            raise JournalError(
                f"the journal {self.store.name} has no answer {answer_id!a:.80}, but "
                f"{self.waiting} answers are not written yet; try again"
            )
        return known

    def offer(self, entry: Entry) -> bool:
        """Queue an entry, without waiting; False if the queue is full and it is dropped."""
        with self._changed:
            full = len(self._entries) >= MAX_ENTRIES or self._size + _size(entry) > MAX_SIZE
            if not full and self._deadline is None:
                self._entries.append(entry)
                self._size += _size(entry)
                self._changed.notify_all()
                return True
            self._dropped += 1
            dropped, now = self._dropped, time.monotonic()
            log_now = now - self._logged_dropped >= REPEATED
            if log_now:
                self._dropped, self._logged_dropped = 0, now
        self._count("dropped", 1)
        if log_now:
            _log(logging.ERROR, "journal full, entries dropped", entries=dropped)
        return False

    def flush(self, seconds: float | None = None) -> bool:
        """Wait until all is written, at most `seconds` (`FLUSH`); return whether it is."""
        seconds = FLUSH if seconds is None else seconds
        with self._changed:
            self._hurry = bool(self._entries)
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._entries, seconds)

    def close(self, seconds: float | None = None) -> str:
        """Write the waiting entries within `seconds` (`CLOSING`), and stop.

        Returns:
            A sentence on what could not be written; empty if all is.
        """
        seconds = CLOSING if seconds is None else seconds
        with self._changed:
            self._deadline = time.monotonic() + seconds
            self._changed.notify_all()
        self._thread.join(seconds + 1)
        if lost := self.waiting:
            self._count("lost", lost)
            _log(logging.ERROR, "journal ended before all was written", lost=lost)
        self.store.close()
        missing = sum(self._outcomes[outcome] for outcome in OUTCOMES if outcome != "written")
        if not missing:
            return ""
        why = self._failure or self._refused or f"{self.store.name} did not take them"
        return f"not written to the journal: {missing} answered questions ({why})"

    def _count(self, outcome: str, count: int) -> None:
        with self._counting:  # by the thread that writes, and by those that record
            self._outcomes[outcome] += count
        self._told(outcome, count)

    def _work(self) -> None:
        pause, failing = PAUSES[0], False
        while (batch := self._next()) is not None:
            try:
                if failing:
                    self.store.check()  # the database file may be a new one
                rejected = self._write(batch)
            except Exception as error:
                self._failed(error, already=failing)
                failing = True
                if not self._wait_to_retry(pause):
                    return
                pause = min(2 * pause, PAUSES[1])
                continue
            if failing:
                _log(logging.INFO, "journal works again", waiting=self.waiting)
            pause, failing = PAUSES[0], False
            self._count("written", len(batch) - rejected)
            if rejected:
                self._count("rejected", rejected)
            with self._changed:
                for entry in batch:
                    self._entries.popleft()
                    self._size -= _size(entry)
                self._hurry = self._hurry and bool(self._entries)
                self._changed.notify_all()

    def _next(self) -> list[Entry] | None:
        """The next entries to write, or None at the end; old ones are pruned while it waits."""
        while True:
            self._prune_in_time()
            with self._changed:
                if not self._changed.wait_for(
                    lambda: self._entries or self._deadline is not None, PRUNE_EVERY
                ):
                    continue
                if not self._entries:
                    return None
                self._changed.wait_for(
                    lambda: self._hurry or self._deadline or len(self._entries) >= BATCH, GATHER
                )
                return list(islice(self._entries, BATCH))

    def _write(self, batch: Sequence[Entry]) -> int:
        """Write a batch, one by one if the database rejects values; return how many it rejects."""
        try:
            self.store.add(batch)
        except RefusedValueError:  # its message may quote the values
            if len(batch) > 1:
                return sum(self._write([entry]) for entry in batch)
            _log(logging.ERROR, "journal entry rejected", id=batch[0]["answer_id"])
            return 1
        return 0

    def _failed(self, error: Exception, *, already: bool) -> None:
        self._count("failed", 1)
        self._failure = str(error) if isinstance(error, RerankError) else type(error).__name__
        if not already:
            _log(logging.ERROR, "journal fails", why=self._failure, waiting=self.waiting)

    def _wait_to_retry(self, pause: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._deadline is not None, pause)
            if self._deadline is None:
                return True
            left = self._deadline - time.monotonic()
        time.sleep(max(0.0, min(left, PAUSES[0])))
        return left > 0

    def _prune_in_time(self) -> None:
        now = time.monotonic()
        if now - self._pruned < PRUNE_EVERY or self._deadline is not None:
            return
        self._pruned = now
        try:
            if removed := self.store.prune(days=self._days, rows=self._rows):
                _log(logging.INFO, "journal pruned", removed=removed)
        except Exception as error:
            self._failed(error, already=False)


def _size(entry: Entry) -> int:
    return sum(len(entry[name] or "") for name in ("question", "asked", "passages", "answer"))


def _log(severity: int, event: str, **fields: object) -> None:
    logger.log(severity, event, extra={"fields": fields})
