"""The file of strategies: what is bundled, what a user may write, and what is refused."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from rerank.advice.settings import Strategy, read_strategies, strategy
from rerank.errors import InputError

BUNDLED = {  # as the people who asked for them know them
    "debugging": (2, 8, 0.6),
    "code_review": (1, 5, 0.7),
    "architecture": (2, 8, 0.5),
    "explanation": (1, 4, 0.8),
    "testing": (1, 5, 0.7),
    "devops": (1, 6, 0.6),
    "ml_engineering": (2, 8, 0.6),
    "general": (1, 5, 0.7),
}


def test_the_bundled_strategies() -> None:
    """One a kind of task; all have the default floor."""
    assert read_strategies() == {name: Strategy(*given) for name, given in BUNDLED.items()}
    assert {s.similarity_floor for s in read_strategies().values()} == {0.2}


def test_a_file_of_the_user(tmp_path: Path) -> None:
    """What it leaves out has the default."""
    path = tmp_path / "mine.toml"
    path.write_text("[support]\nmax_k = 3\n")
    assert strategy("support", path) == Strategy(max_k=3)
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())  # as some editors save it
    assert strategy("support", path) == Strategy(max_k=3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[a]\nmax_k = 3", r"no strategy 'b'; it has a"),
        ("[b]\nmaxk = 3", "no setting 'maxk'.*did you mean 'max_k'"),
        ("[b]\nmax_k = 30", r"\[b\]: `max_k` should be"),
        ("[b]\nmin_k = 5\nmax_k = 2", "`min_k` <= `max_k`"),
        ("b = 3", "should be a table"),
        ("[b", "not TOML"),
        ("", "it has none"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """A sentence names the file, the table and the setting."""
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        strategy("b", path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(InputError, match=r"none\.toml"):
        read_strategies(tmp_path / "none.toml")
