"""Whether each sentence of an answer is supported by the sources that it cites.

Words decide first: a source that lacks a number, a name or a negation of the sentence does not
support it; a source that contains nearly all of its words does. In between, a judge decides. But
not supported is a sentence with a clause that none of its sources has, one that has another content
word in the place of the source's, and one that sends its reader to an address unasked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise, product

from rerank.data.words import WORD_BYTES, Lexicon, cached_by_bytes, content_words, words
from rerank.rag.answer.sentences import (
    BULLET,
    CITATION,
    Sentence,
    has_word,
    sentences,
    split_passage,
)
from rerank.rag.answer.sources import Source, leads_away

LABELS = r"S\d+(?:(?:\s*[,;&]\s*|\s+and\s+)S\d+)*"
BRACKETED = re.compile(rf"[ \t]*[\[(【]\s*(?:(?i:sources?):?\s*)?{LABELS}\s*(?:†[^】]*)?[\])】]")
NAMED = re.compile(rf"(?<=[.!?])\s*(?i:sources?):[ \t]*{LABELS}(?!\w)\.?")
NUMBERS = r"(?:\[\d+\])+"  # at the end of a sentence only: elsewhere it may be a list or an index
NUMBERED = re.compile(
    rf"[ \t]+{NUMBERS}(?=[.!?]?$|[.!?]\s)|(?<=[.!?])[ \t]*{NUMBERS}(?=\s|$)", re.MULTILINE
)
PARAGRAPH = re.compile(r"\n\s*\n")


def with_plain_citations(answer: str, sources: Sequence[Source]) -> str:
    """The answer with its citations of these sources in the form `[S1]` or `[S1, S2]`.

    Numbers such as `[1]` are citations only in an answer without labels such as `S1`.
    """
    known = {source.id for source in sources}
    evidence = "\n".join(source.evidence for source in sources)

    def plain(match: re.Match[str]) -> str:
        if CITATION.fullmatch(match[0].strip()):
            return match[0]
        written = re.findall(r"S\d+|\[\d+\]", match[0].partition("†")[0])
        labels = [f"S{label.strip('[S]')}" for label in written]
        if not known.issuperset(labels) or any(has_word(evidence, label) for label in written):
            return match[0]
        return f" [{', '.join(labels)}]"

    answer = NAMED.sub(plain, BRACKETED.sub(plain, answer))
    return answer if re.search(r"\bS\d", answer) else NUMBERED.sub(plain, answer)


def citing_only(text: str, ids: Container[str]) -> str:
    """The text with citations of these ids only; `[S1], [S2]` and the like become one."""

    def kept(match: re.Match[str]) -> str:
        labels = [label for label in re.findall(r"S\d+", match[0]) if label in ids]
        return f"{match[1]}[{', '.join(dict.fromkeys(labels))}]" if labels else ""

    cited = CITATION.pattern
    between = r"(?:[ \t]*[,;&]|[ \t]+and)?[ \t]*"
    run = rf"{cited}(?:{between}{cited})*"
    return re.sub(rf"([ \t]*)(?:\({run}\)|{run})(?:[ \t]*{run})*", kept, text).strip()


def separators(answer: str, parts: Sequence[Sentence]) -> list[str]:
    """The separator before each of the sentences that `sentences` found in an answer.

    Punctuation may differ, because a citation after a full stop is moved before it: letters and
    digits tell where a sentence is. A sentence that is not found has a space before it.
    """
    places = [i for i, character in enumerate(answer) if character.isalnum()]
    bare = "".join(answer[i] for i in places)
    before, end = [], 0
    for number, sentence in enumerate(parts):
        own = "".join(filter(str.isalnum, sentence.text))
        start = bare.find(own, end)
        if start < 0 or not own:
            before.append(" ")
            continue
        gap = answer[places[end - 1] + 1 if end else 0 : places[start]]
        mark = BULLET.search(gap, gap.rfind("\n") + 1)
        line = "\n\n" if PARAGRAPH.search(gap) else "\n"
        if number == 0:
            mark, line = BULLET.match(gap.lstrip("\n")), ""
        elif "\n" not in gap:
            mark, line = None, " "
        before.append(line + (mark[0] if mark else ""))
        end = start + len(own)
    return before


SUPPORTED = 0.75  # share of a claim's idf in the source from which it supports the claim
UNSUPPORTED = 0.4  # the share below which it does not; in between, a judge decides
FOREIGN = 0.25  # share of a clause's idf in the source below which its sentence has no support
FEW = 2  # content words below which words alone cannot decide
LONGEST_SWAP = 2  # content words in a row that count as swapped; longer runs are other wording
CLAUSE = re.compile(r"\s*[,;:–—]\s+|\s+(?:and|but|then)\s+", re.IGNORECASE)
REMOVED = "[removed: not supported by the sources]"
NEGATION = re.compile(
    r"\b(not|never|no|none|neither|nor|without|cannot|unless|fail(?:s|ed)? to)\b|n['’]t\b",
    re.IGNORECASE,
)
SIGNED = re.compile(r"(?<![\w)])[-\u2212](\d+(?:\.\d+)?)|([\u00bc-\u00be\u2150-\u215e])")
NAME = re.compile(r"(?<=[\w,;] )[A-Z][\w-]+|\b[A-Z]{2,}\b|\b\d[\d.,]*\d\b|\b\d\b|\b\w+[._]\w[\w.]*")

CAN_NOT = re.compile(r"\bcannot\b|\bcan['’]t\b", re.IGNORECASE)
N_T = re.compile(r"n['’]t\b")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# from 2: "one" is a pronoun too
COUNTS = "two three four five six seven eight nine ten eleven twelve"
DIGITS = {word: str(number) for number, word in enumerate(COUNTS.split(), start=2)}
# stop words that stand for each other's opposite
OPPOSED = "above after all before below can few less more most must over same some under"
PLACED = {word: f"{word}0" for word in OPPOSED.split()} | {"may": "can0", "fewer": "less0"}
THE_SOURCES = (
    r"(?:(?:the|this|these|provided|given|retrieved|cited) ){0,2}"
    r"(?:sources?|documents?|documentation|passages?|context|texts?)"
)
INTRODUCTION = re.compile(  # names the sources, and says nothing of its own
    rf"^(?:(?:according to|based on|as (?:stated|described|explained|noted) in) {THE_SOURCES},"
    rf"|{THE_SOURCES} (?:says?|states?|explains?|notes?|mentions?) that)\s+",
    re.IGNORECASE,
)

Judge = Callable[[str, str], float]  # (claim, evidence) -> P(the evidence supports the claim)


@dataclass(frozen=True, slots=True)
class Checked:
    """A sentence, the sources that support it, and the supporting sentence of each."""

    sentence: Sentence
    quotes: Mapping[str, str]  # source id -> its best sentence; empty if nothing supports it
    before: str = " "  # the text between it and the sentence before

    @property
    def supported(self) -> bool:
        """Whether it cites a source that supports it."""
        return bool(self.quotes)


@dataclass(frozen=True, slots=True)
class SupportCheck:
    """Which cited sources support each sentence of an answer.

    If words cannot decide, `judge` does: a probability of `threshold` or more is support. Without a
    judge, such a sentence is unsupported.

    The threshold is not fitted: on 745 undecided pairs of four labelled sets (pydata, stackfaq,
    covid_qa, squad2), each query with its right passage and with the nearest other one, the best
    one is 0.47, with a 95% interval of [0.41, 0.56]. The mean of the two error rates at 0.5 is .308
    [.275, .340]; thresholds fitted on three sets lower it on the fourth by .005 on average. So the
    judge is weak at any threshold. Words alone, without the judge, accept all sentences that are
    quoted verbatim.
    """

    lexicon: Lexicon
    judge: Judge | None = None
    threshold: float = 0.5
    question: str = ""

    def __call__(self, answer: str, sources: Sequence[Source]) -> list[Checked]:
        """Each sentence, with the sources that support it; citations are rewritten as `[S1]`."""
        by_id, lexicon = {source.id: source for source in sources}, self.lexicon
        checked, plain = [], with_plain_citations(answer, sources)
        parts = sentences(plain)
        for sentence, before in zip(parts, separators(plain, parts), strict=True):
            cited = [by_id[i] for i in sentence.cited if i in by_id]
            claim = INTRODUCTION.sub("", sentence.claim)
            if leads_away(claim, self.question) or not has_each_clause(claim, cited, lexicon):
                cited = []
            alone = [source for source in cited if self._supports(source.evidence, claim)]
            if alone and not has_each_clause(claim, alone, lexicon):
                alone = cited  # another one has the clause that these lack
            quotes = {s.id: best_sentence(claim, s.evidence, lexicon) for s in alone}
            checked.append(Checked(sentence, quotes, before))
        return checked

    def _supports(self, evidence: str, claim: str) -> bool:
        share = lexical_support(claim, evidence, self.lexicon)
        if share is not None and not undecided(share):
            return share >= SUPPORTED
        return self.judge is not None and self.judge(claim, evidence) >= self.threshold


def has_each_clause(claim: str, sources: Sequence[Source], lexicon: Lexicon) -> bool:
    """Whether no clause of a claim is foreign to all of the sources."""
    windows = [window for source in sources for window in _windows(source.evidence, lexicon)]
    clauses = [set(content_words(c, language=lexicon.language)) for c in CLAUSE.split(claim)]
    # clauses of one content word are left out, such as the items of a list
    weighed = [_weights(clause, lexicon) for clause in clauses if len(clause) >= FEW]
    return all(_share(c, windows) >= FOREIGN for c in weighed if sum(c.values()) > 0)


def undecided(share: float | None) -> bool:
    """Whether a lexical support leaves the decision to the judge."""
    return share is None or UNSUPPORTED <= share < SUPPORTED


def attribution_coverage(checked: Sequence[Checked]) -> float:
    """The share of sentences that cite a source that supports them; 0 without a sentence."""
    return sum(c.supported for c in checked) / len(checked) if checked else 0.0


def without_unsupported(checked: Sequence[Checked]) -> str:
    """The answer with each run of unsupported sentences replaced by one `REMOVED`.

    The others cite only the sources that support them. Its lines, paragraphs and lists stay.
    """
    shown, last = "", ""
    for c in checked:
        text = citing_only(c.sentence.text, c.quotes) if c.supported else REMOVED
        shown += "" if text == last == REMOVED else f"{c.before}{text}"
        last = text
    return shown.strip()


def lexical_support(claim: str, evidence: str, lexicon: Lexicon) -> float | None:
    """Share of the claim's idf found in the evidence, in [0, 1]; None for too few words.

    0 if there is no evidence, if it lacks a number or a name of the claim, or if the sentence of
    the evidence that is nearest to the claim is negated and the claim is not, or vice versa, or has
    other words in the same place (`swapped_words`). The share is the best of two neighbouring
    sentences.
    """
    if not evidence.strip():  # such as a passage of orders to a language model only
        return 0.0
    claim, evidence = _in_digits(claim), _in_digits(evidence)
    lower = evidence.lower()
    if any(not has_word(lower, name.lower()) for name in NAME.findall(claim)):
        return 0.0
    if not set(SIGNED.findall(claim)) <= set(SIGNED.findall(evidence)):
        return 0.0
    wanted = _weights(set(words(claim, language=lexicon.language)), lexicon)
    if sum(wanted.values()) <= 0 or len(wanted) < FEW:
        return None
    best = best_sentence(claim, evidence, lexicon)
    negated = [NEGATION.search(text) is not None for text in (claim, best)]
    if negated[0] != negated[1] or swapped_words(claim, best, lexicon):
        return 0.0
    return _share(wanted, _windows(evidence, lexicon))


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
    """The text with counts in digits, numbers without commas, and "not" as a word of its own."""
    return _replaced(N_T.sub(" not", CAN_NOT.sub("can not", THOUSANDS.sub("", text))), DIGITS)


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
    return max(shared, default=0.0) / sum(wanted.values())
