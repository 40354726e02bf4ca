"""A PostgreSQL server of Debian's package, in a folder of its own, reached by a Unix socket."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PLACES = "/usr/lib/postgresql/*/bin"  # Debian's; not on the path


def programs() -> Path:
    """The folder of `initdb` and `pg_ctl`; the test is skipped where there is none."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else sorted(Path("/").glob(PLACES.removeprefix("/")))
    if not places:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    return places[-1]


class Postgres:
    """A server in `folder`, which may be ended at once and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs = programs()
        # root may not run it; then the user that the package has made does
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(folder, self._user)
        self._data = folder / "data"
        self.run("initdb", "-D", self._data, "-U", "tester", "-A", "trust", "-N", "-E", "UTF8")

    @property
    def url(self) -> str:
        """Of the database that every server has."""
        return f"postgresql://tester@/postgres?host={self._folder}"

    def run(self, program: str, *arguments: object) -> None:
        """Run one of its programs, as its user."""
        command = [str(self._programs / program), *map(str, arguments)]
        user = {"user": self._user, "extra_groups": []} if self._user else {}
        done = subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=self._folder,
            **user,  # type: ignore[call-overload]
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start it; it listens on a Unix socket in its folder, and nowhere else."""
        options = f"-k {self._folder} -c listen_addresses= -c fsync=off -c shared_buffers=1MB"
        log = self._folder / "log"
        self.run("pg_ctl", "-D", self._data, "-l", log, "-o", options, "-w", "start")

    def stop(self) -> None:
        """End it at once, as a crash does."""
        self.run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A running server; its folder has a short name, as that of a socket must."""
    programs()
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp", ignore_cleanup_errors=True) as name:
        server = Postgres(Path(name))
        server.start()
        try:
            yield server
        finally:
            server.stop()
