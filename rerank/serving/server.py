"""Serves a model with uvicorn: socket, keys, client time-outs, shutdown."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

import uvicorn

from rerank.errors import InputError
from rerank.rooms import offered
from rerank.serving.app import create_app
from rerank.serving.client_limits import client_limits
from rerank.serving.middleware import ApiKeys
from rerank.serving.model_source import ModelHolder, ModelPlace
from rerank.serving.settings import Settings
from rerank.serving.telemetry import Metrics, event, log_to_stderr

CONNECTIONS = 1000  # open at once: the next one closes the one that has been idle longest
FEWEST = 8  # of them, however short files are
FILES, OTHER_FILES = 4096, 48  # open files to be allowed; of these, for anything but connections
VARIABLE = "RERANK_API_KEYS"  # in the environment: comma-separated keys, any of which is accepted


def make_server(
    holder: ModelHolder, settings: Settings, given: Mapping[str, Any] | None = None
) -> uvicorn.Server:
    """A server of the holder's model; it starts to listen with `run(sockets=[...])`.

    `given` is what the rooms' parts get beside the settings, by the name of the room.
    """
    most, reading = connections(), settings.read_timeout
    config = uvicorn.Config(
        create_app(holder, settings, keys_for(settings.host), given),
        http=client_limits(reading, most),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=most,
        timeout_keep_alive=max(5, round(reading)),
        timeout_graceful_shutdown=round(settings.timeout + reading) + 5,
    )
    return uvicorn.Server(config)


def serve(
    place: ModelPlace, settings: Settings, given: Mapping[str, Any] | None = None, **how: Any
) -> None:
    """Serve the model at a place, until SIGTERM or Ctrl-C; SIGHUP refreshes it.

    Requests accepted before are answered. `given` is that of `make_server`, and `how` is what
    `rerank.load` takes.
    """
    if hasattr(signal, "SIGHUP"):  # until the model is there to be refreshed
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    keys = keys_for(settings.host)  # fail before spending seconds on the model
    check_settings(settings)
    with listen(settings) as listening:
        holder = ModelHolder(place.folder, Metrics(), run_of=place.run, **how)
        server = make_server(holder, settings, given)
        log_to_stderr()
        address = url_of(settings.host, listening.getsockname()[1])
        event("serving", address=address, model=holder.current.version, keys=bool(keys))

        def end(*_: object) -> None:
            server.should_exit = True

        signal.signal(signal.SIGTERM, end)  # before uvicorn installs its own handler, and after
        server.run(sockets=[listening])
        event("stopped")


def check_settings(settings: Settings) -> None:
    """Refuse a journal that cannot be written (InputError, JournalError), else create it."""
    if settings.journal:
        offered("a journal")(settings)


def url_of(host: str, port: int) -> str:
    """The URL of a server; the address of IPv6 stands in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def connections() -> int:
    """How many connections may be open at once, after the limit of open files was raised."""
    try:
        import resource
    except ImportError:  # another system
        return CONNECTIONS
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (sys.maxsize if n == resource.RLIM_INFINITY else n for n in limits)
    wanted = min(FILES, hard)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, limits[1]))
            soft = wanted
    return min(CONNECTIONS, max(FEWEST, soft - OTHER_FILES))


def addresses(host: str) -> list[str]:
    """The numeric addresses of a host name; no host means all of this machine's."""
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", None)
    except (OSError, UnicodeError) as error:
        raise InputError(f"host {host!r} is not known here: {error}") from None
    return [str(info[4][0]) for info in found]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at `host`; an InputError if it is unknown."""
    return all(ipaddress.ip_address(a.partition("%")[0]).is_loopback for a in addresses(host))


def listen(settings: Settings) -> socket.socket:
    """A socket that listens at the address of the settings; an InputError if it cannot be used."""
    address = addresses(settings.host)[0]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listening = socket.create_server((address, settings.port), family=family, backlog=2048)
    except OSError as error:
        where, why = f"{settings.host}:{settings.port}", error.strerror or error
        raise InputError(f"cannot listen on {where}: {why}") from None
    # accepted connections inherit it; asyncio sets it only if a socket names its protocol, and
    # without it the end of an answer waits 40 ms for the client's delayed acknowledgement
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    return listening


def keys_for(host: str, environment: Mapping[str, str] = os.environ) -> ApiKeys:
    """The keys in the environment; an InputError if one cannot be sent, or none guards `host`."""
    keys = tuple(filter(None, map(str.strip, environment.get(VARIABLE, "").split(","))))
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise InputError(f"a key in {VARIABLE} has characters that no header can hold; use ASCII")
    if not keys and not is_loopback(host):
        raise InputError(
            f"others than this machine can reach {host or 'every address'}, so {VARIABLE} must "
            "name the keys that open the server; or listen on 127.0.0.1"
        )
    return ApiKeys(keys)
