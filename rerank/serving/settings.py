"""What a server may take and how long it may take for it: one frozen value, checked when made."""

from __future__ import annotations

import ipaddress
import math
import socket
from dataclasses import dataclass

from rerank.errors import InputError

LEAST = {  # the smallest value that makes sense
    "port": 0,
    "queue": 1,
    "batch": 1,
    "max_body": 1024,
    "max_documents": 1,
    "max_document": 1,
    "max_query": 1,
    "max_depth": 3,
    "max_values": 10,
    "drift_window": 10,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to listen, and the bounds of every request."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: any that is free
    queue: int = 128  # requests in hand at once; the next one is answered 429
    batch: int = 16  # requests that wait and are then ranked in one call
    timeout: float = 30.0  # seconds for an answer, from the whole request on
    patience: float = 10.0  # seconds in which a client must have sent its request
    max_body: int = 4 * 1024 * 1024  # bytes
    max_documents: int = 1000  # a request
    max_document: int = 100_000  # characters of a document
    max_query: int = 8_000  # characters of a query
    max_depth: int = 16  # of nested JSON
    max_values: int = 50_000  # in the JSON of a request
    poll: float = 5.0  # seconds between two looks at the model; 0: look only at SIGHUP
    drift_window: int = 200  # searches that the drift alarm compares at a time
    drift_level: float = 0.001  # chance of a false alarm of one window
    log_text: bool = False  # whether logs may hold queries

    def __post_init__(self) -> None:
        """Refuse bounds that no server can keep."""
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise InputError(f"{name} should be {least} or more, got {getattr(self, name)}")
        for name in ("timeout", "patience"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} should be above 0 seconds, got {getattr(self, name)}")
        if not 0 <= self.poll < math.inf:
            raise InputError(f"poll should be 0 seconds or more, got {self.poll}")
        if not 0 < self.drift_level < 1:
            raise InputError(f"drift_level should be between 0 and 1, got {self.drift_level}")
        if self.port > 65535:
            raise InputError(f"port should be 65535 at most, got {self.port}")


def addresses(host: str) -> list[str]:
    """The numeric addresses that a host name stands for.

    Raises:
        InputError: it stands for none.
    """
    if not host:
        return ["0.0.0.0"]  # what listening on no host in particular means
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        raise InputError(f"host {host!r} is not known here: {error}") from None
    return [str(info[4][0]) for info in found]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`.

    Raises:
        InputError: the host is not known.
    """
    return all(ipaddress.ip_address(a.partition("%")[0]).is_loopback for a in addresses(host))


def listen(settings: Settings) -> socket.socket:
    """A socket that listens where the settings say.

    Raises:
        InputError: the address is taken, or not one of this machine's.
    """
    address = addresses(settings.host)[0]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise InputError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}"
        ) from None
