"""The checkpoint alone: what a run finds of the one before it, whatever became of the files."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from rerank.batch.checkpoint import Checkpoint, CheckpointProgress, open_checkpoint
from rerank.errors import InputError

HEADER = {"model": "m", "input": "i"}
CHUNKS = [(b"one\n", b""), (b"two\nthree\n", b"bad\n"), (b"", b"worse\n")]
WHOLE = b"one\ntwo\nthree\n", b"bad\nworse\n"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def side(out: Path) -> Path:
    return out.with_name(f"{out.name}.rejected.jsonl")


def folder(out: Path) -> Path:
    return out.with_name(f".{out.name}.rescore")


def add(checkpoint: Checkpoint, count: int) -> None:
    """Append chunks until `count` are there; the line of a state is the number of its chunk."""
    for i in range(checkpoint.state.line, count):
        checkpoint.append(CheckpointProgress(line=i + 1), *CHUNKS[i])


def begun(out: Path, count: int) -> None:
    """A run that died after `count` chunks."""
    with open_checkpoint(out, side(out), HEADER, restart=False) as checkpoint:
        add(checkpoint, count)


def finish(out: Path) -> int:
    """How many chunks were there; then the rest is done, and the files compared."""
    with open_checkpoint(out, side(out), HEADER, restart=False) as checkpoint:
        found = checkpoint.state.line
        add(checkpoint, len(CHUNKS))
        checkpoint.scored()
        checkpoint.install(out, side(out), None)
    assert (out.read_bytes(), side(out).read_bytes()) == WHOLE
    assert {p.name for p in out.parent.iterdir()} == {out.name, side(out).name}
    return found


def test_a_file_system_without_locks_is_refused(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs would write one file."""

    def unsupported(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with (
        pytest.raises(InputError, match="no locks on this file system"),
        open_checkpoint(out, side(out), HEADER, restart=False),
    ):
        pass


@pytest.mark.parametrize("count", range(len(CHUNKS) + 1))
def test_a_run_goes_on_after_the_last_chunk(out: Path, count: int) -> None:
    """Nothing that was appended is done again, and nothing shows before all is there."""
    begun(out, count)
    assert not out.exists()
    assert not side(out).exists()
    assert finish(out) == count


@pytest.mark.parametrize("name", ["predictions", "rejected", "progress"])
def test_a_file_cut_anywhere_costs_its_last_chunks(out: Path, name: str) -> None:
    """However much of a file is lost, the chunks before are kept and the end is the same."""
    begun(out, 3)
    size = (folder(out) / name).stat().st_size
    for left in {*range(0, size, max(1, size // 12)), size - 1}:
        if not folder(out).exists():
            begun(out, 3)
        os.truncate(folder(out) / name, left)
        assert finish(out) < 3


@pytest.mark.parametrize("name", ["predictions", "rejected", "progress"])
def test_changed_bytes_are_seen(out: Path, name: str) -> None:
    """A byte that is not the one written costs its chunk and those behind it."""
    begun(out, 3)
    path = folder(out) / name
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    assert finish(out) < 2


def test_what_was_appended_without_being_counted_is_cut(out: Path) -> None:
    """Bytes behind the last chunk, in any of the files, are not mixed in."""
    begun(out, 2)
    for name in ("predictions", "rejected", "progress"):
        with (folder(out) / name).open("ab") as file:
            file.write(b"torn")
    assert finish(out) == 2


def test_files_that_have_their_names_already_are_kept(out: Path) -> None:
    """A run that died while it gave the files their names is finished by the next."""
    for moved in (["rejected"], ["rejected", "predictions"]):
        with open_checkpoint(out, side(out), HEADER, restart=False) as checkpoint:
            add(checkpoint, 3)
            checkpoint.scored()
        for name in moved:
            (folder(out) / name).rename(side(out) if name == "rejected" else out)
        assert finish(out) == 3
        out.unlink()
        side(out).unlink()


def test_an_output_that_was_taken_away_is_made_again(out: Path) -> None:
    """Where neither the checkpoint nor the output has the lines, the work begins anew."""
    with open_checkpoint(out, side(out), HEADER, restart=False) as checkpoint:
        add(checkpoint, 3)
        checkpoint.scored()
    (folder(out) / "predictions").unlink()
    assert finish(out) == 0


def test_other_work_is_refused_by_name_and_kept(out: Path) -> None:
    """Another model or input is told; `restart` throws the old work away."""
    begun(out, 2)
    for header, what in (
        ({**HEADER, "model": "n"}, "another model"),
        ({"model": "n", "input": "j"}, "another model and another input"),
    ):
        with (
            pytest.raises(InputError, match=rf"{what}.*--restart"),
            open_checkpoint(out, side(out), header, restart=False),
        ):
            pass
    with open_checkpoint(out, side(out), {**HEADER, "model": "n"}, restart=True) as checkpoint:
        assert checkpoint.state == CheckpointProgress()
    with pytest.raises(InputError, match="another model"):
        begun(out, 1)


def test_a_header_that_cannot_be_read_is_not_taken_for_ours(out: Path) -> None:
    """Broken, or of another version: refused."""
    begun(out, 2)
    for text in ("", "[]", json.dumps({"format": 0, **HEADER})):
        (folder(out) / "header.json").write_text(text)
        with pytest.raises(InputError, match="--restart"):
            begun(out, 2)


def test_two_runs_refuse_each_other(out: Path) -> None:
    """While one works, another is told so; when it is dead, the next goes on."""
    with open_checkpoint(out, side(out), HEADER, restart=False) as checkpoint:
        add(checkpoint, 1)
        with (
            pytest.raises(InputError, match="another run is writing it"),
            open_checkpoint(out, side(out), HEADER, restart=True),
        ):
            pass
    assert finish(out) == 1


def test_a_link_in_the_folders_place_is_refused(out: Path, tmp_path: Path) -> None:
    """Nothing is written through it."""
    (tmp_path / "elsewhere").mkdir()
    folder(out).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link"):
        begun(out, 1)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_full_disk_costs_the_chunk_that_did_not_fit(out: Path) -> None:
    """In the middle of any write there is no room: an error, and the chunks before are kept."""
    begun(out, 3)
    lines = (folder(out) / "progress").read_bytes().splitlines(keepends=True)
    ends = [len(lines[0]), len(lines[0]) + len(lines[1])]
    finish(out)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in (0, 2, 5, 12, ends[0] - 1, ends[0], ends[1] - 1, ends[1]):
        out.unlink()
        side(out).unlink()
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
            with pytest.raises(OSError, match="too large"):
                begun(out, 3)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert not out.exists()
        assert finish(out) == sum(end <= room for end in ends)


def test_an_older_side_file_goes_where_nothing_is_rejected(out: Path) -> None:
    """It would speak of another run's rows."""
    side(out).write_text("older")
    with open_checkpoint(out, side(out), HEADER, restart=False) as checkpoint:
        checkpoint.append(CheckpointProgress(line=1), b"one\n", b"")
        assert side(out).read_text() == "older"
        checkpoint.scored()
        checkpoint.install(out, side(out), None)
    assert not side(out).exists()
