"""The index and the pipeline of a corpus, kept in a workspace: built once, reused by every job."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from rerank.assessment.index_pipeline import IndexPipeline
from rerank.assessment.metadata_features import MetadataFeature
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import Models, Pipeline
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import FolderError
from rerank.inference.model_files import ModelPair, lasting_name, resolve
from rerank.inference.score_cache import ScoreCache
from rerank.retrieval.dense import Encoder
from rerank.retrieval.existing_index import existing_index
from rerank.retrieval.index import LAYOUT, Index, build_index
from rerank.storage.folder import verify_folder
from rerank.storage.locks import reserved
from rerank.workspace import Workspace


def find_models(config: Config) -> tuple[ModelPair, Config]:
    """The models of a configuration, and the configuration with names that hold in any folder.

    Raises:
        InputError: a model does not exist.
    """
    encoder, reranker = lasting_name(config.encoder), lasting_name(config.reranker)
    models = resolve(encoder), resolve(reranker)
    return models, replace(config, encoder=encoder, reranker=reranker)


def open_pipeline(
    labelled: LabelledSet,
    config: Config,
    work: Workspace,
    *,
    index: Path | None = None,
    models: ModelPair | None = None,
    metadata: tuple[MetadataFeature, ...] = (),
) -> IndexPipeline:
    """A pipeline over a set's corpus whose index and scores are kept in `work`.

    `index` is an index folder to use instead. `models` are the encoder and the reranker, if they
    are not to be looked up by name; `metadata` are the features of the passages' metadata.

    Raises:
        InputError: `index` is of another corpus, encoder or configuration.
    """
    opened = Models.open(config, models, ScoreCache(work.scores))
    found = (
        open_index(labelled, config, work, opened.encoder)
        if index is None
        else existing_index(index, labelled.corpus_digest(), opened.encoder, config)
    )
    return IndexPipeline(found, config, models=opened, metadata=metadata)


def pipeline_over(labelled: LabelledSet, model: CalibratedReranker, work: Workspace) -> Pipeline:
    """The model's pipeline, over the set's corpus if that differs from the model's.

    If another search system finds the model's candidates, that system is searched, whatever the
    set's corpus.

    Raises:
        InputError: the set has lists and the model an index, or the other way round.
    """
    maps, pipeline = model.maps[labelled.mode], model.pipeline
    if maps.list_kind or labelled.corpus_digest() == model.manifest.get("corpus_digest"):
        return pipeline
    return open_pipeline(
        labelled,
        pipeline.config,
        work,
        models=pipeline.model_files,
        metadata=pipeline.metadata,
    )


def open_index(
    labelled: LabelledSet, config: Config, work: Workspace, encoder: Encoder | None = None
) -> Index:
    """The index of a set's corpus: built once, reused when nothing changed.

    Passages that another index in `work` holds are not encoded again.
    """
    if encoder is None:
        encoder = Encoder.from_config(resolve(config.encoder), config)
    key = "-".join(
        [
            labelled.name,
            labelled.corpus_digest()[:16],
            encoder.files.fingerprint[:16],
            f"{encoder.windows}x{encoder.max_length}",
            config.language,
            *(["approximate"] if config.dense == "approximate" else []),
            f"layout{LAYOUT}",
        ]
    )
    home = work.indexes / key
    try:
        verify_folder(home)
    except FolderError:
        try:
            _remove_damaged(home)
            build_index(
                labelled.corpus.values(),
                home,
                encoder,
                language=config.language,
                approximate=config.dense == "approximate",
                known=work.indexes.glob("[!.]*"),
            )
        except FolderError:
            verify_folder(home)  # another run built it meanwhile
    return Index(home)


def _remove_damaged(home: Path) -> None:
    """Remove a damaged index, unless another run has replaced it meanwhile.

    Raises:
        FolderError: another run is about to write it.
    """
    with reserved(home):
        try:
            verify_folder(home)
        except FolderError:
            if home.exists():
                shutil.rmtree(home)
