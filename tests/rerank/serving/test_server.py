"""The server as a socket and as a process: slow clients, keys, signals, what its start needs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_checks import HEAD, JSON, body, connect, metric
from server import serving

from rerank.cli import main
from rerank.errors import InputError
from rerank.serving.middleware import ApiKeys
from rerank.serving.server import CONNECTIONS, connections, is_loopback, keys_for, url_of
from rerank.storage.folder import with_digest

ROOT = Path(__file__).parents[3]
HEAVY = ("matplotlib", "mlflow", "pandas", "sentence_transformers", "sklearn", "torch")


def test_answers_do_not_wait_for_acknowledgements(run: Any) -> None:
    """An accepted connection has TCP_NODELAY: the last bytes of an answer are sent at once."""
    with (
        serving(run.folder) as started,
        httpx.Client(base_url=started.url, timeout=600) as client,
    ):
        assert client.get("/healthz").status_code == 200
        (connection,) = started.server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_slow_clients(run: Any) -> None:
    """Who never sends its headers is cut off; who never sends its body hears 408; others go on."""
    with (
        serving(run.folder, read_timeout=3.0) as started,
        connect(started.url) as silent,
        connect(started.url, b"POST /v1/rerank HT") as halting,
        connect(started.url, HEAD, b'{"query"') as late,
    ):
        status = 408  # where this machine is so busy that we are slow too
        while status == 408:
            with contextlib.suppress(httpx.TransportError):
                url = f"{started.url}/v1/rerank"
                status = httpx.post(url, content=body(), headers=JSON, timeout=600).status_code
        assert status == 200
        assert silent.recv(1) == b""
        assert halting.recv(1) == b""
        assert late.recv(4096).startswith(b"HTTP/1.1 408")


def test_slow_bodies_take_nobodys_place(run: Any) -> None:
    """Requests whose bodies are on their way leave the queue to others, up to so many bytes."""
    with serving(run.folder, read_timeout=600.0, queue=1, max_body=1024) as started:
        url = f"{started.url}/v1/rerank"
        head = HEAD.replace(b"Length: 50", b"Length: 1024")
        with (
            contextlib.ExitStack() as stack,
            httpx.Client(base_url=started.url, timeout=600) as client,
        ):
            for _ in range(17):
                stack.enter_context(connect(started.url, head, b" " * 1000))
            while 'refused_total{reason="full"} 1.0' not in client.get("/metrics").text:
                pass
            assert metric(client, "rerank_requests_in_progress") == 16
            assert httpx.post(url, content=body(), headers=JSON, timeout=600).status_code == 200


def test_idle_connections_make_room(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that ask nothing keep nobody out: the oldest is closed; who asks is answered."""
    monkeypatch.setattr("rerank.serving.server.CONNECTIONS", 6)
    with serving(run.folder, read_timeout=600.0) as started, contextlib.ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=started.url, timeout=600))
        silent = []
        for _ in range(20):
            silent.append(stack.enter_context(connect(started.url, b"POST /v1/rerank HT")))
            assert client.get("/healthz").status_code == 200
        assert silent[0].recv(1) == b""
        assert len(started.server.server_state.connections) < 6


def test_who_sends_single_bytes_is_cut_off(run: Any) -> None:
    """Chunks of a byte cost the server far more than their sender; larger ones are read."""
    head = HEAD.replace(b"Content-Length: 50", b"Transfer-Encoding: chunked")
    content = body()
    parts = [content[i : i + 40] for i in range(0, len(content), 40)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    with (
        serving(run.folder) as started,
        connect(started.url, head, chunks, b"0\r\n\r\n") as usual,
        connect(started.url, head, b"1\r\n \r\n" * 10_000) as hostile,
    ):
        assert usual.recv(4096).startswith(b"HTTP/1.1 200")
        with contextlib.suppress(ConnectionResetError):
            assert hostile.recv(1) == b""


def test_who_sends_much_ahead_is_cut_off(run: Any) -> None:
    """Before the answer, which nobody could wait for: that a client leaves must be seen."""
    ready = threading.Event()
    with serving(run.folder) as started:
        pipeline = started.holder.current.model.pipeline
        pipeline.observe = lambda *_: bool(ready.wait(600))
        content = body()
        head = HEAD.replace(b"50", str(len(content)).encode())
        with connect(started.url, head, content) as ahead, contextlib.suppress(OSError):
            ahead.sendall(b"X" * 2**20)
            assert ahead.recv(1) == b""
        ready.set()


def test_what_is_no_http_is_refused_as_all_is(run: Any) -> None:
    """In JSON, with a sentence; and a body that breaks off in the middle ends the connection."""
    head = HEAD.replace(b"Content-Length: 50", b"Transfer-Encoding: chunked")
    with serving(run.folder) as started:
        with connect(started.url, b"GET / HTTP/1.1\r\n\r\n") as nameless:
            answer = nameless.makefile("rb").read()  # to the end of the connection
            assert answer.startswith(b"HTTP/1.1 400")
            assert "Host" in json.loads(answer.partition(b"\r\n\r\n")[2])["message"]
        with connect(started.url, head, b'3\r\n{"q\r\n') as broken:
            time.sleep(0.2)
            broken.sendall(b"zz\r\n")
            assert broken.recv(4096).startswith(b"HTTP/1.1 400")
        assert httpx.get(f"{started.url}/healthz").status_code == 200


def test_few_files_are_few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a low limit of open files leaves, and never none."""
    for soft, expected in ((10, 8), (148, 100), (10**6, CONNECTIONS)):
        monkeypatch.setattr("resource.getrlimit", lambda _, soft=soft: (soft, soft))
        assert connections() == expected


@pytest.mark.parametrize(
    ("host", "url"),
    [("::1", "http://[::1]:8000"), ("localhost", "http://localhost:8000")],
)
def test_the_address_that_is_told_can_be_opened(host: str, url: str) -> None:
    """An address of IPv6 stands in brackets."""
    assert url_of(host, 8000) == url


def test_a_client_that_does_not_read(run: Any) -> None:
    """Who asks and does not read the answer is cut off, and keeps nothing of the server."""
    asked = {"query": "a", "documents": ["b" * 99_000] * 40, "return_documents": True}
    content = json.dumps(asked).encode()
    with serving(run.folder, read_timeout=3.0) as started, socket.socket() as deaf:
        host, port = started.url.removeprefix("http://").split(":")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((host, int(port)))
        deaf.sendall(HEAD.replace(b"Length: 50", b"Length: %d" % len(content)) + content)
        for _ in range(12_000):
            time.sleep(0.05)
            if not started.server.server_state.connections:
                break
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            while part := deaf.recv(65536):
                heard += part
        assert not started.server.server_state.connections
        assert len(heard) < len(content)


def test_no_key_only_on_loopback(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that others can reach does not start without keys."""
    monkeypatch.delenv("RERANK_API_KEYS", raising=False)
    for host in ("0.0.0.0", "::", ""):
        assert not is_loopback(host)
        assert main(["serve", str(run.folder), "--host", host]) == 2
        assert "RERANK_API_KEYS" in capsys.readouterr().err
    for host in ("127.0.0.1", "127.8.9.10", "localhost", "::1"):
        assert is_loopback(host)
        assert not keys_for(host, {})
    assert keys_for("0.0.0.0", {"RERANK_API_KEYS": "k"}).allow(b"Bearer k")
    assert not ApiKeys(("k",)).allow(None)
    with pytest.raises(InputError, match="ASCII"):
        keys_for("127.0.0.1", {"RERANK_API_KEYS": "schlüssel"})


def test_taken_port(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A port that is taken is one sentence and exit code 2."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", str(run.folder), "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen on 127.0.0.1" in capsys.readouterr().err


@contextmanager
def serve(folder: Path, *, blocked: Sequence[str] = ()) -> Iterator[tuple[Any, str]]:
    """`rerank serve` in a process of its own, without the modules `blocked`, and its address."""
    code = f"""
import sys
sys.modules.update(dict.fromkeys({list(blocked)!r}))
from rerank.cli import main
patient = ["--poll", "0", "--timeout", "3600", "--read-timeout", "3600"]
sys.exit(main(["serve", {str(folder)!r}, "--port", "0", *patient]))
"""
    started = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert started.stderr is not None
    try:
        first = json.loads(started.stderr.readline())
        assert first["event"] == "serving", first
        yield started, first["address"]
    finally:
        started.kill()
        started.wait()
        started.stderr.close()


def test_a_start_needs_no_training_library(run: Any) -> None:
    """A local folder whose networks are exported already is served without MLflow and torch."""
    with serve(run.folder, blocked=HEAVY) as (_, url):
        for path, asked in {
            "/v1/search": {"query": "median"},
            "/v1/rerank": {"query": "median", "documents": ["a"]},
        }.items():
            assert httpx.post(f"{url}{path}", json=asked, timeout=600).status_code == 200


def refused_soon(url: str) -> None:
    """Returns when the server takes no new connection, as it must within a minute."""
    end = time.monotonic() + 600
    with contextlib.suppress(httpx.ConnectError, httpx.ReadError):
        while time.monotonic() < end:
            httpx.get(f"{url}/healthz", timeout=600)
        pytest.fail("the server still takes connections")


def test_signals(place: Path) -> None:
    """SIGHUP swaps, SIGTERM under load answers what was accepted, and the logs hold no text."""
    with serve(place) as (started, url):
        log = _signalled(started, url, place)
    assert started.returncode == 0, log
    events = [json.loads(line) for line in log.splitlines()]
    assert [e["event"] for e in events if e["event"] != "request"] == ["model swapped", "stopped"]
    searches = [e for e in events if e["event"] == "request" and e["route"] == "/v1/search"]
    assert len(searches) == 6
    logged = {"id", "status", "seconds", "mode", "confidence", "level", "model"}
    assert all(logged <= set(e) for e in searches)
    assert "secret" not in log


def _signalled(started: subprocess.Popen[str], url: str, place: Path) -> str:
    """What the server logs while it is told to swap, and to end with six requests open."""
    before = httpx.get(f"{url}/v1/model", timeout=600).json()["model"]
    manifest = json.loads((place / "manifest.json").read_text())
    (place / "manifest.json").write_text(json.dumps(with_digest({**manifest, "note": "second"})))
    started.send_signal(signal.SIGHUP)
    while httpx.get(f"{url}/v1/model", timeout=600).json()["model"] == before:
        pass
    told = threading.Event()

    def held(i: int) -> Iterator[bytes]:
        """A body whose end comes when the server has been told to stop."""
        body = json.dumps({"query": f"secret {i}"}).encode()
        yield body[:1]
        assert told.wait(600)
        yield body[1:]

    with ThreadPoolExecutor(6) as pool, httpx.Client(base_url=url, timeout=600) as client:
        sent = [
            pool.submit(httpx.post, f"{url}/v1/search", content=held(i), headers=JSON, timeout=600)
            for i in range(6)
        ]
        while metric(client, "rerank_requests_in_progress") < 6:
            assert not any(s.done() for s in sent)
        started.terminate()
        refused_soon(url)
        told.set()
        assert [s.result().status_code for s in sent] == [200] * 6
    return str(started.communicate(timeout=600)[1])


def test_an_end_while_long_texts_are_read(run: Any) -> None:
    """SIGTERM during the longest requests: each is answered or refused, and the server ends."""
    text = "the median of arrays, " * 23_000  # as long as a document may be
    asked = {"query": "median " * 1_400, "documents": [text[i:] for i in range(8)]}
    with serve(run.folder) as (started, url):
        with ThreadPoolExecutor(4) as pool, httpx.Client(base_url=url, timeout=600) as client:
            sent = [
                pool.submit(httpx.post, f"{url}/v1/rerank", json=asked, timeout=600)
                for _ in range(4)
            ]
            while metric(client, "rerank_requests_in_progress") < 4:
                if any(s.done() for s in sent):
                    break
            started.terminate()
            assert {s.result().status_code for s in sent} <= {200, 413, 429, 503}
        log = str(started.communicate(timeout=600)[1])
    assert started.returncode == 0, log
    assert json.loads(log.splitlines()[-1])["event"] == "stopped"
