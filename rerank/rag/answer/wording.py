"""Whether a text says what a claim says, told by its words.

These may stand elsewhere, but not in each other's place. It knows nothing of sources and judges.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import combinations, islice, pairwise, product

from rerank.data.words import (
    STOP_WORDS,
    WORD_BYTES,
    Lexicon,
    cached_by_bytes,
    content_words,
    words,
)
from rerank.rag.answer.quantities import has_units, plain
from rerank.rag.answer.relations import PLACED, is_rearranged
from rerank.rag.answer.sentences import has_word, split_passage

FOREIGN = 0.25  # share of a clause's idf in the source below which its sentence has no support
NEARLY = 0.7  # share of what the best sentence says of a clause, with which another is preferred
FEW = 2  # content words below which words alone cannot decide
LONGEST_SWAP = 2  # content words in a row that count as swapped; longer runs are other wording
CLAUSE = re.compile(r"\s*[,;:–—]\s+|\s+(?:and|but|then)\s+", re.IGNORECASE)
MEMBER = re.compile(rf"{CLAUSE.pattern}|\s+(?:while|whereas)\s+", re.IGNORECASE)
NOT = re.compile(  # the same in German, French, Spanish, Italian, Portuguese and Dutch
    r"\b(?:nicht|kein\w*|nie|niemals|ohne|weder|ne|pas|jamais|sans|aucune?|no|nunca|sin|ning[uú]n\w*"
    r"|non|senza|não|sem|niet|geen)\b|\bn['’](?=\w)",
    re.IGNORECASE,
)
MEMBERS = 5  # parallel clauses that are compared
NEGATION = re.compile(
    r"\b(not|never|no|none|neither|nor|without|cannot|unless|fail(?:s|ed)? to)\b|n['’]t\b",
    re.IGNORECASE,
)
NAME = re.compile(
    r"(?<=[\w,;] )[A-Z][\w-]+|\b[A-Z]{2,}\b|\b\d[\d.,/:]*\d\b|\b\w+[._][\w.]*\w|\b\d\b|\b\d+th\b"
)
IF = re.compile(r"(?<!even )(?<!as )\bif\b", re.IGNORECASE)  # may not be left out
CONDITION = re.compile(r"\b(?:if|when|whenever|unless|in case)\b", re.IGNORECASE)
ELLIPSIS = re.compile(r"\w not[.!]?$")  # "but editors can not"
COMPARED = 100  # clauses of a claim
IN_ORDER = 200  # words of a sentence whose order is compared
DENIED = re.compile(r"\b(?:un|in|im|ir|il|dis|non)([a-z]{4,})\b|\b([a-z]{3,})less\b")


def has_each_clause(claim: str, evidence: Iterable[str], lexicon: Lexicon) -> bool:
    """Whether no clause of a claim is foreign to all texts of the evidence."""
    written = list(evidence)
    if any(is_quoted(claim, text) for text in written):
        return True
    texts = [plain(text, lexicon.language) for text in written]
    windows = [window for text in texts for window in _windows(text, lexicon)]
    parts = CLAUSE.split(plain(claim, lexicon.language))
    clauses = [set(content_words(part, language=lexicon.language)) for part in parts]
    # clauses of one content word are left out, such as the items of a list
    weighed = [_weights(clause, lexicon) for clause in clauses if len(clause) >= FEW]
    return all(_share(c, windows) >= FOREIGN for c in weighed if sum(c.values()) > 0)


def is_quoted(claim: str, evidence: str) -> bool:
    """Whether a claim is a whole sentence of the evidence, but for quotation marks and spaces."""
    bare = _bare(claim)
    return bare[1:] in _bare(evidence) and any(_bare(s) == bare for s in split_passage(evidence))


def _bare(text: str) -> str:
    bare = re.sub(r" (?=[.!?,;:。！？])", "", " ".join(re.sub(r"[\"“”]", "", text).split()))
    return f"{bare[:1].lower()}{bare[1:].rstrip('.。')}"


def lexical_support(claim: str, evidence: str, lexicon: Lexicon) -> float | None:
    """Share of the claim's idf found in the evidence, in [0, 1]; None for too few words.

    0 if there is no evidence, or if it lacks a number, its unit or a name of the claim; and if the
    sentence of the evidence that is nearest to a clause has more or fewer negations, an "if" that
    the claim lacks, other words in the same place (`swapped_words`), or the same ones elsewhere
    (`is_rearranged`). The share is the best of two neighbouring sentences, of the whole claim or of
    its clauses one by one.
    """
    if not evidence.strip():  # such as a passage of orders to a language model only
        return 0.0
    if is_quoted(claim, evidence):
        return 1.0
    claim, evidence = (plain(text, lexicon.language) for text in (claim, evidence))
    if lexicon.language in STOP_WORDS:
        known = set(re.findall(r"[a-z]+", f"{claim} {evidence}"))
        claim, evidence = (_with_denials(text, known) for text in (claim, evidence))
    lower = evidence.lower()
    if (
        any(not has_word(lower, name.lower()) for name in NAME.findall(claim))
        or not has_units(claim, evidence, lexicon)
        or any(is_spliced(clause, evidence, lexicon) for clause in MEMBER.split(claim, COMPARED))
    ):
        return 0.0
    wanted = _weights(set(words(claim, language=lexicon.language)), lexicon)
    if sum(wanted.values()) <= 0 or len(wanted) < FEW:
        return None
    windows, shared = _windows(evidence, lexicon), []
    denied = NEGATION if lexicon.language in STOP_WORDS else NOT
    for part, sentence in _compared(claim, evidence, lexicon):
        negations = [len(denied.findall(text)) for text in (part, sentence)]
        if (
            negations[0] != negations[1]
            or swapped_words(part, sentence, lexicon)
            or is_rearranged(part, sentence, lexicon)
            or (IF.search(sentence) and not CONDITION.search(part))
        ):
            return 0.0
        own = _weights(set(words(part, language=lexicon.language)), lexicon)
        shared.append((_share(own, windows), sum(own.values())))
    in_parts = sum(share * of for share, of in shared) / (sum(of for _, of in shared) or 1.0)
    return max(_share(wanted, windows), in_parts)


def _compared(claim: str, evidence: str, lexicon: Lexicon) -> list[tuple[str, str]]:
    """The parts of a claim with the clauses of the sentence that says each.

    A part ends where the sentence that says most of the whole says less of the next clause than
    another one does. Clauses and brackets of a sentence that say something else are left out, but
    not its conditions; so are all other clauses if one has all content words of the part.
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
        about = [(c, own) for c, own in about if own & said or not ELLIPSIS.search(c)]
        content = set(content_words(part, language=language))
        whole = any(content <= own for _, own in about)
        kept = [
            c
            for c, own in about
            if IF.match(c)
            or (content <= own if whole else len(own) <= FEW or 2 * len(own & said) >= len(own))
        ]
        compared.append((part, "".join(kept) or sentence))
    return compared


def is_spliced(clause: str, evidence: str, lexicon: Lexicon) -> bool:
    """Whether a clause has one end of a clause of the evidence and another end of a parallel one.

    "B costs 4" does, beside "A costs 4 and B costs 9". Parallel are clauses with a content word in
    common, or half of the words, a quarter if one is shorter; of what one has in the other's place,
    the clause has some.
    """
    language = lexicon.language
    in_order = words(clause, language=language)
    own = set(in_order)
    near = [text for text, stems in _stemmed(evidence, language) if _has_half(stems, own)]
    parts = [c for text in near for c in MEMBER.split(text, COMPARED)]
    clauses = [words(c, language=language) for c in parts]
    fits = [_has_half(c, own) for c in clauses]
    members = [c[:IN_ORDER] for i, c in enumerate(clauses) if any(fits[max(0, i - 1) : i + 2])]
    if language not in STOP_WORDS or any(own <= set(member) for member in members):
        return False
    if any(_runs(in_order, words(text, language=language)) for text in near):
        return False
    content = set(content_words(" ".join(near), language=language))
    for first, second in combinations(members[:MEMBERS], 2):
        sides, anchors = set[bool](), list[str]()
        few = min(len(first), len(second))
        elliptic = few < max(len(first), len(second))
        for kind, a, b, c, d in SequenceMatcher(None, first, second, False).get_opcodes():
            if kind == "equal":
                anchors += first[a:b]
            elif kind == "replace":
                some = min(b - a, d - c) if 0 in (a, c) or elliptic else COMPARED
                for end in (slice(-some, None), slice(some)):
                    here, there = (content.intersection(x[end]) for x in (first[a:b], second[c:d]))
                    told = bool(own & here - there), bool(own & there - here)
                    sides |= {told[0]} if here and there and told[0] != told[1] else set()
        same = (4 if elliptic else 2) * len(anchors) >= few
        if len(sides) > 1 and (same or content.intersection(anchors)):
            return True
    return False


def _runs(part: Sequence[str], text: Sequence[str]) -> bool:
    """Whether the words of a part stand side by side in a text."""
    return f" {' '.join(part)} " in f" {' '.join(text)} "


def _has_half(text: Iterable[str], own: set[str]) -> bool:
    return 2 * len(own.intersection(text)) >= len(own)


def _clauses(text: str) -> list[str]:
    """The clauses of a text, each with what parts it from the next one."""
    ends = (found.end() for found in islice(CLAUSE.finditer(text), COMPARED))
    bounds = [0, *ends, len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


def swapped_words(claim: str, sentence: str, lexicon: Lexicon) -> list[tuple[str, str]]:
    """The content words of a claim in whose place a sentence of a source has others: (its, ours).

    "The mean is the middle value" has one beside "The median is the middle value", and so has
    "before" beside "after". Inflection and order are no difference. Only runs of as many words
    count, and names; and only in a claim that has at least half of its content words in the order
    of the sentence: what is worded quite otherwise is not compared.
    """
    ours, theirs = (_in_order(text, lexicon)[:IN_ORDER] for text in (claim, sentence))
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
        if their in only_theirs
        if our in only_ours or (our.isdigit() and their.isdigit())
    ]


def _with_denials(text: str, known: Container[str]) -> str:
    """The text with "not clear" for "unclear", and the like, where "clear" is known."""

    def denied(found: re.Match[str]) -> str:
        bare = (word for word in (found[1], f"{found[2]}ful", found[2]) if word in known)
        return f"not {word}" if (word := next(bare, "")) else found[0]

    return DENIED.sub(denied, text)


def _in_order(text: str, lexicon: Lexicon) -> list[str]:
    """The content words of a text in order, and the stop words in `PLACED`."""
    return content_words(_replaced(text, PLACED), language=lexicon.language)


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
