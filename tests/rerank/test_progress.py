"""Progress bars, and what becomes of them when processes die."""

from __future__ import annotations

from processes import run_python


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
