"""A model with segments, and every way in by which a query tells its segment."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from coherence import check_coherent
from server import serving

from calibration.arrays import log_odds
from calibration.maps import LogisticMap
from rerank import CalibratedReranker
from rerank.assessment.model_folder import CALIBRATORS, bound_to
from rerank.batch.job import rescore
from rerank.batch.table import assess_table
from rerank.cli import main
from rerank.errors import InputError
from rerank.jobs.track import flavour
from rerank.storage.files import sha256_file
from rerank.storage.folder import with_digest
from rerank.types import MODES

Run = Any  # the session's run, see conftest
QUESTION = "sort an array along an axis"
TEXTS = ["Return a sorted copy of an array.", "Draw a histogram."]
SURER = LogisticMap((1.0,), 1.0, (0.0,), (1.0,))
SEGMENTS = [{"source": "faq"}, {"source": "unheard of"}, {}]
MOVES = [1.0, 0.0, 0.0]  # of the log odds
OF_ALL = "so the confidence is that of all queries"
UNFITTED = (
    None,
    f"nothing was fitted for source 'unheard of', {OF_ALL}",
    f"the query names no source, {OF_ALL}",
)


def check_reasons(found: Sequence[Sequence[str]]) -> None:
    """The first reason says if the segment was not fitted."""
    for why, unfitted in zip(found, UNFITTED, strict=True):
        assert why[0] == unfitted or (unfitted is None and OF_ALL not in " ".join(why))


@pytest.fixture(scope="module")
def folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The session's model, as if it had been calibrated with `--segment-by source`."""
    made = Path(shutil.copytree(run.folder, tmp_path_factory.mktemp("segments") / "model"))
    manifest = json.loads((made / "manifest.json").read_text())
    manifest["config"]["segment_by"] = "source"
    kept = json.loads((made / CALIBRATORS).read_text())
    kept["bound_to"] = bound_to(manifest["config"], manifest["fingerprints"])
    for mode in MODES:
        kept[mode]["segments"] = {"faq": SURER.to_dict()}
    (made / CALIBRATORS).write_text(json.dumps(kept))
    size = (made / CALIBRATORS).stat().st_size
    manifest["files"][CALIBRATORS] = {"sha256": sha256_file(made / CALIBRATORS), "size": size}
    (made / "manifest.json").write_text(json.dumps(with_digest(manifest)))
    return made


@pytest.fixture(scope="module")
def model(folder: Path) -> CalibratedReranker:
    return CalibratedReranker.load(folder)


def moves(confidences: list[float]) -> list[float]:
    """By how much the log odds of each lie above those of the last, which has no segment."""
    odds = log_odds(np.array(confidences))
    return np.round(odds - odds[-1], 9).tolist()


def test_both_modes_take_metadata(model: CalibratedReranker) -> None:
    """A segment of the model moves the confidence; another one, and none, does not."""
    searched = [model.search(QUESTION, metadata=m) for m in SEGMENTS]
    provided = [model.rerank(QUESTION, TEXTS, metadata=m) for m in SEGMENTS]
    for answers in (searched, provided):
        assert moves([answer.confidence for answer in answers]) == MOVES
        check_reasons([answer.reasons for answer in answers])
        for answer in answers:
            check_coherent(answer)


@pytest.mark.parametrize("given", [{}, {"passages": TEXTS}])
def test_rows_of_a_file_take_metadata(
    model: CalibratedReranker, given: dict[str, Any], tmp_path: Path
) -> None:
    """In a rescoring, with passages of their own or without."""
    rows = [
        {"_id": str(i), "text": QUESTION, "metadata": m, **given} for i, m in enumerate(SEGMENTS)
    ]
    queries, out = tmp_path / "queries.jsonl", tmp_path / "out.jsonl"
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert rescore(model, queries, out).answered == 3
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert moves([row["confidence"] for row in found]) == MOVES
    check_reasons([row["reasons"] for row in found])
    for row in found:
        check_coherent(row)


def test_a_column_of_a_table_is_the_segment(model: CalibratedReranker) -> None:
    """For MLflow's ways of running a model, whose signature knows the column."""
    column = ["faq", "unheard of", None]
    found = assess_table(model, {"query": [QUESTION] * 3, "source": column})
    assert moves(found["confidence"].tolist()) == MOVES
    for row in found.to_dict("records"):
        check_coherent(row)
    with pytest.raises(InputError, match="row 1: it has no id, and its number is the id of"):
        assess_table(model, {"query": [QUESTION] * 2, "query_id": [1, None]})
    assert list(flavour("source").inputs) == ["source", "query_id", "query", "passages"]
    assert list(flavour("").inputs) == ["query_id", "query", "passages"]


def test_the_command_takes_a_segment(
    folder: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """`search --segment`; a model without segments refuses it."""
    found = []
    for given in (["--segment", "faq"], []):
        assert main(["search", str(folder), QUESTION, "--json", *given]) == 0
        printed = capsys.readouterr()
        found.append(json.loads(printed.out)["confidence"])
        assert ("no source with --segment" in printed.err) == (not given)
    assert moves(found) == [1.0, 0.0]
    assert main(["search", str(run.folder), QUESTION, "--segment", "faq"]) == 2
    assert "has no segments" in capsys.readouterr().err


def test_requests_take_metadata(folder: Path) -> None:
    """Over HTTP, in both modes; no object is refused."""
    paths = {
        "/v1/search": {"question": QUESTION},
        "/v1/rerank": {"query": QUESTION, "documents": TEXTS},
    }
    with serving(folder) as started, httpx.Client(base_url=started.url, timeout=600) as client:
        for path, asked in paths.items():
            answers = [client.post(path, json={**asked, "metadata": m}) for m in SEGMENTS]
            assert moves([answer.json()["confidence"] for answer in answers]) == MOVES
            check_reasons([answer.json()["reasons"] for answer in answers])
            odd = client.post(path, json={**asked, "metadata": {"source": ["faq"]}}).json()
            assert "nothing was fitted for source \"['faq']\"" in odd["reasons"][0]
            assert client.post(path, json={**asked, "metadata": "faq"}).status_code == 422
        told = client.get("/v1/model").json()
        assert (told["segment_by"], told["segments"]) == ("source", ["faq"])
