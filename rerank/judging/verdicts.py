"""A judge's verdicts, kept in a file beside the labels: nothing is asked twice.

One JSON object per line, in `judged/`: the key of all that was read, the question, the passage, the
judge, the model as its server names it, the time, and the number. A process that is killed loses at
most the verdicts that were under way. Verdicts are no labels: nothing here writes one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from rerank.advice.settings import LanguageModelConfig
from rerank.commands.printing import counted, note
from rerank.cores import in_threads
from rerank.data.checks import to_json
from rerank.errors import InputError, RerankError
from rerank.inference.remote.client import LimitError
from rerank.judging.judges import BadVerdictError, Judge, open_judge
from rerank.progress import in_chunks
from rerank.storage.files import appending, whole_lines
from rerank.types import Assessment, Floats, Query

FOLDER = "judged"
YES = 0.5  # a probability from here is a yes
AT_ONCE = 32  # verdicts that are asked for before they are written
SHOWN = 3  # reasons that are told

Verdicts = Callable[[Sequence[Query], Sequence[Assessment]], tuple[str, Floats]]


def verdicts_of(name: str, llm: LanguageModelConfig, place: Path, work: Path) -> Verdicts:
    """What asks the judge about answers, and keeps its verdicts in `place`/judged.

    It gives the judge's name, and 1, 0 or NaN (n,) for the top passages: yes, no, or no verdict. A
    number that is no probability is a yes above the quantile at which as large a share says yes as
    the confidences expect to be right: no label is used.

    Raises:
        InputError: there is no such judge.
    """
    judge = open_judge(name, llm, work)

    def ask(queries: Sequence[Query], answers: Sequence[Assessment]) -> tuple[str, Floats]:
        found, failed = VerdictFile(place / FOLDER, judge).ask(queries, answers)
        if failed:
            why = "; ".join(f"{reason} ({n})" for reason, n in failed.most_common(SHOWN))
            note(f"{counted(failed.total(), 'question')} without a verdict of {judge.name}: {why}")
        return judge.name, says_yes(
            found, np.array([a.confidence for a in answers]), probability=judge.probability
        )

    return ask


def says_yes(numbers: Floats, confidence: Floats, *, probability: bool) -> Floats:
    """Whether numbers (n,) of a judge mean yes: 1 or 0; NaN stays."""
    known = ~np.isnan(numbers)
    if not known.any():
        return numbers
    expected = float(confidence[known].mean())
    cut = YES if probability else float(np.quantile(numbers[known], 1 - expected))
    return np.where(known, (numbers >= cut).astype(np.float64), np.nan)


class VerdictFile:
    """The file of a judge's verdicts in a folder; other processes wait while one asks."""

    def __init__(self, folder: Path, judge: Judge) -> None:
        self.judge = judge
        short = re.sub(r"[^\w.-]+", "-", judge.name)[:60].strip("-.")
        self.path = folder / f"{short}-{judge.digest[:8]}.jsonl"

    def ask(
        self, queries: Sequence[Query], answers: Sequence[Assessment]
    ) -> tuple[Floats, Counter[str]]:
        """The number of each answer (n,), NaN without a verdict, and why how many have none.

        Raises:
            RerankError: the judge answered none of some dozen questions, or more requests are not
                allowed; what it said before is kept.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        failed = Counter[str]()
        with appending(self.path) as (append, _):
            known = self._read()
            keys = [self._key(q, a) for q, a in zip(queries, answers, strict=True)]
            failed["the search finds no passage"] = keys.count("")
            asked = dict(zip(keys, zip(queries, answers, strict=True), strict=True))
            new = [(k, *both) for k, both in asked.items() if k and k not in known]

            def step(part: Sequence[tuple[str, Query, Assessment]]) -> list[Exception]:
                rows = in_threads(self._ask, part, self.judge.threads)
                said = [row for row in rows if isinstance(row, dict)]
                append(map(to_json, said))
                known.update({row["key"]: row["says"] for row in said})
                errors = [row for row in rows if not isinstance(row, dict)]
                ends: list[Exception] = [e for e in errors if isinstance(e, LimitError)]
                if not said and not all(isinstance(e, BadVerdictError) for e in errors):
                    ends += errors  # it does not answer at all
                if ends:
                    raise ends[0]
                return errors

            label = f"asking {self.judge.name}"
            for error in in_chunks(new, step, size=AT_ONCE, label=label, unit="question"):
                failed[str(error)] += 1
        return np.array([known.get(key, np.nan) for key in keys]), +failed

    def _ask(self, one: tuple[str, Query, Assessment]) -> dict[str, Any] | Exception:
        """The line of a verdict, or why there is none."""
        key, query, answer = one
        try:
            number, served = self.judge.ask(query.text, answer.ranking)
        except (BadVerdictError, RerankError) as error:
            return error
        return {
            "key": key,
            "question": query.text,
            "doc_id": answer.ranking.doc_ids[0],
            "judge": self.judge.name,
            "model": served,
            "digest": self.judge.digest,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "says": number,
            "probability": self.judge.probability,
        }

    def _key(self, query: Query, answer: Assessment) -> str:
        """A hash of the judge and of all texts that it may read; "" if there is no passage."""
        texts = [p.full_text for p in answer.ranking.passages[: self.judge.reads]]
        read = [self.judge.digest, query.text, *texts]
        return hashlib.sha256(json.dumps(read).encode()).hexdigest() if texts else ""

    def _read(self) -> dict[str, float]:
        """The verdicts by key."""
        try:
            rows = [json.loads(line) for line in whole_lines(self.path)]
            return {str(row["key"]): float(row["says"]) for row in rows}
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{self.path}: holds something else than verdicts; remove it"
            ) from None
