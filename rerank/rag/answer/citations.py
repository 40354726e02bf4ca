"""The ways in which language models cite sources, rewritten as `[S1]`: `(S1)`, `Source: S1`, `[1]`.

A label that a source contains too, or that names no source, may mean something else: it is left
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from rerank.rag.answer.sentences import CITATION, has_word
from rerank.rag.answer.sources import Source

LABELS = r"S\d+(?:(?:\s*[,;&]\s*|\s+and\s+)S\d+)*"
BRACKETED = re.compile(rf"[ \t]*[\[(【]\s*(?:(?i:sources?):?\s*)?{LABELS}\s*(?:†[^】]*)?[\])】]")
NAMED = re.compile(rf"(?<=[.!?])\s*(?i:sources?):[ \t]*{LABELS}(?!\w)\.?")
NUMBERS = r"(?:\[\d+\])+"  # at the end of a sentence only: elsewhere it may be a list or an index
NUMBERED = re.compile(
    rf"[ \t]+{NUMBERS}(?=[.!?]?$|[.!?]\s)|(?<=[.!?])[ \t]*{NUMBERS}(?=\s|$)", re.MULTILINE
)


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
    """The text with citations of these ids only; those that stand together become one.

    Citations stand together also with a comma, "and" or "&" between them.
    """

    def kept(match: re.Match[str]) -> str:
        labels = [label for label in re.findall(r"S\d+", match[0]) if label in ids]
        return f"{match[1]}[{', '.join(dict.fromkeys(labels))}]" if labels else ""

    cited = CITATION.pattern
    between = r"(?:[ \t]*[,;&]|[ \t]+and)?[ \t]*"
    run = rf"{cited}(?:{between}{cited})*"
    return re.sub(rf"([ \t]*)(?:\({run}\)|{run})(?:[ \t]*{run})*", kept, text).strip()
