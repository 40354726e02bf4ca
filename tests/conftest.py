"""What the tests of `rerank` share: real text, real models, and one calibrated model folder.

The small set is cut out of `pydata`. Everything that costs seconds is made once a session.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported: no test needs a hub
os.environ.pop("MLFLOW_TRACKING_URI", None)

from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.pipeline import CHUNK, Pipeline, limit_scored, rank
from rerank.config import Config
from rerank.data.beir import write_labelled_set
from rerank.data.build.recipes import build_pydata
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import Labelled
from rerank.evaluation import evaluate as measuring
from rerank.fitting.fit import Fitted, fit
from rerank.fitting.plan import Plan, plan
from rerank.fitting.rankings import PlannedRankings, search_rankings
from rerank.inference.cross_encoder import CrossEncoder
from rerank.inference.model_files import resolve, trained_on
from rerank.inference.score_cache import ScoreCache
from rerank.jobs.calibrate import Outcome, calibrate
from rerank.jobs.pipelines import open_index
from rerank.retrieval.index import Index
from rerank.types import Ranking, Scored
from rerank.workspace import Workspace

CONFIG = Config(
    rerank_depth=4, candidates=10, pool=30, max_length=128, encoder_max_length=64, folds=2
)
PASSAGES = 250
FIT_QUERIES, REPORT_QUERIES = CHUNK, 30  # so that the two halves of a run are two chunks
UNANSWERABLE = 0.2  # share of the small set's queries

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Unpacked weights and exported graphs of this session stay out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RERANK_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def config() -> Config:
    """The configuration of the session's run: as the default, but cheap."""
    return CONFIG


@pytest.fixture(scope="session")
def run_python() -> Callable[..., str]:
    """A runner of Python code in a process of its own; see `_run_python`."""
    return _run_python


@pytest.fixture(scope="session", autouse=True)
def _few_draws() -> Iterator[None]:
    """Bootstrap intervals from 40 resamples and not 500: no test here looks at their ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "comparison", partial(measuring.comparison, draws=40))
        yield


def _run_python(code: str, *, blocked: Sequence[str] = ()) -> str:
    """Standard output of `code` in a process of its own, in which `blocked` cannot be imported."""
    whole = BLOCK.format(blocked=set(blocked)) + code if blocked else code
    done = subprocess.run(
        [sys.executable, "-c", whole], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- real text --------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def built() -> tuple[LabelledSet, tuple[str, ...]]:
    """The bundled set as this machine's packages give it, and the warnings that came with it."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        labelled = build_pydata()
    return labelled, tuple(str(w.message) for w in heard)


@pytest.fixture(scope="session")
def pydata(built: tuple[LabelledSet, tuple[str, ...]]) -> LabelledSet:
    """The bundled set."""
    return built[0]


@pytest.fixture(scope="session")
def small(pydata: LabelledSet) -> LabelledSet:
    """About 250 passages and 90 queries of `pydata`, a fifth of them unanswerable.

    `train` comes from its `dev`, `test` from its `test`: the bundled cross-encoder was trained on
    neither.
    """
    splits = {
        "train": _some_queries(pydata, "dev", FIT_QUERIES),
        "test": _some_queries(pydata, "test", REPORT_QUERIES),
    }
    kept = [i for ids in splits.values() for i in ids]
    qrels = {i: pydata.qrels[i] for i in kept if i in pydata.qrels}
    wanted = {d for right in qrels.values() for d in right}
    others = sorted(set(pydata.corpus) - wanted, key=_mixed)[: PASSAGES - len(wanted)]
    corpus = {d: p for d, p in pydata.corpus.items() if d in wanted.union(others)}
    return LabelledSet(corpus, {i: pydata.queries[i] for i in kept}, qrels, splits, "small")


def _some_queries(labelled: LabelledSet, split: str, count: int) -> tuple[str, ...]:
    """Queries of whole groups in mixed order, a fifth of them unanswerable."""
    room = {False: round(UNANSWERABLE * count), True: count - round(UNANSWERABLE * count)}
    by_group: dict[str, list[str]] = {}
    for i in labelled.splits[split]:
        by_group.setdefault(labelled.group(i), []).append(i)
    found: list[str] = []
    for group in sorted(by_group, key=_mixed):
        ids = by_group[group]
        answerable = ids[0] in labelled.qrels
        if len(ids) <= room[answerable]:
            found += ids
            room[answerable] -= len(ids)
    return tuple(found)


def _mixed(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


@pytest.fixture(scope="session")
def small_folder(small: LabelledSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small set on disk."""
    folder = tmp_path_factory.mktemp("sets") / "small"
    write_labelled_set(small, folder)
    return folder


@pytest.fixture(scope="session")
def texts(small: LabelledSet) -> list[str]:
    """Real passages, short and long."""
    return [p.full_text for p in small.corpus.values()]


# --- one run of the whole job -----------------------------------------------------------------


@dataclass(frozen=True)
class Interrupted:
    """What an interrupted calibration left, and what the second one still had to score."""

    left_behind: tuple[str, ...]  # names beside and under the model folder's name
    pairs_first: int  # pairs that the interrupted run scored
    pairs_second: int  # pairs that the run after it scored


@dataclass(frozen=True)
class Run:
    """A finished calibration of the small set."""

    outcome: Outcome
    plan: Plan
    work: Path
    interrupted: Interrupted

    @property
    def folder(self) -> Path:
        """The model folder."""
        return self.outcome.folder


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working folder of the session's run."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="session")
def index(small: LabelledSet, work: Path) -> Index:
    """The small corpus, indexed."""
    return open_index(small, CONFIG, Workspace(work))


@pytest.fixture(scope="session")
def run(small: LabelledSet, index: Index, work: Path) -> Run:
    """The job, stopped as by Ctrl-C when its second chunk is scored, and then run again."""
    assert index.folder.is_relative_to(work)
    counted: list[int] = []
    original = CrossEncoder.read

    def counting(self: CrossEncoder, pairs: Sequence[tuple[str, str]]) -> Any:
        counted.append(len(pairs))
        return original(self, pairs)

    def stopping(self: CrossEncoder, pairs: Sequence[tuple[str, str]]) -> Any:
        if counted:
            raise KeyboardInterrupt
        return counting(self, pairs)

    out = work / "models" / "small"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CrossEncoder, "read", stopping)
        with pytest.raises(KeyboardInterrupt):
            calibrate(small, out, CONFIG, work=work)
        left = tuple(p.name for p in out.parent.iterdir()) if out.parent.exists() else ()
        first = sum(counted)
        patch.setattr(CrossEncoder, "read", counting)
        outcome = calibrate(small, out, CONFIG, work=work)
    reranker = resolve(CONFIG.reranker)
    planned = plan(small, trained_on=trained_on(reranker), max_queries=None, seed=CONFIG.seed)
    return Run(outcome, planned, work, Interrupted(left, first, sum(counted) - first))


@pytest.fixture(scope="session")
def pipeline(index: Index, work: Path) -> Pipeline:
    """The small index with both models; scores that the run has made are not made again."""
    return Pipeline(index, CONFIG, cache=ScoreCache(Workspace(work).scores))


@pytest.fixture(scope="session")
def searched(run: Run, pipeline: Pipeline) -> PlannedRankings:
    """The queries of the run, scored as the run scored them."""
    return search_rankings(pipeline, run.plan)


@pytest.fixture(scope="session")
def to_fit(searched: PlannedRankings) -> Labelled[Scored]:
    """What the run was fitted on."""
    return searched.fit


@pytest.fixture(scope="session")
def to_report(searched: PlannedRankings) -> Labelled[Scored]:
    """What the run reported on."""
    return searched.report


@pytest.fixture(scope="session")
def maps(run: Run) -> FittedMaps:
    """The maps of the model folder for queries to its index."""
    kept = json.loads((run.folder / "calibrators.json").read_text())
    return FittedMaps.from_dict(kept["search"])


@pytest.fixture(scope="session")
def rankings(searched: PlannedRankings, maps: FittedMaps) -> dict[str, Ranking]:
    """The ranking of every query of the run by its maps, by query id."""
    scored = [*searched.fit.items, *searched.report.items]
    seen = [limit_scored(s, maps.policy.cutoff) for s in scored]
    return {s.query.query_id: rank(s, maps.relevance) for s in seen}


@pytest.fixture(scope="session")
def fitted(to_fit: Labelled[Scored], maps: FittedMaps, config: Config) -> Fitted:
    """What fitting on the same candidates gives."""
    return fit(to_fit, maps.policy, config)


@pytest.fixture(scope="session")
def other_reranker(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A maker of small untrained cross-encoders of `outputs` outputs, saved as folders."""

    def make(*, outputs: int = 1, family: str = "bert") -> Path:
        from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

        folder = tmp_path_factory.mktemp("reranker")
        shape = AutoConfig.for_model(
            family,
            vocab_size=30522,
            type_vocab_size=1 if family == "roberta" else 2,  # as published models have
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=16,
            num_labels=outputs,
        )
        AutoModelForSequenceClassification.from_config(shape).save_pretrained(folder)
        AutoTokenizer.from_pretrained(resolve("minilm").folder).save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def relabelled() -> Callable[[LabelledSet, Callable[[str], str]], LabelledSet]:
    """A maker of the same set under other ids."""
    return _relabelled


def _relabelled(labelled: LabelledSet, rename: Callable[[str], str]) -> LabelledSet:
    """The same set under other passage and query ids."""
    return LabelledSet(
        {rename(d): replace(p, doc_id=rename(d)) for d, p in labelled.corpus.items()},
        {rename(q): replace(x, query_id=rename(q)) for q, x in labelled.queries.items()},
        {
            rename(q): {rename(d): grade for d, grade in right.items()}
            for q, right in labelled.qrels.items()
        },
        {split: tuple(rename(q) for q in ids) for split, ids in labelled.splits.items()},
        labelled.name,
    )


# --- a running server -------------------------------------------------------------------------


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
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture(scope="session")
def serving() -> Callable[..., AbstractContextManager[Serving]]:
    """A maker of servers of a model folder, with settings; see `_serving`."""
    return _serving


@contextmanager
def _serving(folder: Path, **settings: Any) -> Iterator[Serving]:
    """A server of the folder in a thread of its own, stopped at the end."""
    from rerank.serving.model_source import ModelHolder
    from rerank.serving.server import listen, make_server
    from rerank.serving.settings import Settings
    from rerank.serving.telemetry import Metrics

    chosen = Settings(**{"port": 0, "poll": 0.0, **settings})
    with listen(chosen) as listening:
        holder = ModelHolder(lambda: folder, Metrics())
        server = make_server(holder, chosen)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        started = Serving(url, holder, server, thread)
        thread.start()
        try:
            yield started
        finally:
            started.stop()
