"""Running a transformer: token ids in, one row of numbers per sequence out.

A model is exported once from its torch weights to ONNX, checked against torch, kept in the cache or
in a model folder, and hashed at every read. Each sequence runs alone and unpadded, so that no score
depends on its neighbours. What does not export with the same numbers is left to `torch_models`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from rerank.config import Config, Graphs, Precision
from rerank.errors import FolderError, InputError, MissingExtraError, one_line, optional
from rerank.inference.model_cache import cache_folder, made_once
from rerank.inference.model_files import Kind, Model, ModelFiles, interacts_late
from rerank.inference.onnx_safety import check_graph_is_safe
from rerank.inference.small_weights import TRAINED_ON
from rerank.inference.tokenizer import TOKENIZER_JSON, Tokenizer, Tokens, tokenizer_json
from rerank.process import cores, in_threads
from rerank.progress import progress
from rerank.storage.files import write_json
from rerank.storage.folder import read_manifest, read_verified

logger = logging.getLogger(__name__)

EXPORT_FORMAT = 2  # increased when files of an older export must not be used
GRAPH = "graph.onnx"  # in an export's folder
DATA = "graph.onnx.data"  # the numbers of a graph that is too large for one file
LARGEST = 2**31 - 2**20  # bytes of a graph, whose format ends at 2 GiB
PROMPTS = "prompts.json"  # what stands before a text, by its role, where something does
ASIDE = "aside"  # in the manifest of a model that is not exported: why
MADE_WITH = ("onnx", "sentence-transformers", "torch", "transformers")  # by which it may be, later
TOLERANCE = 1e-4  # largest allowed deviation of an export from torch
SAMPLE_LENGTH = 32  # tokens
SLOWER = ["SkipLayerNormFusion"]  # a runtime fusion that takes 1.7 times as long as its two parts
SAMPLES = [  # pairs that an export is traced and checked on
    ("what is the median", "The middle value of a sorted sample."),
    ("mean", "The sum over the count."),
    ("how long is a long passage", "As long as it takes to say what has to be said. " * 5),
]
NETWORKS = "networks"  # the subfolder of a model folder's networks
ROLES: Mapping[str, Kind] = {"encoder": "bi_encoder", "reranker": "cross_encoder"}

Row = NDArray[np.float32]
Run = Callable[[Tokens], Row]
Entries = Mapping[str, Any]  # of a manifest: the hash of each file
Network = Mapping[str, bytes]  # the files of an export: GRAPH, and DATA and PROMPTS if it has them
WriteExported = Callable[[Path], Mapping[str, Any]]  # writes networks; returns manifest entries
Result = TypeVar("Result")

_running: WeakValueDictionary[str, Run] = WeakValueDictionary()  # by the SHA-256 of its files
_starting = Lock()


class Engine:
    """A model ready to run; the caller puts the `prompts` before a text of each role."""

    def __init__(
        self, run: Run, *, workers: int | None = None, prompts: Mapping[str, str] | None = None
    ) -> None:
        self.run = run
        self.prompts = prompts or {}
        self._workers = workers or cores()

    def __call__(self, sequences: Sequence[Tokens]) -> NDArray[np.float32]:
        """Rows of shape (n, width), in the order of `sequences`; n >= 1."""
        return np.stack(in_threads(self.run, sequences, self._workers))


def open_engine(files: ModelFiles, kind: Kind, precision: Graphs = "fp32") -> Engine:
    """An engine that gives a pair's logits, without any activation, or a text's unit vector.

    Raises:
        InputError: the model cannot be loaded, or does not export and int8 is requested.
        NoExportError: it does not export.
    """
    if files.entries is not None:
        network = exported_network(files, kind, precision)
        try:
            return _engine(network, files.entries)
        except Exception as error:  # of the runtime, which has many
            raise InputError(f"{files.folder / GRAPH} does not run here: {error}") from error
    try:
        return _kept(files, kind, precision, _engine)
    except NoExportError as error:
        if precision != "int8":
            raise
        of_encoder = kind == "bi_encoder"
        others = "--encoder-precision to fp32" if of_encoder else "--precision to fp32 or bf16"
        raise InputError(
            f"{files.name} does not export, so it has no int8 form; set {others} ({error})"
        ) from error


def exported_network(files: ModelFiles, kind: Kind, precision: Graphs = "fp32") -> Network:
    """The files of a model's graph: plain operators, and no data but in these files."""
    network: Network
    if files.entries is not None:
        network = {n: files.read(n) for n in (GRAPH, DATA, PROMPTS) if n in files.entries}
    else:
        try:
            network = _kept(files, kind, precision, lambda network, _: network)
        except NoExportError as error:
            raise InputError(f"{files.name} does not export to ONNX ({error})") from None
    data = DATA if DATA in network else None
    check_graph_is_safe(network[GRAPH], f"{files.folder / GRAPH}", data=data)
    return network


class NoExportError(Exception):
    """A network that does not export, or not with the same numbers: `torch_models` runs it."""


def check_reads_pairs(files: ModelFiles) -> None:
    """Refuse a model that reads query and passage apart with NoExportError: no engine does."""
    if interacts_late(files):
        raise NoExportError("late interaction compares the vectors of two texts")


def stand_aside(files: ModelFiles, error: NoExportError) -> None:
    """Say in one line that sentence-transformers runs a model, and why no engine of ours does."""
    logger.warning("%s runs in sentence-transformers: %s", files.name, error)


def _kept(
    files: ModelFiles, kind: Kind, precision: Graphs, use: Callable[[Network, Entries], Result]
) -> Result:
    """What `use` gives of the network in the cache and its files' hashes; exported if not there."""
    check_reads_pairs(files)
    home = _home(files, kind, precision)
    bound = {"network": kind, "weights": files.fingerprint, "exporter": EXPORT_FORMAT}
    bound["precision"] = precision

    def versions() -> dict[str, str]:
        return {"made_with": " ".join(f"{name} {version(name)}" for name in MADE_WITH)}

    def opened(folder: Path) -> Result | NoExportError:
        manifest = read_manifest(folder)
        for key, value in {**bound, **(versions() if ASIDE in manifest else {})}.items():
            if manifest.get(key) != value:
                raise FolderError(f"it was made for another value of {key}")
        if ASIDE in manifest:
            return NoExportError(manifest[ASIDE])
        entries = manifest["files"]
        network = {
            n: read_verified(folder, n, manifest, max_bytes=entries[n]["size"]) for n in entries
        }
        return use(network, entries)

    def fill(folder: Path) -> Mapping[str, Any]:
        try:
            if precision == "int8":
                _quantize(_kept(files, kind, "fp32", lambda network, _: network), folder)
            else:
                _export_once(files, kind, folder)
        except NoExportError as error:
            return {**bound, ASIDE: str(error), **versions()}
        return bound

    found = made_once(home, fill, opened)
    if isinstance(found, NoExportError):
        raise found
    return found


def runs_in_library(files: ModelFiles, precision: Graphs) -> bool:
    """Whether a cross-encoder is left to sentence-transformers, as far as the cache knows."""
    if files.entries is not None:
        return False
    if interacts_late(files):
        return True
    home = _home(files, "cross_encoder", precision)
    return home.is_dir() and ASIDE in read_manifest(home)


def _home(files: ModelFiles, kind: Kind, precision: Graphs) -> Path:
    ending = "" if precision == "fp32" else f"-{precision}"
    return cache_folder() / f"{kind}-{files.fingerprint[:32]}{ending}"


def _export_once(files: ModelFiles, kind: Kind, folder: Path) -> None:
    with progress(2, f"exporting {files.name}, once", unit="step") as bar:
        with optional():
            from rerank.inference import torch_models
        module = torch_models.load(files, kind)
        bar.update()
        try:
            tokenizer = Tokenizer(files.folder, max_length=SAMPLE_LENGTH)
            in_torch = Engine(module.run, workers=1)
            check_gap(torch_models.largest_gap(module.model, kind, in_torch, tokenizer, SAMPLES))
            _export(module, tokenizer(SAMPLES), folder / GRAPH)
        except (OSError, MemoryError, MissingExtraError):
            raise
        except Exception as error:  # exporters fail in many ways; torch is slower but right
            raise NoExportError(one_line(error)) from error
        bar.update()
    if kind == "bi_encoder" and (prompts := torch_models.prompts_of(module.model)):
        write_json(folder / PROMPTS, prompts)


def check_gap(gap: float) -> None:
    """Refuse an engine whose numbers differ so much from those of sentence-transformers."""
    if not gap <= TOLERANCE:
        raise NoExportError(
            f"with its own prompt, template and pooling the model differs by {gap:.2g}"
        )


def _quantize(network: Network, folder: Path) -> None:
    """Write a network with its matrices in int8, by dynamic quantization (Jacob et al. 2018).

    The reduced range of 7 bits prevents saturated sums on processors without VNNI.
    """
    onnx_runtime()
    with optional():
        from onnxruntime.quantization import QuantType, quantize_dynamic
        from onnxruntime.quantization.preprocess import quant_pre_process
    large = DATA in network
    with TemporaryDirectory(prefix=".quantize-", dir=folder) as given:
        source, prepared = Path(given, GRAPH), Path(given, "prepared", GRAPH)
        prepared.parent.mkdir()
        for name, content in network.items():
            Path(given, name).write_bytes(content)
        quant_pre_process(
            str(source),
            str(prepared),
            skip_symbolic_shape=True,
            save_as_external_data=large,
            all_tensors_to_one_file=large,
            external_data_location=DATA if large else None,
        )
        quantize_dynamic(
            str(prepared),
            str(folder / GRAPH),
            op_types_to_quantize=["MatMul"],
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
            use_external_data_format=large,
        )


def onnx_runtime() -> Any:
    """The module `onnxruntime`, which sends no telemetry and writes nothing to home."""
    if "usearch.compiled" in sys.modules and "onnxruntime" not in sys.modules:
        raise InputError(
            "import onnxruntime, or load a model, before usearch: the process would crash otherwise"
        )
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    return onnxruntime


def _engine(network: Network, entries: Entries) -> Engine:
    """The engine of a network; those of one process that have the same one share it."""
    names = [name for name in (GRAPH, DATA) if name in network]
    key = "-".join(entries[name]["sha256"] for name in names)
    prompts = json.loads(network[PROMPTS]) if PROMPTS in network else {}
    with _starting:
        run = _running.get(key)
        if run is None:
            run = _running[key] = _onnx_runner(*(network[name] for name in names))
    return Engine(run, prompts=prompts)


def _onnx_runner(graph: Path | bytes, data: bytes | None = None) -> Run:
    onnxruntime = onnx_runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if data is not None:
        options.add_external_initializers_from_files_in_memory([DATA], [data], [len(data)])
    session = onnxruntime.InferenceSession(
        graph if isinstance(graph, bytes) else str(graph),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=SLOWER,
    )
    names = {entry.name for entry in session.get_inputs()}

    def run(tokens: Tokens) -> Row:
        feed = {"input_ids": tokens.ids, "token_type_ids": tokens.types}
        arrays = {k: np.array([v], dtype=np.int64) for k, v in feed.items() if k in names}
        row: Row = session.run(None, arrays)[0][0]
        return row

    return run


def _export(module: Any, samples: Sequence[Tokens], path: Path) -> None:
    """Write the module as ONNX under `path`, in the cheapest form that gives torch's numbers."""
    from rerank.inference import torch_models

    forms = torch_models.forms(module)
    for form in forms:
        try:
            with TemporaryDirectory(prefix=".export-", dir=path.parent) as folder:
                new = Path(folder, GRAPH)
                torch_models.to_onnx(form, samples[0], new, data=DATA, largest=LARGEST)
                exported = _onnx_runner(new)
                gap = max(float(np.abs(exported(t) - module.run(t)).max()) for t in samples)
                if not gap <= TOLERANCE:
                    raise ValueError(f"the exported model differs from torch by {gap:.2g}")
                del exported
                if (data := new.with_name(DATA)).exists():
                    data.rename(path.with_name(DATA))
                new.rename(path)
            return
        except Exception as error:
            if form is forms[-1] or isinstance(error, OSError):
                raise
            logger.info("exporting the whole model, not %s: %s", type(form).__name__, error)


def manifest_entry(precision: Precision) -> dict[str, Any]:
    """A manifest's entry for the networks in its folder; it must match when they are opened."""
    return {"exporter": EXPORT_FORMAT, "precision": precision}


def exported_files(files: Model, role: str, config: Config) -> dict[str, bytes]:
    """The files of a model's network, by name; it is exported if it was not yet."""
    if not isinstance(files, ModelFiles):
        raise InputError(
            f"the {role} {files.name!r} {files.place}: a self-contained folder cannot hold it"
        )
    if config.precision == "bf16" or config.precision == "auto":  # noqa: PLR1714, which types need
        raise InputError("bf16 runs in torch, which is not exported; expected fp32 or int8")
    precision: Graphs = config.precision if role == "reranker" else config.encoder_precision
    network = exported_network(files, ROLES[role], precision)
    trained = files.folder / TRAINED_ON
    listed = {TRAINED_ON: trained.read_bytes()} if trained.is_file() else {}
    return {**network, TOKENIZER_JSON: tokenizer_json(files), **listed}


def write_exported(folder: Path, models: Sequence[Model], config: Config) -> dict[str, Any]:
    """Write the networks of an encoder and a reranker into a folder; return its manifest entry."""
    for role, files in zip(ROLES, models, strict=True):
        home = folder / NETWORKS / role
        home.mkdir(parents=True)
        for name, content in exported_files(files, role, config).items():
            (home / name).write_bytes(content)
    return {NETWORKS: manifest_entry(config.precision)}


def check_exportable(models: Sequence[Model], config: Config) -> None:
    """Refuse an encoder and a reranker that `write_exported` could not export, as it does."""
    for role, files in zip(ROLES, models, strict=True):
        exported_files(files, role, config)


def is_exported_file(name: str) -> bool:
    """Whether a network's file may have this path within a folder."""
    parts = PurePosixPath(name).parts
    known = (GRAPH, TOKENIZER_JSON, DATA, PROMPTS, TRAINED_ON)
    return len(parts) == 3 and parts[0] == NETWORKS and parts[1] in ROLES and parts[2] in known


def open_exported(
    folder: Path, manifest: Mapping[str, Any], names: Sequence[str]
) -> list[ModelFiles]:
    """The encoder and the reranker in their fixed places of a folder, under the `names` given."""
    prints, files = manifest["fingerprints"], manifest["files"]
    models = []
    for role, name in zip(ROLES, names, strict=True):
        start = f"{NETWORKS}/{role}/"
        entries = {p.removeprefix(start): files[p] for p in files if p.startswith(start)}
        if missing := {GRAPH, TOKENIZER_JSON} - set(entries):
            raise InputError(f"{folder}: {start}{min(missing)} is missing; export the model again")
        weights, tokenizer = (str(prints.get(key)) for key in (role, f"{role}_tokenizer"))
        models.append(ModelFiles(name, folder / start, weights, tokenizer, entries))
    return models
