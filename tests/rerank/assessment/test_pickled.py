"""A model in another process, as multiprocessing, joblib and Spark send it."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import shutil
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from rerank.assessment.model import DEFAULT, CalibratedReranker
from rerank.errors import InputError

Run = Any  # the session's run, see conftest
QUESTION = "median of an array"


def answered(model: CalibratedReranker) -> str:
    return json.dumps(model.search(QUESTION).to_dict())


def test_it_answers_the_same_in_another_process(run: Run) -> None:
    """It is sent as its folder, which is loaded and checked there."""
    model = CalibratedReranker.load(run.folder)
    expected = answered(model)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(answered, (model,)) == expected
    for other in (copy.deepcopy(model), cloudpickle.loads(cloudpickle.dumps(model))):
        assert answered(other) == expected
    default = CalibratedReranker.load(DEFAULT)
    assert pickle.loads(pickle.dumps(default)).version == DEFAULT


def test_a_folder_that_was_replaced_is_refused(run: Run, tmp_path: Path) -> None:
    """The other process would answer by another model."""
    shutil.copytree(run.folder, tmp_path / "model")
    sent = pickle.dumps(CalibratedReranker.load(tmp_path / "model"))
    manifest = tmp_path / "model" / "manifest.json"
    from rerank.storage.folder import with_digest

    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(with_digest(content | {"name": "other"})))
    with pytest.raises(InputError, match="another model than the one"):
        pickle.loads(sent)
    shutil.rmtree(tmp_path / "model")
    with pytest.raises(InputError, match="there is no folder"):
        pickle.loads(sent)


def test_a_fetched_copy_says_to_load_it_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder ends with it."""
    model = CalibratedReranker.load(run.folder)
    monkeypatch.setattr(model, "_fetched_from", "models:/a@champion")
    with pytest.raises(InputError, match="load models:/a@champion there"):
        pickle.dumps(model)
