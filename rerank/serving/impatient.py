"""HTTP/1.1 with a bound on how long a client may take to ask, and to hear."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


def impatient(seconds: float) -> type[H11Protocol]:
    """The protocol of uvicorn, but it leaves clients that do not send their headers or do not read.

    `seconds` run from the connection's start, for a later request from its first byte, and for an
    answer from when the client has stopped to read it.
    """

    class Impatient(H11Protocol):
        _timer: asyncio.TimerHandle | None = None
        _unread: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(seconds, self._give_up)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop()  # the headers are whole; the body has a bound of its own
            elif self._timer is None:
                self._timer = self.loop.call_later(seconds, self._give_up)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._unread = self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            if self._unread is not None:
                self._unread.cancel()
            super().connection_lost(exc)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _give_up(self) -> None:
            self._timer = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return Impatient
