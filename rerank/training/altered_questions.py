"""Questions altered so that their passage no longer answers them.

A cross-encoder that has seen only wrong passages of other topics takes every passage on the topic
for an answer. The questions that teach it otherwise are made of answerable ones, as the people who
wrote SQuAD 2.0's unanswerable questions made theirs (Rajpurkar et al. 2018, table 1): by another
name or number, an antonym, or a negation. Gautam et al. 2023 make them by rule. Antonyms and
negations are English. A few altered questions still have their answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from rerank.data.words import STOP_WORDS

NAME = re.compile(r"\b[A-Z][\w-]*\w(?: (?:of |the |de |and )?[A-Z][\w-]*\w)*")
SENTENCE_START = re.compile(r"(?:^|[.!?:;\n\"“(])\s*\Z")
NUMBER = re.compile(r"\b\d+(?:[.,]\d+)*\b")
YEAR = re.compile(r"1\d{3}|20\d{2}")
YEARS_AWAY = (-20, -10, -5, -3, -2, 2, 3, 5, 10)
WORD = re.compile(r"\b[a-z]+\b")
# a passage that answers such a question also answers its opposite
SAME_OPPOSITE = re.compile(r"(?i)how (?:many|much)\b|(?:is|are|was|were|did|do|does|can)\b")
NEGATED = {"can": "can't", "will": "won't"} | {
    verb: f"{verb}n't"
    for verb in ("is", "are", "was", "were", "do", "does", "did", "has", "had", "could", "would")
}
PAIRS = """
after before|above below|accept reject|accepted rejected|active passive|add remove|added removed
allowed forbidden|always never|ancient modern|append prepend|ascending descending|attack defend
began ended|begin end|best worst|bigger smaller|biggest smallest|broad narrow|cause prevent
cheap expensive|cold hot|column row|columns rows|create delete|created deleted|decrease increase
decreased increased|deep shallow|disable enable|disabled enabled|earlier later|earliest latest
early late|east west|eastern western|encode decode|enter leave|even odd|exclude include
external internal|fail succeed|failed succeeded|false true|fast slow|faster slower|fastest slowest
female male|first last|gain lose|gained lost|global local|hard easy|heavier lighter|heavy light
hide show|high low|higher lower|highest lowest|horizontal vertical|import export|inside outside
install uninstall|join split|larger smaller|largest smallest|least most|less more|load save
lock unlock|longer shorter|longest shortest|maximum minimum|merge split|modern traditional
most fewest|new old|newest oldest|north south|northern southern|opened closed
opposed supported|oppose support|parallel serial|positive negative|private public|read write
rich poor|rise fall|rose fell|rural urban|safe dangerous|send receive|shrink grow|start stop
started stopped|strong weak|strongest weakest|thick thin|upper lower|upload download|weaker stronger
well badly|wet dry|win lose|with without|won lost|young old|youngest oldest
"""


def _antonyms() -> dict[str, list[str]]:
    """The antonyms of each word, from `PAIRS`."""
    antonyms: dict[str, list[str]] = {}
    for pair in PAIRS.replace("\n", "|").strip("|").split("|"):
        one, other = pair.split()
        antonyms.setdefault(one, []).append(other)
        antonyms.setdefault(other, []).append(one)
    return antonyms


ANTONYMS = _antonyms()
Rule = Callable[[str, str, random.Random], str | None]


def alter(question: str, passage: str, draw: random.Random) -> str | None:
    """The question with one change, after which the passage no longer answers it; or None.

    `passage` is the text that answers the question: the other name or number is one of its own, so
    that the altered question stays on its topic. None if no change fits, and sometimes instead of a
    rare one.
    """
    texts = [rule(question, passage, draw) for rule in RULES]
    weights = [weight if text else 0.0 for text, weight in zip(texts, RULES.values(), strict=True)]
    return draw.choices([*texts, None], [*weights, 1.0])[0]


def _other_name(question: str, passage: str, draw: random.Random) -> str | None:
    """A name of the question becomes another of the passage, which shares no word with it."""
    asked = _names(question)
    if not asked:
        return None
    name = draw.choice(asked)
    words = set(name[0].lower().split())
    others = {
        other[0]
        for other in _names(passage)
        if other[0].lower() not in question.lower()
        and words.isdisjoint(other[0].lower().split())
        and abs(len(other[0].split()) - len(words)) <= 1
        and other[0].isupper() == name[0].isupper()
    }
    return _replaced(question, name, draw.choice(sorted(others))) if others else None


def _names(text: str) -> list[re.Match[str]]:
    """Runs of capitalised words; one that begins a sentence only without a stop word before it."""
    names = []
    for found in NAME.finditer(text):
        name: re.Match[str] | None = found
        if SENTENCE_START.search(text, max(0, found.start() - 3), found.start()):
            first = found[0].split()[0]
            if first.lower() not in STOP_WORDS["english"]:
                continue
            name = NAME.search(text, found.start() + len(first), found.end())
        if name:
            names.append(name)
    return names


def _other_number(question: str, passage: str, draw: random.Random) -> str | None:
    """A number becomes another of the passage, of as many digits, or else one near it."""
    asked = list(NUMBER.finditer(question))
    if not asked:
        return None
    number = draw.choice(asked)
    digits = re.sub(r"\d", "0", number[0])
    in_passage = {m[0] for m in NUMBER.finditer(passage) if re.sub(r"\d", "0", m[0]) == digits}
    others = sorted(in_passage - {m[0] for m in asked})
    if others:
        return _replaced(question, number, draw.choice(others))
    if YEAR.fullmatch(number[0]):
        return _replaced(question, number, str(int(number[0]) + draw.choice(YEARS_AWAY)))
    if number[0].isascii() and number[0].isdecimal() and len(number[0]) < 6:
        return _replaced(question, number, str(int(number[0]) * draw.choice((2, 3)) + 1))
    return None


def _antonym(question: str, _passage: str, draw: random.Random) -> str | None:
    """A word becomes its antonym."""
    words = list(WORD.finditer(question))
    asked = {word[0] for word in words}
    found = [w for w in words if w[0] in ANTONYMS and asked.isdisjoint(ANTONYMS[w[0]])]
    if not found or SAME_OPPOSITE.match(question):
        return None
    word = draw.choice(found)
    return _replaced(question, word, draw.choice(ANTONYMS[word[0]]))


def _negated(question: str, _passage: str, _draw: random.Random) -> str | None:
    """Its first auxiliary verb is negated."""
    if SAME_OPPOSITE.match(question) or "n't" in question or " not " in question:
        return None
    verb = next((m for m in WORD.finditer(question) if m[0] in NEGATED), None)
    return _replaced(question, verb, NEGATED[verb[0]]) if verb else None


def _replaced(text: str, found: re.Match[str], by: str) -> str:
    return text[: found.start()] + by + text[found.end() :]


RULES: dict[Rule, float] = {  # how often each that fits is taken, beside 1 for none of them
    _other_name: 6.0,
    _other_number: 6.0,
    _antonym: 3.0,
    _negated: 0.7,
}
