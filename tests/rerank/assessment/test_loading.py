"""A model folder as a stranger's: what loading it may touch, and that many may use it at once."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run_python

from rerank.assessment import model as assessor
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import bound_to
from rerank.errors import InputError, MissingExtraError
from rerank.inference import cross_encoder
from rerank.inference.engine import Engine, open_engine
from rerank.inference.model_files import resolve
from rerank.retrieval import dense
from rerank.storage.files import sha256_file
from rerank.storage.folder import with_digest
from rerank.types import Query

Run = Any  # the session's run, see conftest
UNUSED = ("mlflow", "sklearn", "datasets", "torch", "pandas", "transformers", "matplotlib", "onnx")
UNUSED += ("sentence_transformers",)

GUARD = """
import json, os, sys
os.environ.pop("HF_HUB_OFFLINE", None)
REFUSED = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "pickle.find")

def guard(event, arguments):
    if event.startswith(REFUSED):
        raise RuntimeError(f"{event} {arguments!r}")

sys.addaudithook(guard)
from rerank.assessment.model import CalibratedReranker
from rerank.errors import InputError, MissingExtraError
"""


@pytest.fixture(scope="module")
def model(run: Run) -> CalibratedReranker:
    return CalibratedReranker.load(run.folder)


@pytest.fixture
def copied(run: Run, tmp_path: Path) -> Path:
    """A copy of the model folder that a test may damage."""
    return Path(shutil.copytree(run.folder, tmp_path / "model"))


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest, and make every hash right again: as a forger would."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    kept = json.loads((folder / "calibrators.json").read_text())
    kept["bound_to"] = bound_to(manifest["config"], manifest["fingerprints"])
    (folder / "calibrators.json").write_text(json.dumps(kept))
    manifest["files"] = {
        path.relative_to(folder).as_posix(): {
            "sha256": sha256_file(path),
            "size": path.stat().st_size,
        }
        for path in folder.rglob("*")
        if path.is_file() and path != folder / "manifest.json"
    }
    (folder / "manifest.json").write_text(json.dumps(with_digest(manifest)))


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        CalibratedReranker.load(folder)
    return str(caught.value)


# --- what it may touch ------------------------------------------------------------------------


def test_a_folder_needs_neither_network_nor_training_libraries(
    model: CalibratedReranker, run: Run, copied: Path
) -> None:
    """The same answer where no socket opens and these libraries cannot be imported.

    A hub id that is not in this machine's cache is refused unasked, and not looked up.
    """
    rewrite(copied, lambda m: m["config"].update(reranker="nobody/nothing"))
    code = f"""
found = CalibratedReranker.load({str(run.folder)!r}).search("sort an array")
try:
    CalibratedReranker.load({str(copied)!r})
except InputError as error:
    refused = str(error)
print(json.dumps([found.to_dict(), refused, sorted({{m.split(".")[0] for m in sys.modules}})]))
"""
    said, refused, modules = json.loads(run_python(GUARD + code, blocked=UNUSED))
    assert said == json.loads(json.dumps(model.search("sort an array").to_dict()))
    assert "'nobody/nothing' is not in this machine's hub cache" in refused
    assert not set(UNUSED) & set(modules)


def test_a_hub_model_is_taken_from_the_cache(
    other_reranker: Callable[..., Path], tmp_path: Path
) -> None:
    """What the hub's cache holds is found without a network."""
    home = tmp_path / "models--some--reranker"
    shutil.copytree(other_reranker(), home / "snapshots" / ("0" * 40))
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("0" * 40)
    code = f"""
os.environ["HF_HUB_CACHE"] = {str(tmp_path)!r}
from rerank.inference.model_files import resolve
print(resolve("some/reranker", download=False).fingerprint)
"""
    expected = resolve(str(home / "snapshots" / ("0" * 40))).fingerprint
    assert run_python(GUARD + code).strip() == expected


def test_a_model_inside_the_folder_is_refused(
    copied: Path, other_reranker: Callable[..., Path]
) -> None:
    """Weights come with the libraries that run them; a folder cannot bring its own."""
    shutil.copytree(other_reranker(), copied / "reranker", ignore=lambda *_: ["model.py"])
    for path in (copied / "reranker").rglob("*.safetensors"):
        path.rename(path.with_name("pytorch_model.bin"))
    rewrite(copied, lambda m: m["config"].update(reranker=str(copied / "reranker")))
    assert "does not belong in a model folder" in refusal(copied)
    shutil.copytree(copied / "reranker", copied / "index" / "x")
    shutil.rmtree(copied / "reranker")
    (copied / "index/x/pytorch_model.bin").rename(copied / "index/x/model.safetensors.index.json")
    rewrite(copied, lambda m: m["config"].update(reranker=str(copied / "index/x")))
    assert "which lies in itself" in refusal(copied)


@pytest.mark.parametrize("name", ["code.py", "x.pkl", "x.so", "index/weights.bin", "no_suffix"])
def test_a_listed_file_that_is_no_data_is_refused(copied: Path, name: str) -> None:
    """Not even with its hash in the manifest."""
    (copied / name).write_text("raise SystemExit")
    rewrite(copied, lambda _: None)
    assert f"holds {name}, which does not belong in a model folder" in refusal(copied)


# --- who sealed it ---------------------------------------------------------------------------


def edit_maps(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the maps of `search`, and make every hash right again."""
    kept = json.loads((folder / "calibrators.json").read_text())
    change(kept["search"])
    (folder / "calibrators.json").write_text(json.dumps(kept))
    rewrite(folder, lambda _: None)


def raise_intercept(maps: dict[str, Any]) -> None:
    maps["confidence"]["first"]["intercept"] += 9.0


def test_a_folder_that_was_sealed_again_has_another_manifest(copied: Path) -> None:
    """The hashes fit, so only the hash from elsewhere tells that the maps are not those fitted."""
    pin = sha256_file(copied / "manifest.json")
    assert CalibratedReranker.load(copied, manifest_sha256=pin.upper()).files.sha256() == pin
    edit_maps(copied, raise_intercept)
    CalibratedReranker.load(copied)
    with pytest.raises(InputError, match=f"has sha256 [0-9a-f]{{64}}, expected {pin}"):
        CalibratedReranker.load(copied, manifest_sha256=pin)
    with pytest.raises(InputError, match="no manifest"):
        CalibratedReranker.load("default", manifest_sha256=pin)


@pytest.mark.parametrize("key", ["certificate", "context"])
@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        ({"threshold": 0.0, "accepted": 0, "right": 0}, "0 right of 0 certify no 70%"),
        ({"threshold": 0.0, "accepted": 90, "right": 63}, "63 right of 90 certify no 70%"),
        ({"threshold": 0.0, "accepted": 90, "right": 70, "target": 0.2}, "0.2 at 0.95"),
        ({"threshold": 0.0, "accepted": 90, "right": 70, "level": 0.5}, "0.7 at 0.5"),
    ],
)
def test_a_certificate_that_was_typed_in_is_refused(
    copied: Path, key: str, typed: dict[str, Any], complaint: str
) -> None:
    """It must follow from the counts that it states, and promise what `calibrate` does."""
    given = {"queries": 100, "labels_needed": None, "groups": None, "refused": "", **typed}
    edit_maps(copied, lambda maps: maps[key].update(given))
    assert complaint in refusal(copied)


# --- what it refuses --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("precision", lambda m: m["config"].update(precision="fp32")),
        ("max_length", lambda m: m["fingerprints"].update(max_length=7)),
        ("encoder's tokenizer", lambda m: m["fingerprints"].update(encoder_tokenizer="0" * 64)),
        ("reranker's tokenizer", lambda m: m["fingerprints"].update(reranker_tokenizer="0" * 64)),
    ],
)
def test_the_part_that_differs_is_named(
    copied: Path, part: str, change: Callable[[dict[str, Any]], None]
) -> None:
    """Each part of the fingerprint is compared by itself."""
    rewrite(copied, change)
    assert f"its {part} was " in refusal(copied)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"language": "german"}, "--language english instead of german"),
        ({"dense": "approximate"}, "--dense exact instead of approximate"),
    ],
)
def test_an_index_of_another_kind_is_refused(
    copied: Path, change: dict[str, str], complaint: str
) -> None:
    """The index must be one that the configuration would build."""
    rewrite(copied, lambda m: m["config"].update(change))
    assert complaint in refusal(copied)


def _save(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    path = folder / "index" / name
    if name == "vector_starts.npy":  # which an index of one vector per passage does not need
        np.save(path, np.arange(len(np.load(path.with_name("vectors.npy"))) + 1))
    np.save(path, change(np.load(path)), allow_pickle=True)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("vectors.npy", lambda a: a[:-1]),
        ("vectors.npy", lambda a: a.astype(np.float64)),
        ("vectors.npy", lambda a: a * np.nan),
        ("bm25_weights.npy", lambda a: a * 1e300),
        ("vectors.npy", lambda a: a.astype(object)),
        ("vectors.npy", lambda a: a[0, 0]),
        ("vector_starts.npy", lambda a: a + 1),
        ("vector_starts.npy", lambda a: a[:-1]),
        ("vector_starts.npy", lambda a: np.r_[a[0], a[2], a[1], a[3:]]),
        ("vector_starts.npy", lambda a: a.astype(np.float64)),
        ("bm25_rows.npy", lambda a: a + 10**6),
        ("bm25_rows.npy", lambda a: a - 1),
        ("bm25_weights.npy", lambda a: a[1:]),
        ("offsets.npy", lambda a: a[::-1]),
        ("offsets.npy", lambda a: a + 1),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    copied: Path, name: str, change: Callable[[Any], Any]
) -> None:
    """A forged array is refused at load, and cannot make a search read beyond another one."""
    _save(copied, name, change)
    rewrite(copied, lambda _: None)
    assert "its index cannot be used" in refusal(copied)


def test_a_folder_of_an_older_format_is_refused(copied: Path) -> None:
    """The sentence says what to do."""

    def older(manifest: dict[str, Any]) -> None:
        manifest["format_version"] = 4

    rewrite(copied, older)
    assert "format version 4; this version reads 5: make the folder anew" in refusal(copied)


@pytest.mark.parametrize("name", ["fitted_on.txt", "sketch.json"])
def test_a_folder_of_an_earlier_version_says_what_it_lacks(copied: Path, name: str) -> None:
    """It still answers; what needs the missing file says which, and what to do."""
    (copied / name).unlink()
    rewrite(copied, lambda m: m.pop("digest"))
    model = CalibratedReranker.load(copied)
    assert model.search("sort an array").ranking.passages
    with pytest.raises(
        InputError,
        match=f"has no {name}: it is not calibrated, or an earlier version .*; calibrate it",
    ):
        _ = model.fitted_on if name == "fitted_on.txt" else model.sketch


def test_a_file_that_changes_after_loading_is_not_believed(copied: Path) -> None:
    """What is read later is compared with its hash again."""
    model = CalibratedReranker.load(copied)
    (copied / "fitted_on.txt").write_text("0" * 16)
    with pytest.raises(InputError, match=r"fitted_on.txt is changed"):
        _ = model.fitted_on


@pytest.mark.parametrize("kind", ["pipe", "socket", "sparse", "truncated", "link", "grows"])
@pytest.mark.parametrize("name", ["manifest.json", "calibrators.json", "index/vectors.npy"])
def test_no_file_holds_the_loading_up(
    copied: Path, kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pipes are not waited for, a gigabyte of nothing is not read, growth is noticed."""
    path = copied / name
    if kind in ("sparse", "truncated"):
        os.truncate(path, 2**30 if kind == "sparse" else path.stat().st_size // 2)
    elif kind == "grows":
        content, real = path.read_bytes(), os.fstat
        size = len(content)

        def fstat(handle: int) -> os.stat_result:  # as if looked at just before it grew
            found = real(handle)
            return os.stat_result((*found[:6], size, *found[7:]))

        path.write_bytes(content + b"\0" * 5)
        monkeypatch.setattr(os, "fstat", fstat)
    else:
        path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to("/dev/zero")
        else:
            monkeypatch.chdir(path.parent)  # a socket's path is short
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
    assert str(copied) in refusal(copied)


@pytest.mark.parametrize("when", [0, 2**33])
def test_the_clock_does_not_matter(run: Run, copied: Path, when: int) -> None:
    """Files of 1970 or of the year 2242 are the files that they are."""
    for path in copied.rglob("*"):
        os.utime(path, (when, when))
    assert CalibratedReranker.load(copied).manifest == CalibratedReranker.load(run.folder).manifest


def test_a_file_set_back_in_time_is_hashed_again(
    other_reranker: Callable[..., Path],
) -> None:
    """Weights changed in place are seen, though size and time of the file are what they were."""
    folder = other_reranker()
    path = folder / "model.safetensors"
    before, then = resolve(str(folder)).fingerprint, path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert resolve(str(folder)).fingerprint != before


READ_ONLY = """
from pathlib import Path
from rerank.assessment.model import CalibratedReranker
try:
    Path({place!r}, "x").touch()
except PermissionError:
    print(CalibratedReranker.load({place!r}).search("sort an array").confidence)
"""


def test_a_read_only_folder_is_enough(
    model: CalibratedReranker, copied: Path, tmp_path: Path
) -> None:
    """Nothing is written where a model lies, nor where the exported weights do."""
    unfinished = shutil.ignore_patterns(".*")  # of another worker
    cache = shutil.copytree(os.environ["RERANK_CACHE"], tmp_path / "cache", ignore=unfinished)
    for home in (copied, cache):
        for path in (home, *home.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
    command = [sys.executable, "-c", READ_ONLY.format(place=str(copied))]
    if os.geteuid() == 0:  # who may write anywhere, but for this
        if shutil.which("setpriv") is None:
            pytest.skip("root may write into a read-only folder")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    done = subprocess.run(
        command,
        env=os.environ | {"RERANK_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == str(model.search("sort an array").confidence), done.stderr


# --- used by many -----------------------------------------------------------------------------


def test_many_threads_get_what_one_gets(
    model: CalibratedReranker,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight threads at once, from the first question on: equal to 1e-6, and loaded once."""
    queries = run.plan.report.items[:4]
    expected = [model.search(q.text) for q in queries]
    opened: list[str] = []
    real = open_engine

    def counted(files: Any, kind: str, precision: Any) -> Engine:
        opened.append(kind)
        return real(files, kind, precision)

    for module in (cross_encoder, dense):
        monkeypatch.setattr(module, "open_engine", counted)
    fresh = CalibratedReranker.load(run.folder)
    together = threading.Barrier(8)

    def ask(number: int) -> None:
        together.wait()
        turn = range(number, number + len(queries))
        for i in (j % len(queries) for j in turn):
            if number % 2:
                found = fresh.search(queries[i].text)
            else:
                found = fresh.assess([queries[i], queries[i - 1]])[0]
            assert found.confidence == pytest.approx(expected[i].confidence, abs=1e-6)
            assert found.sufficiency == pytest.approx(expected[i].sufficiency, abs=1e-6)
            assert found.ranking.doc_ids == expected[i].ranking.doc_ids
            np.testing.assert_allclose(
                found.ranking.logits, expected[i].ranking.logits, rtol=0, atol=1e-6
            )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    assert sorted(opened) == ["bi_encoder", "cross_encoder"]


@pytest.mark.parametrize("workers", [1, 5])
def test_scores_depend_on_nothing_beside_the_query(
    model: CalibratedReranker,
    run: Run,
    workers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the batch, its order and the worker threads: equal to 1e-6."""
    queries = run.plan.report.items[:5]

    def confidences(given: list[Query]) -> dict[str, float]:
        found = fresh.assess(given)
        return {a.ranking.query.query_id: a.confidence for a in found}

    expected = {q.query_id: model.search(q.text).confidence for q in queries}
    monkeypatch.setattr("rerank.inference.engine.cores", lambda: workers)
    fresh = CalibratedReranker.load(run.folder)
    for given in (queries[::-1], queries[:2], queries[4:5]):
        for query_id, confidence in confidences(list(given)).items():
            assert confidence == pytest.approx(expected[query_id], abs=1e-6)


def test_a_uri_without_mlflow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence says what to install."""
    monkeypatch.delitem(sys.modules, "rerank.tracking.client", raising=False)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[track\]'$"):
        assessor.CalibratedReranker.load("models:/calibrated-rerank-pydata@champion")
