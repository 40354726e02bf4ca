"""The index and the pipeline of a corpus, kept in a workspace: built once, reused by every job."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from rerank.assessment.metadata_features import Metadata
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import Models, Pipeline
from rerank.assessment.sources.own_index import OwnIndex
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet, corpus_digest
from rerank.errors import FolderError, InputError
from rerank.inference.model_files import ModelPair, find_model, lasting_name
from rerank.inference.score_cache import ScoreCache
from rerank.jobs.languages import with_language
from rerank.jobs.precision import with_precision
from rerank.retrieval.dense import Encoder
from rerank.retrieval.index import INDEX_KIND, Index, build_index, layout_of
from rerank.storage.folder import reserved, verify_folder
from rerank.workspace import Workspace


def find_models(config: Config) -> tuple[ModelPair, Config]:
    """The models of a configuration, and the configuration with names that hold in any folder.

    What its precision leaves open is measured.
    """
    both = (config.encoder, config.reranker)
    chosen = [lasting_name(one) if isinstance(one, str) else one for one in both]
    encoder, reranker = map(find_model, chosen, ("encoder", "reranker"))
    config = with_precision(config, reranker)
    return (encoder, reranker), replace(config, encoder=encoder.name, reranker=reranker.name)


def open_pipeline(
    labelled: LabelledSet,
    config: Config,
    work: Workspace,
    *,
    index: Path | None = None,
    models: ModelPair | None = None,
    metadata: Metadata = (),
) -> Pipeline:
    """A pipeline over a set's corpus whose index and scores are kept in `work`.

    `index` is an index folder to use instead. `models` are the encoder and the reranker, if they
    are not to be looked up by name; `metadata` are the features of the passages' metadata.
    """
    opened = Models.open(config, models, ScoreCache(work.scores))
    if index is None:
        found = open_index(labelled, config, work, opened.encoder)
    else:
        found = existing_index(index, labelled.corpus_digest(), opened.encoder, config)
    return Pipeline(OwnIndex(found, config, metadata), opened)


def pipeline_over(labelled: LabelledSet, model: CalibratedReranker, work: Workspace) -> Pipeline:
    """The model's pipeline, over the set's corpus if that differs from the model's.

    A model over another search system searches that, whatever the set's corpus.
    """
    pipeline, source = model.pipeline, model.source
    model.maps[labelled.mode]  # raises if the model does not have it
    if not source.takes_corpus or labelled.corpus_digest() == model.manifest.get("corpus_digest"):
        return pipeline
    models, metadata = pipeline.model_files, source.metadata
    return open_pipeline(labelled, pipeline.config, work, models=models, metadata=metadata)


def existing_index(folder: Path, corpus: str, encoder: Encoder, config: Config) -> Index:
    """The index in a folder, if it is of the corpus with this digest and made as `config` says."""
    try:
        manifest = verify_folder(folder)
    except FolderError as error:
        raise InputError(f"--index: {error}") from None
    if manifest.get("kind") != INDEX_KIND:
        raise InputError(
            f"--index: {folder} is not an index; expected what `rerank data index` wrote"
        )
    index = Index(folder)
    differing = index.differences(config, encoder)
    if corpus_digest(index.corpus) != corpus:
        differing.append("another corpus")
    if differing:
        raise InputError(
            f"--index: {folder} has {', '.join(differing)}; make it of the same corpus with the "
            "same options: rerank data index"
        )
    return index


def open_index(
    labelled: LabelledSet, config: Config, work: Workspace, encoder: Encoder | None = None
) -> Index:
    """The index of a set's corpus: built once, reused when nothing changed.

    Passages that another index in `work` holds are not encoded again.
    """
    config = with_language(config, labelled.corpus.values(), encodes=False)
    if encoder is None:
        encoder = Encoder.from_config(find_model(config.encoder, "encoder"), config)
    approximate = config.dense == "approximate"
    parts = [labelled.name, labelled.corpus_digest()[:16], encoder.model.fingerprint[:16]]
    parts += [f"{encoder.windows}x{encoder.max_length}", config.language]
    parts += ["approximate"] * approximate + [f"layout{layout_of(config.language)}"]
    home = work.indexes / "-".join(parts)
    try:
        verify_folder(home)
    except FolderError:
        try:
            with reserved(home):
                try:
                    verify_folder(home)  # another run may have replaced it
                except FolderError:
                    if home.exists():
                        shutil.rmtree(home)
            build_index(
                labelled.corpus.values(),
                home,
                encoder,
                language=config.language,
                approximate=approximate,
                known=work.indexes.glob("[!.]*"),
            )
        except FolderError:
            verify_folder(home)  # another run built it meanwhile
    return Index(home)
