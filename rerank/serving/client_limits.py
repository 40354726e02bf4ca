"""Uvicorn's HTTP protocol with limits for clients, and without what can be read in two ways."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from rerank.serving.refusals import PRIVATE, Refusal

AHEAD = 2**16  # bytes that a client may send while the answer to its last request is made
SMALL_CHUNK = re.compile(rb"\r\n[0-9A-Fa-f]{1,2}\r\n")  # the size of a chunk below 256 bytes
SMALL_CHUNKS = 64  # in what arrives at once; each costs as much as a kilobyte
HEAD_BYTES = 2**14  # of a request before its body; so much is also parsed at once
HEAD_LINES = 100  # of headers
DROPPED = 2**27  # bytes of a body that nobody reads, so that its client gets the answer
TWO_WAYS = re.compile(rb"(?<!\r)\n|\n[ \t]")  # a line end of LF alone, or a header in two lines
BODY = re.compile(rb"\n(content-length|transfer-encoding):([^\r]*)", re.IGNORECASE)
HOST = re.compile(rb"\nhost:[ \t]*([^\r]*?)[ \t]*(?:\r|\Z)", re.IGNORECASE)
NAME = re.compile(rb"(?:[\w.-]*|\[[0-9a-f.]*:[0-9a-f.:]*\])(?::\d{0,5})?", re.IGNORECASE)
ODD_CHUNK = re.compile(rb"(?:\r\n)?[^\n]*(?:\0|\r[^\n])")  # a line that others end elsewhere
VERSIONS = (b" HTTP/1.1", b" HTTP/1.0")
LAST_CHUNK = re.compile(rb"(?:\r\n)?0+(?:;[^\n]*|[ \t]*)\r\n")
NO_HTTP = (
    "this is not an HTTP/1.1 request: expected lines that end with CR LF, one header a line, one "
    "Host header with a name or an address, and a body as long as one Content-Length says, or in "
    "chunks without trailers"
)
LONG_HEAD = (
    f"the request has more than {HEAD_BYTES} bytes or {HEAD_LINES} lines of headers; send fewer"
)


def client_limits(seconds: float, max_connections: int) -> type[ClientLimits]:
    """The protocol class of one server; its instances are the connections.

    `seconds` is the time-out of a client. A connection beyond `max_connections` closes the one that
    has been without a request longest.
    """
    limits = {"seconds": seconds, "max_connections": max_connections, "idle": {}}
    return type("ClientLimits", (ClientLimits,), limits)


class StrictRequests(h11.Connection):
    """The requests of a connection; a head that a proxy could read otherwise is refused.

    See RFC 9112, section 11.2; h11 alone takes these, and any number of headers.
    """

    refusal = Refusal(400, NO_HTTP, "http")
    _at_chunk = False  # the size of a chunk is next

    def next_event(self) -> Any:
        """The next event; an h11.RemoteProtocolError if there is none, and `refusal` says why."""
        if self.their_state is h11.IDLE:
            self._check_head(self.trailing_data[0])
        elif self._at_chunk and ODD_CHUNK.match(self.trailing_data[0]):
            raise h11.RemoteProtocolError("a sign in the line of a chunk")
        elif self._at_chunk and (last := LAST_CHUNK.match(rest := self.trailing_data[0])):
            end = rest[last.end() : last.end() + 2]
            if end != b"\r\n"[: len(end)]:
                raise h11.RemoteProtocolError("trailers")
            if len(end) < 2:
                return h11.NEED_DATA
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._at_chunk = any(name == b"transfer-encoding" for name, _ in event.headers)
        elif isinstance(event, h11.Data | h11.EndOfMessage):
            self._at_chunk = isinstance(event, h11.Data) and event.chunk_end
        return event

    def _check_head(self, data: bytes) -> None:
        head, complete, _ = data.partition(b"\r\n\r\n")
        if len(head) > HEAD_BYTES or head.count(b"\n") > HEAD_LINES:
            self.refusal = Refusal(431, LONG_HEAD, "http")
            raise h11.RemoteProtocolError("too many headers")
        if TWO_WAYS.search(head):
            raise h11.RemoteProtocolError("line ends")
        line, body, host = head.partition(b"\r")[0], BODY.findall(head), HOST.search(head)
        chunked = any(name.lower() != b"content-length" for name, _ in body)
        if complete and (
            not line.endswith(VERSIONS)
            or len(body) > 1
            or any(b"," in value for _, value in body)
            or (chunked and not line.endswith(VERSIONS[0]))
            or (host and not NAME.fullmatch(host[1]))
        ):
            raise h11.RemoteProtocolError("length or host")


class ClientLimits(H11Protocol):
    """A connection that also ends if its client sends no headers, or does not read.

    `seconds` count from the start of the connection, for a later request from its first byte, and
    for an answer from when the client stops reading. Floods of small chunks, or of data much ahead
    of the answer, end it, and so does the answer to a long body that is refused unread.
    """

    seconds: ClassVar[float]
    max_connections: ClassVar[int]
    idle: ClassVar[dict[ClientLimits, None]]  # no request in progress; longest idle first
    conn: StrictRequests
    quick = hasattr(socket, "TCP_QUICKACK")  # on Linux
    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _to_drop = 0  # bytes that may still come and are not read, after the last answer

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = StrictRequests(h11.SERVER)

    def connection_made(self, transport: Any) -> None:
        """Begin the time-out; with too many connections, close the one that is idle longest."""
        super().connection_made(transport)
        self._acknowledge()
        self._start()
        self.idle[self] = None
        first = next(iter(self.idle))
        if len(self.connections) >= self.max_connections and first is not self:
            del self.idle[first]
            self.connections.discard(first)  # at once, since uvicorn counts them
            first.transport.close()

    def on_response_complete(self) -> None:
        """From now on the connection is idle, or at its end: a long body is not read on."""
        super().on_response_complete()
        if self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY:
            length = dict(self.headers).get(b"content-length")
            if (length is None or int(length) > AHEAD) and not self.transport.is_closing():
                self._to_drop = DROPPED  # until uvicorn's time-out of idle connections
                self.transport.write_eof()
        if self.cycle.response_complete and not self.transport.is_closing():
            self.idle[self] = None

    def data_received(self, data: bytes) -> None:
        """Refuse floods; stop the time-out once the headers are complete."""
        if self._to_drop:
            self._to_drop = max(0, self._to_drop - len(data))
            if not self._to_drop:
                self.transport.abort()
            return
        if len(SMALL_CHUNK.findall(data)) > SMALL_CHUNKS + len(data) // 1024:
            self.transport.abort()
            return
        for start in range(0, len(data), HEAD_BYTES):
            if not self.transport.is_closing():
                super().data_received(data[start : start + HEAD_BYTES])
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
            self._start()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP as every refusal is answered; or end, if an answer began."""
        begun = False
        if self.cycle is not None and not self.cycle.response_complete:
            begun, self.cycle.disconnected = self.cycle.response_started, True
            self.cycle.message_event.set()
        if not begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            status, content = self.conn.refusal.status, self.conn.refusal.body()
            about = {"Content-Type": "application/json", "Content-Length": str(len(content))}
            headers = [*about.items(), ("Connection", "close"), *PRIVATE.items()]
            response = h11.Response(status_code=status, headers=headers)
            parts = (response, h11.Data(data=content), h11.EndOfMessage())
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
        """The client reads again, or is gone: stop the time-out."""
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

    def _start(self) -> None:
        self._timer = self.loop.call_later(self.seconds, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
