"""Uvicorn's HTTP protocol with limits for clients: slow ones, idle ones, and those that flood it.

It handles connections and knows nothing of what a request means.
"""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from rerank.serving.refusals import Refusal

AHEAD = 2**16  # bytes that a client may send while the answer to its last request is made
SMALL_CHUNK = re.compile(rb"\r\n[0-9A-Fa-f]{1,2}\r\n")  # the size of a chunk below 256 bytes
SMALL_CHUNKS = 64  # in what arrives at once; each costs as much as a kilobyte
NO_HTTP = (
    "this is not an HTTP/1.1 request: expected one Host header, and a body as long as "
    "Content-Length says, or in chunks"
)


def client_limits(seconds: float, max_connections: int) -> type[ClientLimits]:
    """The protocol class of one server; its instances are the connections.

    `seconds` is the time-out of a client, `max_connections` the number of open connections. A new
    one beyond that closes the one that has been without a request longest, so that idle ones cannot
    keep others out.
    """
    limits = {"seconds": seconds, "max_connections": max_connections, "idle": {}}
    return type("ClientLimits", (ClientLimits,), limits)


class ClientLimits(H11Protocol):
    """A connection that also ends if its client sends no headers, or does not read.

    `seconds` count from the start of the connection, for a later request from its first byte, and
    for an answer from when the client stops reading. A client that sends very small chunks, or much
    ahead of its answer, is disconnected.
    """

    seconds: ClassVar[float]
    max_connections: ClassVar[int]
    idle: ClassVar[dict[ClientLimits, None]]  # no request in progress; longest idle first
    quick = hasattr(socket, "TCP_QUICKACK")  # on Linux
    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin the time-out; with too many connections, close the one that is idle longest."""
        super().connection_made(transport)
        self._acknowledge()
        self._timer = self.loop.call_later(self.seconds, self._give_up)
        self.idle[self] = None
        first = next(iter(self.idle))
        if len(self.connections) >= self.max_connections and first is not self:
            del self.idle[first]
            self.connections.discard(first)  # at once, since uvicorn counts them
            first.transport.close()

    def on_response_complete(self) -> None:
        """From now on the connection is idle."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self.idle[self] = None

    def data_received(self, data: bytes) -> None:
        """Refuse floods; stop the time-out once the headers are complete."""
        if len(SMALL_CHUNK.findall(data)) > SMALL_CHUNKS + len(data) // 1024:
            self.transport.abort()
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()  # headers are complete; the body has its own time-out
            self.idle.pop(self, None)
            if self.cycle.more_body:
                self._acknowledge()
            elif len(self.conn.trailing_data[0]) > AHEAD:
                self.transport.abort()
            else:  # uvicorn stops reading here, and would not see that the client goes away
                self.flow.resume_reading()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self._give_up)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP as every refusal is answered; or end, if an answer began."""
        begun = False
        if self.cycle is not None and not self.cycle.response_complete:
            begun, self.cycle.disconnected = self.cycle.response_started, True
            self.cycle.message_event.set()
        if not begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            refusal = Refusal(400, NO_HTTP, reason="http")
            headers = {"Content-Type": "application/json", "Connection": "close"}
            response = h11.Response(status_code=400, headers=list(headers.items()))
            parts = (response, h11.Data(data=refusal.body()), h11.EndOfMessage())
            self.transport.writelines(self.conn.send(part) or b"" for part in parts)
        self.transport.close()

    def _acknowledge(self) -> None:
        """Acknowledge what comes at once, so that a body in parts does not wait 40 ms."""
        if self.quick and (connected := self.transport.get_extra_info("socket")) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, True)

    def pause_writing(self) -> None:
        """The client does not read: give it `seconds`."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time-outs."""
        self._stop()
        self.idle.pop(self, None)
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
