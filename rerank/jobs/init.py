"""Make a model folder from a corpus without labels, with maps pooled over other sets.

Its probabilities order passages and queries, but are not calibrated on this corpus.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from rerank.assessment.decisions import CALIBRATED_FROM
from rerank.assessment.fitted_maps import maps_to_dict, pooled_for
from rerank.assessment.model_folder import MODEL_KIND, ModelContents, fingerprints, write_model
from rerank.config import Config
from rerank.data.beir import CORPUS, read_corpus
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.jobs.languages import with_language
from rerank.jobs.pipelines import find_models, open_index
from rerank.report.sections import as_page
from rerank.storage.folder import output_folder
from rerank.tracking.registry import name_of
from rerank.workspace import Workspace

logger = logging.getLogger(__name__)

NOT_CALIBRATED = (
    "This model has seen no labels of its corpus: it ranks passages, but its confidence is not "
    f"calibrated, and no answer is accepted. Label at least {CALIBRATED_FROM} queries, some of "
    "them unanswerable, and run `rerank calibrate`."
)
OTHER_MODELS = (
    "No maps are known for these models: passages are ordered by the reranker's own scores, or by "
    "BM25 and the encoder if the reranker reads another language; the probabilities mean nothing."
)


def init(
    corpus: str | Path,
    out: str | Path,
    config: Config | None = None,
    *,
    work: str | Path = "work",
    overwrite: bool = False,
    on_bad_lines: str = "",
) -> Path:
    """Write a model folder for a corpus: a file of passages, or a folder with corpus.jsonl.

    Models without pooled maps get those of the default models, which choose what is scored; the
    order is then that of the reranker's scores, or of both stages if it reads another language.
    """
    out, corpus, config = Path(out), Path(corpus).resolve(), config or Config()
    folder = corpus if corpus.is_dir() else corpus.parent
    name = folder.name if corpus.is_dir() or corpus.name == CORPUS else corpus.stem
    unlabelled = LabelledSet.of_corpus(read_corpus(corpus, on_bad_lines), name)
    config = with_language(config, unlabelled.corpus.values())
    models, config = find_models(config)
    pooled, said = pooled_for(*models, config), NOT_CALIBRATED
    usual = Config()
    if pooled is None and (config.encoder, config.reranker) != (usual.encoder, usual.reranker):
        pooled, said = pooled_for(*find_models(usual)[0], usual), f"{NOT_CALIBRATED} {OTHER_MODELS}"
        unread = config.reranker == usual.reranker and config.language != "english"
        config = replace(config, rank_by="fused" if unread else "logit")
        logger.warning(OTHER_MODELS)
    if pooled is None:
        raise InputError(
            f"no maps are known for {config.reranker} with {config.encoder} before the first "
            "label; label queries and run `rerank calibrate`, or take the default models"
        )
    with output_folder(out, overwrite=overwrite, kind=MODEL_KIND):
        index = open_index(unlabelled, config, Workspace(Path(work)))
        contents = ModelContents(
            manifest={
                "name": name_of("", unlabelled.name),
                "config": config.to_dict(),
                "fingerprints": fingerprints(*models, config),
                "dataset": unlabelled.described(),
                "corpus_digest": unlabelled.corpus_digest(),
                "queries": {"fit": 0, "report": 0},
                "calibrated": False,
                "fitted_around": pooled.described(),
            },
            maps=maps_to_dict(pooled.maps),
            sketch={},
            measured={},
            report=f"{said}\n",
            page=as_page("A model without labels", said),
            pictures={},
            fitted_on=(),
            index=index.folder,
        )
        write_model(out, contents, overwrite=overwrite)
    return out
