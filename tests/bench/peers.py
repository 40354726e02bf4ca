"""Other libraries that score pairs of texts, each an optional install.

A peer that is not installed, or fails to load, is named in one line on stderr and left out. Each
has the same weights, cuts at the same length, runs in the number of threads it is given,
and gives raw logits. This file knows nothing of rerank.

The backends of sentence-transformers need older versions of its libraries than ours, so they live
in an environment of their own and score in a process of its Python, over a pipe: what

    ENVIRONMENT/bin/python tests/bench/peers.py BACKEND FOLDER MAX_LENGTH THREADS

does. A line of JSON in, a line out: a list of pairs, a list of logits.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from ratios import first_line, leave_out, versions

Pairs = Sequence[tuple[str, str]]
Way = Callable[[Pairs], np.ndarray]
ENVIRONMENT = Path("work/peers")
BACKENDS = {  # of sentence-transformers, with the packages that make its speed
    "onnx": ["sentence-transformers", "transformers", "optimum-onnx", "onnxruntime"],
    "openvino": ["sentence-transformers", "transformers", "optimum-intel", "openvino"],
}
REQUIREMENT = "'sentence-transformers[onnx,openvino]<6'"
FLASHRANK = (
    "ms-marco-TinyBERT-L-2-v2",
    "flashrank-TinyBERT-L-2-v2.onnx",
)  # a folder and file of it


@dataclass(frozen=True, slots=True)
class Peer:
    """A way to score pairs, and the versions of what does it."""

    score: Way
    versions: str


@contextmanager
def scorers(
    folder: Path, *, max_length: int, threads: int, environment: Path
) -> Iterator[dict[str, Peer]]:
    """The peers that can score with the model of `folder`, by name, for as long as it is open.

    What they export goes to temporary folders.
    """
    found: dict[str, Peer] = {}
    with ExitStack() as stack:
        kept = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ways: dict[str, Callable[[], Peer]] = {
            f"`predict`, {backend} backend": partial(
                _backend, stack, environment, [backend, str(folder), str(max_length), str(threads)]
            )
            for backend in BACKENDS
        }
        ways["FlashRank's runtime"] = partial(_flashrank, kept, folder, max_length, threads)
        for name, open_peer in ways.items():
            try:
                found[name] = open_peer()
            except Exception as error:  # a library that is not ours fails in its own ways
                leave_out(name, first_line(error))
        yield found


def _backend(stack: ExitStack, environment: Path, arguments: list[str]) -> Peer:
    """`CrossEncoder(backend=...).predict` with its defaults, in a process of the environment."""
    python = environment / "bin" / "python"
    install = f"python3 -m venv {environment} && {python} -m pip install {REQUIREMENT}"
    if not python.exists():
        raise ModuleNotFoundError(f"not installed: {install}")
    process = stack.enter_context(
        subprocess.Popen(
            [python, __file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    )
    assert process.stdin is not None
    assert process.stdout is not None
    questions, answers = process.stdin, process.stdout

    def answer() -> Any:
        line = answers.readline()
        if not line:
            raise RuntimeError(f"its process ended with status {process.wait()}; {install}")
        return json.loads(line)

    def score(pairs: Pairs) -> np.ndarray:
        questions.write(json.dumps(pairs) + "\n")
        questions.flush()
        return np.array(answer())

    greeting = answer()
    if "failed" in greeting:
        raise RuntimeError(greeting["failed"])
    return Peer(score, greeting["versions"])


def serve(backend: str, folder: str, max_length: int, threads: int) -> None:
    """The other end of `_backend`: say whether the model loaded, then answer until it closes."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    try:
        predict = _predict(backend, folder, max_length, threads)
    except Exception as error:
        print(json.dumps({"failed": first_line(error)}), file=answers)
        return
    print(json.dumps({"versions": versions(BACKENDS[backend])}), file=answers)
    for line in sys.stdin:
        print(json.dumps(predict(json.loads(line)).tolist()), file=answers)


def _predict(backend: str, folder: str, max_length: int, threads: int) -> Way:
    import torch
    from sentence_transformers import CrossEncoder

    torch.set_num_threads(threads)
    settings: dict[str, Any] = {"ov_config": {"INFERENCE_NUM_THREADS": threads}}
    if backend == "onnx":
        settings = {"session_options": _session_options(threads)}
    model = CrossEncoder(
        folder, max_length=max_length, device="cpu", backend=backend, model_kwargs=settings
    )
    identity = torch.nn.Identity()
    return lambda pairs: model.predict(pairs, activation_fn=identity, show_progress_bar=False)


def _session_options(threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return options


def _flashrank(kept: Path, folder: Path, max_length: int, threads: int) -> Peer:
    """FlashRank's `Ranker` with our weights under the names of one of its own models, in `kept`.

    It pads the passages of a query to one batch. Its sigmoid, in single precision, is undone.
    """
    if find_spec("flashrank") is None:
        raise ModuleNotFoundError("not installed: pip install FlashRank")
    import onnxruntime
    from flashrank import Ranker, RerankRequest

    name, file = FLASHRANK
    shutil.copytree(folder, kept / name)
    export_padded(folder, kept / name / file)
    ranker = Ranker(name, cache_dir=str(kept), max_length=max_length, log_level="WARNING")
    ranker.session = onnxruntime.InferenceSession(kept / name / file, _session_options(threads))

    def score(pairs: Pairs) -> np.ndarray:
        scored: list[dict[str, Any]] = []
        for query, group in groupby(pairs, key=lambda pair: pair[0]):
            passages = [{"text": text} for _, text in group]
            scored += passages
            ranker.rerank(RerankRequest(query, list(passages)))  # sorts the list it is given
        p = np.array([passage["score"] for passage in scored], dtype=np.float64)
        return np.log(p / (1 - p))

    return Peer(score, versions(["FlashRank", "onnxruntime"]))


def export_padded(folder: Path, path: Path) -> None:
    """Write the model as ONNX under `path`, for padded batches, as FlashRank's own files are."""
    import torch
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(str(folder), return_dict=False)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    sample = tuple(torch.ones((2, 8), dtype=torch.long) for _ in names)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(),
            sample,
            str(path),
            input_names=names,
            output_names=["logits"],
            dynamic_axes={name: {0: "pairs", 1: "length"} for name in names},
            opset_version=17,
            dynamo=False,
        )


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
