"""A user without a home folder, or with one that cannot be written to, as in a container."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import run_python

CODE = """
import os
from pathlib import Path
from rerank.errors import InputError
from rerank.inference.model_cache import cache_folder

os.environ.pop("RERANK_CACHE", None)
os.environ.pop("XDG_CACHE_HOME", None)
os.environ.pop("HOME", None)
home = {home!r}
if home:
    os.environ["HOME"] = home
os.chdir("/")
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(54321)
    os.setuid(54321)  # of whom the system knows no home
try:
    cache_folder()
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("home", ["missing", "read-only", "", "/proc/none"])
def test_the_message_says_where_else_models_can_be(tmp_path: Path, home: str) -> None:
    """Another folder, or a model that needs no cache; and nothing is made in the working folder."""
    if home == "read-only":
        (tmp_path / home).mkdir(mode=0o555)
    tmp_path.chmod(0o555)
    said = run_python(CODE.format(home=home and str(tmp_path / home)))
    assert "RERANK_CACHE" in said
    assert "rerank model export" in said
