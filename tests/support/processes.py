"""Python code in a process of its own, or in forks of one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""


def run_python(code: str, *, blocked: Sequence[str] = ()) -> str:
    """Standard output of `code` in a process of its own, in which `blocked` cannot be imported."""
    whole = BLOCK.format(blocked=set(blocked)) + code if blocked else code
    done = subprocess.run(
        [sys.executable, "-c", whole], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


FORKS = """
import contextlib, json, os, sys, traceback
import numpy  # which nearly all code here imports

for name, code in json.load(sys.stdin).items():
    out, into = os.pipe()
    if not (child := os.fork()):
        with open(into, "w") as said, contextlib.redirect_stdout(said):
            try:
                exec(code, {"__name__": "__main__"})
            except BaseException:
                traceback.print_exc(file=said)
            said.flush()
            os._exit(0)
    os.close(into)
    with open(out) as said:
        print(json.dumps([name, said.read()]), flush=True)
    os.waitpid(child, 0)
"""


def run_forks(codes: Mapping[str, str], blocked: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Standard output of each code, or its traceback, by name; each with its own `blocked`.

    Each runs in a fork of one fresh process that has imported NumPy alone.
    """
    whole = {name: BLOCK.format(blocked=set(blocked[name])) + code for name, code in codes.items()}
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        input=json.dumps(whole),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(map(json.loads, done.stdout.splitlines()))
