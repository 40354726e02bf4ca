"""Options: said once, in the fields of a configuration; flags, bounds and docs come from there."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rerank.cli import parse
from rerank.commands.command import build, parameters
from rerank.config import LARGEST, Config, PromotionGate
from rerank.errors import InputError, nearest
from rerank.serving.settings import Settings

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "options.md"
GENERATOR = runpy.run_path(str(ROOT / "docs" / "generator" / "options.py"))
WRITE = "python docs/generator/options.py"
GIVEN = {
    "answer": ["answer", "model"],
    "calibrate": ["calibrate", "set", "--out", "model"],
    "evaluate": ["evaluate", "model", "set"],
    "data ingest": ["data", "ingest", "folder", "--out", "corpus"],
    "label": ["label", "model", "--out", "set"],
    "model promote": ["model", "promote", "model", "set"],
    "quickstart": ["quickstart", "docs"],
    "rescore": ["rescore", "model", "queries", "--out", "out"],
    "search": ["search", "model", "query"],
    "serve": ["serve", "model"],
    "train bi-encoder": ["train", "bi-encoder", "set", "--out", "model"],
    "train cross-encoder": ["train", "cross-encoder", "set", "--out", "model"],
}
CONFIGURATIONS = {
    (name, kind) for kind, names in GENERATOR["configurations"]().items() for name in names
}
EACH = pytest.mark.parametrize(
    ("command", "kind"), sorted(CONFIGURATIONS, key=str), ids=lambda x: getattr(x, "__name__", x)
)


def parsed(command: str, *more: str) -> dict[str, Any]:
    return vars(parse([*GIVEN[command], *more])[1])


@EACH
def test_without_options_a_command_takes_the_defaults(command: str, kind: type) -> None:
    """Those of the fields; nothing counts as typed."""
    assert build(kind, parsed(command)) == kind()
    assert not {x.name for x in parameters(kind)} & set(parsed(command))


@EACH
def test_every_option_reaches_its_field(command: str, kind: type) -> None:
    """A value of each option arrives in the field of its name alone; its default is typed too."""
    before = parsed(command)
    for x in parameters(kind):
        flag = f"--{x.name.replace('_', '-')}"
        for value in (another(x.default, x.option.choices), x.default):
            if value is False or value == "":
                continue
            found = parsed(command, *([flag] if value is True else [flag, str(value)]))
            assert found[x.name] == value
            assert set(found) - set(before) == {x.name}


def another(default: Any, choices: tuple[str, ...]) -> Any:
    if isinstance(default, bool):
        return not default
    if choices:
        return next(choice for choice in choices if choice != default)
    return f"{default}x" if isinstance(default, str) else default + 1


TRAINING = "rerank.training.settings"  # of a room: imported in the test


@pytest.mark.parametrize(
    ("make", "flags", "field"),
    [
        (Config, ["calibrate", "--max-length", "15"], "max_length"),
        (Config, ["calibrate", "--sufficiency-k", "11"], "sufficiency_k"),
        (Config, ["calibrate", "--rank-by", "spline"], "rank_by"),
        (Config, ["calibrate", "--language", "klingon"], "language"),
        (Config, ["calibrate", "--low", "0.8"], "low"),
        (Config, ["calibrate", "--medium", "nan"], "medium"),
        (
            "rerank.training.settings",
            ["train cross-encoder", "--learning-rate", "1"],
            "learning_rate",
        ),
        (TRAINING, ["train cross-encoder", "--hard", "0", "--easy", "0"], "hard"),
        (PromotionGate, ["model promote", "--margin", "1.5"], "margin"),
        (Settings, ["serve", "--port", "65536"], "port"),
        (Settings, ["serve", "--timeout", "0"], "timeout"),
        (Settings, ["serve", "--drift-level", "1"], "drift_level"),
    ],
)
def test_an_error_names_the_flag_that_it_speaks_of(
    make: type | str, flags: list[str], field: str
) -> None:
    """The flag on the command line, the field in Python; the rest of the sentence is the same."""
    if isinstance(make, str):
        make = pytest.importorskip(make).FinetuneConfig
    command, *more = flags
    with pytest.raises(InputError) as told:
        build(make, parsed(command, *more))
    assert f"--{field.replace('_', '-')}" in str(told.value)
    assert "`" not in str(told.value)
    options = parsed(command, *more)
    names = [name.strip("-").replace("-", "_") for name in more if name.startswith("--")]
    with pytest.raises(InputError, match=f"`{field}`"):
        made(make, {name: options[name] for name in names})


def made(make: type, values: dict[str, Any]) -> Any:
    if make is Config and set(values) <= {"low", "medium"}:
        return replace(Config().thresholds, **values)
    return make(**values)


def test_bounds_are_in_the_sentence() -> None:
    """What came, and what is taken, ends included or not; the nearest choice."""
    told = {
        "`max_length` should be a whole number, at least 16, got 3": lambda: Config(max_length=3),
        "`sufficiency_k` should be a whole number, from 2 to 10, got 1": lambda: Config(
            sufficiency_k=1
        ),
        f"`seed` should be {LARGEST} at most, got {2**31}": lambda: Config(seed=2**31),
        "`rank_by` should be one of relevance, logit, fused, dense, auto, got 'fusd'; did you mean "
        "'fused'?": lambda: Config(rank_by="fusd"),
        "`pool` should be a whole number, at least 10, got True": lambda: Config(pool=True),
    }
    for sentence, make in told.items():
        with pytest.raises(InputError) as error:
            make()
        assert str(error.value) == sentence


def test_the_bounds_themselves_are_taken() -> None:
    """A bound that is included is no error; one that is not, is."""
    Config(max_length=16, sufficiency_k=10, seed=LARGEST)
    PromotionGate(most_smece=0.0, margin=1)


def test_the_page_of_options_is_that_of_the_code() -> None:
    """docs/options.md is what the fields say now; `WRITE` writes it anew."""
    assert PAGE.read_text(encoding="utf-8") == GENERATOR["options_page"](), WRITE


@pytest.mark.parametrize(
    ("word", "known", "end"),
    [
        ("calibrat", ["calibrate", "recalibrate"], "; did you mean 'calibrate'?"),
        ("xyz", ["calibrate"], ""),
        (5, ["train", "test"], ""),
    ],
)
def test_the_nearest_word(word: object, known: list[str], end: str) -> None:
    """The one most like it; nothing where none is."""
    assert nearest(word, known) == end


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["calibrat", "set"], "calibrate"),
        (["data", "biuld"], "build"),
        ([*GIVEN["calibrate"], "--max-lenght", "100"], "--max-length"),
    ],
)
def test_an_unknown_word_of_the_command_line(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error ends in the word that was meant."""
    with pytest.raises(SystemExit):
        parse(arguments)
    assert capsys.readouterr().err.strip().endswith(f"did you mean {meant!r}?")
