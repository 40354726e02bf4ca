"""What the tests of `rerank` share: real text, real models, and one calibrated model folder.

The small set is cut out of `pydata`. Everything that costs seconds is made once a session.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import ssl
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from mlflow_databases import migrate_once
from session_run import Run, interrupted_run
from small_sets import cut

# read when torch and NumPy are imported: of a test's small matrices threads only wait for each
# other, and where workers or other programs have the cores they wait in a loop
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported: no test needs a hub
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # Haystack sends usage data, unless told not to
os.environ.pop("MLFLOW_TRACKING_URI", None)

import numpy as np

from calibration import plots, recalibration, reliability
from calibration.metrics import calibration_error
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import Models, Pipeline
from rerank.assessment.ranking import limit_scored, rank
from rerank.assessment.sources.own_index import OwnIndex
from rerank.assessment.steps import Speed, measured_speed
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import Labelled
from rerank.data.recipes import build_pydata
from rerank.data.records import query_row
from rerank.errors import MissingExtraError
from rerank.evaluation import measure
from rerank.fitting.fit import Fitted, fit
from rerank.fitting.scored_plan import ScoredPlan, score_search
from rerank.inference import engine
from rerank.inference.model_files import resolve
from rerank.inference.score_cache import ScoreCache
from rerank.jobs import evaluate, track
from rerank.jobs.pipelines import open_index
from rerank.retrieval.index import Index
from rerank.storage import folder
from rerank.storage.files import file_state, write_file
from rerank.storage.folder import Workspace
from rerank.types import Ranking, Scored

settings.register_profile("no clock", deadline=None)  # a busy machine is slow, not wrong
settings.load_profile("no clock")

CONFIG = Config(
    rerank_depth=4,
    candidates=10,
    pool=30,
    max_length=128,
    encoder_max_length=64,
    folds=2,
    language="english",
)


# of half a minute, where most take a second: the first of them makes what many share
LONG = (
    *("jobs/test_calibrate.py", "inference/test_families.py", "jobs/test_recalibrate.py"),
    *("jobs/test_promote.py", "jobs/test_calibrate_retriever.py", "jobs/test_init.py"),
    *("rerank/test_readme.py", "remote/test_remote_models.py", "judging/test_judging.py"),
    *("serving/test_model_source.py", "jobs/test_calibrate_lists.py", "training/test_finetune.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come before short ones: no worker is left alone with one.

    One begins with what many tests share, while the others begin with what does without.
    """
    asking = {item.path for item in items if "run" in getattr(item, "fixturenames", ())}

    def place(item: pytest.Item) -> int:
        name = "/".join(item.path.parts[-2:])
        if name == LONG[0]:
            return 0
        return (2 if name in LONG else 3) if item.path in asking or name in LONG else 1

    items.sort(key=place)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run of the tests, the same for workers that run side by side."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(autouse=True)
def _quick_databases(shared: Path) -> None:
    """MLflow's dozens of migrations run once, and not for each new database."""
    migrate_once(shared / "mlflow.db")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(shared: Path) -> Iterator[None]:
    """Unpacked weights and exported graphs of this run stay out of the user's cache.

    Workers that run side by side share one folder: each graph is exported once.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RERANK_CACHE", str(shared / "cache"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A job's default working folder, `work`, is not made in the checkout."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    yield
    os.chdir(before)


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> None:
    """What lives by now is not looked at again: else each stopped server collects for a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def config() -> Config:
    """The configuration of the session's run: as the default, but cheap."""
    return CONFIG


@pytest.fixture(scope="session", autouse=True)
def _few_draws() -> Iterator[None]:
    """Intervals of reports from 40 draws and not 500: no test of reports looks at their ends."""

    def comparison(*rows: Any, **options: Any) -> reliability.Comparison:
        with pytest.MonkeyPatch.context() as patch:
            floor = calibration_error.smece_floor
            patch.setattr(
                calibration_error, "smece_floor", lambda *p, **of: floor(*p, **of, draws=40)
            )
            return reliability.comparison(*rows, **options, draws=40)

    with pytest.MonkeyPatch.context() as patch:
        for module in (measure, evaluate, recalibration):
            patch.setattr(module, "comparison", comparison)
        yield


@pytest.fixture(scope="session", autouse=True)
def _small_pictures() -> Iterator[None]:
    """The pictures of reports are of one pixel, but for the tests of reports and of pictures."""

    def draw(figure: Any) -> plots.Picture:
        texts = {text.get_gid(): text.get_text().replace("\n", " ") for text in figure.texts}
        return plots.Picture(pixel, pixel, texts["title"], texts["caption"])

    pixel = plots._png(np.zeros((1, 1, 4), dtype=np.uint8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "draw", draw)
        yield


@pytest.fixture(scope="session", autouse=True)
def _once() -> Iterator[None]:
    """What many tests do alike is done once: they read and open networks, read the certificates of
    the web, and measure how fast a served model is.
    """

    @lru_cache(maxsize=4)
    def network(path: Path, sha256: str, size: int, *_state: int) -> bytes:
        of_one = {"files": {path.name: {"sha256": sha256}}}
        return folder.read_verified(path.parent, path.name, of_one, max_bytes=size)

    def read_verified(
        where: Path, name: str, manifest: Mapping[str, Any], *, max_bytes: int
    ) -> bytes:
        path = where / name
        return network(path, manifest["files"][name]["sha256"], max_bytes, *file_state(path))

    def speed_of(model: CalibratedReranker) -> Speed:
        if model.version not in speeds:
            speeds[model.version] = measured_speed(model)
        return speeds[model.version]

    speeds: dict[str, Speed] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "read_verified", read_verified)
        patch.setattr(engine, "_running", {})  # not weak: a network stays open
        patch.setattr("rerank.serving.model_source.measured_speed", speed_of)
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        patch.setattr(os, "fsync", lambda _: None)
        yield


TRACK_MODEL = track.track_model


@pytest.fixture(scope="module")
def untracked() -> Iterator[None]:
    """As without MLflow, for tests that look at no run: tracking takes as long as a fit."""

    def refuse(*_: object, **__: object) -> None:
        raise MissingExtraError("this test has no MLflow")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(track, "track_model", refuse)
        yield


# --- real text --------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def built(shared: Path) -> tuple[LabelledSet, tuple[str, ...]]:
    """The bundled set as this machine's packages give it, and the warnings that came with it."""
    kept = shared / "pydata.pickle"
    if kept.exists():  # made by the worker beside this one
        found: tuple[LabelledSet, tuple[str, ...]] = pickle.loads(kept.read_bytes())
        return found
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        labelled = build_pydata()
    made = labelled, tuple(str(w.message) for w in heard)
    write_file(kept, pickle.dumps(made))
    return made


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
    return cut(pydata)


@pytest.fixture(scope="session")
def small_folder(small: LabelledSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small set on disk."""
    folder = tmp_path_factory.mktemp("sets") / "small"
    small.write(folder)
    return folder


@pytest.fixture(scope="session")
def texts(small: LabelledSet) -> list[str]:
    """Real passages, short and long."""
    return [p.full_text for p in small.corpus.values()]


# --- one run of the whole job -----------------------------------------------------------------


@pytest.fixture(scope="session")
def place_of_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working folder of the session's run, in which nothing runs before it."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="session")
def work(run: Run) -> Path:
    """The same, in which the run has been."""
    return run.work


@pytest.fixture(scope="session")
def index(small: LabelledSet, place_of_run: Path) -> Index:
    """The small corpus, indexed."""
    return open_index(small, CONFIG, Workspace(place_of_run))


@pytest.fixture(scope="session")
def run(small: LabelledSet, index: Index, place_of_run: Path, shared: Path) -> Iterator[Run]:
    """The job, stopped as by Ctrl-C when its second chunk is scored, and then run again.

    One model of it stays open: those that tests open share its networks, and open faster.
    """
    import_module("mlflow.store.db.utils")  # which the run would import: its database is kept
    migrate_once(shared / "mlflow.db")
    assert index.folder.is_relative_to(place_of_run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(track, "track_model", TRACK_MODEL)  # also if a module is `untracked`
        made = interrupted_run(small, CONFIG, place_of_run)
    opened = CalibratedReranker.load(made.folder)
    opened.search("median")
    yield made
    del opened


@pytest.fixture(scope="session")
def opened(run: Run) -> CalibratedReranker:
    """The model of the run; scores that the run has made are not made again."""
    return CalibratedReranker.load(run.folder, cache=ScoreCache(Workspace(run.work).scores))


@pytest.fixture(scope="module")
def client(run: Run) -> Iterator[Any]:
    """A client of a running server of the session's model."""
    import httpx
    from server import serving

    with (
        serving(run.folder) as started,
        httpx.Client(base_url=started.url, timeout=600) as made,
    ):
        yield made


@pytest.fixture(scope="session")
def queries(small: LabelledSet) -> list[str]:
    """A dozen real queries."""
    return [q.text for q in list(small.queries.values())[:12]]


@pytest.fixture
def copied_set(small_folder: Path, tmp_path: Path) -> Path:
    """A copy of the small set, which a test may change."""
    return Path(shutil.copytree(small_folder, tmp_path / "set"))


@pytest.fixture
def few(copied_set: Path) -> Path:
    """The small set with five passages and no right ones."""
    lines = (copied_set / "corpus.jsonl").read_text().split("\n")[:5]
    (copied_set / "corpus.jsonl").write_text("\n".join(lines))
    for path in copied_set.glob("qrels/*.tsv"):
        path.write_text("")
    return copied_set


@pytest.fixture(scope="session")
def pipeline(index: Index, work: Path) -> Pipeline:
    """The small index with both models; scores that the run has made are not made again."""
    models = Models.open(CONFIG, cache=ScoreCache(Workspace(work).scores))
    return Pipeline(OwnIndex(index, CONFIG), models)


@pytest.fixture(scope="session")
def searched(run: Run, pipeline: Pipeline) -> ScoredPlan:
    """The queries of the run, scored as the run scored them."""
    return score_search(pipeline, run.plan)


@pytest.fixture(scope="session")
def to_fit(searched: ScoredPlan) -> Labelled[Scored]:
    """What the run was fitted on."""
    return searched.to_fit


@pytest.fixture(scope="session")
def to_report(searched: ScoredPlan) -> Labelled[Scored]:
    """What the run reported on."""
    return searched.to_report


@pytest.fixture(scope="session")
def maps(run: Run) -> FittedMaps:
    """The maps of the model folder for queries to its index."""
    kept = json.loads((run.folder / "calibrators.json").read_text())
    return FittedMaps.from_dict(kept["search"])


@pytest.fixture(scope="session")
def rankings(searched: ScoredPlan, maps: FittedMaps) -> dict[str, Ranking]:
    """The ranking of every query of the run by its maps, by query id."""
    scored = [*searched.to_fit.items, *searched.to_report.items]
    seen = [limit_scored(s, maps.policy.cutoff) for s in scored]
    return {s.query.query_id: rank(s, maps.score) for s in seen}


@pytest.fixture(scope="session")
def fitted(searched: ScoredPlan, config: Config) -> Fitted:
    """What fitting on the same candidates gives."""
    return fit(searched, config, to_keep=True)


@pytest.fixture
def questions(small: LabelledSet, tmp_path: Path) -> Path:
    """The 30 questions that the model was not fitted on, in a file."""
    path = tmp_path / "questions.jsonl"
    rows = (query_row(small.queries[i]) for i in small.splits["test"])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def other_reranker(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A maker of small untrained cross-encoders of `outputs` outputs, saved as folders.

    Each has other weights, the same in every run, large enough for scores that differ.
    """
    seeds = count()

    def make(*, outputs: int = 1, family: str = "bert") -> Path:
        import torch
        from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

        torch.manual_seed(next(seeds))
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
            initializer_range=0.2,
        )
        AutoModelForSequenceClassification.from_config(shape).save_pretrained(folder)
        AutoTokenizer.from_pretrained(resolve("minilm").folder).save_pretrained(folder)
        return folder

    return make
