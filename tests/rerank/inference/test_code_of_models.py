"""No code of a model is run: not with a yes on the terminal, and not by a library alone."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import refused
from transformers import AutoConfig

from rerank.errors import InputError
from rerank.inference import onnx_export
from rerank.inference.model_files import LOCAL, ModelFiles
from rerank.inference.tokenizer import tokenizer_json

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
        "cross_encoder": lambda: onnx_export.load(files, "cross_encoder"),
        "bi_encoder": lambda: onnx_export.load(files, "bi_encoder"),
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
            onnx_export.load(ModelFiles(str(folder), folder, "", ""), kind)
    assert not ran.exists()
