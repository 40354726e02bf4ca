"""How the words of an English text stand to each other: limits, hedges, causes, agents, order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import combinations, islice, pairwise, product, takewhile
from typing import NamedTuple

from rerank.data.words import STOP_WORDS, Lexicon, words

# what says the same between the same commas; first, what has words of its own behind it
BEFORE_OTHERS = """
above, after, because, before, below beneath, between, by, except, from, if when whenever,
into, over, since, through, to, under, unless, unlike, until, with, without
"""
BESIDE_OTHERS = """
all every each, allegedly supposedly purportedly reportedly presumably apparently,
almost nearly virtually practically, always invariably constantly,
can could may might possibly perhaps maybe, few, hardly barely scarcely, least, less fewer,
many numerous, more, most, must shall, off, only, or, out, rarely seldom infrequently, same, should,
so, some several, sometimes occasionally, than, thru, times,
usually often typically generally normally frequently commonly mostly, won
"""
# may not be left out before a word that stays; nor, like others, be put before one
LIMITING = """
allegedly almost can except few hardly least most must off only or out over rarely should some
sometimes thru times under unless unlike until usually
"""
BINDING = f"above after all always because before below from if since so than to {LIMITING}"
AROUND, PARTICLES = "or thru", "off out"  # bind words on both sides, or the one before
PHRASES: dict[str, str] = {  # in their one form
    r"\b(?:(?:has|have|had|needs?)|(?:is|are|was|were|be) (?:required|obliged)) to\b": "must",
    r"\b(?:is|are|was|were|be) (?:able|allowed|permitted) to\b": "can",
    r"\bought to\b": "should",
    r"\bpermitted\b": "allowed",
    r"\b(?:every|any)(?:one|body)\b": "all people",
    r"\bnobody\b": "no one",
    r"\b(the|this|that|another) (\w+ )?ones?\b": r"\1 \2",
    r"\b(every|all|each|any|none|no)\b([^,.;]{0,20}) but (?=(?-i:[A-Z])|the\b)": r"\1\2 except ",
    r"\b(?:instead of|rather than|as opposed to|(?:in contrast|compared) (?:to|with))\b": "unlike",
    r"\b(?:provid(?:ed|ing) that|as long as)\b": "if",
    r"(?<=\d )out of\b": "of",
    r"\b(?:hardly|scarcely|barely) ever\b": "rarely",
    r"\b(?:the|a) (?:vast |great |large )?majority of\b": "most",
    r"\bonly a few\b": "few",
    r"\ba few\b": "some",
    r"\bnon-(?=[a-z])": "non",
    r"\b(?:a lot|lots) of\b": "many",
    r"(,[^,;.]{1,40}), or\b": r"\1 or",
    r"\b(?:because of|due to|owing to|as a result of|on account of)\b": "because",
    r"\black(?:s|ed|ing)?\b(?: of\b)?|\b(?:do|does|did) not have (?:an?|any)\b": "has no",
    r"\b(?:false|untrue|incorrect|myth|doubt\w*|den(?:y|ies|ied)|reject(?:s|ed)?|disput\w+|disprov\w+"
    r"|refut\w+|unlikely)\b(?=[^.,;]{0,40}\bthat\b)": r"not \g<0>",
}
PLACED = {
    word: f"{group.split()[0]}0"
    for group in f"{BEFORE_OTHERS},{BESIDE_OTHERS}".split(",")
    for word in group.split()
}
CASES = {word: PLACED[word] for word in re.findall(r"\w+", BEFORE_OTHERS)}
ADVERBIAL = "as at during for in of on while"
CASES |= {word: f"{word}0" for word in ADVERBIAL.split()}
LIMITS, BINDS, BOTH, LAST = (
    {PLACED[word] for word in told.split()} for told in (LIMITING, BINDING, AROUND, PARTICLES)
)
BY = PLACED["by"]
COMPARED = 100  # words whose order is compared
IN_PLACE = 200  # words of a text in whose places others are looked for
ORDERED = re.compile(r"\b(?:respectively|order|sequence)\b", re.IGNORECASE)
REACH = 4  # words beside it in which a relation may have its own


class _Word(NamedTuple):
    text: str
    case: str = ""  # the relation before the words among which it is
    row: int = 0  # the same of words with only commas, "and", "or" and articles between them


def is_rearranged(claim: str, sentence: str, lexicon: Lexicon) -> bool:
    """Whether words of a claim stand to each other as they do not in a sentence of a source.

    So they do in "B notifies A" beside "A notifies B", in "A is notified by B", in "after A, B"
    beside "after B, A", and in "only A" beside "A". Not so in "B is notified by A", nor where a
    clause or an adverbial stands elsewhere.
    """
    if lexicon.language not in STOP_WORDS:  # others may have a free order of words
        return False
    ours, theirs = (_with_cases(text, lexicon) for text in (claim, sentence))
    known = {word.text for word in theirs}
    foreign = {word.row for word in ours if word.text not in known and word.text != ","}
    ours = [w._replace(row=-i) if w.row in foreign else w for i, w in enumerate(ours)]
    if not (
        _binds_no_other(ours, theirs, BINDS) and _binds_no_other(theirs, ours, LIMITS, kept=True)
    ):
        return True
    here, there = (_places(text) for text in (ours, theirs))
    for text, other, at in ((ours, theirs, there), (theirs, ours, here)):
        for verb, by, agent in zip(text, text[1:], text[2:], strict=False):
            if by.text == BY and not agent.text.isdigit() and {verb.text, agent.text} <= at.keys():
                is_agent = other[at[agent.text]].case == BY
                if not is_agent and at[verb.text] < at[agent.text]:
                    return True
    numbers = [word.text for word in ours if word.text.isdigit() and word.text in there]
    for first, second in pairwise(numbers):
        if here.get(second, 0) - here.get(first, 0) == there[first] - there[second] == 1:
            return True
    both = [word for word in ours if word.text in here and word.text in there][:COMPARED]
    pairs = [(word, theirs[there[word.text]], there[word.text]) for word in both]
    for i, (_, _, middle) in enumerate(pairs):
        left = [pair for pair in pairs[:i] if pair[2] > middle]
        right = [pair for pair in pairs[i + 1 :] if pair[2] < middle]
        if any(_are_exchanged(x[:2], y[:2]) for x, y in product(left, right)):
            return True
    a, b = ours[:IN_PLACE], theirs[:IN_PLACE]
    changes = SequenceMatcher(None, [w.text for w in a], [w.text for w in b], False).get_opcodes()
    replaced = [(a[i:j], b[k:m]) for kind, i, j, k, m in changes if kind == "replace"]
    differ = [([x], [y]) for x, y in zip(a, b, strict=False) if x.text != y.text]
    if len(a) == len(b) and len(differ) == 2:
        replaced = differ
    return any(
        all(_same_words(*both) for both in zip(first, second[::-1], strict=True))
        and not _is_one_row(zip(first[0] + second[0], second[1] + first[1], strict=True))
        for first, second in combinations(replaced, 2)
    )


def _same_words(text: Sequence[_Word], other: Sequence[_Word]) -> bool:
    return [word.text for word in text] == [word.text for word in other]


def _is_one_row(pairs: Iterable[tuple[_Word, _Word]]) -> bool:
    """Whether words are items of one list in both texts, which may have any order."""
    return all(len({word.row for word in text}) == 1 for text in zip(*pairs, strict=True))


def _are_exchanged(*pairs: tuple[_Word, _Word]) -> bool:
    """Whether two words with another one between them have each other's places in two texts.

    Not if they are in a list, if one is in an adverbial that has moved, nor if one alone becomes
    the agent.
    """
    if _is_one_row(pairs):
        return False
    moved = [ours.case for ours, theirs in pairs if ours.case == theirs.case != ""]
    agents = sum((ours.case == BY) != (theirs.case == BY) for ours, theirs in pairs)
    return agents != 1 and len(moved) != 1 and len(set(moved)) < 2


def _with_cases(text: str, lexicon: Lexicon) -> list[_Word]:
    """The content words in order, each with the relation before its words, relations, and commas.

    A relation with words of its own has itself as its case.
    """
    found, row, goes_on, in_order = list[_Word](), 0, False, ORDERED.search(text)
    stop = STOP_WORDS.get(lexicon.language, frozenset())
    for piece in re.split(r"[,;:]\s*|(?<!\w)\(|(?<!\(\w)\)\s*", text):
        case, was_content = "", False
        for word in re.findall(r"\w+", piece.lower()):
            if word in ("and", "or"):
                goes_on = not in_order
            elif word not in ("a", "an", "the"):
                row, goes_on = row + (not goes_on), False
            if word in CASES:
                case, was_content = CASES[word], False
            elif (word in stop or word in PLACED) and was_content and word not in ("and", "or"):
                case = ""
            if word in PLACED:
                found.append(_Word(PLACED[word], case, row))
            elif word not in stop:
                found += [_Word(w, case, row) for w in words(word, language=lexicon.language)]
                was_content = True
        found.append(_Word(","))
        goes_on = not in_order
    return found


def _places(text: Sequence[_Word]) -> dict[str, int]:
    """Where each word is that a text has once."""
    number = Counter(word.text for word in text)
    return {word.text: i for i, word in enumerate(text) if number[word.text] == 1}


def _binds_no_other(
    text: Sequence[_Word], other: Sequence[_Word], relations: set[str], *, kept: bool = False
) -> bool:
    """Whether the other text has each of these relations of a text, with the same word near it.

    If it lacks the word, it needs the relation alone; nothing, if only a word `kept` counts.
    """
    known, bound = {word.text for word in other}, _bound(other, REACH)
    return all(
        (relation, word) in bound if word in known else kept or relation in known
        for relation, word in _bound(text, 1)
        if relation in relations
    )


def _bound(text: Sequence[_Word], reach: int) -> set[tuple[str, str]]:
    """Each of the relations that bind with the words near it in its clause, up to `reach`."""
    bound = set[tuple[str, str]]()
    for i, (relation, *_) in enumerate(text):
        if relation in BINDS:
            sides = text[i + 1 : i + 1 + 2 * REACH], text[max(0, i - 2 * REACH) : i][::-1]
            clauses = (takewhile(lambda word: word.text != ",", side) for side in sides)
            own = ((word.text for word in clause if word.text not in BINDS) for clause in clauses)
            behind, before = (list(islice(side, reach)) for side in own)
            near = before or behind if relation in LAST else behind or before
            if relation in BOTH:
                near = before + behind if before and behind else []
            bound |= {(relation, word) for word in near}
    return bound
