"""Every command that code, messages, documents or recipes name exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rerank.cli import COMMANDS, FAMILIES

ROOT = Path(__file__).parents[3]
PLACES = ("rerank", "docs", "models", "datasets", "tests")
KINDS = {".py", ".md", ".mk", ".js", ".html", ".j2", ".yml", ".yaml", ".toml"}
NOT_READ = {"docs/options.md"}
ALONE = ("README.md", "Makefile", "compose.yaml", "Containerfile", "mkdocs.yml", "pyproject.toml")
TYPED = re.compile(r"(?:`|\$ |\)/|^)rerank\s+([a-z][\w-]*)(?:\s+([a-z][\w-]*))?", re.MULTILINE)
PRINTED = re.compile(r"""command_line\(\s*["']([a-z-]+)["'](?:,\s*["']([a-z-]+)["'])?""")


def files() -> Iterator[Path]:
    yield from (ROOT / name for name in ALONE)
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*")):
            if path.suffix in KINDS and path.relative_to(ROOT).as_posix() not in NOT_READ:
                yield path


def unknown(text: str) -> list[str]:
    """The names in a text that are no command."""
    found = []
    for pattern in (TYPED, PRINTED):
        for first, second in pattern.findall(text):
            if first not in COMMANDS and f"{first} {second}" not in COMMANDS:
                found.append(f"{first} {second}".strip())
    return [name for name in found if name not in FAMILIES]


def test_every_command_that_is_named_exists() -> None:
    """In backquotes, after `$`, at the start of a line, or in `command_line`."""
    wrong = {str(path.relative_to(ROOT)): unknown(path.read_text("utf-8")) for path in files()}
    assert not {path: names for path, names in wrong.items() if names}


@pytest.mark.parametrize("wrong", ["dataset build", "ingest", "label-next", "mcp"])
def test_a_wrong_name_would_be_noticed(wrong: str) -> None:
    """In a sentence, wrapped over two lines too, and in code."""
    call, quoted = "command_line", ", ".join(f'"{word}"' for word in wrong.split())
    for text in (f"run `rerank {wrong}`", f"$ rerank\n{wrong} work/model", f"{call}({quoted})"):
        assert unknown(text)
