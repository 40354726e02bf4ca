"""A running server of a model folder, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi.dependencies import models

from rerank.serving.model_source import ModelHolder, place_of_model, release_memory
from rerank.serving.server import listen, make_server
from rerank.serving.settings import Settings
from rerank.serving.telemetry import Metrics


@dataclass(frozen=True)
class Serving:
    """A server on localhost: its address, and what holds the model that answers."""

    url: str
    holder: Any
    server: Any
    thread: threading.Thread

    def stop(self) -> None:
        """As SIGTERM does."""
        self.server.should_exit = True
        self.thread.join(600)
        assert not self.thread.is_alive()


def forget_routes() -> None:
    """Empty FastAPI's caches: they hold each route, so its model, gigabytes over a whole run."""
    for kept in vars(models).values():
        if hasattr(kept, "cache_clear"):
            kept.cache_clear()


@contextmanager
def serving(
    folder: Path,
    *,
    labels: Any = None,
    work: Path = Path("work"),
    given: Mapping[str, Any] | None = None,
    on_reranker_error: str = "error",
    **settings: Any,
) -> Iterator[Serving]:
    """A server of the model folder in a thread of its own, with settings, stopped at the end."""
    chosen = Settings(**{"port": 0, "poll": 0.0, "timeout": 3600.0, **settings})
    with listen(chosen) as listening:
        place = place_of_model(str(folder), work)
        how: Any = {"on_reranker_error": on_reranker_error}
        holder = ModelHolder(place.folder, Metrics(), run_of=place.run, **how)
        server = make_server(holder, chosen, {"labelling": labels, **(given or {})})
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        started = Serving(url, holder, server, thread)
        thread.start()
        try:
            yield started
        finally:
            started.stop()
            forget_routes()
            del holder, server, thread
            release_memory()
