"""What a model must be able to do to be used here: score passages, or turn texts into vectors.

A network on this machine, a function and an object of the user's are the same to other code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeGuard, runtime_checkable

from rerank.errors import InputError

Role = Literal["query", "passage"]  # of a text that becomes a vector
Record = Callable[..., str]  # (assessment, its details) -> its id in the journal, or ""


class GivenAnswer(Protocol):
    """What a journal keeps of an answer to a question."""

    @property
    def answer(self) -> str:
        """Its text."""

    @property
    def refused(self) -> bool:
        """Whether it says that there is no answer."""

    @property
    def low_confidence(self) -> bool:
        """Whether it was given although the confidence is low."""

    @property
    def attribution_coverage(self) -> float | None:
        """Share of its sentences that sources support; None if that was not measured."""


def unrecorded(assessment: object, **_: object) -> str:
    """A `Record` that keeps nothing."""
    return ""


class Request(NamedTuple):
    """A query, and the texts to score for it, in the order of the ranking before."""

    query: str
    texts: Sequence[str]


class Scores(NamedTuple):
    """One number for each text of a request, higher is better; and whether a text was cut off."""

    values: Sequence[float]
    truncated: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Traits:
    """What has to be known of a model beside its numbers.

    Models of equal `identity` give equal numbers for equal texts: it is a version, or a hash of the
    weights. Without one nothing that the model computes is kept for another run.

    Raises:
        InputError: no name, or a number out of range.
    """

    name: str
    identity: str = ""
    listwise: bool = False  # a score depends on the other texts of its query, or on their order
    batch: int = 256  # texts in one call, about: the texts of a query stay together
    threads: int = 1  # calls at the same time
    device: str = ""
    cost: float = 0.0  # price of 1,000 texts
    waits: bool = False  # for another machine: its calls need no core of this one

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str) or not isinstance(self.identity, str):
            raise InputError(f"a model needs a name, and its identity is text; got {self}")
        if min(self.batch, self.threads) < 1 or not self.cost >= 0:
            raise InputError(f"`batch` and `threads` should be 1 or more, `cost` 0; got {self}")


@runtime_checkable
class Scorer(Protocol):
    """Gives the scores of texts for a query."""

    traits: Traits

    def score(self, requests: Sequence[Request], /) -> Sequence[Scores | Sequence[float]]:
        """The scores of each request, in their order: finite numbers, one for each text."""


@runtime_checkable
class Instructed(Scorer, Protocol):
    """A scorer that can be told, for a query, what counts as an answer."""

    def with_instruction(self, instruction: str, /) -> Scorer:
        """The same scorer with this instruction, in place of its own."""


@runtime_checkable
class Embedder(Protocol):
    """Gives the vectors of texts."""

    traits: Traits

    def embed(self, texts: Sequence[str], role: Role, /) -> Any:
        """An array (n, d) for n texts of one role; what counts are the cosines of its rows."""


ScoreFunction = Callable[[str, Sequence[str]], Sequence[float]]
EmbedFunction = Callable[[Sequence[str]], Any]
ScorerChoice = str | Scorer | ScoreFunction  # a name, an object, or a function
EmbedderChoice = str | Embedder | EmbedFunction


class FunctionScorer:
    """The scorer of a function of a query and its texts; `traits` may be an attribute of it."""

    def __init__(self, function: ScoreFunction) -> None:
        self.traits, self._function = _traits_of(function), function

    def score(self, requests: Sequence[Request]) -> Sequence[Sequence[float]]:
        """What the function gives for each request."""
        return [self._function(query, texts) for query, texts in requests]


class FunctionEmbedder:
    """The embedder of a function of texts, the same for queries and passages."""

    def __init__(self, function: EmbedFunction) -> None:
        self.traits, self._function = _traits_of(function), function

    def embed(self, texts: Sequence[str], role: Role) -> Any:
        """What the function gives."""
        return self._function(texts)


def is_model(value: object) -> TypeGuard[Scorer | Embedder | Callable[..., Any]]:
    """Whether a value can be a model: an object with one of the protocols, or a function."""
    return isinstance(value, (Scorer, Embedder)) or callable(value)


def name_of_model(value: object) -> str:
    """The name of a model, however it was chosen."""
    if isinstance(value, str):
        return value
    return value.traits.name if isinstance(value, (Scorer, Embedder)) else _traits_of(value).name


def _traits_of(function: object) -> Traits:
    traits = getattr(function, "traits", None)
    if isinstance(traits, Traits):
        return traits
    return Traits(getattr(function, "__name__", type(function).__name__))
