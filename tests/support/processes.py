"""Python code in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

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
