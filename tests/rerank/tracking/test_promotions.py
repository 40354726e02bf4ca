"""Two promotions at once, and one that breaks between its two aliases: all or nothing."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from rerank.errors import MovedError, TrackingError
from rerank.storage.folder import Workspace, sqlite_url
from rerank.tracking.registry import BEST, CHAMPION, aliases, set_champion
from rerank.tracking.runs import RunRecord, log_run

NAME = "a model"


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return Workspace(tmp_path).tracking_uri


@pytest.fixture
def runs(tmp_path: Path, uri: str) -> list[str]:
    """Three runs that each registered a version; the first is the champion."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("some")
    record = RunRecord(folder=tmp_path / "folder", registered_name=NAME)
    ids = [
        log_run(
            record,
            experiment="e",
            run_name=f"r{i}",
            tracking_uri=uri,
            artifact_location=(tmp_path / "files").as_uri(),
        ).run_id
        for i in range(3)
    ]
    set_champion(NAME, ids[0], tracking_uri=uri)
    return ids


def promoted(run_id: str, uri: str, barrier: Any, outcomes: Any) -> None:
    """Read the aliases; when all have, set them."""
    before = aliases(NAME, tracking_uri=uri)
    barrier.wait()
    try:
        outcomes.put(set_champion(NAME, run_id, before=before, tracking_uri=uri))
    except MovedError as error:
        outcomes.put(error.exit_code)


def test_of_two_promotions_at_once_one_is_refused(runs: list[str], uri: str) -> None:
    """Both measured against the same champion; the second would replace one it never met."""
    spawned = multiprocessing.get_context("spawn")
    barrier, outcomes = spawned.Barrier(2), spawned.Queue()
    both = [
        spawned.Process(target=promoted, args=(run, uri, barrier, outcomes)) for run in runs[1:]
    ]
    for process in both:
        process.start()
    found = [outcomes.get(timeout=600) for _ in both]
    for process in both:
        process.join()
    (version,) = (outcome for outcome in found if outcome != TrackingError.exit_code)
    assert version in ("2", "3")
    assert found.count(TrackingError.exit_code) == 1
    assert aliases(NAME, tracking_uri=uri) == {CHAMPION: version, BEST: version}


def test_promotions_by_a_link_to_the_database_wait_as_others(
    runs: list[str], uri: str, tmp_path: Path
) -> None:
    """There is one lock, beside the file itself."""
    link = tmp_path / "linked" / "mlflow.db"
    link.parent.mkdir()
    link.symlink_to(Workspace(tmp_path).database)
    assert set_champion(NAME, runs[1], tracking_uri=sqlite_url(link)) == "2"
    assert list(link.parent.iterdir()) == [link]


@pytest.mark.parametrize("first", [True, False])
def test_both_aliases_are_set_or_none(
    runs: list[str], uri: str, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the second cannot be set, the first is put back, or removed if there was none."""
    if first:
        for alias in (CHAMPION, BEST):
            MlflowClient(tracking_uri=uri).delete_registered_model_alias(NAME, alias)
    before = aliases(NAME, tracking_uri=uri)
    assert before == ({} if first else {CHAMPION: "1", BEST: "1"})
    set_alias: Callable[..., None] = MlflowClient.set_registered_model_alias

    def breaking(self: MlflowClient, name: str, alias: str, version: str) -> None:
        if alias == BEST:
            raise ConnectionError("gone")
        set_alias(self, name, alias, version)

    monkeypatch.setattr(MlflowClient, "set_registered_model_alias", breaking)
    with pytest.raises(TrackingError, match="gone"):
        set_champion(NAME, runs[1], tracking_uri=uri)
    assert aliases(NAME, tracking_uri=uri) == before
