"""Where the time of one question goes, and how near HTTP comes to one bulk call.

    python tests/bench/question.py work/model [--questions 100] [--rounds 3]

Questions of the labelled set are asked one at a time and each stage is timed, in seconds of the
processor, which other processes change least; a share is the stage's of all stages, over all
questions. Then the same questions are asked in turns: in one bulk call, and all at once over HTTP.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
from ratios import in_turns, ratios, table

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.steps import Piece, Speed, run_piece, steps
from rerank.data.labelled_set import LabelledSet
from rerank.inference.cross_encoder import Pair
from rerank.inference.model_files import resolve
from rerank.inference.tokenizer import open_tokenizer
from rerank.serving.model_source import ModelHolder
from rerank.serving.requests import SearchRequest
from rerank.serving.responses import search_response
from rerank.serving.server import listen, make_server
from rerank.serving.settings import Settings
from rerank.serving.telemetry import Metrics
from rerank.types import Query

WHOLE = Speed(0.0, 0.0)  # at which nothing is cut into pieces
STAGES = {
    "tokenise": "tokens of the question and of its pairs",
    "encode": "the bi-encoder, one question",
    "search": "BM25, product with all vectors, fusion",
    "evidence": "features of the candidates, and which of them to score",
    "score": "the cross-encoder",
    "judge": "order, features of the ranking, maps, reasons",
    "JSON": "the answer as the server writes it",
}


class Profile:
    """Seconds of the processor by stage, one entry a question."""

    def __init__(self, model: CalibratedReranker) -> None:
        self._model = model
        pipeline = model.pipeline
        encoder, config = pipeline.encoder, pipeline.config
        self._tokenizers = {
            "encode": open_tokenizer(resolve(str(config.encoder)), max_length=encoder.max_length),
            "score": open_tokenizer(resolve(str(config.reranker)), max_length=config.max_length),
        }
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self._now: dict[str, float] = {}

    def ask(self, text: str) -> None:
        """Ask one question, and add what it took."""
        self._now = dict.fromkeys(STAGES, 0.0)
        walk = steps(self._model, Query(text), WHOLE, max_seconds=1e9, scoring_seconds=0)
        piece = next(walk)
        while True:
            found = self._run(piece)
            if piece.stage == "encode":
                self._search(text, found[text])
            with self._timed("evidence" if piece.stage == "encode" else "judge"):
                try:
                    piece = walk.send(found)
                    continue
                except StopIteration as end:
                    answer = end.value
            break
        self._now["evidence"] -= self._now["search"]  # which is part of what was timed
        with self._timed("JSON"):
            asked = SearchRequest.model_validate({"query": text})
            search_response(answer, asked, {"id": "", "model": ""}).model_dump_json()
        for name, seconds in self._now.items():
            self.seconds[name].append(seconds)

    def _run(self, piece: Piece) -> dict[Any, Any]:
        start = self._now["tokenise"]
        with self._timed("tokenise"):
            self._tokenizers[piece.stage](cast("Sequence[str] | Sequence[Pair]", piece.items))
        with self._timed(piece.stage):
            found = run_piece(self._model, piece.stage, piece.items)
        self._now[piece.stage] -= self._now["tokenise"] - start
        return found

    def _search(self, text: str, vector: Any) -> None:
        c = self._model.pipeline.config
        with self._timed("search"):
            self._model.pipeline.index.search(
                text, vector, pool=c.pool, count=c.candidates, rrf_k=c.rrf_k
            )

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.process_time()
        try:
            yield
        finally:
            self._now[stage] += time.process_time() - start


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of the model in this process."""
    settings = Settings(port=0, poll=0.0, timeout=600.0)
    with listen(settings) as listening:
        server = make_server(ModelHolder(lambda: folder, Metrics()), settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def main() -> None:
    """Profile, compare, and print both tables."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("model", type=Path)
    p.add_argument("--set", default="datasets/pydata")
    p.add_argument("--questions", type=int, default=100)
    p.add_argument("--rounds", type=int, default=3)
    o = p.parse_args()
    texts = [q.text for q in LabelledSet.read(o.set).queries.values()][: o.questions]
    model = CalibratedReranker.load(o.model)
    model.search(texts[0])
    profile = Profile(model)
    for text in texts:
        profile.ask(text)
    sums = {name: sum(seconds) for name, seconds in profile.seconds.items()}
    total = sum(sums.values())
    each = np.sum([profile.seconds[name] for name in STAGES], axis=0)
    print(
        f"{len(texts)} questions to {len(model.pipeline.index):,} passages; of the processor's time"
        f" of one question the 99th percentile is {np.percentile(each, 99) / np.median(each):.1f} "
        "times the median.\n"
    )
    print(table({n: {"what": w, "share": f"{sums[n] / total:.3f}"} for n, w in STAGES.items()}))
    with (
        served(o.model) as url,
        httpx.Client(base_url=url, timeout=600) as client,
        ThreadPoolExecutor(min(64, len(texts))) as clients,
    ):

        def over_http() -> list[float]:
            sent = clients.map(lambda t: client.post("/v1/search", json={"query": t}).json(), texts)
            return [answer["confidence"] for answer in sent]

        alone: list[list[float]] = []

        def one_at_a_time() -> list[float]:
            confidences, ends = [], [time.perf_counter()]
            for text in texts:
                confidences.append(model.search(text).confidence)
                ends.append(time.perf_counter())
            alone.append([*np.diff(ends)])
            return confidences

        ways = {
            "one bulk call": lambda: [a.confidence for a in model.assess([*map(Query, texts)])],
            "one at a time": one_at_a_time,
            "all at once over HTTP": over_http,
        }
        seconds, given = in_turns(ways, o.rounds)
        spent, _ = in_turns(dict([*ways.items()][:2]), o.rounds, time.process_time)
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
            beside, _ = in_turns(dict([*ways.items()][:2]), o.rounds, time.process_time)
            other.kill()
    milliseconds = 1000 * np.array(alone[1:]).min(axis=0)  # without the round that fills caches
    found = ratios(seconds, "one bulk call")
    cpu = {"questions a CPU second": ratios(spent, "one bulk call")}
    cpu["the same beside a busy process"] = ratios(beside, "one bulk call")
    rows = {
        name: {"questions a second, of the bulk call's": found[name]}
        | {column: values[name] for column, values in cpu.items() if name in values}
        for name in ways
    }
    print(f"\n{table(rows)}")
    print(
        "\nAsked one at a time, half the questions take at most "
        f"{np.median(milliseconds):.0f} ms, and 99 in 100 at most "
        f"{np.percentile(milliseconds, 99):.0f} ms."
    )
    if any(answers != given["one bulk call"] for answers in given.values()):
        sys.exit(f"the answers differ: {json.dumps(given)[:500]}")


if __name__ == "__main__":
    main()
