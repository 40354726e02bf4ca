"""Models behind an address: requests over HTTP, tried again, counted; no message has a key."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cached_property
from threading import Event, Lock, Timer
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import NDArray

from rerank.config import check_options, option
from rerank.errors import InputError, RetrieverError, one_line, optional
from rerank.inference.remote.wires import (
    PLAIN_HOSTS,
    PLAIN_KEY,
    RERANKERS,
    Address,
    BadAnswerError,
    Wire,
)
from rerank.protocols import Request, Role, Traits
from rerank.storage.files import loads

TRIES = 6  # of one request
TIMEOUT = 60.0  # seconds that one try may take
FIRST_WAIT = 0.5  # seconds before the second try, twice as many before each next one
THREADS = 8  # requests at the same time
LARGEST = 2**25  # bytes of an answer; 128 vectors of 8,192 numbers have some 24 million
MOST_TOKENS = 10**9  # of an answer
LONGEST_NAME = 1_000  # characters of what a server calls its model
LONGEST_ERROR = 2**12  # characters of an error that are looked at
PLAIN = {"accept-encoding": "identity"}  # a kilobyte that is compressed may become a gigabyte
OVERLOADED = {408, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529}
OTHER_FORM = {400, 404, 415, 422}
NO_KEY = {401, 403}
ROUNDING = 1 + 1e-9  # of sums of prices
patience: ContextVar[float] = ContextVar("patience", default=300.0)
"""Seconds that one request may take with all its tries, for the calls of this thread."""

Found = TypeVar("Found")


class LimitError(RetrieverError):
    """The budget is used up: the user's own limit, which nothing takes the place of."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What the requests of a run to all its models together may be and cost."""

    most_requests: int = option(
        0,
        "most requests to remote models, retries included; results are kept, so the same command "
        "with a higher limit continues; 0: no limit",
        ge=0,
    )
    most_cost: float = option(
        0.0, "most that these requests may cost, at your prices; 0: no limit", ge=0
    )
    price_per_1000_requests: float = option(
        0.0, "price of 1,000 of these requests, in any currency", ge=0
    )
    price_per_million_tokens: float = option(
        0.0,
        "price of a million tokens, as the servers count them; up to eight running requests may "
        "exceed --most-cost",
        ge=0,
    )

    def __post_init__(self) -> None:
        check_options(self)


class Meter:
    """Counts the requests of this process by model, each try, and refuses those over a budget."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.start(Budget())

    def start(self, budget: Budget) -> None:
        """Count anew, up to a budget; an InputError if it is of money, and has no price."""
        if (
            budget.most_cost
            and not budget.price_per_1000_requests + budget.price_per_million_tokens
        ):
            raise InputError(
                "--most-cost needs a price: --price-per-1000-requests or --price-per-million-tokens"
            )
        with self._lock:
            self.sent, self.tokens, self.budget = Counter[str](), Counter[str](), budget

    @property
    def cost(self) -> float:
        """What the requests have cost, each try, and the tokens of answers."""
        b = self.budget
        of_tokens = self.tokens.total() * b.price_per_million_tokens / 1e6
        return self.sent.total() * b.price_per_1000_requests / 1000 + of_tokens

    def count(self, name: str) -> None:
        """Count a request that is about to be sent."""
        with self._lock:
            b, spent, why = self.budget, self.cost, ""
            after = spent + b.price_per_1000_requests / 1000
            if b.most_requests and self.sent.total() >= b.most_requests:
                why = f"{b.most_requests} were sent, as many as --most-requests allows"
            elif b.most_cost and (spent >= b.most_cost or after > b.most_cost * ROUNDING):
                why = f"they have cost {spent:.6g}, and --most-cost allows {b.most_cost:g}"
            if why:
                raise LimitError(
                    f"no more requests to models: {why}; what they brought is kept: run it again "
                    "with more"
                )
            self.sent[name] += 1

    def used(self, name: str, tokens: object) -> None:
        """Count the tokens of an answer, which a price of tokens needs."""
        count = tokens if isinstance(tokens, int) and 0 <= tokens <= MOST_TOKENS else None
        if self.budget.price_per_million_tokens and count is None:
            raise InputError(
                f"the answers of {name} do not say how many tokens they cost: "
                "`usage.total_tokens`; expected --price-per-1000-requests instead"
            )
        with self._lock:
            self.tokens[name] += count or 0

    def sentences(self) -> list[str]:
        """How many requests went to each model, and what they cost if that is known."""
        told = [f"{n} request{'s' * (n > 1)} to {name}" for name, n in sorted(self.sent.items())]
        return [*told, f"their cost: {self.cost:.10g}"] if told and self.cost else told


METER = Meter()


class OtherFormError(RetrieverError):
    """The server does not know the fields of the request."""


class Client:
    """Sends the requests of one model. Safe to call from many threads.

    `of_folder`: a model folder, which others may have written, named the address: the key is sent
    only to hosts that the environment names.
    """

    def __init__(self, address: Address, wire: int | None = None, *, of_folder: bool) -> None:
        self.address = address
        self.served = ""  # what the server called its model in the last answer
        self.wire = wire if len(address.wires) > 1 else 0  # in `wires`; None: found at first use
        self._finding = Lock()
        self._key = os.environ.get(address.key, "").strip()
        host = urlsplit(address.url).netloc
        if self._key and not (self._key.isascii() and self._key.isprintable()):
            raise InputError(f"{address.key} has characters that no header can hold")
        allowed = os.environ.get(PLAIN_HOSTS, "").replace(",", " ").split()
        if self._key and of_folder and address.key == PLAIN_KEY and host not in allowed:
            raise InputError(
                f"{PLAIN_KEY} is set, and the address {host} comes from the model folder: set "
                f"{PLAIN_HOSTS} to the hosts that the key is for"
            )

    def ask(self, asked: str, texts: Sequence[str]) -> list[Any]:
        """What the model gives for texts, one value each, in their order."""
        values: list[Any] = []
        if self.wire is None:
            with self._finding:
                if self.wire is None:
                    values = self._find(asked, texts)
        wire = self.address.wires[self.wire or 0]
        for i in range(len(values), len(texts), wire.most):
            values += self._post(wire, asked, texts[i : i + wire.most])
        return values

    def _find(self, asked: str, texts: Sequence[str]) -> list[Any]:
        """The values of the first texts, in the first form that the server knows."""
        for i, wire in enumerate(self.address.wires):
            try:
                values = self._post(wire, asked, texts[: wire.most])
            except OtherFormError:
                if wire is self.address.wires[-1]:
                    raise
            else:
                self.wire = i
                return values
        raise AssertionError("an address has a form")

    def _post(self, wire: Wire, asked: str, texts: Sequence[str]) -> list[Any]:
        body, until = wire.body(self.address.model, asked, texts), time.monotonic() + patience.get()
        wait = FIRST_WAIT
        for turn in range(1, TRIES + 1):
            METER.count(self.address.name)
            values, why, asks = self._try(wire, body, len(texts), until - time.monotonic())
            if values is not None:
                return values
            pause = wait if asks is None else asks
            if turn == TRIES or time.monotonic() + pause > until:
                break
            time.sleep(pause)
            wait *= 2
        why = without_key(why, self._key)
        longer = f"; it asks to wait {asks:g} seconds" if asks else ""
        raise RetrieverError(f"{self.address.name}: {why}{longer} (try {turn} of {TRIES})")

    def _try(
        self, wire: Wire, body: Any, count: int, left: float
    ) -> tuple[list[Any] | None, str, float | None]:
        """The values; or why there are none, and how many seconds the server asks to wait."""
        import httpx  # `_http` has told if it is missing

        timeout = max(0.01, min(TIMEOUT, left))
        try:
            with in_time(2 * timeout, self._close):  # a stall ends earlier
                response = self._http.post(self.address.url, json=body, timeout=timeout)
        except (httpx.TransportError, LargeAnswerError, TimeoutError, RuntimeError) as error:
            # a RuntimeError: another thread has closed the client, as its answer came too slowly
            return None, f"no answer: {one_line(error)}", None
        status = response.status_code
        if status in OVERLOADED:
            return None, f"it answers {status}", seconds_of(response.headers.get("retry-after"))
        if status != httpx.codes.OK:
            said = " ".join(response.text[:LONGEST_ERROR].split())
            said = without_key(said, self._key)
            advice = f"; is the key in {self.address.key} {'right' if self._key else '(not set)'}?"
            advice = advice if status in NO_KEY else ""
            raise (OtherFormError if status in OTHER_FORM else RetrieverError)(
                f"{self.address.name} answers {status}: {said[:200]!a}{advice}"
            )
        try:
            answer = loads(response.content)
            values = wire.read(answer, count)
        except (ValueError, RecursionError) as error:
            what = str(error) if isinstance(error, BadAnswerError) else "it is no JSON"
            return None, f"its answer cannot be used: {what}", None
        told = answer if isinstance(answer, dict) else {}
        usage = told.get("usage")
        tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
        METER.used(self.address.name, tokens)
        if isinstance(told.get("model"), str):
            self.served = told["model"][:LONGEST_NAME]
        return values, "", None

    @cached_property
    def _http(self) -> Any:
        with optional():
            import httpx

        headers = PLAIN | ({"authorization": f"Bearer {self._key}"} if self._key else {})
        hooks = {"response": [bounded]}
        return httpx.Client(
            headers=headers, limits=httpx.Limits(max_connections=64), event_hooks=hooks
        )

    def _close(self) -> None:
        """Close all connections; the next request opens others."""
        if (http := self.__dict__.pop("_http", None)) is not None:
            http.close()


class LargeAnswerError(Exception):
    """An answer that is too large, or may become so."""


def bounded(response: Any) -> None:
    """Bound the body of an answer, of an error too; a hook of clients that ask for it `PLAIN`."""
    read = response.iter_raw
    response.iter_raw = lambda chunk_size=None: map(_counter(response), read(chunk_size))


async def bounded_async(response: Any) -> None:
    """As `bounded`, of an asynchronous client."""
    read, count = response.aiter_raw, _counter(response)

    async def parts(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        async for part in read(chunk_size):
            yield count(part)

    response.aiter_raw = parts


def _counter(response: Any) -> Callable[[bytes], bytes]:
    """Returns each part of a body as it is; a LargeAnswerError after too many bytes."""
    size = 0

    def count(part: bytes) -> bytes:
        nonlocal size
        size += len(part)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise LargeAnswerError("it is compressed, though the request accepts that of none")
        if size > LARGEST:
            raise LargeAnswerError(f"it has more than {LARGEST:,} bytes")
        return part

    return count


@contextmanager
def in_time(seconds: float, close: Callable[[], object]) -> Iterator[None]:
    """Close the connections of a request that takes so long, however often a byte comes.

    Raises:
        TimeoutError: it did.
    """
    late = Event()

    def stop() -> None:
        late.set()
        close()

    timer = Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception:
        if late.is_set():
            raise TimeoutError(f"it took more than {seconds:g} seconds") from None
        raise
    finally:
        timer.cancel()


def without_key(said: str, key: str) -> str:
    """What a server said without the key, which some repeat: in its message, in capitals, broken
    over lines, or as in an address.
    """
    for secret in filter(None, (key, quote(key, safe=""))):
        said = re.sub(r"\s*".join(map(re.escape, secret)), "[key]", said, flags=re.IGNORECASE)
    return said


def seconds_of(retry_after: str | None) -> float | None:
    """The seconds of a Retry-After header, or until its date; None without one that can be read."""
    with suppress(ValueError):
        return max(0.0, float(retry_after or ""))
    with suppress(TypeError, ValueError, OverflowError):
        return max(0.0, parsedate_to_datetime(retry_after or "").timestamp() - time.time())
    return None


class RemoteScorer:
    """The `Scorer` of a model behind an address; a request for each query."""

    def __init__(self, client: Client, instruction: str = "") -> None:
        self.client, self._instruction = client, instruction
        self.traits = _traits(client, batch=1)

    def with_instruction(self, instruction: str) -> RemoteScorer:
        """The same with an instruction; an InputError if the form has no place for one."""
        if not self.client.address.wires[0].told:
            forms = ", ".join(name for name, wire in RERANKERS.items() if wire.told)
            raise InputError(
                f"{self.client.address.name} is asked in a form without an instruction; those "
                f"with one are {forms}; leave `instruction` (--instruction) out"
            )
        made = RemoteScorer(self.client, instruction)
        made.traits = self.traits
        return made

    def score(self, requests: Sequence[Request]) -> list[list[float]]:
        """The scores of each request."""
        return [self.client.ask(self._asked(query), texts) for query, texts in requests]

    def _asked(self, query: str) -> str:
        form = self.client.address.wires[0].told if self._instruction else "{query}"
        return form.format(query=query, instruction=self._instruction)


class RemoteEmbedder:
    """The `Embedder` of a model behind an address."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.traits = _traits(client, batch=min(wire.most for wire in client.address.wires))

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float64]:
        """The vectors (n, d) of texts of one role."""
        return np.array(self.client.ask(role, texts), dtype=np.float64)


def _traits(client: Client, *, batch: int) -> Traits:
    name, listwise = client.address.name, any(wire.listwise for wire in client.address.wires)
    return Traits(name, identity=name, listwise=listwise, batch=batch, threads=THREADS, waits=True)
