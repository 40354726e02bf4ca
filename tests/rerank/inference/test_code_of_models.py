"""No code of a model is run, unless it is trusted: not with a yes on the terminal, and not by a
library alone.
"""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import refused
from transformers import AutoConfig

from rerank.errors import InputError
from rerank.inference import model_files, torch_models
from rerank.inference.cross_encoder import open_reranker
from rerank.inference.model_files import LOCAL, ModelFiles, resolve
from rerank.inference.tokenizer import tokenizer_json
from rerank.process import DEVICE, TRUST, chosen, device

AUTO_MAP = {
    "AutoConfig": "evil.Config",
    "AutoModel": "evil.Model",
    "AutoModelForSequenceClassification": "evil.Model",
    "AutoTokenizer": ["evil.Slow", "evil.Fast"],
}
FOREIGN = [{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}]
OF_ROUTER = {"types": {"a": "os.path.Module"}, "structure": {"query": ["a"]}, "parameters": {}}
OURS = {**FOREIGN[0], "type": "sentence_transformers.models.Transformer"}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that the code of `folder` would make; standard input says yes to all."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 100))
    monkeypatch.syspath_prepend(tmp_path / "importable")
    return tmp_path / "ran"


@pytest.fixture
def folder(other_reranker: Callable[..., Path], ran: Path) -> Path:
    """A cross-encoder beside code, which could be imported besides."""
    made = other_reranker()
    for place in (made, ran.parent / "importable"):
        place.mkdir(exist_ok=True)
        (place / "evil.py").write_text(f"open({str(ran)!r}, 'w')\nraise SystemExit")
    return made


def edit(path: Path, content: Any) -> None:
    """Add keys to a configuration, or write one that is not there."""
    if path.exists() and isinstance(content, dict):
        content = {**json.loads(path.read_text()), **content}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def with_auto_map_everywhere(folder: Path) -> None:
    for name in ("config.json", "tokenizer_config.json"):
        edit(folder / name, {"auto_map": AUTO_MAP, "model_type": "of-its-own"})
    (folder / "tokenizer.json").unlink()


@pytest.mark.parametrize("option", ["encoder", "reranker"])
@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("config.json", {"auto_map": AUTO_MAP, "model_type": "of-its-own"}, "evil.Config"),
        ("config.json", {"auto_map": AUTO_MAP}, "evil.Config"),
        ("config.json", {"text_config": {"auto_map": AUTO_MAP}}, "evil.Config"),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.Slow", None]}}, "evil."),
        ("processor_config.json", {"auto_map": {"AutoProcessor": "some/hub--evil.P"}}, "some/hub"),
        ("0_Transformer/config.json", {"auto_map": AUTO_MAP}, "evil.Config"),
        ("modules.json", FOREIGN, "evil.Module"),
        ("modules.json", [OURS, *FOREIGN], "evil.Module"),
        ("1_Router/router_config.json", OF_ROUTER, "os.path.Module"),
    ],
)
def test_a_folder_that_names_code_is_refused(
    folder: Path,
    ran: Path,
    small_folder: Path,
    capsys: pytest.CaptureFixture[str],
    option: str,
    name: str,
    content: Any,
    named: str,
) -> None:
    """One sentence, with the file and the code; nothing is asked, and nothing runs."""
    edit(folder / name, content)
    out = folder / "out"
    arguments = {
        "encoder": ("data", "index", small_folder, "--out", out, "--encoder", folder),
        "reranker": ("calibrate", small_folder, "--out", out, "--reranker", folder),
    }
    sentence = refused(capsys, *arguments[option])
    assert str(folder / name) in sentence
    assert named in sentence
    assert not ran.exists()


@pytest.mark.parametrize("part", ["config", "tokenizer", "cross_encoder", "bi_encoder"])
def test_the_libraries_are_told_to_run_none(folder: Path, ran: Path, part: str) -> None:
    """Even a folder that was checked, and changed after that."""
    with_auto_map_everywhere(folder)
    files = ModelFiles(str(folder), folder, "", "")
    opened: dict[str, Callable[[], object]] = {
        "config": lambda: AutoConfig.from_pretrained(str(folder), **LOCAL),
        "tokenizer": lambda: tokenizer_json(files),
        "cross_encoder": lambda: torch_models.load(files, "cross_encoder"),
        "bi_encoder": lambda: torch_models.load(files, "bi_encoder"),
    }
    with suppress(InputError, ValueError):
        opened[part]()
    assert not ran.exists()


def test_a_pickle_of_weights_runs_nothing(folder: Path, ran: Path) -> None:
    """Weights that only a pickle holds are read as tensors, or refused."""

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (open, (str(ran), "w"))

    (folder / "model.safetensors").unlink()
    torch.save({"weight": Evil()}, folder / "pytorch_model.bin", pickle_module=pickle)
    for kind in ("cross_encoder", "bi_encoder"):
        with pytest.raises(InputError):
            torch_models.load(ModelFiles(str(folder), folder, "", ""), kind)
    assert not ran.exists()


OWN = """
from transformers import BertForSequenceClassification

class Twice(BertForSequenceClassification):
    def forward(self, *args, **kwargs):
        found = super().forward(*args, **kwargs)
        found["logits"] = FACTOR * found["logits"]
        return found
"""


def with_own_code(folder: Path, factor: str) -> None:
    edit(folder / "config.json", {"auto_map": {"AutoModelForSequenceClassification": "own.Twice"}})
    (folder / "own.py").write_text(OWN.replace("FACTOR", factor))


def test_trusted_code_of_the_folder_runs_and_is_hashed(
    other_reranker: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the scores of the library, loudly; other code is another model, and untrusted none."""
    from sentence_transformers import CrossEncoder

    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    made, pairs = other_reranker(), [("median", "the middle value"), ("a", "b")]
    plain = resolve(str(made)).fingerprint
    with_own_code(made, "2.0")
    with pytest.raises(InputError, match="--trust-remote-code"):
        resolve(str(made))
    monkeypatch.setenv(TRUST, "1")
    files = resolve(str(made))
    assert "CODE OF THE MODEL" in caplog.text
    oracle = CrossEncoder(str(made), device="cpu", trust_remote_code=True)
    expected = oracle.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    found, _ = open_reranker(files, max_length=64).score(pairs)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    with_own_code(made, "3.0")
    assert len({plain, files.fingerprint, resolve(str(made)).fingerprint}) == 3


@pytest.mark.parametrize(
    ("code", "pinned", "said"),
    [
        ("own.Twice", False, "commit"),
        ("some/hub--own.Twice", True, "not in the folder"),
        ("os.path.Twice", True, "not in the folder"),
    ],
)
def test_trust_is_of_code_that_is_hashed_and_cannot_move(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, pinned: bool, said: str
) -> None:
    """Not of a branch of a hub, of another repository, or of a package."""
    monkeypatch.setenv(TRUST, "1")
    (folder / "own.py").write_text(OWN)
    edit(folder / "config.json", {"auto_map": {"AutoModel": code}})
    with pytest.raises(InputError, match=said):
        model_files._local("org/model@main", folder, pinned=pinned)


def test_a_device_that_is_not_there_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before any work; with two GPUs the second one can be named."""
    sentence = refused(capsys, "search", folder, "a", "--device", "cuda:7")
    assert "torch has cpu here" in sentence
    assert DEVICE not in os.environ or not os.environ[DEVICE]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device() == "cuda:0"
    with chosen("cuda:1", trust=False):
        assert device() == "cuda:1"
    with chosen("cuda", trust=False):
        assert device() == "cuda:0"
