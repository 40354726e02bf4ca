"""Whether each sentence of an answer is supported by the sources that it cites.

Words decide first (`wording`): a source that contains nearly all of a sentence supports it. Where
they cannot, a judge decides. Never supported is what sends its reader to an address unasked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from rerank.data.words import Lexicon
from rerank.rag.answer.sentences import (
    BULLET,
    CITATION,
    Sentence,
    has_word,
    sentences,
)
from rerank.rag.answer.sources import Source, leads_away
from rerank.rag.answer.wording import best_sentence, has_each_clause, is_quoted, lexical_support

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
LONGEST = 3000  # characters of a sentence that is compared; none as long has support
REMOVED = "[removed: not supported by the sources]"
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
            cited = {i: by_id[i].evidence for i in sentence.cited if i in by_id}
            claim = INTRODUCTION.sub("", sentence.claim)
            if (
                (len(claim) > LONGEST and not any(is_quoted(claim, t) for t in cited.values()))
                or leads_away(claim, self.question)
                or not has_each_clause(claim, cited.values(), lexicon)
            ):
                cited = {}
            alone = {i: text for i, text in cited.items() if self._supports(text, claim)}
            if alone and not has_each_clause(claim, alone.values(), lexicon):
                alone = cited  # another one has the clause that these lack
            quotes = {i: best_sentence(claim, text, lexicon) for i, text in alone.items()}
            checked.append(Checked(sentence, quotes, before))
        return checked

    def _supports(self, evidence: str, claim: str) -> bool:
        share = lexical_support(claim, evidence, self.lexicon)
        if share is not None and not UNSUPPORTED <= share < SUPPORTED:
            return share >= SUPPORTED
        return self.judge is not None and self.judge(claim, evidence) >= self.threshold


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
