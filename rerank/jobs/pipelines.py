"""The index and the pipeline of a corpus, kept in a workspace: built once, reused by every job.

The candidates of a calibration come from our index, another search system, or lists: only
`open_candidate_source` tells these apart; the `Source` of the pipeline answers for its kind.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rerank.assessment.fitted_maps import PooledMaps, features_of, pooled_for
from rerank.assessment.metadata_features import Metadata, choose_metadata_features
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import RETRIEVER, fingerprints, given_models
from rerank.assessment.pipeline import ENCODER_OPTIONS, RERANKER_OPTIONS, Models, Pipeline
from rerank.assessment.sources import other_system
from rerank.assessment.sources.lists import ScoredLists
from rerank.assessment.sources.own_index import OwnIndex
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet, corpus_digest
from rerank.errors import FolderError, InputError
from rerank.inference.model_files import ModelPair, find_model, lasting_name, trained_on
from rerank.inference.score_cache import ScoreCache
from rerank.jobs.automatic import with_language, with_precision
from rerank.retrieval.dense import Encoder, PassageText
from rerank.retrieval.index import INDEX_KIND, Index, build_index, layout_of
from rerank.rooms import offered
from rerank.storage.folder import Workspace, reserved, verify_folder
from rerank.types import Passage

POOLED_OVER_IT = (
    "the pooled maps were fitted on labels of a set named {name}, too. If it is this one, its "
    "certificate and figures are slightly too good, because the maps have seen these labels; see "
    "docs/your-labels.md"
)
# fields of `Config` without effect on lists, which come with their scores
STAGE_OPTIONS = ["encoder", *ENCODER_OPTIONS, "reranker", *RERANKER_OPTIONS, "dense", "pool"]
STAGE_OPTIONS += ["candidates", "rerank_depth"]
TRIED = 20  # passages to encode and search for
NEAREST = 10  # results that should include the passage itself


def find_models(config: Config) -> tuple[ModelPair, Config]:
    """The models of a configuration, which then has names that hold in any folder, and no auto."""
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


@dataclass(frozen=True, slots=True)
class CandidateSource:
    """What finds and scores the candidates of a calibration, and what the model records of it."""

    labelled: LabelledSet  # its corpus is the part that the source holds
    made_from: Mapping[str, Any]  # entries of the manifest; equal entries mean the same model
    open: Callable[[], Pipeline]
    models: ModelPair | None = None
    pooled: PooledMaps | None = None
    notes: tuple[str, ...] = ()  # what the user should know about the source

    @property
    def trained_on(self) -> frozenset[str]:
        """Hashes of the queries that the models were trained on."""
        return trained_on(*(self.models or ()))


def open_candidate_source(
    labelled: LabelledSet,
    config: Config,
    models: ModelPair | None,
    workspace: Workspace,
    *,
    index: Path | None,
    retriever: str | Path | None,
) -> CandidateSource:
    """The source of a set: its own lists, the search system of `retriever`, or our own index.

    `models` are those of `config`; None for a set of lists.
    """
    if index is not None and retriever is not None:
        raise InputError("expected an `index` (--index) or a `retriever` (--retriever), got both")
    if models is None:
        _check_lists(config, searched=index is not None or retriever is not None)
    system: other_system.SearchSystem | None = None
    notes: tuple[str, ...] = ()
    if retriever is not None:
        system = offered("search systems")(Path(retriever))
        labelled, notes = other_system.with_held_passages(labelled, system)
    passages, queries = labelled.corpus.values(), labelled.queries.values()
    metadata = choose_metadata_features(config.metadata_keys, passages, queries)
    if models is None:
        assert labelled.lists is not None, "only lists need no models"
        lists = ScoredLists(labelled.lists, config, metadata)
        inputs = {"stages": list(lists.kind.stages), "texts": lists.kind.texts}
        inputs |= features_of(lists.kind, metadata).names()
        scored_elsewhere = {"fingerprints": {}, "inputs": inputs}
        return CandidateSource(labelled, scored_elsewhere, partial(Pipeline, lists, None))
    made_from: dict[str, Any] = {
        "fingerprints": fingerprints(*models, config),
        **given_models(models),
    }
    if system is not None:
        source = other_system.OtherSystem(system, config, metadata)
        inputs = {"stages": list(source.kind.stages), **features_of(source.kind, metadata).names()}
        made_from |= {RETRIEVER: system.settings.to_dict(), "inputs": inputs}

        def open_() -> Pipeline:
            pipeline = Pipeline(source, Models.open(config, models, ScoreCache(workspace.scores)))
            check_vectors(pipeline, system, passages)
            return pipeline

        return CandidateSource(labelled, made_from, open_, models, notes=notes)
    pooled = pooled_for(*models, config)
    described = pooled.described() if pooled else None
    if pooled and described and not pooled.marks and labelled.name in described["sets"]:
        notes = (POOLED_OVER_IT.format(name=labelled.name),)
    inputs = {**features_of(metadata=metadata).names(), "index": layout_of(config.language)}
    made_from |= {"fitted_around": described, "inputs": inputs}
    opened = partial(open_pipeline, index=index, models=models, metadata=metadata)
    open_index_ = partial(opened, labelled, config, workspace)
    return CandidateSource(labelled, made_from, open_index_, models, pooled, notes)


def _check_lists(config: Config, *, searched: bool) -> None:
    """Refuse what has no effect on lists with their scores; `searched`: an index or a system."""
    if searched:
        raise InputError(
            "lists come with their scores: they need no index (`index`, --index) and no "
            "`retriever` (--retriever)"
        )
    if config.expected_unanswerable:
        raise InputError(
            "no unanswerable copies of lists can be made (`expected_unanswerable`): what the "
            "stages would bring instead is not known. Add lists of questions that nothing answers"
        )
    for name in STAGE_OPTIONS:
        if getattr(config, name) != getattr(Config(), name):
            raise InputError(
                f"`{name}` (--{name.replace('_', '-')}) has no effect on lists, which come with "
                "their scores: leave it out"
            )


def check_vectors(
    pipeline: Pipeline, system: other_system.SearchSystem, passages: Iterable[Passage]
) -> None:
    """Refuse a collection whose vectors were made by another encoder.

    An encoded passage should be among the nearest to its own vector. This costs a few searches.
    """
    settings, held = system.settings, [p for p in passages if p.text]
    tried = held[:: max(1, len(held) // TRIED)][:TRIED]
    if other_system.VECTOR not in settings.stages or not tried:
        return
    vectors = pipeline.encode([PassageText(passage.full_text) for passage in tried])
    near = sum(
        any(hit.passage.doc_id == passage.doc_id for hit in system.vector(vector, NEAREST))
        for passage, vector in zip(tried, vectors, strict=True)
    )
    if 2 * near < len(tried):
        raise InputError(
            f"{settings}: of {len(tried)} passages, encoded by {pipeline.config.encoder}, {near} "
            f"are among the {NEAREST} nearest to themselves; the vectors of {settings.vector!r} "
            "were made by another encoder: name it (--encoder), or leave `vector` out"
        )
