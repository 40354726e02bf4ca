"""What judges an answer: a language model, any scorer of passages, or another calibrated model.

A judge gives one number for a question and its ranking. It knows nothing of labels and of files.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, Protocol

from rerank.advice.settings import LanguageModelConfig
from rerank.assessment.model import CalibratedReranker
from rerank.config import Config
from rerank.errors import InputError
from rerank.inference.cross_encoder import Reranker, open_reranker
from rerank.inference.model_files import find_model
from rerank.inference.remote.client import METER, THREADS, RemoteScorer
from rerank.inference.remote.wires import read_choice, read_predicates, read_questions
from rerank.inference.score_cache import ScoreCache
from rerank.rooms import offered
from rerank.storage.folder import MANIFEST
from rerank.types import Query, Ranking
from rerank.workspace import Workspace

PROMPT = (
    "You judge what a search has found. Does the passage answer the question? A passage that is "
    "about the same subject and does not hold the answer does not. Reply with one whole number "
    "from 0 to 100, and nothing else: how likely it is that the passage answers the question."
)
ASKED = "Question: {question}\n\nPassage: {passage}"
LIST = 10  # passages that a judge of lists reads
NUMBER = re.compile(r"\W*(\d{1,3}(?:\.\d+)?)\s*(?:%|/\s*100)?\W*")
WORD = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)
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
