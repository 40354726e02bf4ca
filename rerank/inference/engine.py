"""Running a transformer: token ids in, one row of numbers per sequence out.

A model is exported once from its torch weights to ONNX, checked against torch, and kept in the
cache, bound to its weights and hashed at every read; after that neither torch nor transformers is
imported. Each sequence runs alone and unpadded, with one worker thread per core: on a CPU this is
faster than padded batches, and a score cannot depend on its neighbours. A model that does not
export runs in torch, in the same way. For bf16 and for GPUs see `varlen`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from rerank.cores import cores, in_threads
from rerank.errors import FolderError, InputError, optional
from rerank.inference.model_cache import cache_folder, made_once
from rerank.inference.model_files import ModelFiles
from rerank.inference.onnx_safety import check_graph_is_safe
from rerank.inference.tokenizer import Tokenizer, Tokens
from rerank.progress import progress
from rerank.storage.folder import read_manifest, read_verified

logger = logging.getLogger(__name__)

EXPORT_FORMAT = 2  # increased when files of an older export must not be used
GRAPH = "graph.onnx"  # in an export's folder
TOLERANCE = 1e-4  # largest allowed deviation of an export from torch
SAMPLE_LENGTH = 32  # tokens
SLOWER = ["SkipLayerNormFusion"]  # a runtime fusion that takes 1.7 times as long as its two parts
SAMPLES = [  # pairs that an export is traced and checked on
    ("what is the median", "The middle value of a sorted sample."),
    ("mean", "The sum over the count."),
    ("how long is a long passage", "As long as it takes to say what has to be said. " * 5),
]

Row = NDArray[np.float32]
Run = Callable[[Tokens], Row]
Graphs = Literal["fp32", "int8"]  # the precisions that are exported
Kind = Literal["cross_encoder", "bi_encoder"]
Result = TypeVar("Result")

_running: WeakValueDictionary[str, Run] = WeakValueDictionary()  # by the SHA-256 of the graph
_starting = Lock()


class Engine:
    """A model ready to run: `run` takes one sequence and gives one row."""

    def __init__(self, run: Run, *, workers: int | None = None) -> None:
        self.run = run
        self._workers = workers or cores()

    def __call__(self, sequences: Sequence[Tokens]) -> NDArray[np.float32]:
        """Rows of shape (n, width), in the order of `sequences`; n >= 1."""
        return np.stack(in_threads(self.run, sequences, self._workers))


def open_cross_encoder(files: ModelFiles, precision: Graphs = "fp32") -> Engine:
    """An engine that gives a pair's logits, without any activation.

    int8 logits are close to fp32 logits, but not equal: a calibration is valid for only one of the
    two.

    Raises:
        InputError: the model cannot be loaded, or does not export and int8 is requested.
    """
    return _open(files, "cross_encoder", precision)


def open_bi_encoder(files: ModelFiles) -> Engine:
    """An engine that gives a text's unit vector."""
    return _open(files, "bi_encoder", "fp32")


def exported_graph(files: ModelFiles, kind: Kind, precision: Graphs = "fp32") -> bytes:
    """The ONNX graph of a model: plain operators, and all data inside it.

    Raises:
        InputError: the model does not export, or its graph is not of this kind.
    """
    if files.entries is not None:
        graph = files.read(GRAPH)
    else:
        try:
            graph = _kept(files, kind, precision, lambda graph, _: graph)
        except NoExportError as error:
            raise InputError(f"{files.name} does not export to ONNX ({error})") from None
    check_graph_is_safe(graph, f"{files.folder / GRAPH}")
    return graph


class NoExportError(Exception):
    """A network that does not export; `module` runs in torch."""

    def __init__(self, module: Any, error: Exception) -> None:
        super().__init__(str(error))
        self.module = module


def _open(files: ModelFiles, kind: Kind, precision: Graphs) -> Engine:
    if files.entries is not None:
        graph = exported_graph(files, kind, precision)
        try:
            return Engine(_shared_runner(graph, files.entries[GRAPH]["sha256"]))
        except Exception as error:  # of the runtime, which has many
            raise InputError(f"{files.folder / GRAPH} does not run here: {error}") from error
    try:
        return Engine(_kept(files, kind, precision, _shared_runner))
    except NoExportError as error:
        if precision == "int8":
            raise InputError(
                f"{files.name} does not export, so it has no int8 form; set `precision` "
                f"(--precision) to fp32 ({error})"
            ) from error
        logger.warning("%s runs in torch: it does not export (%s)", files.name, error)
        return Engine(_torch_runner(error.module), workers=1)


def _kept(
    files: ModelFiles, kind: Kind, precision: Graphs, use: Callable[[bytes, str], Result]
) -> Result:
    """What `use` gives of the graph in the cache and its hash; it is exported if it is not there.

    Raises:
        NoExportError: it does not export.
        OSError: it cannot be kept.
    """
    ending = "" if precision == "fp32" else f"-{precision}"
    home = cache_folder() / f"{kind}-{files.fingerprint[:32]}{ending}"
    bound = {"network": kind, "weights": files.fingerprint, "exporter": EXPORT_FORMAT}
    bound |= {"precision": precision}

    def opened(folder: Path) -> Result:
        manifest = read_manifest(folder)
        wrong = [key for key, value in bound.items() if manifest.get(key) != value]
        if wrong:
            raise FolderError(f"it was made for another value of {wrong[0]}")
        entry = manifest["files"][GRAPH]
        graph = read_verified(folder, GRAPH, manifest, max_bytes=entry["size"])
        return use(graph, entry["sha256"])

    def fill(folder: Path) -> Mapping[str, Any]:
        if precision == "int8":
            _quantize(_kept(files, kind, "fp32", lambda graph, _: graph), folder / GRAPH)
            return bound
        with progress(2, f"exporting {files.name}, once", unit="step") as bar:
            with optional():
                from rerank.inference import onnx_export

            samples = Tokenizer(files.folder, max_length=SAMPLE_LENGTH)(SAMPLES)
            module = onnx_export.load(files, kind)
            bar.update()
            try:
                _export(module, samples, folder / GRAPH)
            except OSError:
                raise
            except Exception as error:  # exporters fail in many ways; torch is slower but right
                raise NoExportError(module, error) from error
            bar.update()
        return bound

    return made_once(home, fill, opened)


def _quantize(graph: bytes, path: Path) -> None:
    """Write the `graph` to `path` with its matrices in int8, scaled by output channel.

    Activations are scaled at run time (dynamic quantization, Jacob et al. 2018). The reduced range
    of 7 bits prevents saturated sums on processors without VNNI.
    """
    onnx_runtime()
    with optional():
        from onnxruntime.quantization import QuantType, quantize_dynamic
        from onnxruntime.quantization.preprocess import quant_pre_process

    path.write_bytes(graph)
    quant_pre_process(str(path), str(path), skip_symbolic_shape=True)
    quantize_dynamic(
        str(path),
        str(path),
        op_types_to_quantize=["MatMul"],
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=True,
    )


def onnx_runtime() -> Any:
    """The module `onnxruntime`, imported so that it sends no telemetry and writes nothing to home.

    A telemetry setting of the user in the environment takes precedence.

    Raises:
        InputError: USearch was imported first: importing ONNX Runtime would crash the process.
    """
    if "usearch.compiled" in sys.modules and "onnxruntime" not in sys.modules:
        raise InputError(
            "USearch was imported before ONNX Runtime, and in this order the process would crash; "
            "import onnxruntime, or load a model, before usearch"
        )
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    return onnxruntime


def _shared_runner(graph: bytes, sha256: str) -> Run:
    """The network of a graph; models of one process that have the same graph share one network.

    `sha256` is that of the graph, with which it was verified. Networks are started one after the
    other.
    """
    with _starting:
        run = _running.get(sha256)
        if run is None:
            run = _running[sha256] = _onnx_runner(graph)
        return run


def _onnx_runner(graph: Path | bytes) -> Run:
    onnxruntime = onnx_runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
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


def _torch_runner(module: Any) -> Run:
    """The network in torch, whose operators use at most `cores` threads."""
    import torch

    most = cores()

    def run(tokens: Tokens) -> Row:
        if torch.get_num_threads() > most:  # which holds for the calling thread
            torch.set_num_threads(most)
        with torch.inference_mode():
            row: Row = module(torch.tensor([tokens.ids]), torch.tensor([tokens.types]))[0].numpy()
        return row

    return run


def _export(module: Any, samples: Sequence[Tokens], path: Path) -> None:
    """Write the module as ONNX under `path`, in the cheapest form that gives torch's numbers.

    The numbers are compared on `samples` of different lengths.

    Raises:
        Exception: no form works; whatever the last one raised.
    """
    from rerank.inference import onnx_export

    forms, reference = onnx_export.forms(module), _torch_runner(module)
    for form in forms:
        try:
            onnx_export.to_onnx(form, samples[0].ids, samples[0].types, path)
            exported = _onnx_runner(path)
            gap = max(float(np.abs(exported(t) - reference(t)).max()) for t in samples)
            if not gap <= TOLERANCE:
                raise ValueError(f"the exported model differs from torch by {gap:.2g}")
            return
        except Exception as error:
            path.unlink(missing_ok=True)
            if form is forms[-1] or isinstance(error, OSError):
                raise
            logger.info("exporting the whole model, not %s: %s", type(form).__name__, error)
