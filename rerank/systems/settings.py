"""Where another search system is, and what its fields are called: from TOML or a model folder.

    system = "lancedb"                # one of `ADAPTERS`
    url = "passages.lance"            # a folder, relative to this file; or http://HOST:PORT
    collection = "passages"           # the table, collection or index
    id = "id"                         # field whose values the labels use as passage ids
    title = "title"                   # optional
    text = "text"
    keyword = "text"                  # field of keyword search; omitted: none
    vector = "vector"                 # field of vector search; omitted: none

Keys and passwords come only from the environment. It knows nothing of the systems.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import Stemmer

from rerank.assessment.sources.other_system import KEYWORD, VECTOR, Hit, SearchSystem
from rerank.config import check_option, option
from rerank.data.checks import is_url
from rerank.errors import FilterError, InputError, nearest
from rerank.types import LARGEST_SCORE, Passage

ADAPTERS = {  # a system -> the module and the class of its adapter
    "elasticsearch": ("search_api", "ElasticsearchIndex"),
    "lancedb": ("lance", "LanceTable"),
    "opensearch": ("search_api", "OpenSearchIndex"),
    "qdrant": ("qdrant", "QdrantCollection"),
}
SERVERS = ("elasticsearch", "opensearch")  # never a folder
KEY = "RERANK_RETRIEVER_KEY"  # environment: an API key, or USER:PASSWORD
URL = "RERANK_RETRIEVER_URL"  # environment: replaces `url`
SEVERAL_NAMES = ("keyword", "metadata")
LANGUAGES = tuple(sorted(Stemmer.algorithms()))
SHOWN = 20  # fields of a collection, in a message
PASSWORD = re.compile(r"://[^/]*@")  # in an address


@dataclass(frozen=True, slots=True)
class RetrieverSettings:
    """A collection of another search system."""

    system: str = option("", "", choices=tuple(ADAPTERS))
    url: str = option("", "")
    collection: str = option("", "")
    id: str = option("id", "")
    title: str = option("", "")
    text: str = option("text", "")
    keyword: tuple[str, ...] = ()
    vector: str = option("", "")
    metadata: tuple[str, ...] = ()  # fields shown with a passage, such as its source
    language: str = option(
        "english", "Snowball stemmer of Qdrant's sparse BM25", choices=("none", *LANGUAGES)
    )
    timeout: float = option(10.0, "seconds that one search may take", gt=0, le=600)

    def __post_init__(self) -> None:
        for name in SEVERAL_NAMES:
            names = getattr(self, name)
            if not isinstance(names, tuple) or not all(isinstance(n, str) and n for n in names):
                raise InputError(f"`{name}` should be a name or a list of names, got {names!r:.80}")
        for field in fields(self):
            if field.metadata:
                kind = type(field.default)
                check_option(field.name, field.metadata["option"], kind, getattr(self, field.name))
        for name in ("url", "collection", "id", "text"):
            if not getattr(self, name):
                raise InputError(f"`{name}` is empty; expected a name")
        if not self.stages:
            raise InputError(
                "neither `keyword` nor `vector` is there; expected the field of one search at least"
            )
        if PASSWORD.search(self.url):
            raise InputError(f"`url` holds a password; expected it in the environment, as {KEY}")
        if self.system in SERVERS and not is_url(self.url):
            raise InputError(
                "`url` should be the address of a server, such as http://localhost:9200, got "
                f"{self.url!r:.200}"
            )

    @property
    def stages(self) -> tuple[str, ...]:
        """The searches to run, in this order."""
        return tuple(name for name in (KEYWORD, VECTOR) if getattr(self, name))

    @property
    def remote(self) -> bool:
        """Whether it is a server, not a folder."""
        return "://" in self.url

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields to read of a passage."""
        named = (self.id, self.title, self.text, *self.metadata)
        return tuple(dict.fromkeys(name for name in named if name))

    def __str__(self) -> str:
        return f"{self.system} at {self.url}, {self.collection!r}"

    def hits(self, rows: Iterable[tuple[Mapping[str, Any], float]]) -> list[Hit]:
        """The hits of documents with their scores; documents that are no passage are left out."""
        read = ((self.passage(document), score) for document, score in rows)
        return [Hit(p, float(score)) for p, score in read if p and abs(score) <= LARGEST_SCORE]

    def passage(self, document: Mapping[str, Any]) -> Passage | None:
        """The passage of a document; None if it has no id or no text."""
        doc_id, text = _text(document.get(self.id)), _text(document.get(self.text))
        if not doc_id or not text.strip():
            return None
        metadata = {n: document[n] for n in self.metadata if document.get(n) is not None}
        return Passage(doc_id, _text(document.get(self.title)), text, metadata)

    def check_fields(self, names: Iterable[str], there: Collection[str]) -> None:
        """Refuse settings that name fields that the collection lacks; an empty name is ignored."""
        for name in names:
            if name and name not in there:
                raise InputError(
                    f"{self}: it has no field {name!r}{nearest(name, there)}; it has "
                    f"{', '.join(sorted(there)[:SHOWN])}"
                )

    def check_dimension(self, there: int, ours: int) -> None:
        """Refuse vectors whose size differs from the encoder's."""
        if there != ours:
            raise InputError(
                f"{self}: the vectors of {self.vector!r} have {there} numbers, those of the "
                f"encoder {ours}; name the encoder that made them (--encoder), or leave `vector` "
                "out"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` gives equal settings back."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, given: Any) -> RetrieverSettings:
        """The settings from plain values."""
        if not isinstance(given, Mapping):
            raise InputError("expected names and values")
        known = [f.name for f in fields(cls)]
        if strange := next((name for name in given if name not in known), ""):
            raise InputError(f"`{strange}` is unknown{nearest(strange, known)}; known: {known}")
        if lacking := next((name for name in known[:3] if name not in given), ""):
            raise InputError(f"`{lacking}` is missing")
        values = dict(given)
        for name in given.keys() & set(SEVERAL_NAMES):
            names = given[name]
            values[name] = tuple(names) if isinstance(names, list) else (names,)
        return cls(**values)


def read_settings(path: Path) -> RetrieverSettings:
    """The settings of a TOML file; a folder in `url` is relative to the file."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
        url = given.get("url")
        local = given.get("system") not in SERVERS
        if local and isinstance(url, str) and url and "://" not in url:
            given["url"] = str((path.parent / url).resolve())
        return RetrieverSettings.from_dict(given)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected the TOML of a retriever") from None
    except (ValueError, OSError) as error:  # InputError is a ValueError, as TOML's errors are
        raise InputError(f"{path}: {error}") from None


def system_of(path: Path) -> SearchSystem:
    """The system that a TOML file describes."""
    return connect(read_settings(path))


def connect(settings: RetrieverSettings) -> SearchSystem:
    """The system; RERANK_RETRIEVER_URL, if set, replaces its address."""
    settings = replace(settings, url=os.environ.get(URL) or settings.url)
    module, name = ADAPTERS[settings.system]
    adapter: Callable[..., SearchSystem] = getattr(import_module(f"rerank.systems.{module}"), name)
    return adapter(settings, os.environ.get(KEY, ""))


def connect_of_model(kept: Any) -> SearchSystem:
    """The system that a model folder names.

    Whoever wrote the folder chose that address: a key is sent only if the environment names it too.
    """
    settings = RetrieverSettings.from_dict(kept)
    if settings.remote and os.environ.get(KEY) and not os.environ.get(URL):
        raise InputError(
            f"{KEY} is set, and {settings.url} comes from the model folder: set {URL} to the "
            "server that the key is for"
        )
    return connect(settings)


def check_filtered(name: str, there: Collection[str]) -> None:
    """Refuse a filter on a field that the collection lacks; the client may not know where it is."""
    if name not in there:
        raise FilterError(f"filter: the collection has no field {name!r:.80}{nearest(name, there)}")


def _text(value: object) -> str:
    """Text, or a whole number as its digits; a list of texts, as in some systems, is joined."""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, value)))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""
