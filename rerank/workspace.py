"""What a working folder keeps between runs: indexes and cross-encoder scores."""

from __future__ import annotations

import shutil
from pathlib import Path

from calibration.store import StoreError, verify_folder
from rerank.config import Config
from rerank.labelled_set import LabelledSet
from rerank.models import resolve
from rerank.pipeline import Pipeline
from rerank.reranking.score_cache import ScoreCache
from rerank.retrieval.dense import Encoder
from rerank.retrieval.index import Index, build_index


def open_pipeline(labelled: LabelledSet, config: Config, work: Path) -> Pipeline:
    """A pipeline over a set's corpus whose index and scores are kept under `work`."""
    return Pipeline(open_index(labelled, config, work), config, cache=score_cache(work))


def score_cache(work: Path) -> ScoreCache:
    """The scores that runs in `work` share."""
    return ScoreCache(work / "scores.sqlite")


def open_index(labelled: LabelledSet, config: Config, work: Path) -> Index:
    """The index of a set's corpus under `work/index`: built once, reused when nothing changed."""
    encoder = Encoder(resolve(config.encoder), max_length=config.encoder_max_length)
    key = "-".join(
        [
            labelled.name,
            labelled.corpus_digest()[:16],
            encoder.files.fingerprint[:16],
            str(encoder.max_length),
            config.language,
        ]
    )
    home = work / "index" / key
    try:
        verify_folder(home)
    except StoreError:
        shutil.rmtree(home, ignore_errors=True)
        build_index(labelled.corpus.values(), home, encoder, language=config.language)
    return Index(home)
