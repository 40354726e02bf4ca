"""Progress bars, and what becomes of them when processes die."""

from __future__ import annotations

import pytest
from processes import run_python

from rerank import progress as bars
from rerank.progress import progress, progress_shown


def test_a_killed_child_does_not_stop_the_bars_of_others() -> None:
    """A forked process dies while it draws; its parent draws on."""
    code = """
import os, signal
signal.alarm(60)  # rather than to wait for ever
from rerank.progress import progress
with progress(1, "before"):
    child = os.fork()
    if not child:
        with progress(1, "inside") as bar:
            type(bar).get_lock().acquire()
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
with progress(3, "after") as bar:
    bar.update(3)
print("drawn")
"""
    assert run_python(code).strip() == "drawn"


def test_without_a_terminal_there_are_plain_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each state, with the rate and the time left; none where bars are off."""
    monkeypatch.setattr(bars, "DELAY", 0.0)
    with progress(3, "reading", unit="file") as bar:
        bar.update(3)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("reading: 3 of 3 (100%), ")
    assert lines[-1].endswith(" left")
    with progress(1, "indexing") as outer, progress(2, "exporting") as inner:
        inner.update(2)
        outer.update(1)
    lines += capsys.readouterr().err.splitlines()
    assert {line.partition(":")[0] for line in lines} == {"reading", "indexing", "exporting"}
    assert not any(sign in line for line in lines for sign in "\r|=\x1b")
    with progress_shown(on=False), progress(3, "reading") as bar:
        bar.update(3)
    assert capsys.readouterr().err == ""


def test_a_short_step_shows_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """What is over before anybody looks needs no line."""
    with progress(3, "reading") as bar:
        bar.update(3)
    assert capsys.readouterr().err == ""
