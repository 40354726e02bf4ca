"""The tree of exceptions: one root, and a code and a sentence for each."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rerank import errors
from rerank.errors import (
    NO_HANDLES,
    NO_SPACE,
    EndpointError,
    InputError,
    MissingExtraError,
    MovedError,
    RerankError,
    RetrieverError,
    TrackingError,
    command_line,
    led_to,
    missing_extra,
)

OF_SERVERS = [TrackingError, MovedError, EndpointError, RetrieverError]
KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, BaseException)
]


def test_every_exception_has_the_one_root() -> None:
    """Whoever catches `RerankError` catches all; only another server's failure has its own code."""
    assert all(issubclass(kind, RerankError) for kind in KINDS)
    assert [kind for kind in KINDS if kind.exit_code != 2] == OF_SERVERS
    assert not issubclass(TrackingError, ValueError)
    assert issubclass(InputError, ValueError)


def test_the_tree_is_drawn_as_it_is() -> None:
    """Every name in the picture is a class, and every class is in the picture."""
    assert errors.__doc__ is not None
    drawn = {word for word in errors.__doc__.split() if word.endswith("Error")}
    assert drawn == {kind.__name__ for kind in KINDS}


def _raised(kind: type[Exception], before: BaseException | None, *, hidden: bool) -> Exception:
    """An exception that was raised while another was handled."""
    try:
        try:
            raise before or ValueError("no OSError")
        except BaseException as error:
            raise kind("a sentence") from (None if hidden else error)
    except kind as error:
        return error


@pytest.mark.parametrize("hidden", [False, True])
def test_what_led_to_an_error_is_found(hidden: bool) -> None:
    """Through sentences around it, `from None` too; another number is not it, nor is a loop."""
    full = OSError(errno.ENOSPC, "No space left on device", "file")
    wrapped = _raised(InputError, _raised(OSError, full, hidden=hidden), hidden=hidden)
    assert led_to(wrapped, NO_SPACE) is led_to(full, NO_SPACE) is full
    assert led_to(wrapped, NO_HANDLES) is None
    assert led_to(_raised(OSError, None, hidden=hidden), NO_SPACE) is None
    own = OSError("its own cause")
    own.__cause__ = own
    assert led_to(own, NO_SPACE) is None


@pytest.mark.parametrize("installed", [False, True])
def test_the_command_of_a_missing_extra_works_as_printed(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a checkout it names the checkout, else the package."""
    if installed:
        monkeypatch.setattr(errors, "__file__", str(tmp_path / "rerank" / "errors.py"))
    error = missing_extra("track", ModuleNotFoundError("No module named 'mlflow'"))
    assert isinstance(error, MissingExtraError)
    root = Path(__file__).parents[2]
    asked = "'calibrated-rerank[track]'" if installed else f"-e '{root}[track]'"
    assert str(error) == (
        f"the extra [track] is not installed (No module named 'mlflow'): pip install {asked}"
    )


def test_a_path_that_begins_as_an_option_can_be_pasted() -> None:
    """Only paths have a folder before them; options stay."""
    told = command_line("label", Path("-m/a b"), "--out", Path("-o"))
    assert told == "rerank label './-m/a b' --out ./-o"
