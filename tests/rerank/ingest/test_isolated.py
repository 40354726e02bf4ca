"""Files that hang, crash or eat the memory cost themselves alone."""

from __future__ import annotations

import pytest

from rerank.ingest.document import UnreadableError
from rerank.ingest.isolated import IsolatedReader


def test_a_file_is_read_in_another_process() -> None:
    """Several files, one process; a reason comes back as a reason."""
    with IsolatedReader(seconds=3600) as isolated:
        assert isolated.read("markdown", b"# A\n\ntext").blocks[0].text == "text"
        process = isolated._process
        with pytest.raises(UnreadableError, match="binary data"):
            isolated.read("plain", b"\0")
        assert isolated.read("plain", "Größe".encode()).blocks[0].text == "Größe"
        assert isolated._process is process
    assert process is not None
    assert process.returncode is not None


def test_what_takes_too_long_is_given_up() -> None:
    """No process starts within a millisecond; the next reader has its own time."""
    with (
        IsolatedReader(seconds=0.001) as isolated,
        pytest.raises(UnreadableError, match=r"longer than 0\.001 seconds"),
    ):
        isolated.read("plain", b"text")


def test_what_takes_too_much_memory_is_given_up() -> None:
    """What 40 MiB of sentences become does not fit into 256 MiB; the next file is read."""
    with IsolatedReader(seconds=3600, memory=256 * 2**20) as isolated:
        with pytest.raises(UnreadableError, match=r"memory|ends the process"):
            isolated.read("plain", b"a b. " * 8 * 2**20)
        assert isolated.read("plain", b"text").blocks[0].text == "text"


def test_an_answer_of_any_length_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose text would fill the memory of the parent is refused, and the next one read."""
    monkeypatch.setattr("rerank.ingest.isolated.ANSWER", 1000)
    with IsolatedReader(seconds=3600) as isolated:
        with pytest.raises(UnreadableError, match="its text takes more than"):
            isolated.read("markdown", b"- a\n" * 10_000)
        assert isolated.read("markdown", b"Text.").blocks[0].text == "Text."
