"""What reads bytes from outside, by name, each with a few whole inputs to begin with.

`fuzz.py` mutates them; `corpus/` holds inputs that once were read wrongly, or might be.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Collection
from pathlib import Path

from pydantic import ValidationError

from calibration import LogisticMap, TwoStageMap, certify
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.passage_features import PASSAGE_FEATURES
from rerank.assessment.pipeline import ReadPolicy
from rerank.assessment.ranking_features import RANKING_FEATURES
from rerank.assessment.relevance import INPUTS
from rerank.batch.input import open_input
from rerank.config import Config
from rerank.data.beir import read_queries
from rerank.data.feedback import read_feedback
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.serving.requests import AssessRequest, RerankRequest, SearchRequest
from rerank.serving.settings import Settings

READS = Callable[[Path, bytes], object]
PARTS = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv", "splits/test.txt")
ROW = b'{"_id": "1", "text": "one two", "metadata": {"group": "g"}}\n'
GIVEN = b'{"_id": 2, "text": "x", "passages": ["a", {"doc_id": "d", "text": "b", "logit": 1.5}]}\n'
BODIES = [
    b'{"query": "x", "top_n": 3, "metadata": {"language": "fr"}}',
    b'{"query": "x", "documents": ["a", {"text": "b", "title": "c"}], "rank_fields": ["text"]}',
    b'{"query": "x", "documents": ["a"], "scores": [-3.5], "reranker": "0"}',
]


def _rescored(path: Path) -> None:
    for chunk in open_input(path).chunks(0):
        list(chunk.rows)


def _written(read: Callable[[Path], object], ending: str) -> READS:
    def run(place: Path, data: bytes) -> None:
        path = place / f"input{ending}"
        path.write_bytes(data)
        read(path)

    return run


def _set(place: Path, data: bytes) -> None:
    parts = data.split(b"\x00")[: len(PARTS)]
    for name, part in zip(PARTS, parts + [b""] * (len(PARTS) - len(parts)), strict=True):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(part)
    LabelledSet.read(place)


def _json(read: Callable[[object], object]) -> READS:
    def run(_: Path, data: bytes) -> None:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return
        read(value)

    return run


def _config(value: object) -> None:
    if isinstance(value, dict):
        Config.from_dict(value)


def _body(_: Path, data: bytes) -> None:
    for schema in (SearchRequest, RerankRequest, AssessRequest):
        try:
            asked = schema.model_validate_json(data)
        except ValidationError:
            continue
        asked.to_query(Settings())


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    passages = [["a"], ["b", "c"]]
    rows = {"_id": ["1", "2"], "text": ["one", "two"], "passages": passages}
    pq.write_table(pa.table({**rows, "metadata": [{"kind": "x"}, {"kind": None}]}), out)
    return out.getvalue()


def _maps() -> bytes:
    """The maps of a mode, all of zeros."""

    def flat(inputs: Collection[str]) -> LogisticMap:
        ones = (1.0,) * len(inputs)
        return LogisticMap((0.0,) * len(ones), 0.0, ones, ones)

    confidence = TwoStageMap(flat(RANKING_FEATURES), LogisticMap((1.0,), 0.0, (0.0,), (1.0,)))
    certificate = certify([1] * 40, [0.9] * 40)
    policy = ReadPolicy(flat(PASSAGE_FEATURES), 0.1)
    maps = FittedMaps(
        policy, flat(PASSAGE_FEATURES), confidence, flat(INPUTS), flat(INPUTS), certificate
    )
    return json.dumps(maps.to_dict()).encode()


READERS: dict[str, tuple[READS, list[bytes]]] = {
    "queries": (_written(read_queries, ".jsonl"), [ROW]),
    "rescore, JSONL": (_written(_rescored, ".jsonl"), [ROW, GIVEN]),
    "rescore, Parquet": (_written(_rescored, ".parquet"), [_parquet()]),
    "labelled set": (_set, [b"\x00".join([ROW, ROW, b"1\t1\t1\n", b"1\n"])]),
    "feedback": (_written(read_feedback, ".jsonl"), [b'{"query": "x", "right": true}\n']),
    "calibrators": (_json(FittedMaps.from_dict), [_maps()]),
    "configuration": (_json(_config), [json.dumps(Config().to_dict()).encode()]),
    "schemas of HTTP": (_body, BODIES),
}


def read(name: str, place: Path, data: bytes) -> None:
    """Let a reader read the bytes, in a folder of its own, or refuse them with a sentence.

    Raises:
        RuntimeError: it refused them without one.
        Exception: whatever the reader raises besides.
    """
    try:
        READERS[name][0](place, data)
    except InputError as error:
        if not str(error):
            raise RuntimeError("refused without a sentence") from error
