"""Finds prompt injections: sentences of retrieved text that give orders to a language model.

Retrieved text is data. Such a sentence is neither shown to a model nor taken as evidence. Patterns
find only the usual forms: the attribution check is the second line of defence.
"""

from __future__ import annotations

import re

from rerank.rag.answer.sentences import END

LEFT_OUT = "[an instruction to the reader was left out here]"
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


def gives_order(sentence: str) -> bool:
    """Whether a sentence reads as an order to a language model, in one line or wrapped."""
    return any(ORDER.search(text) for text in (sentence, " ".join(sentence.split())))


def without_orders(text: str, *, mark: str = LEFT_OUT) -> str:
    """The text with each sentence that gives an order replaced by `mark`."""
    found, start = [], 0
    for end in [*END.finditer(text), None]:
        sentence = text[start : end.start() if end else len(text)]
        found.append(mark if gives_order(sentence) else sentence)
        if end:
            found.append(end[0])
            start = end.end()
    return "".join(found)
