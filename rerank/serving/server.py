"""A model behind uvicorn, from the first request to the last."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import uvicorn

from rerank.serving.app import create_app
from rerank.serving.champion import Champion
from rerank.serving.impatient import impatient
from rerank.serving.keys import keys_for
from rerank.serving.logs import event, log_to_stderr
from rerank.serving.metrics import Metrics
from rerank.serving.settings import Settings, listen

CONNECTIONS = 1000  # open at once; uvicorn answers 503 to the next


def make_server(champion: Champion, settings: Settings) -> uvicorn.Server:
    """A server of the champion that listens nowhere yet: `run(sockets=[...])` does.

    Raises:
        InputError: keys are needed, and the environment has none.
    """
    config = uvicorn.Config(
        create_app(champion, settings, keys_for(settings.host)),
        http=impatient(settings.patience),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=max(5, round(settings.patience)),
        timeout_graceful_shutdown=round(settings.timeout + settings.patience) + 5,
    )
    return uvicorn.Server(config)


def serve(where: Callable[[], Path], settings: Settings) -> None:
    """Serve the model in the folder that `where` names until SIGTERM or Ctrl-C.

    Then nothing more is taken, and what was taken is answered. SIGHUP looks for another model.

    Raises:
        InputError: the model cannot be served, keys are needed, or the address cannot be used.
    """
    keys = keys_for(settings.host)  # refused before seconds are spent on the model
    with listen(settings) as listening:
        champion = Champion(where, Metrics())
        server = make_server(champion, settings)
        log_to_stderr()
        address = f"http://{settings.host}:{listening.getsockname()[1]}"
        event("serving", address=address, model=champion.current.version, keys=bool(keys))

        def end(*_: object) -> None:
            server.should_exit = True

        signal.signal(signal.SIGTERM, end)  # until uvicorn has its own, and after
        server.run(sockets=[listening])
        event("served")
