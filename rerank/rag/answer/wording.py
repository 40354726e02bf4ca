"""Whether a text says what a claim says, told by its words.

These may stand elsewhere, but not in each other's place. It knows nothing of sources and judges.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice, pairwise, product, takewhile
from typing import NamedTuple

from rerank.data.words import (
    STOP_WORDS,
    WORD_BYTES,
    Lexicon,
    cached_by_bytes,
    content_words,
    words,
)
from rerank.rag.answer.sentences import has_word, split_passage

FOREIGN = 0.25  # share of a clause's idf in the source below which its sentence has no support
NEARLY = 0.7  # share of what the best sentence says of a clause, with which another is preferred
FEW = 2  # content words below which words alone cannot decide
LONGEST_SWAP = 2  # content words in a row that count as swapped; longer runs are other wording
CLAUSE = re.compile(r"\s*[,;:–—]\s+|\s+(?:and|but|then)\s+", re.IGNORECASE)
NEGATION = re.compile(
    r"\b(not|never|no|none|neither|nor|without|cannot|unless|fail(?:s|ed)? to)\b|n['’]t\b",
    re.IGNORECASE,
)
SIGNED = re.compile(r"(?<![\w)])[-\u2212](\d+(?:\.\d+)?)|([\u00bc-\u00be\u2150-\u215e])")
NAME = re.compile(r"(?<=[\w,;] )[A-Z][\w-]+|\b[A-Z]{2,}\b|\b\d[\d.,]*\d\b|\b\d\b|\b\w+[._]\w[\w.]*")

CAN_NOT = re.compile(r"\bcannot\b|\bcan['’]t\b", re.IGNORECASE)
N_T = re.compile(r"n['’]t\b")
BOUNDS = {  # before a number
    r"(?:no|not) (?:less|fewer) than|a minimum of": "at least",
    r"(?:no|not) more than|up to|a maximum of": "at most",
    r"(?:more|greater|higher|larger) than|above|exceeding": "over",
    r"(?:less|fewer|lower|smaller) than|below": "under",
}
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")
RANGE = rf"(?:\s?(?:-|–|to|and|or)\s?{NUMBER.pattern}){{0,3}}"
UNIT = re.compile(rf"{RANGE}[ -]?([^\W\d_]+)")  # what follows a number or a range
MEASURE = re.compile(rf"({NUMBER.pattern})[ -]?([%°]|[^\W\d_]+)")
MONEY = {"$": "dollar", "€": "euro", "£": "pound"}
POWERS = {"": "", "k": "kilo", "c": "centi", "m": "milli", "M": "mega", "G": "giga"}
BASES = {"m": "meter", "g": "gram", "s": "second", "l": "liter", "B": "byte", "W": "watt"}
SPELLED = {p + b: POWERS[p] + BASES[b] for p, b in product(POWERS, BASES)} | {
    **{"%": "percent", "°": "degree", "lb": "pound", "ft": "foot", "feet": "foot"},
    **{"h": "hour", "hr": "hour", "min": "minute", "sec": "second"},
}
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# from 2: "one" is a pronoun too
COUNTS = "two three four five six seven eight nine ten eleven twelve"
DIGITS = {word: str(number) for number, word in enumerate(COUNTS.split(), start=2)}
# stop words that say how the words around them stand to each other; those that bind the word behind
# them, and those that may not be left out before it either
RELATIONS = """
above after all before below between by can except few from into less more most must only over same
since some than through to under unless until with without
"""
LIMITING = "except least most only over under unless until"
BINDING = f"above after before below from since than {LIMITING}"
ADVERBIAL = "as at because during for if in of on when while"  # and what begins an adverbial
PLACED = {word: f"{word}0" for word in RELATIONS.split()}
PLACED |= {"least": "least0", "may": "can0", "fewer": "less0", "beneath": "below0"}
CASES = PLACED | {word: f"{word}0" for word in ADVERBIAL.split()}
LIMITS, BINDS = ({PLACED[word] for word in told.split()} for told in (LIMITING, BINDING))
BY = PLACED["by"]
COMPARED = 100  # words of a clause whose order is compared; and clauses of a claim
NEAR = 60  # characters beside a number in which its unit is looked for
REACH = 4  # words behind it in which a relation may have its own


def has_each_clause(claim: str, evidence: Iterable[str], lexicon: Lexicon) -> bool:
    """Whether no clause of a claim is foreign to all texts of the evidence."""
    windows = [window for text in evidence for window in _windows(_in_digits(text), lexicon)]
    parts = CLAUSE.split(_in_digits(claim))
    clauses = [set(content_words(part, language=lexicon.language)) for part in parts]
    # clauses of one content word are left out, such as the items of a list
    weighed = [_weights(clause, lexicon) for clause in clauses if len(clause) >= FEW]
    return all(_share(c, windows) >= FOREIGN for c in weighed if sum(c.values()) > 0)


def lexical_support(claim: str, evidence: str, lexicon: Lexicon) -> float | None:
    """Share of the claim's idf found in the evidence, in [0, 1]; None for too few words.

    0 if there is no evidence, or if it lacks a number, its unit or a name of the claim; and if the
    sentence of the evidence that is nearest to a clause has more or fewer negations, other words in
    the same place (`swapped_words`), or the same ones elsewhere (`is_rearranged`). The share is the
    best of two neighbouring sentences, of the whole claim or of its clauses one by one.
    """
    if not evidence.strip():  # such as a passage of orders to a language model only
        return 0.0
    claim, evidence = _in_digits(claim), _in_digits(evidence)
    lower, signed = evidence.lower(), set(SIGNED.findall(claim))
    if (
        any(not has_word(lower, name.lower()) for name in NAME.findall(claim))
        or not signed <= set(SIGNED.findall(evidence))
        or not has_units(claim, evidence, lexicon)
    ):
        return 0.0
    wanted = _weights(set(words(claim, language=lexicon.language)), lexicon)
    if sum(wanted.values()) <= 0 or len(wanted) < FEW:
        return None
    windows, shared = _windows(evidence, lexicon), []
    for part, sentence in _compared(claim, evidence, lexicon):
        negations = [len(NEGATION.findall(text)) for text in (part, sentence)]
        if (
            negations[0] != negations[1]
            or swapped_words(part, sentence, lexicon)
            or is_rearranged(part, sentence, lexicon)
        ):
            return 0.0
        own = _weights(set(words(part, language=lexicon.language)), lexicon)
        shared.append((_share(own, windows), sum(own.values())))
    in_parts = sum(share * of for share, of in shared) / (sum(of for _, of in shared) or 1.0)
    return max(_share(wanted, windows), in_parts)


def _compared(claim: str, evidence: str, lexicon: Lexicon) -> list[tuple[str, str]]:
    """The parts of a claim with the clauses of the sentence that says each.

    A part ends where the sentence that says most of the whole says less of the next clause than
    another one does. Clauses and brackets of a sentence that say something else are left out.
    """
    language = lexicon.language
    first = best_sentence(claim, evidence, lexicon)
    parts = list[tuple[str, str]]()
    for clause in _clauses(claim):
        own = _weights(set(content_words(clause, language=language)), lexicon)
        best = best_sentence(clause, evidence, lexicon)
        told = [_share(own, [frozenset(words(s, language=language))]) for s in (first, best)]
        if len(own) < FEW + 1 or told[0] >= NEARLY * told[1]:
            best = parts[-1][1] if parts and len(own) < FEW + 1 else first
        if parts and parts[-1][1] == best:
            parts[-1] = parts[-1][0] + clause, best
        else:
            parts.append((clause, best))
    compared = []
    for part, told_by in parts:
        sentence = told_by if "(" in part else re.sub(r"\s*\([^()]*\)", "", told_by)
        said = set(words(part, language=language))
        about = [(c, set(content_words(c, language=language))) for c in _clauses(sentence)]
        kept = [c for c, own in about if len(own) <= FEW or 2 * len(own & said) > len(own)]
        compared.append((part, "".join(kept) or sentence))
    return compared


def _clauses(text: str) -> list[str]:
    """The clauses of a text, each with what parts it from the next one."""
    ends = (found.end() for found in islice(CLAUSE.finditer(text), COMPARED))
    bounds = [0, *ends, len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


def has_units(claim: str, evidence: str, lexicon: Lexicon) -> bool:
    """Whether each number of a claim has its unit in the evidence, if it has one there.

    The unit is the word behind the number, also of a range; "%" is "percent", and "kg" "kilogram".
    """
    if lexicon.language not in STOP_WORDS:  # any word may follow a number
        return True
    there: dict[str, set[str]] = {}
    for number, behind in _measured(evidence, lexicon):
        there.setdefault(number, set()).update(behind[:3] or [""])
    return all(
        number not in there or not there[number].isdisjoint(["", *behind[:1]])
        for number, behind in _measured(claim, lexicon)
        if behind
    )


def _measured(text: str, lexicon: Lexicon) -> Iterator[tuple[str, list[str]]]:
    """Each number with its currency, and with the stems behind it; none if it has no unit."""
    for number in NUMBER.finditer(text):
        before = text[max(0, number.start() - NEAR) : number.start()].split()[-1:]
        if is_money := before and before[0] in MONEY.values():
            yield number[0], before
        unit = UNIT.match(text, number.end())
        behind = ""
        if unit and content_words(unit[1], language=lexicon.language):
            after = text[unit.start(1) : unit.start(1) + NEAR]
            behind = re.split(r"[\d,;:.()]", after, maxsplit=1)[0]
        if behind or not is_money:
            yield number[0], words(behind, language=lexicon.language)


class _Word(NamedTuple):
    text: str
    case: str = ""  # the relation before the words among which it is


def is_rearranged(claim: str, sentence: str, lexicon: Lexicon) -> bool:
    """Whether words of a claim stand to each other as they do not in a sentence of a source.

    So they do in "B notifies A" beside "A notifies B", in "A is notified by B", in "after A, B"
    beside "after B, A", and in "only A" beside "A". Not so in "B is notified by A", nor where a
    clause or an adverbial stands elsewhere.
    """
    if lexicon.language not in STOP_WORDS:  # others may have a free order of words
        return False
    ours, theirs = (_with_cases(text, lexicon) for text in (claim, sentence))
    here, there = (_places(text) for text in (ours, theirs))
    dropped = {(r, w) for r, w in _bound(theirs, 1) if r in LIMITS and w in here}
    if not (_bound(ours, 1) <= _bound(theirs, REACH) and dropped <= _bound(ours, REACH)):
        return True
    for text, other, at in ((ours, theirs, there), (theirs, ours, here)):
        for verb, by, agent in zip(text, text[1:], text[2:], strict=False):
            if by.text == BY and not agent.text.isdigit() and {verb.text, agent.text} <= at.keys():
                is_agent = other[at[agent.text]].case == BY
                if not is_agent and at[verb.text] < at[agent.text]:
                    return True
    both = [word for word in ours if word.text in here and word.text in there][:COMPARED]
    pairs = [(word, theirs[there[word.text]], there[word.text]) for word in both]
    for i, (_, _, middle) in enumerate(pairs):
        left = [pair for pair in pairs[:i] if pair[2] > middle]
        right = [pair for pair in pairs[i + 1 :] if pair[2] < middle]
        if any(_are_exchanged(x[:2], y[:2]) for x, y in product(left, right)):
            return True
    return False


def _are_exchanged(*pairs: tuple[_Word, _Word]) -> bool:
    """Whether two words with another one between them have each other's places in two texts.

    Not if one is in an adverbial that has moved, nor if one alone becomes the agent.
    """
    moved = [ours.case for ours, theirs in pairs if ours.case == theirs.case != ""]
    agents = sum((ours.case == BY) != (theirs.case == BY) for ours, theirs in pairs)
    return agents != 1 and len(moved) != 1 and len(set(moved)) < 2


def _with_cases(text: str, lexicon: Lexicon) -> list[_Word]:
    """The content words in order, each with the relation before its words, relations, and commas.

    A relation has itself as its case.
    """
    found = list[_Word]()
    stop = STOP_WORDS.get(lexicon.language, frozenset())
    for piece in re.split(r"[,;:()]\s*", text):
        case, was_content = "", False
        for word in re.findall(r"[^\W_]+", piece.lower()):
            if word in CASES:
                case, was_content = CASES[word], False
                found += [_Word(case, case)] if word in PLACED else []
            elif word not in stop:
                found += [_Word(w, case) for w in words(word, language=lexicon.language)]
                was_content = True
            elif was_content and word not in ("and", "or"):
                case = ""
        found.append(_Word(","))
    return found


def _places(text: Sequence[_Word]) -> dict[str, int]:
    """Where each word is that a text has once."""
    number = Counter(word.text for word in text)
    return {word.text: i for i, word in enumerate(text) if number[word.text] == 1}


def _bound(text: Sequence[_Word], reach: int) -> set[tuple[str, str]]:
    """Each of the relations that bind with the words behind it in its clause, up to `reach`."""
    bound = set[tuple[str, str]]()
    for i, relation in enumerate(text):
        if relation.text in BINDS:
            clause = takewhile(lambda word: word.text != ",", text[i + 1 : i + 1 + 2 * REACH])
            behind = (word.text for word in clause if word.text not in BINDS)
            bound |= {(relation.text, word) for word in islice(behind, reach)}
    return bound


def swapped_words(claim: str, sentence: str, lexicon: Lexicon) -> list[tuple[str, str]]:
    """The content words of a claim in whose place a sentence of a source has others: (its, ours).

    "The mean is the middle value" has one beside "The median is the middle value", and so has
    "before" beside "after". Inflection and order are no difference. Only runs of as many words
    count, and names; and only in a claim that has at least half of its content words in the order
    of the sentence: what is worded quite otherwise is not compared.
    """
    ours, theirs = (_in_order(text, lexicon) for text in (claim, sentence))
    named = (" ".join(NAME.findall(text)) for text in (claim, sentence))
    names = {word for text in named for word in _in_order(text, lexicon)}
    matcher = SequenceMatcher(None, theirs, ours, autojunk=False)
    if 2 * sum(block.size for block in matcher.get_matching_blocks()) < len(ours):
        return []
    only_theirs, only_ours = Counter(theirs) - Counter(ours), Counter(ours) - Counter(theirs)
    return [
        (their, our)
        for kind, a, b, c, d in matcher.get_opcodes()
        if kind == "replace"
        if b - a == d - c <= LONGEST_SWAP or names.issuperset(theirs[a:b] + ours[c:d])
        for their, our in product(theirs[a:b], ours[c:d])
        if their in only_theirs and our in only_ours
    ]


def _in_digits(text: str) -> str:
    """The text with counts in digits, units and limits in words, and "not" as a word of its own."""
    text = re.sub(r"[^\S\n]{2,}", " ", re.sub(r"\n{3,}", "\n\n", text))
    text = N_T.sub(" not", CAN_NOT.sub("can not", THOUSANDS.sub("", text)))
    text = re.sub(r"([$€£])\s?(?=\d)", lambda sign: f" {MONEY[sign[1]]} ", text)
    text = re.sub(r"(met|lit)re(?=s?\b)", r"\1er", _replaced(text, DIGITS))
    text = MEASURE.sub(lambda m: f"{m[1]} {SPELLED[m[2]]}" if m[2] in SPELLED else m[0], text)
    for said, same in BOUNDS.items():
        amount = rf"(?= (?:(?:{'|'.join(MONEY.values())}) )?\d)"
        text = re.sub(rf"\b(?:{said}){amount}", same, text, flags=re.IGNORECASE)
    return text


def _in_order(text: str, lexicon: Lexicon) -> list[str]:
    """The content words of a text in order, and the stop words in `PLACED`."""
    return content_words(_replaced(_in_digits(text), PLACED), language=lexicon.language)


def _replaced(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"[A-Za-z]+", lambda m: words.get(m[0].lower(), m[0]), text)


def best_sentence(claim: str, evidence: str, lexicon: Lexicon) -> str:
    """The sentence of the evidence that shares most idf with the claim; "" if there is none."""
    wanted = set(words(claim, language=lexicon.language))

    def shared(sentence: tuple[str, frozenset[str]]) -> float:
        return sum(lexicon.idf(w) for w in wanted & sentence[1])

    best, _ = max(_stemmed(evidence, lexicon.language), key=shared, default=("", None))
    return best


def _windows(evidence: str, lexicon: Lexicon) -> list[frozenset[str]]:
    """The stems of each pair of neighbouring sentences."""
    parts = [stems for _, stems in _stemmed(evidence, lexicon.language)]
    return [first | second for first, second in pairwise(parts)] or parts


def _bytes_of(parts: Sequence[tuple[str, frozenset[str]]]) -> int:
    return sum(WORD_BYTES * (2 + len(stems)) + 4 * len(part) for part, stems in parts)


@cached_by_bytes(2**26, _bytes_of)
def _stemmed(text: str, language: str) -> tuple[tuple[str, frozenset[str]], ...]:
    parts = split_passage(text)
    return tuple((part, frozenset(words(part, language=language))) for part in parts)


def _weights(stems: set[str], lexicon: Lexicon) -> dict[str, float]:
    return {word: max(lexicon.idf(word), 0.0) for word in stems}


def _share(wanted: Mapping[str, float], windows: Sequence[frozenset[str]]) -> float:
    """The largest share of the idf of the wanted words that one window of the evidence has."""
    shared = (sum(wanted[w] for w in window & wanted.keys()) for window in windows)
    return max(shared, default=0.0) / (sum(wanted.values()) or 1.0)
