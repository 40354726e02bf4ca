"""One run of the whole job: stopped, and run again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.fitting.plan import Plan, plan
from rerank.inference.cross_encoder import CrossEncoder
from rerank.inference.model_files import resolve, trained_on
from rerank.jobs.calibrate import CalibrationRun, calibrate
from rerank.protocols import Request


@dataclass(frozen=True)
class Interrupted:
    """What an interrupted calibration left, and what the second one still had to score."""

    left_behind: tuple[str, ...]  # names beside and under the model folder's name
    pairs_first: int  # pairs that the interrupted run scored
    pairs_second: int  # pairs that the run after it scored


@dataclass(frozen=True)
class Run:
    """A finished calibration of the small set."""

    outcome: CalibrationRun
    plan: Plan
    work: Path
    interrupted: Interrupted

    @property
    def folder(self) -> Path:
        """The model folder."""
        return self.outcome.folder


def interrupted_run(small: LabelledSet, config: Config, work: Path) -> Run:
    """The job, stopped as by Ctrl-C when its second chunk is scored, and then run again."""
    counted: list[int] = []
    original = CrossEncoder.score

    def counting(self: CrossEncoder, requests: Sequence[Request]) -> Any:
        counted.append(sum(len(texts) for _, texts in requests))
        return original(self, requests)

    def stopping(self: CrossEncoder, requests: Sequence[Request]) -> Any:
        if counted:
            raise KeyboardInterrupt
        return counting(self, requests)

    out = work / "models" / "small"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CrossEncoder, "score", stopping)
        with pytest.raises(KeyboardInterrupt):
            calibrate(small, out, config, work=work)
        left = tuple(p.name for p in out.parent.iterdir()) if out.parent.exists() else ()
        first = sum(counted)
        patch.setattr(CrossEncoder, "score", counting)
        outcome = calibrate(small, out, config, work=work)
    reranker = resolve(config.reranker)
    planned = plan(small, trained_hashes=trained_on(reranker), max_queries=None, seed=config.seed)
    return Run(outcome, planned, work, Interrupted(left, first, sum(counted) - first))
