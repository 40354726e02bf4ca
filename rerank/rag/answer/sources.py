"""The sources of an answer, S1, S2, ..., and the text that shows them to a language model.

Retrieved text is data. A prompt injection, a sentence of it that gives orders to a model or its
reader, is neither shown to a model nor taken as evidence. Patterns find only the usual forms: the
attribution check is the second line of defence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rerank.config import two_digits
from rerank.rag.answer.sentences import END, without_controls
from rerank.retrieval.corpus import Place, place_of
from rerank.types import RankedPassage

LEFT_OUT = "[an instruction to the reader was left out here]"
ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})
ORDER = re.compile(
    r"\b(ignore|disregard|forget|override|bypass)\b.{0,60}\b(instructions?|prompts?|rules|context|"
    r"guidelines|above|previous|sources)\b"
    r"|\b(system|developer) (prompt|message|instructions?)\b"
    r"|\b(you are|act as|pretend to be|behave as) (now |an? )?(an? )?(unrestricted|different|"
    r"jailbroken|DAN|AI|assistant|language model|chatbot)\b"
    r"|(^|[.!?:;]\s*|\b(please|must|now|then|always|and|only) )"
    r"(answer|respond|reply|say|output|write)( only| exactly| simply)? (with )?(only |exactly )?"
    r"(the (word|following)\b|[\"'“][^\"'”]*[\"'”]|(?-i:[A-Z]{4,}))"
    r"|\bnew instructions?\b"
    r"|\b(AI|assistants?|language models?|chatbots?|LLMs?)\b (reading this )?(must|should|shall)\b"
    r"|^\s*(system|assistant)\s*:",
    re.IGNORECASE | re.MULTILINE,
)


ADDRESS = (  # outside of the documents: a URL, a host, an e-mail address or a phone number
    r"(?:\w+://\S+|\bwww\.\S+|\S+@\S+\.\w+|\+?\d(?:[ ()-]{0,2}\d){6,}"
    r"|\b[\w-]+(?:\.[\w-]+)*\.(?:com|net|org|info|io|co|ru|cn|xyz|top|site|online|shop|app|link|"
    r"click|live|example|test|de|fr|uk|eu)\b)"
)
SECRET = (
    r"\b(?:pass(?:word|code|phrase)s?|pins?|credentials?|log-?ins?|cvv|seed phrases?"
    r"|(?:card|account|social security) (?:number|details?)s?|recovery (?:codes?|phrases?)"
    r"|(?:api|private|secret) keys?|access tokens?|(?:one-time|verification|security) codes?)\b"
)
GO = (
    r"\b(?:visit|go to|open|click|follow|download|run|install|call|dial|text|e-?mail|write to"
    r"|contact|message|transfer|pay|send|forward|upload|log ?in|sign ?in|register)\b"
)
TELL = (
    r"\b(?:enter|type|send|give|provide|submit|confirm|verify|share|paste|tell|reply|fill in"
    r"|mail)\b"
)
TO_READER = re.compile(
    f"{GO}.{{0,80}}?{ADDRESS}|{TELL}.{{0,60}}?{SECRET}", re.IGNORECASE | re.DOTALL
)
ASKED_FOR = re.compile(
    rf"{ADDRESS}|{SECRET}|\b(?:where|url|links?|web ?sites?|sites?|pages?|address(?:es)?|e-?mails?|"
    r"phone|telephone|contact|call|download|install|log ?in|sign ?(?:in|up)|register|pay)\b",
    re.IGNORECASE,
)


def leads_away(sentence: str, question: str) -> bool:
    """Whether a sentence sends its reader to an address, or asks for a secret, unasked.

    `question` asks for it if it names one, or says where, link, download, contact and the like.
    """
    return TO_READER.search(sentence) is not None and ASKED_FOR.search(question) is None


def gives_order(sentence: str) -> bool:
    """Whether a sentence reads as an order to a language model, in one line or wrapped."""
    return any(ORDER.search(text) for text in (sentence, " ".join(sentence.split())))


def without_orders(text: str, *, mark: str = LEFT_OUT) -> str:
    """The text with each sentence that gives an order replaced by `mark`."""
    kept, start = [], 0
    for end in [*END.finditer(text), None]:
        sentence = text[start : end.start() if end else len(text)]
        kept.append(mark if gives_order(sentence) else sentence)
        if end:
            kept.append(end[0])
            start = end.end()
    return "".join(kept)


@dataclass(frozen=True, slots=True)
class Source:
    """A passage that an answer may cite."""

    id: str  # S1, S2, ...
    passage: RankedPassage
    place: Place
    evidence: str = field(init=False, repr=False)  # see `evidence_of`

    def __post_init__(self) -> None:
        object.__setattr__(self, "evidence", evidence_of(self.passage.title, self.passage.text))

    def line(self) -> str:
        """Its line below an answer: `- Document, Section/Page (score: 0.83)`."""
        place = ", ".join(filter(None, (self.place.document, self.place.within)))
        return f"- {place} (score: {two_digits(self.passage.relevance)})"

    def to_dict(self, quote: str) -> dict[str, Any]:
        """Plain JSON values; `quote` is the sentence that supports the answer."""
        named = {"id": self.id, "doc_id": self.passage.doc_id, **asdict(self.place)}
        return {**named, "score": self.passage.relevance, "quote": quote}


def evidence_of(title: str, text: str) -> str:
    """The title and text of a passage, without orders to a language model and control signs."""
    return without_orders(without_controls(f"{title}.\n{text}" if title else text), mark="")


def sources_of(passages: Sequence[RankedPassage]) -> list[Source]:
    """The passages as sources S1, S2, ..., in their order."""
    return [Source(f"S{i}", p, place_of(p)) for i, p in enumerate(passages, start=1)]


def context(sources: Sequence[Source], note: str = "") -> str:
    """The sources as a language model sees them, each within a tag that its text cannot close."""
    blocks = [
        f'<source id="{s.id}" document="{_shown(s.place.document)}" '
        f'place="{_shown(s.place.within)}" score="{two_digits(s.passage.relevance)}">\n'
        f"{_shown(s.passage.text)}\n</source>"
        for s in sources
    ]
    return "\n\n".join(filter(None, (note, *blocks)))


def _shown(text: str) -> str:
    return without_orders(text).translate(ENTITIES)
