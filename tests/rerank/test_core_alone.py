"""A self-contained model folder where nothing but the core is installed: it answers as any other.

Blocked is whatever an extra brings. Nothing is written into the user's home or the cache, and no
network is asked.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import call, flags
from processes import run_python

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import MANIFEST
from rerank.batch.job import rescore
from rerank.config import Config
from rerank.data.feedback import feedback_of
from rerank.data.labelled_set import LabelledSet
from rerank.errors import EXTRAS, InputError
from rerank.inference.engine import GRAPH, NETWORKS
from rerank.jobs.update import export
from rerank.storage.files import sha256_file
from rerank.storage.folder import with_digest
from rerank.types import Query

Run = Any  # the session's run, see conftest

QUERY = "median along an axis while ignoring NaNs"
PASSAGES = ["The median of an array.", "A bar chart.", "Sort along an axis."]
BLOCKED = sorted(set().union(*EXTRAS.values()))
ALONE = """
import json, os, socket, sys

def refuse(*args, **options):
    raise AssertionError("the network is asked")

socket.socket.connect = refuse
os.environ["RERANK_CACHE"] = os.environ["HOME"] = {home!r}
import rerank
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
model = rerank.load({folder!r})
found = model.assess([rerank.Query({query!r}), rerank.Query("sort an array")])
found.append(model.rerank({query!r}, {passages!r}))
print(json.dumps([each.to_dict() for each in found]))
rerank.rescore(model, {queries!r}, {out!r})
"""


@pytest.fixture(scope="module")
def model(run: Run) -> CalibratedReranker:
    """The session's model, which finds its weights on this machine."""
    return CalibratedReranker.load(run.folder)


@pytest.fixture(scope="module")
def exported(model: CalibratedReranker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, self-contained."""
    return export(model, tmp_path_factory.mktemp("exported") / "model")


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    return shutil.copytree(exported, tmp_path / "copied")


def test_the_core_alone_gives_the_same_answers(
    model: CalibratedReranker, exported: Path, tmp_path: Path
) -> None:
    """Of search, rerank and rescore, to the bit; and importing `rerank` imports no library."""
    queries, out = tmp_path / "queries.jsonl", tmp_path / "alone.jsonl"
    rows = [{"_id": "1", "text": QUERY}, {"_id": "2", "text": "join two tables on a key"}]
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows))
    home = tmp_path / "home"
    home.mkdir()
    names = {"home": str(home), "folder": str(exported), "queries": str(queries), "out": str(out)}
    code = ALONE.format(query=QUERY, passages=PASSAGES, **names)
    imported, answers = map(json.loads, run_python(code, blocked=BLOCKED).splitlines())
    assert not {"numpy", "onnxruntime", "tokenizers", "regex", "Stemmer"} & set(imported)
    expected = model.assess([Query(QUERY), Query("sort an array")])
    expected.append(model.rerank(QUERY, PASSAGES))
    assert answers == [json.loads(json.dumps(each.to_dict())) for each in expected]
    assert not any(home.iterdir())
    rescore(model, queries, tmp_path / "here.jsonl")
    assert out.read_bytes() == (tmp_path / "here.jsonl").read_bytes()


def networks(folder: Path) -> dict[str, Any]:
    """The networks that a model folder carries, by file, with their hashes."""
    files = json.loads((folder / MANIFEST).read_text())["files"]
    return {name: entry for name, entry in files.items() if name.startswith(f"{NETWORKS}/")}


def test_calibrate_and_recalibrate_carry_the_networks_too(
    run: Run,
    config: Config,
    small: LabelledSet,
    small_folder: Path,
    exported: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each writes the networks that `export` writes; the moved model ranks as the first."""
    shutil.copyfile(run.work / "mlflow.db", tmp_path / "mlflow.db")  # the session's stays as it is
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    made, moved = tmp_path / "made", tmp_path / "moved"
    where = ("--work", run.work, "--out")
    given = ("calibrate", small_folder, "--self-contained", *flags(config))
    assert call(*given, *where, made) == 0
    labels = tmp_path / "labels.jsonl"
    rows = [
        {"query": f.query.text, "relevant": sorted(f.relevant)} for f in feedback_of(small, "test")
    ]
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert call("recalibrate", made, "--labels", labels, *where, moved) == 0
    assert networks(exported) == networks(made) == networks(moved)
    first, second = (CalibratedReranker.load(folder).search(QUERY) for folder in (made, moved))
    assert first.ranking.doc_ids == second.ranking.doc_ids


def test_a_changed_network_is_refused(copied: Path) -> None:
    """When the folder is loaded, and when the network is first used."""
    graph = copied / NETWORKS / "reranker" / GRAPH
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    loaded = CalibratedReranker.load(copied)
    graph.write_bytes(content)
    with pytest.raises(InputError, match=r"graph\.onnx is changed"):
        loaded.search(QUERY)
    with pytest.raises(InputError, match=r"graph\.onnx is changed"):
        CalibratedReranker.load(copied)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m: m.pop(NETWORKS), "does not belong in a model folder"),
        (lambda m: m[NETWORKS].update(precision="fp32"), "export the model again"),
        (lambda m: m[NETWORKS].update(exporter=0), "export the model again"),
        (lambda m: m["fingerprints"].update(encoder="0" * 64), "other models than its manifest"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(
    copied: Path, change: Callable[[Any], object], sentence: str
) -> None:
    """A network is used only as what it was exported as, and only where the manifest names it."""
    manifest = json.loads((copied / MANIFEST).read_text())
    change(manifest)
    (copied / MANIFEST).write_text(json.dumps(with_digest(manifest)))
    with pytest.raises(InputError, match=sentence):
        CalibratedReranker.load(copied)


@pytest.mark.parametrize("name", ["graph.onnx", "networks/graph.onnx", "networks/other/graph.onnx"])
def test_a_graph_in_another_place_is_refused(copied: Path, name: str) -> None:
    """A network lies in one of two places, and nothing else lies beside it."""
    (copied / name).parent.mkdir(exist_ok=True)
    (copied / name).write_bytes(b"")
    manifest = json.loads((copied / MANIFEST).read_text())
    manifest["files"][name] = {"sha256": sha256_file(copied / name), "size": 0}
    (copied / MANIFEST).write_text(json.dumps(with_digest(manifest)))
    with pytest.raises(InputError, match="does not belong in a model folder"):
        CalibratedReranker.load(copied)


def test_a_missing_network_is_refused(copied: Path) -> None:
    """The sentence names the file."""
    name = f"{NETWORKS}/encoder/{GRAPH}"
    (copied / name).unlink()
    manifest = json.loads((copied / MANIFEST).read_text())
    del manifest["files"][name]
    (copied / MANIFEST).write_text(json.dumps(with_digest(manifest)))
    with pytest.raises(InputError, match=f"{name} is missing"):
        CalibratedReranker.load(copied)


def test_an_exported_model_is_exported_again(exported: Path, tmp_path: Path) -> None:
    """From the networks that it carries: the copy has the same files."""
    again = export(CalibratedReranker.load(exported), tmp_path / "again")
    first, second = (json.loads((f / MANIFEST).read_text()) for f in (exported, again))
    assert first == second


def test_a_folder_that_changed_since_it_was_loaded_is_not_exported(
    copied: Path, tmp_path: Path
) -> None:
    """Nothing is hashed anew that is not what was loaded."""
    loaded = CalibratedReranker.load(copied)
    (copied / "report.txt").write_text("other")
    with pytest.raises(InputError, match=r"report\.txt"):
        export(loaded, tmp_path / "out")
    assert not (tmp_path / "out").exists()
