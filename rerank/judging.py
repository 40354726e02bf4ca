"""What judges an answer, and its verdicts, kept beside the labels: nothing is asked twice.

A judge is a language model, any scorer of passages, or another calibrated model: it gives a number
for a question and its ranking. The file, in `judged/`, has a JSON object per line: the key of all
that was read, the question, the passage, the judge, the model as its server names it, the time, and
the number. A process that is killed loses at most the verdicts that were under way. Verdicts are no
labels: nothing here writes one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rerank.advice.settings import LanguageModelConfig
from rerank.assessment.model import CalibratedReranker
from rerank.commands.printing import counted, note
from rerank.config import Config
from rerank.data.checks import to_json
from rerank.errors import InputError, RerankError
from rerank.inference.cross_encoder import Reranker, open_reranker
from rerank.inference.model_files import find_model
from rerank.inference.remote.client import METER, THREADS, LimitError, RemoteScorer
from rerank.inference.remote.wires import read_choice, read_predicates, read_questions
from rerank.inference.score_cache import ScoreCache
from rerank.process import in_threads
from rerank.progress import in_chunks
from rerank.rooms import offered
from rerank.storage.files import appending, whole_lines
from rerank.storage.folder import MANIFEST, Workspace
from rerank.types import Assessment, Floats, Query, Ranking

PROMPT = (
    "You judge what a search has found. Does the passage answer the question? A passage that is "
    "about the same subject and does not hold the answer does not. Reply with one whole number "
    "from 0 to 100, and nothing else: how likely it is that the passage answers the question."
)
ASKED = "Question: {question}\n\nPassage: {passage}"
LIST = 10  # passages that a judge of lists reads
NUMBER = re.compile(r"\W*(\d{1,3}(?:\.\d+)?)\s*(?:%|/\s*100)?\W*")
WORD = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)
FOLDER = "judged"
YES = 0.5  # a probability from here is a yes
AT_ONCE = 32  # verdicts that are asked for before they are written
SHOWN = 3  # reasons that are told
PROBABILITIES = {read_questions, read_predicates, read_choice}  # wires whose scores are such


class BadVerdictError(ValueError):
    """A reply that is no verdict."""


class Judge(Protocol):
    """Gives a number for the top passage of a ranking: higher, if it rather answers."""

    name: str
    digest: str  # of the model and all that it is asked with: equal ones give equal verdicts
    threads: int  # calls at the same time
    reads: int  # passages of a ranking at most
    probability: bool  # whether the number is one; else it only ranks

    def ask(self, question: str, ranking: Ranking) -> tuple[float, str]:
        """The number, and what the server calls its model, if there is one."""


def open_judge(name: str, llm: LanguageModelConfig, work: Path) -> Judge:
    """The judge of a name (a scorer, or the folder of a calibrated model), or a language model.

    Raises:
        InputError: both or neither are named, or there is no such model.
    """
    if bool(name) == bool(llm.llm):
        raise InputError(
            "expected one judge: a model with --judge, or a language model with --llm and "
            f"--llm-model; got {'both' if name else 'neither'}"
        )
    if llm.llm:
        return ChatJudge(llm)
    if (Path(name) / MANIFEST).is_file():
        return ModelJudge(Path(name), work)
    return ScorerJudge(name, work)


class ChatJudge:
    """A language model behind an OpenAI-compatible endpoint, which replies with a number."""

    threads, reads, probability = THREADS, 1, True

    def __init__(self, config: LanguageModelConfig) -> None:
        self.name = f"{config.llm_model} at {config.place}"
        self.digest = _hash(config.place, config.llm_model, PROMPT, ASKED)
        count = lambda: METER.count(self.name)  # noqa: E731
        self.model: Any = offered("a language model")(config, before_each=count)

    def ask(self, question: str, ranking: Ranking) -> tuple[float, str]:
        """The number that it replies, as a probability."""
        asked = ASKED.format(question=question, passage=ranking.passages[0].full_text)
        messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": asked}]
        reply = self.model.ask(messages)
        return probability_of(reply.text), reply.served


class ScorerJudge:
    """Any reranker: a name of a model on this machine, or an address of one."""

    def __init__(self, name: str, work: Path) -> None:
        model, config = find_model(name, "reranker"), Config()
        cache = ScoreCache(Workspace(work).scores)
        self.reranker: Reranker = open_reranker(model, max_length=config.max_length, cache=cache)
        scorer, self.name = self.reranker.scorer, name
        self.client = scorer.client if isinstance(scorer, RemoteScorer) else None
        self.threads = THREADS if self.client else 1
        self.reads = LIST if self.reranker.listwise else 1
        wires = self.client.address.wires if self.client else ()
        self.probability = any(wire.read in PROBABILITIES for wire in wires)
        self.digest = _hash(name, scorer.traits.identity, model.fingerprint)

    def ask(self, question: str, ranking: Ranking) -> tuple[float, str]:
        """The score of the top passage."""
        texts = [p.full_text for p in ranking.passages[: self.reads]]
        scores, _ = self.reranker.score([(question, text) for text in texts])
        return float(scores[0]), self.client.served if self.client else ""


class ModelJudge:
    """Another calibrated model: the relevance that it gives the passage, among the others."""

    threads, reads, probability = 1, LIST, True

    def __init__(self, folder: Path, work: Path) -> None:
        cache = ScoreCache(Workspace(work).scores)
        self.model = CalibratedReranker.load(folder, cache=cache)
        self.name, self.digest = f"{folder} ({self.model.version})", _hash(self.model.version)

    def ask(self, question: str, ranking: Ranking) -> tuple[float, str]:
        """Its P(this passage is right)."""
        passages = tuple(ranking.passages[: self.reads])
        (found,) = self.model.assess([Query(question, passages=passages)])
        return {p.row: float(p.relevance) for p in found.passages}[0], ""


def probability_of(reply: str) -> float:
    """The probability of a reply: a number from 0 to 100 (0.9 is taken as 90), yes or no.

    Raises:
        BadVerdictError: it is something else.
    """
    if number := NUMBER.fullmatch(reply):
        value = float(number[1])
        share = value if "." in number[1] and value <= 1 else value / 100
        if share <= 1:
            return share
    elif word := WORD.match(reply):
        return float(word[1].lower() == "yes")
    raise BadVerdictError(f"it replies {' '.join(reply.split())[:60]!r}")


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


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
