"""The interface of answerers: one method that writes an answer from sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rerank.rag.answer.sources import Source


@dataclass(frozen=True, slots=True)
class Generated:
    """What an answerer wrote."""

    text: str  # sentences with citations such as [S1]
    calls: int  # of a language model, failed ones included
    cut_off: bool = False  # a language model reached its limit of tokens: the end is missing


class Answerer(Protocol):
    """Writes an answer to a question from its sources."""

    def generate(
        self, question: str, sources: Sequence[Source], *, note: str = "", strict: bool = False
    ) -> Generated:
        """The answer; `note` warns of weak context, `strict` asks to stay close to the sources."""
