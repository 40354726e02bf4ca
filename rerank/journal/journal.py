"""A journal kept while questions are answered: it writes entries in the background, and feedback.

It never makes an answer fail: what cannot be written is counted, and reported on closing.
"""

from __future__ import annotations

import logging
import secrets
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from rerank.errors import JournalError
from rerank.journal import writer
from rerank.journal.entry import entry_of
from rerank.journal.store import JournalStore
from rerank.journal.writer import OUTCOMES, JournalWriter
from rerank.rag.answer.bounded import BoundedAnswer
from rerank.types import Assessment

logger = logging.getLogger(__name__)

FLUSH = 2.0  # seconds that feedback waits for its answer to be written


class Journal:
    """A journal by its URL, created if there is none: see `JournalStore` and `JournalWriter`.

    >>> with Journal("sqlite:///journal.db") as journal:  # doctest: +SKIP
    ...     found = model.search("median ignoring NaNs")
    ...     answer_id = journal.record(found, model=model.version)
    ...     journal.judge(answer_id, right=True)

    Entries older than `days`, and the oldest beyond `rows`, are removed; 0 is no limit.
    `without_text` keeps hashes of the texts. `count` is called with the outcome of entries.

    Raises:
        InputError: another kind of URL, or a schema of a newer version.
        JournalError: the database cannot be reached, is locked, or damaged.
    """

    def __init__(
        self,
        url: str,
        *,
        days: float = 0,
        rows: int = 0,
        without_text: bool = False,
        count: Callable[[str, int], None] = lambda outcome, n: None,
    ) -> None:
        self.store = JournalStore(url, create=True)
        self._without_text, self._refused = without_text, ""
        self._count, self._outcomes, self._counting = count, Counter[str](), threading.Lock()
        self._writer = JournalWriter(self.store, days=days, rows=rows, count=self._counted)

    def __enter__(self) -> Self:
        """The journal; at the end it is closed, with a warning if entries were not written."""
        return self

    def __exit__(self, *_: object) -> None:
        message = self.close()
        if message:
            warnings.warn(message, stacklevel=2)

    @property
    def waiting(self) -> int:
        """Entries that are not written yet."""
        return self._writer.waiting

    def record(
        self,
        assessment: Assessment,
        *,
        model: str,
        latency: float = 0.0,
        answer: BoundedAnswer | None = None,
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
                self._counted("rejected", 1)
        else:
            self._writer.offer(entry)
        return answer_id

    def judge(self, answer_id: str, right: bool, comment: str = "") -> bool:
        """As `JournalStore.judge`; it also finds answers recorded just now.

        Raises:
            JournalError: also if there is no such answer while some are not written yet: it may be
                one of them.
        """
        written = self.flush()
        found = self.store.judge(answer_id, right, comment)
        if not found and not written:
            raise JournalError(
                f"the journal {self.store.name} has no answer {answer_id!a:.80}, but "
                f"{self.waiting} answers are not written yet; try again"
            )
        return found

    def flush(self) -> bool:
        """Wait until all is written, at most `FLUSH` seconds; return whether it is."""
        return self._writer.flush(FLUSH)

    def close(self) -> str:
        """Write the waiting entries, within some seconds, and stop.

        Returns:
            A sentence on what could not be written; empty if all is.
        """
        self._writer.close(writer.CLOSING)
        self.store.close()
        missing = sum(self._outcomes[outcome] for outcome in OUTCOMES if outcome != "written")
        if not missing:
            return ""
        why = self._writer.failure or self._refused or f"{self.store.name} did not take them"
        return f"not written to the journal: {missing} answered questions ({why})"

    def _counted(self, outcome: str, count: int) -> None:
        with self._counting:  # by the writer, and by threads that record
            self._outcomes[outcome] += count
        self._count(outcome, count)
