"""Connect to the search system named in settings, or in a model folder."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from typing import Any

from rerank.errors import InputError
from rerank.retrieval.systems.settings import KEY, URL, RetrieverSettings
from rerank.retrieval.systems.system import SearchSystem

ADAPTERS = {  # a system -> the module and the class of its adapter
    "elasticsearch": ("elasticsearch", "ElasticsearchIndex"),
    "lancedb": ("lance", "LanceTable"),
    "opensearch": ("opensearch", "OpenSearchIndex"),
    "qdrant": ("qdrant", "QdrantCollection"),
}


def connect(settings: RetrieverSettings) -> SearchSystem:
    """The system; RERANK_RETRIEVER_URL, if set, replaces its address.

    Raises:
        MissingExtraError: its client is not installed.
    """
    settings = replace(settings, url=os.environ.get(URL) or settings.url)
    module, name = ADAPTERS[settings.system]
    adapter = getattr(import_module(f"rerank.retrieval.systems.{module}"), name)
    system: SearchSystem = adapter(settings, os.environ.get(KEY, ""))
    return system


def connect_of_model(kept: Any) -> SearchSystem:
    """The system that a model folder names.

    Whoever wrote the folder chose that address. So a key is sent only if the environment names the
    address too.

    Raises:
        InputError: the settings cannot be used, or a key would go to an address from the folder.
        MissingExtraError: its client is not installed.
    """
    settings = RetrieverSettings.from_dict(kept)
    if settings.remote and os.environ.get(KEY) and not os.environ.get(URL):
        raise InputError(
            f"{KEY} is set, and {settings.url} comes from the model folder: set {URL} to the "
            "server that the key is for"
        )
    return connect(settings)
