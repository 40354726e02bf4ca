"""Model folders of version 0.1: read under today's names, with the numbers that they hold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from coherence import check_coherent

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import bound_to
from rerank.assessment.relevance import INPUTS
from rerank.inference.score_cache import ScoreCache
from rerank.storage.folder import sealed, sha256_file
from rerank.types import Assessment, Query
from rerank.workspace import Workspace

Run = Any  # the session's run, see conftest

# what version 0.1 called it, as its own folders have it
MODES = {"search": "found", "rerank": "given"}
MAPS = {
    "passage_features": "evidence",
    "ranking_features": "features",
    "cutoff": "floor",
    "segments": "kinds",
    "score": "relevance",
}
FEATURES = {
    "unscored": "unread",
    "passages_scored": "passages_read",
    "top_score": "top_relevance",
    "score_margin": "relevance_margin",
    "score_none": "relevance_none",
    "score_share": "relevance_share",
}
HAZARD = ("score_log_odds", "confidence_log_odds", "log_rank")
CERTIFICATE = ("threshold", "target", "level", "queries", "accepted", "right", "labels_needed")


def old_maps(maps: dict[str, Any]) -> dict[str, Any]:
    """The maps of a mode as version 0.1 wrote them."""
    old = {MAPS.get(key, key): value for key, value in maps.items()}
    for names in ("evidence", "features"):
        old[names] = [FEATURES.get(name, name) for name in old[names]]
    hazard = old["hazard"]
    del old["another"]
    for key in ("coef", "mean", "scale", "low", "high"):
        hazard[key] = [hazard[key][INPUTS.index(name)] for name in HAZARD]
    old["certificate"] = {key: old["certificate"][key] for key in CERTIFICATE}
    return old


def rewrite(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


@pytest.fixture(scope="module")
def old(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The session's model, as if version 0.1 had written it."""
    folder = Path(shutil.copytree(run.folder, tmp_path_factory.mktemp("old") / "model"))
    manifest = json.loads((folder / "manifest.json").read_text())
    config = manifest["config"]
    config["correct_by"] = config.pop("segment_by")
    bound = bound_to(config, manifest["fingerprints"])
    rewrite(
        folder / "calibrators.json",
        lambda kept: {
            "bound_to": bound,
            **{name: old_maps(kept[mode]) for mode, name in MODES.items()},
        },
    )
    rewrite(
        folder / "sketch.json",
        lambda kept: (
            kept
            | {
                "features": [
                    f | {"name": FEATURES.get(f["name"], f["name"])} for f in kept["features"]
                ]
            }
        ),
    )
    rewrite(folder / "index/manifest.json", lambda kept: sealed(kept | {"format_version": 2}))
    for name in ("calibrators.json", "sketch.json", "index/manifest.json"):
        path = folder / name
        entry = {"sha256": sha256_file(path), "size": path.stat().st_size}
        manifest["files"][name] = entry
    (folder / "manifest.json").write_text(json.dumps(sealed(manifest | {"format_version": 2})))
    return folder


def without_relevance(found: Assessment) -> dict[str, Any]:
    """What version 0.1 said, less relevance and sufficiency, which did not agree then."""
    kept = found.to_dict()
    ranking = [{**p, "relevance": None} for p in kept["ranking"]]
    return {k: v for k, v in kept.items() if k[:3] not in ("suf", "ver")} | {"ranking": ranking}


def test_an_old_folder_gives_the_same_predictions(run: Run, old: Path) -> None:
    """In both modes, to the last bit, and relevance agrees with them; nothing is rewritten."""
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    queries = list(run.plan.report.items[:8])
    (found, *_) = CalibratedReranker.load(run.folder).assess(queries[:1])
    queries.append(Query(queries[0].text, "own", passages=found.ranking.passages[:5]))
    first, second = (
        CalibratedReranker.load(path, cache=ScoreCache(Workspace(run.work).scores)).assess(queries)
        for path in (run.folder, old)
    )
    assert list(map(without_relevance, second)) == list(map(without_relevance, first))
    for found in second:
        check_coherent(found)
    assert before == {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}


def test_an_old_folder_has_its_sketch_and_queries(run: Run, old: Path) -> None:
    """The drift alarm and the exclusion of fitted queries work with it as before."""
    kept, found = CalibratedReranker.load(run.folder), CalibratedReranker.load(old)
    assert found.sketch == kept.sketch
    assert found.fitted_on == kept.fitted_on
    assert found.segment_by == kept.segment_by


def test_an_old_folder_that_was_changed_is_refused(old: Path, tmp_path: Path) -> None:
    """Old maps too are bound to the configuration and the models that they were fitted with."""
    folder = Path(shutil.copytree(old, tmp_path / "model"))
    rewrite(
        folder / "manifest.json",
        lambda m: sealed(m | {"config": m["config"] | {"rank_by": "fused"}}),
    )
    with pytest.raises(ValueError, match="fitted with another configuration"):
        CalibratedReranker.load(folder)
