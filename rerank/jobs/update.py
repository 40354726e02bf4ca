"""What needs no labels: make a model of a corpus, update one or an index, and export one.

A model without labels has maps pooled over other sets: its probabilities order passages and
queries, but are not calibrated. An index or a model is updated as if it were built anew: vectors of
passages that were indexed before are reused, and everything else is rebuilt, which is quick.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rerank.assessment import model_folder
from rerank.assessment.fitted_maps import maps_to_dict, pooled_for, read_maps
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import ModelFolder
from rerank.assessment.predictions import CALIBRATED_FROM
from rerank.config import Config
from rerank.data.beir import CORPUS, read_corpus
from rerank.data.labelled_set import LabelledSet, corpus_digest
from rerank.errors import InputError
from rerank.fitting.certificates import refuse_certificates
from rerank.fitting.plan import check_corpus
from rerank.inference.engine import NETWORKS, write_exported
from rerank.inference.model_files import resolve
from rerank.jobs.automatic import with_language
from rerank.jobs.pipelines import find_models, open_index
from rerank.report.sections import as_page
from rerank.retrieval.corpus import Corpus
from rerank.retrieval.dense import Encoder
from rerank.retrieval.index import BEFORE, INDEX_KIND, build_index
from rerank.storage.files import write_json
from rerank.storage.folder import Workspace, output_folder, read_manifest, reserved, verify_folder
from rerank.tracking.registry import name_of
from rerank.types import Passage

logger = logging.getLogger(__name__)

CHANGED = (
    "The corpus has changed since the labels were given: a certificate would be about the old "
    "corpus. Label answers of the new corpus and run `rerank recalibrate`, or calibrate again."
)
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
    with output_folder(out, overwrite=overwrite, kind=model_folder.MODEL_KIND):
        index = open_index(unlabelled, config, Workspace(Path(work)))
        contents = model_folder.ModelContents(
            manifest={
                "name": name_of("", unlabelled.name),
                "config": config.to_dict(),
                "fingerprints": model_folder.fingerprints(*models, config),
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
        model_folder.write_model(out, contents, overwrite=overwrite)
    return out


@dataclass(frozen=True, slots=True)
class Updated:
    """What an update changed: counts of passages."""

    passages: int
    added: int
    removed: int
    changed: int  # the same id, another text or other metadata
    uncertified: bool  # the labels are of the old corpus, so nothing is certified

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def update(target: str | Path, corpus: str | Path, *, on_bad_lines: str = "") -> Updated:
    """Update the index or the model in the folder `target` to search the passages of `corpus`.

    It is replaced in place, atomically, and equals a fresh build of this corpus. A model keeps its
    maps but not its certificates. If the corpus is the same, nothing is written.
    """
    target = Path(target)
    passages = read_corpus(Path(corpus), on_bad_lines)
    check_corpus(LabelledSet.of_corpus(passages, str(corpus)))
    read_manifest(target)  # there is something to reserve
    with reserved(target):
        kind = read_manifest(target).get("kind")
        if kind == model_folder.MODEL_KIND:
            return _update_model(model_folder.open_folder(target), passages)
        if kind == INDEX_KIND:
            return _update_index(target, passages)
    raise InputError(f"{target} is {kind or 'neither'}; expected an index or a model folder")


def _update_index(folder: Path, passages: Mapping[str, Passage]) -> Updated:
    manifest = verify_folder(folder)
    updated = _difference(Corpus(folder), passages)
    made_by = BEFORE | manifest["encoder"]
    name = made_by["name"]
    options = {key: made_by[key] for key in ("max_length", "windows", "precision")}
    encoder = Encoder(resolve(name), **options)
    if encoder.model.fingerprint != made_by["fingerprint"]:
        raise InputError(f"{folder}: its encoder {name} is another one here; build the index anew")
    if updated:
        build_index(
            passages.values(),
            folder,
            encoder,
            language=manifest["language"],
            approximate=manifest["approximate"],
            overwrite=True,
            known=[folder],
        )
    return updated


def _update_model(old: ModelFolder, passages: Mapping[str, Passage]) -> Updated:
    index = old.path / model_folder.INDEX
    if not index.is_dir():
        raise InputError(f"{old.path} judges lists that others bring, and has no index to update")
    config = Config.from_dict(old.manifest["config"])
    maps = read_maps(old)
    calibrated = any(of_mode.calibrated for of_mode in maps.values())
    updated = _difference(Corpus(index), passages, uncertified=calibrated)
    if not updated:
        return updated
    if given := old.manifest.get(model_folder.GIVEN):
        raise InputError(
            f"{old.path}: its {' and '.join(given)} is an object, which no folder can hold: it is "
            "not updated in place; calibrate again with the new corpus"
        )
    encoder = Encoder.from_config(model_folder.models_of(old, config, download=False)[0], config)

    def change(folder: Path) -> Mapping[str, Any]:
        build_index(
            passages.values(),
            folder / model_folder.INDEX,
            encoder,
            language=config.language,
            approximate=config.dense == "approximate",
            known=[index],
        )
        digest = corpus_digest(passages.values())
        if not calibrated:  # without labels: the result is what `model init` makes of this corpus
            name = str(old.manifest["dataset"].get("name"))
            dataset = LabelledSet.of_corpus(passages, name).described()
            return {**old.manifest, "dataset": dataset, "corpus_digest": digest}
        refused = {mode: refuse_certificates(of_mode, CHANGED) for mode, of_mode in maps.items()}
        bound = model_folder.bound_to(old.manifest["config"], old.manifest["fingerprints"])
        write_json(folder / model_folder.CALIBRATORS, {"bound_to": bound, **maps_to_dict(refused)})
        before = old.manifest.get("updated", {}).get("fitted_on_corpus")
        described = {
            "parent": old.sha256(),
            "fitted_on_corpus": before or old.manifest["corpus_digest"],
            "passages": len(passages),
        }
        return {**old.manifest, "corpus_digest": digest, "updated": described}

    model_folder.write_changed(old, old.path, change, without=model_folder.INDEX, overwrite=True)
    return updated


def _difference(
    old: Iterable[Passage], new: Mapping[str, Passage], *, uncertified: bool = False
) -> Updated:
    """Count new, removed and changed passages; all as changed, if only their order changed."""
    old_by_id = {passage.doc_id: passage for passage in old}
    in_both = old_by_id.keys() & new.keys()
    changed = sum(old_by_id[i] != new[i] for i in in_both)
    moved = not changed and list(old_by_id) != list(new) and old_by_id.keys() == new.keys()
    return Updated(
        passages=len(new),
        added=len(new) - len(in_both),
        removed=len(old_by_id) - len(in_both),
        changed=len(new) if moved else changed,
        uncertified=uncertified,
    )


def export(model: CalibratedReranker, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write the model with its networks to the folder `out`, whole or not at all; return `out`.

    It predicts what `model` predicts, to the bit, and needs no weights, no torch and no cache.
    """
    out, old = Path(out), model.manifest
    models, config = model.pipeline.model_files, model.pipeline.config
    made_from = old.get("exported_from") or model.files.sha256()

    def change(folder: Path) -> Mapping[str, Any]:
        return {**old, **write_exported(folder, models, config), "exported_from": made_from}

    with output_folder(out, overwrite=overwrite, kind=model_folder.MODEL_KIND):
        model_folder.write_changed(model.files, out, change, without=NETWORKS, overwrite=overwrite)
    return out
