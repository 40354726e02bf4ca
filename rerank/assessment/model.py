"""A calibrated model: what production loads. Queries in, assessments out."""

from __future__ import annotations

import asyncio
import logging
import shutil
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from calibration.drift import Sketch
from calibration.selection import Band
from rerank.assessment import fitted_maps, model_folder, predictions
from rerank.assessment.fitted_maps import MADE_BY, FittedMaps, MapsByMode, read_maps
from rerank.assessment.metadata_features import TURN_FEATURES, entities_of
from rerank.assessment.model_folder import SECOND, SKETCH, ModelFolder, open_folder
from rerank.assessment.pipeline import Models, Pipeline
from rerank.assessment.predictions import as_uncalibrated, joined, predict, to_assessments
from rerank.assessment.sources.own_index import CallerPassages
from rerank.assessment.sources.source import Source
from rerank.config import ON_RERANKER_ERROR, Config
from rerank.data.checks import has_text, is_encodable
from rerank.errors import InputError, RetrieverError, check_one_of
from rerank.filters import Where
from rerank.inference.engine import ROLES
from rerank.inference.given import RemoteModel, Shift, is_noted, lost
from rerank.inference.model_files import find_model
from rerank.inference.remote.client import LimitError
from rerank.inference.score_cache import ScoreCache
from rerank.protocols import Embedder, EmbedFunction, ScoreFunction, Scorer
from rerank.storage.folder import DIGEST
from rerank.tracking.registry import fetch, is_uri
from rerank.types import INSTRUCTION, AnyPassage, Assessment, Mode, Query, Scored, as_passages

DEFAULT = "default"  # the model that needs no folder
logger = logging.getLogger(__name__)


class CalibratedReranker:
    """A loaded model, safe to use from many threads: its answers do not depend on them.

    `search` finds the passages in the model's index, `rerank` takes those that the caller brings.
    Each mode has its own maps, fitted on what that mode sees.

    >>> model = rerank.load("work/model")                      # doctest: +SKIP
    >>> answer = model.search("median ignoring NaNs")          # doctest: +SKIP
    >>> answer.top.doc_id, answer.confidence, answer.accepted  # doctest: +SKIP
    """

    def __init__(
        self, files: ModelFolder, maps: Mapping[Mode, FittedMaps], pipeline: Pipeline
    ) -> None:
        self.files = files
        self.maps = MapsByMode(maps)
        self.pipeline = pipeline
        self.second: Second | None = None
        self.shifts: Mapping[str, Shift] = {}  # of the models behind addresses, by role
        self.lost = False  # whether one of these did not answer at loading
        self._remote: dict[str, RemoteModel] = {}
        self._fetched_from = ""  # the URI, if its folder is a temporary copy

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled, as for another process, it is its folder, which is loaded again there."""
        why, place = "", f"{self.folder}"
        if self.objects:
            why = f"whose {' and '.join(self.objects)} is an object"
            place += " there, and pass the object"
        elif self._fetched_from:
            why, place = "fetched from MLflow", f"{self._fetched_from} there"
        if why:
            raise InputError(f"a model {why} cannot be sent to another process; load {place}")
        digest = self.manifest.get(DIGEST)
        return _load_again, (self.folder if digest is None else self.folder.resolve(), digest)

    @property
    def objects(self) -> list[str]:
        """Which of encoder and reranker was given as an object, which no folder can hold."""
        return [r for r, e in self.manifest.get(model_folder.GIVEN, {}).items() if not is_noted(e)]

    @property
    def folder(self) -> Path:
        """Where the model was loaded from."""
        return self.files.path

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the model folder."""
        return self.files.manifest

    @property
    def group_by(self) -> str:
        """The metadata that the labelled queries were grouped by (`--group-by`), or ""."""
        return str(self.manifest.get("dataset", {}).get("group_by", ""))

    @property
    def version(self) -> str:
        """12 digits of the manifest's digest, which changes with any file; or `default`."""
        return str(self.manifest.get(DIGEST, DEFAULT))[:12]

    @classmethod
    def load(
        cls,
        path_or_uri: str | Path,
        *,
        reranker: Scorer | ScoreFunction | None = None,
        encoder: Embedder | EmbedFunction | None = None,
        cache: ScoreCache | None = None,
        allow_download: bool = False,
        tracking_uri: str | None = None,
        manifest_sha256: str | None = None,
        on_reranker_error: str = "error",
    ) -> CalibratedReranker:
        """Open a model folder, after checking every hash and fingerprint.

        `default`, if there is no such folder, means the bundled models, which `rerank` passages
        that callers bring; nothing is calibrated, as their maps were fitted on other sets.
        `models:/name@champion`, `models:/name/3` or `runs:/id/model` is fetched from MLflow, at
        MLFLOW_TRACKING_URI, else `tracking_uri`, else the database in `work`. A hub id in the
        configuration of a folder is looked up on this machine only, unless `allow_download`.

        `reranker` and `encoder` are passed again if the model was calibrated with such objects;
        they must have the same name and identity, and give the same numbers for fixed texts.

        With `on_reranker_error` first-stage, a reranker behind an address that does not answer is
        no error: the answer is that of the first stage, not calibrated, and `first_stage`. If it
        does not answer at loading, nothing is calibrated until `probe_remote` finds it as it was.

        Hashes find accidents: who changes a file can renew them. With `manifest_sha256`, taken from
        a place that others cannot write to, it must be the hash of the folder's `manifest.json`.

        Raises:
            InputError: not a model folder, or another one than was calibrated: the message says
                which part differs. Or MLflow has no such model.
            MissingExtraError: the model is in MLflow, which is not installed.
            TrackingError: MLflow does not answer, or refuses.
        """
        check_one_of("`on_reranker_error`", on_reranker_error, ON_RERANKER_ERROR)
        if str(path_or_uri) == DEFAULT and not Path(DEFAULT).exists():
            if reranker is not None or encoder is not None:
                raise InputError("`default` has models of its own; calibrate with others")
            if manifest_sha256 is not None:
                raise InputError("`default` has no manifest, and so none of this sha256")
            return cls._default(cache=cache)
        if is_uri(path_or_uri):
            place, temporary = fetch(path_or_uri, tracking_uri=tracking_uri)
        else:
            place, temporary = Path(path_or_uri), None
        try:
            files = open_folder(place, manifest_sha256=manifest_sha256)
            given = {"reranker": reranker, "encoder": encoder}
            how: Any = {"given": given, "first_stage": on_reranker_error != ON_RERANKER_ERROR[0]}
            model = cls._open(files, cache=cache, allow_download=allow_download, **how)
        except BaseException:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        if temporary is not None:
            model._fetched_from = str(path_or_uri)
            weakref.finalize(model, shutil.rmtree, temporary, ignore_errors=True)
        return model

    @classmethod
    def _default(cls, *, cache: ScoreCache | None) -> CalibratedReranker:
        config = Config()
        models = find_model(config.encoder, "encoder"), find_model(config.reranker, "reranker")
        pooled = fitted_maps.pooled_for(*models, config)
        if pooled is None:
            raise InputError(f"there are no pooled maps of {config.reranker} here; {MADE_BY}")
        pipeline = Pipeline(CallerPassages(config), Models.open(config, models, cache))
        manifest = {
            "config": config.to_dict(),
            "fingerprints": model_folder.fingerprints(*models, config),
            "fitted_around": pooled.described(),
            "files": {},
        }
        return cls(ModelFolder(Path(DEFAULT), manifest), pooled.maps, pipeline)

    @classmethod
    def _open(
        cls,
        files: ModelFolder,
        *,
        cache: ScoreCache | None,
        allow_download: bool,
        given: Mapping[str, Any],
        first_stage: bool,
    ) -> CalibratedReranker:
        path = files.path
        config = Config.from_dict(files.manifest["config"])
        maps = read_maps(files)
        for fitted in maps.values():
            fitted_maps.check_no_overflow(fitted, path)
            fitted_maps.check_certificates(fitted, config.thresholds, path)
        models = None
        if maps.source.scores_passages:
            found = model_folder.models_of(files, config, download=allow_download, given=given)
            models = Models.open(config, found, cache)
        source = maps.source.open(files, config, maps.main.kind, maps.main.metadata)
        try:
            model = cls(files, maps, Pipeline(source, models))
        except InputError as error:
            raise InputError(f"{path}: its index cannot be used: {error}") from None
        if SECOND in files.manifest:
            how: Any = {"cache": cache, "allow_download": allow_download, "given": {}}
            dearer = cls._open(open_folder(path / SECOND), first_stage=first_stage, **how)
            model.second = Second.of(files.manifest[SECOND]["band"], dearer, model)
        model.pipeline.first_stage_on_error = first_stage
        try:
            model.probe_remote()
        except RetrieverError as error:
            if not first_stage or isinstance(error, LimitError):
                raise
            logger.warning("the first stage answers until a later probe: %s", error)
            model.lost = True
            model.shifts = {role: lost(found) for role, found in model._remote.items()}
            model.pipeline.reranker.caching = False
        return model

    @property
    def source(self) -> Source:
        """Where its passages come from: the object that answers for the kind of the model."""
        return self.pipeline.source

    @property
    def stages(self) -> tuple[CalibratedReranker, ...]:
        """The models that may answer a query, in turn: itself, and the second one of two."""
        return (self, self.second.model) if self.second else (self,)

    @property
    def segment_by(self) -> str:
        """The metadata by which queries are divided into segments; "" for none."""
        return self.pipeline.config.segment_by

    @property
    def query_key(self) -> str | None:
        """The metadata of a query that is used, by which segments go; None: it uses more."""
        return None if any(one.source.said for one in self.stages) else self.segment_by

    @property
    def segments(self) -> frozenset[str]:
        """The segments that any mode was fitted for."""
        return frozenset(name for maps in self.maps.values() for name in maps.segments.updates)

    def of_segment(self, segment: str) -> dict[str, str]:
        """The metadata of a query of this segment; {} for none."""
        if segment and not self.segment_by:
            raise InputError(
                f"the model has no segments, so none is called {segment!r:.80}; calibrate it with "
                "--segment-by"
            )
        return {self.segment_by: segment} if segment else {}

    @property
    def fitted_on(self) -> frozenset[str]:
        """The marks of the queries that the maps were fitted on; an InputError without them."""
        if DIGEST not in self.manifest:  # `default`, which has no folder
            return frozenset()
        return frozenset(self.files.text(model_folder.FITTED_ON).split())

    @property
    def calibrated(self) -> bool:
        """Whether the main mode was fitted on labels of this corpus, and with these models."""
        if self.second and not self.second.model.calibrated:
            return False
        return self.maps.main.calibrated and not self.shifted

    @property
    def shifted(self) -> str:
        """The models behind addresses that are others than at the fit, or ""."""
        shifts, remote = self.shifts, self._remote
        names = [r for r in shifts if shifts[r].shifted or remote[r].renamed]
        if self.second and self.second.model.shifted:
            names.append(f"second model's {self.second.model.shifted}")
        return " and ".join(names)

    def probe_remote(self) -> Mapping[str, Shift]:
        """Compare the models behind addresses by the numbers of fixed texts, by role.

        Until a later probe finds them as at the fit, nothing is calibrated, and no score cached.
        """
        if self.pipeline.models is not None:
            roles = zip(ROLES, self.pipeline.model_files, strict=True)
            self._remote = {role: m for role, m in roles if isinstance(m, RemoteModel)}
            self.shifts = {role: model.shift() for role, model in self._remote.items()}
            self.pipeline.reranker.caching = not self.shifted
        of_second = self.second.model.probe_remote() if self.second else {}
        return {**self.shifts, **{f"second {role}": one for role, one in of_second.items()}}

    @property
    def sketch(self) -> Sketch:
        """The features that the confidence was fitted on, for the drift alarm."""
        values = self.files.json(SKETCH) if self.maps.main.calibrated else {}
        if not values:
            raise InputError(
                f"{self.folder} is not calibrated: no queries were fitted on that others could be "
                "compared with"
            )
        try:
            return Sketch.from_dict(values)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{self.folder}: {SKETCH} cannot be read: {error}") from None

    def search(
        self,
        text: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> Assessment:
        """Search the index for one query, and give the confidence in the top passage.

        Of `metadata`, only the query's segment is used, if the model has segments. Only passages
        whose metadata fits `where` are found: see `rerank.filters`.

        Raises: as `assess`; InputError, if the filter cannot be used.
        """
        return self.assess([Query(text, metadata=metadata or {}, where=Where.read(where))])[0]

    def rerank(
        self,
        text: str,
        passages: Sequence[AnyPassage],
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> Assessment:
        """Rank the passages that the caller brings, and give the confidence in the top passage.

        A plain string is a passage whose id is its position; a dictionary has `text`, and may have
        `id` and `title`: its other keys are the metadata. Ids may repeat. A passage without any
        text is ranked last, with relevance 0. No passages, or only such ones, give confidence 0.

        Raises: as `assess`; InputError, if what came is not a list.
        """
        query = Query(text, metadata=metadata or {}, passages=as_passages(passages))
        return self.assess([query])[0]

    async def asearch(
        self,
        text: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> Assessment:
        """As `search`, in a thread: the event loop goes on meanwhile."""
        return await asyncio.to_thread(self.search, text, metadata=metadata, where=where)

    async def arerank(
        self,
        text: str,
        passages: Sequence[AnyPassage],
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> Assessment:
        """As `rerank`, in a thread: the event loop goes on meanwhile."""
        return await asyncio.to_thread(self.rerank, text, passages, metadata=metadata)

    async def aassess(self, queries: Sequence[Query | str]) -> list[Assessment]:
        """As `assess`, in a thread, which ends with its present query if it is cancelled."""
        asked = as_queries(queries)
        return [(await asyncio.to_thread(self.assess, [query]))[0] for query in asked]

    def assess(
        self, queries: Sequence[Query | str], *, label: str | None = None
    ) -> list[Assessment]:
        """One assessment per query, in their order; queries of different modes may be mixed.

        A plain string is a query to the index. `label` names a progress bar.

        Raises:
            InputError: as `check`, of any query.
            RetrieverError: the search system that the model searches does not answer.
        """
        queries = as_queries(queries)
        modes = [self.check(query) for query in queries]
        assessments: dict[int, Assessment] = {}
        for mode in dict.fromkeys(modes):
            rows = [i for i, row_mode in enumerate(modes) if row_mode == mode]
            some = [queries[i] for i in rows]
            scored = self.pipeline.run(some, self.maps[mode].policy, label=label)
            assessments |= zip(rows, self.assess_scored(scored, some), strict=True)
        found = [assessments[i] for i in range(len(queries))]
        return self.second.answers(found, queries, label=label) if self.second else found

    def mode_of(self, query: Query) -> Mode:
        """The mode in which the model answers a query."""
        return self.source.mode_of(query)

    def check(self, query: Query) -> Mode:
        """The mode in which the model answers a query; an InputError says why it cannot."""
        if not has_text(query.text):
            raise InputError("the query is empty; expected some words")
        provided = [(f"passage {i}", p.full_text) for i, p in enumerate(query.passages or ())]
        for name, text in [("the query", query.text), *provided]:
            if not is_encodable(text):
                raise InputError(f"{name} is not text: it holds bytes that are not UTF-8")
        said = self.source.said
        optional = said.keys() | TURN_FEATURES.keys()  # not of a passage, or 0 where it says none
        keys = {f.key: None for f in self.source.metadata if f.key not in optional}
        if said:
            entities_of(query)
        if keys and query.passages and not any(keys.keys() & p.metadata for p in query.passages):
            raise InputError(
                f"the model was fitted on the metadata {', '.join(keys)} of passages, and no "
                "passage has any of it; pass it in `metadata`, null where a passage has no value"
            )
        if query.instruction and self.segment_by != INSTRUCTION:
            raise InputError(
                "the query has an instruction, and the model was calibrated without any of "
                "queries; leave it out, or calibrate on queries with their instructions "
                f"(--segment-by {INSTRUCTION})"
            )
        mode = self.mode_of(query)
        self.maps[mode]  # raises if the model does not have it
        self.source.check(query)
        if self.second:
            self.second.model.check(query)
        return mode

    def probes(self) -> list[Query]:
        """A simple query for each mode in which a working model can answer one."""
        return self.source.probes()

    def assess_scored(self, scored: Sequence[Scored], queries: Sequence[Query]) -> list[Assessment]:
        """Turn the scored candidates of queries, at least one, into one assessment each.

        `queries` are as they came, all answered in the same mode of the model; those of `scored`
        hold the passages of another search system by now. Of two models it is the first one alone.
        """
        maps, config = self.maps[self.mode_of(queries[0])], self.pipeline.config
        modes = [query.mode for query in queries]
        found = to_assessments(predict(scored, maps, config), maps, config, modes)
        for i, of_query in enumerate(scored):
            if of_query.failed:
                found[i] = replace(
                    as_uncalibrated(found[i]), first_stage=True, reasons=(predictions.FAILED,)
                )
        if not self.shifted:
            return found
        why = predictions.SHIFTED.format(self.shifted)
        return [one if one.first_stage else as_uncalibrated(one, why) for one in found]

    def assess_each(self, queries: Sequence[Query]) -> list[Assessment | Exception]:
        """As `assess`; a query that fails gives its exception, and the others an answer."""
        try:
            return list(self.assess(queries))
        except RetrieverError as error:  # the system fails, not the query
            return [error] * len(queries)
        except Exception as error:
            if len(queries) == 1:
                return [error]
            return [result for query in queries for result in self.assess_each([query])]


class Second(NamedTuple):
    """The second, more expensive model. It answers where the first's confidence is in a band."""

    band: Band
    model: CalibratedReranker

    @classmethod
    def of(
        cls, band: Sequence[float], model: CalibratedReranker, first: CalibratedReranker
    ) -> Second:
        """A loaded model with the promises of the first one's folder, which are of both."""
        maps = {mode: own.promising_as(first.maps[mode]) for mode, own in model.maps.items()}
        model.maps = MapsByMode(maps)
        return cls(Band(*band), model)

    def asks(self, found: Assessment) -> bool:
        """Whether the second model is asked after this answer of the first one."""
        return found.calibrated and self.band.low <= found.confidence <= self.band.high

    def answers(
        self, found: Sequence[Assessment], queries: Sequence[Query], *, label: str | None = None
    ) -> list[Assessment]:
        """The answers to all queries, of which the first model has `found` these."""
        asked = [i for i, one in enumerate(found) if self.asks(one)]
        more = self.model.assess([queries[i] for i in asked], label=label) if asked else []
        second = dict(zip(asked, more, strict=True))
        return [joined(one, second.get(i)) for i, one in enumerate(found)]


def _load_again(folder: Path, digest: str | None) -> CalibratedReranker:
    model = CalibratedReranker.load(folder)
    if model.manifest.get(DIGEST) != digest:
        raise InputError(
            f"{folder} holds another model than the one that was sent to this process; load it "
            "again and send that"
        )
    return model


def as_queries(queries: Sequence[Query | str]) -> list[Query]:
    """The queries; a plain string becomes one. Refuses what is no list of these."""
    if isinstance(queries, (str, Query)):
        raise InputError(f"expected a list of queries, got one: {queries!r:.100}")
    found = [Query(query) if isinstance(query, str) else query for query in queries]
    for query in found:
        if not isinstance(query, Query):
            raise InputError(f"expected a Query or a text, got {query!r:.100}")
    return found


load = CalibratedReranker.load
