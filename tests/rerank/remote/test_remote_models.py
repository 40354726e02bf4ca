"""A calibration with models behind addresses: paid for once, bound by a probe, and no key in it."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from remote_server import KEY, Server, running_server, status
from server import serving
from small_sets import two_word_questions

import rerank
from rerank.cli import main
from rerank.inference.remote.probe import TEXTS, open_remote

SMALL = {"rerank_depth": 3, "candidates": 6, "pool": 12, "folds": 2}


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_word_questions(tmp_path_factory.mktemp("set"))


@dataclass
class Made:
    """A model folder, the server that it was made with, and what was told meanwhile."""

    server: Server
    home: Path
    command: list[str]
    runs: list[tuple[int, int, int, str]]  # exit code, requests sent, requests told, output

    @property
    def folder(self) -> Path:
        """The model folder."""
        return self.home / "model"


@pytest.fixture(scope="module")
def made(labelled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """`rerank calibrate` with a reranker and an encoder of the server: stopped by its budget,
    stopped by a failure, resumed to the end, and once more.
    """
    home = tmp_path_factory.mktemp("home")
    flags = [x for k, v in SMALL.items() for x in (f"--{k.replace('_', '-')}", str(v))]
    places = ["--work", str(home / "work"), "--out", str(home / "model")]
    with running_server(home / "cache") as server, pytest.MonkeyPatch.context() as patch:
        models = ["--reranker", f"{server.url}/rerank", "--encoder", f"{server.url}/v1/embeddings"]
        done = Made(server, home, ["calibrate", str(labelled), *models, *flags, *places], [])
        patch.setenv("RERANK_API_KEY", KEY)
        for more, faults in [
            (["--most-requests", "40"], []),
            ([], [*[lambda _, answer: answer] * 30, status(400, f"not with {KEY}")]),
            ([], []),
            ([], []),
        ]:
            before, server.faults = len(server.requests), faults
            told = io.StringIO()
            with redirect_stderr(told), redirect_stdout(told):
                code = main([*done.command, *more])
            sent = len(server.requests) - before
            numbers = re.findall(r"^rerank: (\d+) requests? to", told.getvalue(), re.MULTILINE)
            done.runs.append((code, sent, sum(map(int, numbers)), told.getvalue()))
        patch.delenv("RERANK_API_KEY")
        yield done


@pytest.fixture
def server(made: Made) -> Iterator[Server]:
    """The server of the model, as it was; put back at the end."""
    server = made.server
    before = dict(vars(server))
    server.requests, server.paid = [], []
    yield server
    vars(server).clear()
    vars(server).update(before)


def pairs_of(paid: list[tuple[str, Any]]) -> Counter[tuple[str, str]]:
    """How often each pair was scored, without those of the probe."""
    bodies = [body for path, body in paid if path == "/rerank"]
    return Counter((b["query"], t) for b in bodies for t in b["documents"] if t not in TEXTS)


def test_a_calibration_pays_once(made: Made) -> None:
    """No pair is scored twice, whatever stopped it, and every request is counted."""
    assert [code for code, _, _, _ in made.runs] == [3, 3, 0, 0]
    assert [sent for _, sent, _, _ in made.runs] == [told for _, _, told, _ in made.runs]
    pairs = pairs_of(made.server.paid)
    assert len(pairs) > 100
    assert set(pairs.values()) == {1}
    assert made.runs[0][1] == 40
    assert made.runs[-1][1] < 20  # all was there: only probes


def test_no_file_and_no_output_has_the_key(made: Made) -> None:
    """Neither the model folder, nor the scores, MLflow's records, reports or the terminal."""
    files = [path for path in made.home.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    assert KEY not in "".join(output for _, _, _, output in made.runs)
    assert {key for _, key, _ in made.server.requests} == {f"Bearer {KEY}"}


def test_a_key_goes_to_no_host_that_only_a_folder_names(
    made: Made, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wrote the folder chose the address; the environment must name it, too."""
    monkeypatch.setenv("RERANK_API_KEY", KEY)
    with pytest.raises(rerank.InputError, match="RERANK_API_HOSTS"):
        rerank.load(made.folder)
    monkeypatch.setenv("RERANK_API_HOSTS", f"other, {server.url.removeprefix('http://')}")
    assert rerank.load(made.folder).calibrated


def scale(server: Server) -> None:
    server.scale = 2.0


def squash(server: Server) -> None:
    server.scale, server.offset = 0.3, -4.0


def other_model(server: Server) -> None:
    server.score = lambda query, text: len(text) % 7.0  # type: ignore[method-assign]


def reads_less(server: Server) -> None:
    server.reads = 700


def renamed(server: Server) -> None:
    server.model = "words-2"


@pytest.mark.parametrize(
    ("change", "affine"),
    [(scale, True), (squash, True), (other_model, False), (reads_less, False), (renamed, True)],
)
def test_another_model_is_found_out(
    made: Made,
    server: Server,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Server], None],
    affine: bool,
) -> None:
    """Before its first answer: that is not calibrated, accepted or certified; `watch probe` says
    how far it is, and whether a scale and an offset explain it. When it is back, all is well.
    """
    probe = ["watch", "probe", str(made.folder), "--json", "--work", str(made.home / "work")]
    model = rerank.load(made.folder)
    before = model.search("redhouse n7")
    assert before.calibrated
    assert main(probe) == 0
    as_it_was = dict(vars(server))
    change(server)
    capsys.readouterr()
    assert main(probe) == 1
    told = json.loads(capsys.readouterr().out)["models"]["reranker"]
    assert told["affine"] is affine
    if change is scale:
        assert told["scale"] == pytest.approx(2.0)
        assert told["offset"] == pytest.approx(0.0, abs=1e-6)
    found = rerank.load(made.folder).search("redhouse n7")
    assert (found.calibrated, found.accepted, found.certified) == (False, False, False)
    assert "probe" in found.reasons[0]
    model.probe_remote()
    assert "reranker" in model.shifted
    assert not model.calibrated
    vars(server).clear()
    vars(server).update(as_it_was)
    model.probe_remote()
    assert model.search("redhouse n7").to_dict() == before.to_dict()


def test_a_new_name_is_found_out_by_the_first_answer(made: Made, server: Server) -> None:
    """Servers that name their model in every answer need no probe."""
    model = rerank.load(made.folder)
    server.model = "words-2"
    assert not model.search("redhouse n7").calibrated


def test_scores_of_another_model_are_not_kept(made: Made, server: Server, tmp_path: Path) -> None:
    """A model that has shifted neither uses the scores of the first, nor leaves its own."""
    queries, answers = tmp_path / "in.jsonl", []
    queries.write_text('{"_id": "a", "query": "redhouse oldbird"}\n')
    rescore = ["rescore", str(made.folder), str(queries), "--work", str(made.home / "work")]
    for i, factor in enumerate((2.0, 1.0, 1.0, 2.0)):
        server.scale, server.paid = factor, []
        assert main([*rescore, "--out", str(tmp_path / f"{i}.jsonl")]) == 0
        answer = json.loads((tmp_path / f"{i}.jsonl").read_text())
        answers.append((answer["calibrated"], len(pairs_of(server.paid)) > 0))
    assert answers == [(False, True), (True, True), (True, False), (False, True)]


def test_a_calibration_with_another_model_scores_anew(server: Server, tmp_path: Path) -> None:
    """The fingerprint is that of the probe, which was kept: equal as long as the model is."""
    first = open_remote(server.url, "reranker")
    assert open_remote(server.url, "reranker").fingerprint == first.fingerprint
    server.scale = 2.0
    assert open_remote(server.url, "reranker").fingerprint != first.fingerprint


def test_a_listwise_model_is_recognised(server: Server) -> None:
    """The scores of a model that reads the whole list depend on the order of the texts."""
    assert not open_remote(server.url, "reranker").model.traits.listwise
    answer = server.answer

    def by_place(path: str, body: Any) -> Any:
        found = answer(path, body)
        for row in found["results"]:
            row["relevance_score"] += row["index"]
        return found

    server.answer = by_place  # type: ignore[method-assign]
    assert open_remote(f"{server.url}/other", "reranker").model.traits.listwise


def test_noise_is_measured_at_the_fit(server: Server) -> None:
    """What differs between two runs of one model is no shift."""
    draw, score = np.random.default_rng(0), server.score
    noisy = lambda query, text: score(query, text) + draw.normal(0, 0.1)  # noqa: E731
    server.score = noisy  # type: ignore[method-assign]
    model = open_remote(server.url, "reranker")
    assert not any(model.shift().shifted for _ in range(5))
    assert open_remote(server.url, "reranker").fingerprint == model.fingerprint
    server.scale = 2.0
    assert model.shift().shifted
    assert open_remote(server.url, "reranker").fingerprint != model.fingerprint


def test_nothing_is_imported_for_local_models() -> None:
    """Httpx is opened with the first address."""
    code = "import rerank, rerank.cli, sys; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_server_says_what_has_changed(made: Made, server: Server) -> None:
    """It waits for the model in threads; a failure is 503, a shift is told until it is over."""
    with serving(made.folder) as started, httpx.Client(base_url=started.url, timeout=600) as http:

        def search() -> dict[str, Any]:
            answer: dict[str, Any] = http.post("/v1/search", json={"query": "redhouse n7"}).json()
            return answer

        def told() -> tuple[str, bool]:
            return http.get("/readyz").text, "rerank_remote_shifted 1.0" in http.get(
                "/metrics"
            ).text

        before = search()
        assert before["calibrated"]
        assert told() == ("ready\n", False)
        server.faults = [status(400)]
        assert http.post("/v1/search", json={"query": "redhouse n7"}).status_code == 503
        server.scale = 2.0
        started.holder.probe()
        assert not search()["calibrated"]
        ready, metric = told()
        assert "uncalibrated" in ready
        assert metric
        server.scale = 1.0
        started.holder.probe()
        assert search()["confidence"] == before["confidence"]
        assert told() == ("ready\n", False)
