"""Names of models to files: bundled names, folders, and what is refused."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from rerank.data.checks import query_hash
from rerank.errors import InputError
from rerank.inference import model_files as models
from rerank.inference.model_cache import cache_folder
from rerank.inference.model_files import (
    MINILM_SHA256,
    TRAINED_ON,
    lasting_name,
    resolve,
    trained_on,
)


def folder_with(tmp_path: Path, **files: str) -> Path:
    """A folder that looks like a model's."""
    folder = tmp_path / "a-model"
    folder.mkdir()
    for name, content in {"model_safetensors": "weights", **files}.items():
        (folder / re.sub("_(?=[a-z]+$)", ".", name)).write_text(content)
    return folder


def test_minilm_is_the_hubs_own_file() -> None:
    """The bundled encoder's weights have the sha256 that the hub publishes for it."""
    import hashlib

    found = resolve("minilm")
    got = hashlib.sha256((found.folder / "model.safetensors").read_bytes()).hexdigest()
    assert got == MINILM_SHA256
    assert found.name == "minilm"


def test_a_bundled_name_gives_the_same_files_every_time() -> None:
    """Unpacked once into the cache, with the same fingerprint after that."""
    one, other = resolve("minilm-reranker"), resolve("minilm-reranker")
    assert one == other
    assert one.folder.is_relative_to(cache_folder())
    assert one.fingerprint != resolve("minilm").fingerprint


def test_a_folder_is_a_model(tmp_path: Path) -> None:
    """A local folder is named by its path; its fingerprint follows its content, not its place."""
    folder = folder_with(tmp_path, config_json="{}")
    found = resolve(str(folder))
    assert found.folder == folder
    moved = shutil.copytree(folder, tmp_path / "moved")
    assert resolve(str(moved)).fingerprint == found.fingerprint
    for name in ("config.json", "model.safetensors"):
        (moved / name).write_text("changed")
        assert resolve(str(moved)).fingerprint != found.fingerprint
        shutil.copyfile(folder / name, moved / name)


def test_other_formats_of_the_weights_do_not_count(tmp_path: Path) -> None:
    """Hubs keep ONNX copies beside the weights; a machine that lacks them has the same model."""
    folder = folder_with(tmp_path, config_json="{}")
    before = resolve(str(folder)).fingerprint
    (folder / "onnx").mkdir()
    (folder / "onnx" / "config.json").write_text("{}")
    assert resolve(str(folder)).fingerprint == before


def test_a_folder_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a model folder keeps of a local model is its absolute path; other names stay."""
    folder = folder_with(tmp_path, config_json="{}")
    monkeypatch.chdir(folder.parent)
    assert lasting_name(folder.name) == str(folder)
    for name in ("minilm", "minilm-reranker", "org/model@main"):
        assert lasting_name(name) == name


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    """The error names the folder and the files that it looked for."""
    with pytest.raises(InputError, match=re.escape(str(tmp_path))) as caught:
        resolve(str(tmp_path))
    assert "model.safetensors" in str(caught.value)


@pytest.mark.parametrize("name", ["minilmm", "./nowhere", "/no/such/folder", "a/b/c", ""])
def test_an_unknown_name_is_refused(name: str, tmp_path: Path, monkeypatch: object) -> None:
    """The error names the bundled models, or the folder that is none."""
    with pytest.raises(InputError, match=r"minilm, minilm-reranker|no model weights"):
        resolve(name)


def test_a_hub_id_without_a_hub_is_refused() -> None:
    """Offline, the error names the model that was asked for, and that it is no folder either."""
    with pytest.raises(InputError, match=r"'nobody/nothing@v1'.*local folder: there is none"):
        resolve("nobody/nothing@v1")
    with pytest.raises(InputError, match=r"not in this machine's hub cache.*there is none of"):
        resolve("nobody/nothing@v1", download=False)


@pytest.mark.parametrize("download", [True, False])
def test_a_mistyped_folder_is_no_hub_id(
    download: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub is not asked for it; a model that it gave before is found, for all that."""
    monkeypatch.chdir(tmp_path)
    Path("work").mkdir()
    with pytest.raises(InputError, match="there is no folder work/rerankr, although there is work"):
        resolve("work/rerankr", download=download)
    cache = tmp_path / "hub" / "models--work--rerankr"
    snapshot = cache / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").write_text("weights")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert resolve("work/rerankr", download=download).folder == snapshot


def test_other_weights_under_the_bundled_name_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The package's weights are checked against the hash written here."""
    monkeypatch.setattr(models, "MINILM_SHA256", "0" * 64)
    with pytest.raises(InputError, match="expected 0000"):
        resolve("minilm")


def test_what_a_model_was_trained_on_is_read(tmp_path: Path) -> None:
    """Hashes a line in `trained_on.txt`; none where the file is missing."""
    folder = folder_with(tmp_path)
    assert trained_on(resolve(str(folder))) == frozenset()
    hashes = [query_hash(t) for t in ("fill gaps", "drop rows")]
    (folder / TRAINED_ON).write_text("\n".join(hashes) + "\n")
    assert trained_on(resolve(str(folder))) == frozenset(hashes)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("Fill  gaps\n", "fill gaps", True),
        ("fill gaps", "fill gap", False),
        ("fillgaps", "fill gaps", False),
    ],
)
def test_a_query_is_hashed_by_its_words(one: str, other: str, equal: bool) -> None:
    """Case and spacing do not hide a query; anything else does."""
    assert (query_hash(one) == query_hash(other)) is equal
    assert re.fullmatch("[0-9a-f]{16}", query_hash(one))


def test_the_cache_is_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """RERANK_CACHE first, then XDG_CACHE_HOME, then the home folder."""
    monkeypatch.setenv("RERANK_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own" / "models"
    monkeypatch.delenv("RERANK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "calibrated-rerank" / "models"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "calibrated-rerank" / "models"


def test_the_cache_is_its_users_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is made closed to others; one that others can write to, or own, is refused."""
    monkeypatch.setenv("RERANK_CACHE", str(tmp_path))
    folder = cache_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o770)
    with pytest.raises(InputError, match=r"with mode 770; expected yours, and 700"):
        cache_folder()
    folder.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(folder, 12345, -1)
        with pytest.raises(InputError, match="belongs to user 12345"):
            cache_folder()


def test_a_link_to_nothing_in_place_of_the_cache_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder is made in its place, and told of once."""
    monkeypatch.setenv("RERANK_CACHE", str(tmp_path))
    (tmp_path / "models").symlink_to(tmp_path / "nothing")
    for _ in range(2):
        folder = cache_folder()
        assert folder.is_dir()
        assert not folder.is_symlink()
    assert caplog.messages == [f"{folder} is made again: it is a link to nothing"]
    assert not (tmp_path / "nothing").exists()


def test_a_cache_that_is_linked_to_another_folder_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As by a user whose home is small."""
    (tmp_path / "large").mkdir(mode=0o700)
    (tmp_path / "models").symlink_to(tmp_path / "large")
    monkeypatch.setenv("RERANK_CACHE", str(tmp_path))
    assert cache_folder().resolve() == tmp_path / "large"


@pytest.mark.parametrize("name", ["models", "."])
def test_a_file_in_place_of_the_cache_is_named_and_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """It may be anyone's work: the sentence says what to move away."""
    given = tmp_path / "given"
    place = given / name
    place.parent.mkdir(exist_ok=True, parents=True) if name != "." else None
    place.write_text("ten years of work")
    monkeypatch.setenv("RERANK_CACHE", str(given))
    expected = f"{place} is not a folder. Move it away, or name another folder in RERANK_CACHE"
    with pytest.raises(InputError, match=re.escape(expected)):
        cache_folder()
    assert place.read_text() == "ten years of work"


def test_weights_that_are_not_read_do_not_count(tmp_path: Path) -> None:
    """PyTorch's own format beside safetensors is a copy; in another folder it is another layer."""
    folder = folder_with(tmp_path, config_json="{}")
    before = resolve(str(folder)).fingerprint
    (folder / "pytorch_model.bin").write_text("the same weights")
    assert resolve(str(folder)).fingerprint == before
    layer = folder / "2_Dense" / "pytorch_model.bin"
    layer.parent.mkdir()
    layer.write_text("another layer")
    assert (with_layer := resolve(str(folder)).fingerprint) != before
    layer.write_text("a changed layer")
    assert resolve(str(folder)).fingerprint != with_layer
