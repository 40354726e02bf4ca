"""What `precision` auto chooses, and that a model keeps it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.inference.model_files import find_model
from rerank.jobs import automatic
from rerank.jobs.automatic import with_precision
from rerank.jobs.calibrate import calibrate
from rerank.storage.folder import read_manifest


@pytest.mark.parametrize(
    ("rates", "chosen"),
    [((95, 80, 100), "fp32"), ((50, 95, 100), "bf16"), ((50, 60, 100), "int8")],
)
def test_the_one_that_rounds_least_of_the_fastest_is_taken(
    rates: tuple[float, ...], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a tenth of the fastest."""
    of = dict(zip(("fp32", "bf16", "int8"), rates, strict=True))
    monkeypatch.setattr(automatic, "_pairs_a_second", lambda config, _: of[config.precision])
    model = find_model("minilm-reranker-small", "reranker")
    assert with_precision(Config(precision="auto"), model).precision == chosen
    assert with_precision(Config(precision="fp32"), model).precision == "fp32"


def test_a_model_keeps_what_was_chosen(
    small: LabelledSet,
    config: Config,
    work: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Measured once with the real networks; again, `calibrate` finds the model as it is."""
    monkeypatch.setattr(automatic, "SECONDS", 0.3)
    to_choose = replace(config, precision="auto")
    out = tmp_path / "model"
    assert calibrate(small, out, to_choose, work=work).made
    chosen = read_manifest(out)["config"]["precision"]
    assert chosen in ("fp32", "bf16", "int8")
    monkeypatch.setattr("rerank.jobs.pipelines.with_precision", lambda config, _: config)
    assert not calibrate(small, out, to_choose, work=work).made
    assert read_manifest(out)["config"]["precision"] == chosen
