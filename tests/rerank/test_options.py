"""Options: said once, in the fields of a configuration; flags, bounds and docs come from there."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rerank.commands.all_commands import COMMANDS
from rerank.commands.options import from_options, typed_options
from rerank.commands.options_page import options_page
from rerank.commands.parser import parser
from rerank.config import LARGEST, Config, FinetuneConfig, PromotionGate, options_of
from rerank.errors import InputError, nearest
from rerank.serving.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "options.md"
WRITE = 'python -c "import rerank.commands.options_page as p; print(p.options_page(), end=str())"'
CONFIGURATIONS = {c.name: c.config for c in COMMANDS if c.config}
GIVEN = {
    "answer": ["answer", "model"],
    "calibrate": ["calibrate", "set", "--out", "model"],
    "finetune": ["finetune", "set", "--out", "model"],
    "finetune-encoder": ["finetune-encoder", "set", "--out", "model"],
    "ingest": ["ingest", "folder", "--out", "corpus"],
    "label": ["label", "model", "--out", "set"],
    "promote": ["promote", "model", "set"],
    "retrieve": ["retrieve", "model", "query"],
    "serve": ["serve", "model"],
}


def parsed(command: str, *more: str) -> Namespace:
    return parser().parse_args([*GIVEN[command], *more])


@pytest.mark.parametrize("command", CONFIGURATIONS)
def test_without_options_a_command_takes_the_defaults(command: str) -> None:
    """Those of the fields; nothing counts as typed."""
    kind = CONFIGURATIONS[command]
    assert from_options(kind, parsed(command)) == kind()
    assert typed_options(kind, parsed(command)) == []


@pytest.mark.parametrize("command", CONFIGURATIONS)
def test_every_option_reaches_its_field(command: str) -> None:
    """A value of each option arrives in the field of its name alone; its default is typed too."""
    kind = CONFIGURATIONS[command]
    before = vars(parsed(command))
    for one, said in options_of(kind):
        flag = f"--{one.name.replace('_', '-')}"
        for value in (another(one.default, said.choices), one.default):
            if value is False or value == "":
                continue
            found = parsed(command, *([flag] if value is True else [flag, str(value)]))
            assert getattr(found, one.name) == value
            assert set(vars(found)) - set(before) == {one.name}
            assert typed_options(kind, found) == [flag]


def another(default: Any, choices: tuple[str, ...]) -> Any:
    if isinstance(default, bool):
        return not default
    if choices:
        return next(choice for choice in choices if choice != default)
    return f"{default}x" if isinstance(default, str) else default + 1


@pytest.mark.parametrize(
    ("make", "flags", "field"),
    [
        (Config, ["calibrate", "--max-length", "15"], "max_length"),
        (Config, ["calibrate", "--sufficiency-k", "11"], "sufficiency_k"),
        (Config, ["calibrate", "--rank-by", "spline"], "rank_by"),
        (Config, ["calibrate", "--language", "klingon"], "language"),
        (Config, ["calibrate", "--low", "0.8"], "low"),
        (Config, ["calibrate", "--medium", "nan"], "medium"),
        (FinetuneConfig, ["finetune", "--learning-rate", "1"], "learning_rate"),
        (FinetuneConfig, ["finetune", "--hard", "0", "--easy", "0"], "hard"),
        (PromotionGate, ["promote", "--margin", "1.5"], "margin"),
        (Settings, ["serve", "--port", "65536"], "port"),
        (Settings, ["serve", "--timeout", "0"], "timeout"),
        (Settings, ["serve", "--drift-level", "1"], "drift_level"),
    ],
)
def test_an_error_names_the_flag_that_it_speaks_of(
    make: type, flags: list[str], field: str
) -> None:
    """The flag on the command line, the field in Python; the rest of the sentence is the same."""
    command, *more = flags
    with pytest.raises(InputError) as told:
        from_options(make, parsed(command, *more))
    assert f"--{field.replace('_', '-')}" in str(told.value)
    assert "`" not in str(told.value)
    options = parsed(command, *more)
    names = [name.strip("-").replace("-", "_") for name in more if name.startswith("--")]
    with pytest.raises(InputError, match=f"`{field}`"):
        made(make, {name: getattr(options, name) for name in names})


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
        "`learning_rate` should be a number, above 0 and below 1, got 0.0": lambda: FinetuneConfig(
            learning_rate=0.0
        ),
        "`loss` should be one of listwise, binary, got 'list-wise'; did you mean 'listwise'?": (
            lambda: FinetuneConfig(loss="list-wise")
        ),
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
    FinetuneConfig(warmup=0.0)
    with pytest.raises(InputError):
        FinetuneConfig(warmup=1.0)


def test_the_page_of_options_is_that_of_the_code() -> None:
    """docs/options.md is what the fields say now; `WRITE` writes it anew."""
    assert PAGE.read_text(encoding="utf-8") == options_page(), f"{WRITE} > docs/options.md"


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
        (["dataset", "biuld"], "build"),
        ([*GIVEN["calibrate"], "--max-lenght", "100"], "--max-length"),
    ],
)
def test_an_unknown_word_of_the_command_line(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error ends in the word that was meant."""
    with pytest.raises(SystemExit):
        parser().parse_args(arguments)
    assert capsys.readouterr().err.strip().endswith(f"did you mean {meant!r}?")
