"""The command line, called in this process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rerank.cli import main
from rerank.config import Config


def call(*arguments: object) -> int:
    """The exit code of the command, argparse's own included."""
    try:
        return main([str(a) for a in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The sentence on stderr of a command that must be refused with exit code 2."""
    assert call(*arguments) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    found = [line for line in err.splitlines() if re.match(r"rerank( \w+)*: error: ", line)]
    assert len(found) == 1, err
    return found[0]


def flags(config: Config) -> list[str]:
    """The options of `calibrate` that give this configuration."""
    return list(_flags(config.to_dict()))


def _flags(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flags(value)
        else:
            yield f"--{name.replace('_', '-')}={value}"
