"""Settings of answers: how many passages to return, when to answer. It imports nothing heavy."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path

from rerank.config import check_options, option, share
from rerank.data.checks import is_url
from rerank.errors import InputError, nearest, one_line

DEEPEST = 10  # largest k that sufficiency is known for
FLOOR = 0.2  # relevance from which a passage is worth using
BUNDLED = Path(__file__).with_name("strategies.toml")


@dataclass(frozen=True, slots=True)
class Strategy:
    """How many passages to return."""

    min_k: int = option(1, "fewest passages to return", ge=1, le=DEEPEST)
    max_k: int = option(8, "most passages to return", ge=1, le=DEEPEST)
    sufficiency_threshold: float = share(
        0.0, "stop adding passages at this sufficiency; 0: the model's own threshold"
    )
    similarity_floor: float = option(
        0.2,
        "return no passage if none has a cosine of at least this; -1: no floor",
        ge=-1,
        le=1,
    )
    least_gain: float = share(
        0.02, "if the threshold is not reached, leave out the last passages that add less than this"
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.min_k > self.max_k:
            raise InputError(f"expected `min_k` <= `max_k`, got {self.min_k} and {self.max_k}")


def read_strategies(path: Path = BUNDLED) -> dict[str, Strategy]:
    """The strategies of a TOML file, by table name; what a table leaves out has its default."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {error}") from None
    known = [f.name for f in fields(Strategy)]
    strategies = {}
    for name, values in tables.items():
        if not isinstance(values, dict):
            raise InputError(f"{path}: {name} should be a table, such as [{name}], got {values!r}")
        if strange := next((key for key in values if key not in known), ""):
            raise InputError(
                f"{path}: [{name}] has no setting {strange!r}; they are {', '.join(known)}"
                f"{nearest(strange, known)}"
            )
        try:
            strategies[name] = Strategy(**values)
        except InputError as error:
            raise InputError(f"{path}: [{name}]: {error}") from None
    return strategies


def strategy(name: str, path: Path = BUNDLED) -> Strategy:
    """The strategy of that name."""
    known = read_strategies(path)
    if name not in known:
        names = ", ".join(known) or "none"
        raise InputError(f"{path}: no strategy {name!r}; it has {names}{nearest(name, known)}")
    return known[name]


NO_ANSWER = "No supporting documentation found in indexed sources."
CONTEXT = "{context}"  # in a file with a prompt: where the sources go


@dataclass(frozen=True, slots=True)
class LanguageModelConfig:
    """Where a language model is, and how it is called."""

    llm: str = option("", "base URL of an OpenAI-compatible endpoint, such as http://host:8000/v1")
    llm_model: str = option("", "name of the model there")
    llm_timeout: float = option(60.0, "seconds for a whole answer", gt=0, le=3600)
    llm_retries: int = option(2, "retries of a failed request", ge=0, le=10)
    llm_stream: bool = option(False, "stream the answer")
    llm_max_tokens: int = option(512, "most tokens of an answer", ge=1)
    llm_prompt: str = option(
        "", "file with your own instructions, and {context} where the sources go"
    )
    no_answer: str = option(NO_ANSWER, "sentence returned when there is no answer")

    def __post_init__(self) -> None:
        check_options(self)
        if bool(self.llm) != bool(self.llm_model):
            raise InputError("a language model needs both `llm`, its URL, and `llm_model`")
        if self.llm and not is_url(self.llm):
            raise InputError(
                f"`llm` should be a URL, such as http://host:8000/v1, got {self.place!r:.200}"
            )
        if not self.no_answer.strip():
            raise InputError("`no_answer` is empty; expected a sentence")
        if self.llm_prompt and CONTEXT not in self.prompt:
            raise InputError(f"{self.llm_prompt}: expected {CONTEXT} where the sources go")

    @property
    def prompt(self) -> str:
        """The text of `llm_prompt`; "" without one."""
        try:
            return Path(self.llm_prompt).read_text(encoding="utf-8") if self.llm_prompt else ""
        except (OSError, ValueError) as error:
            raise InputError(f"`llm_prompt`: {self.llm_prompt}: {one_line(error)}") from None

    @property
    def place(self) -> str:
        """The URL without a password or a key."""
        return re.sub(r"//[^/]*@", "//", self.llm).partition("?")[0]


@dataclass(frozen=True, slots=True)
class AnswerConfig:
    """When to answer, from how many sources, and with how much attribution."""

    min_score: float = share(FLOOR, "smallest relevance of a source")
    min_chunks: int = option(
        1,
        "fewest different passages that must reach the similarity floor for an answer",
        ge=1,
        le=DEEPEST,
    )
    coverage: float = share(
        0.9, "ask the language model again if a smaller share of its sentences is supported"
    )
    support: float = share(0.5, "probability from which a source counts as supporting a sentence")
    strategy: Strategy = field(default_factory=Strategy)
    language_model: LanguageModelConfig = field(default_factory=LanguageModelConfig)

    def __post_init__(self) -> None:
        check_options(self)
