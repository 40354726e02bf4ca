"""What the check of sentences makes of honest and of altered sentences of passages.

    python tests/bench/attribution.py SET ... [--cases 150]

A set is a folder in the BEIR layout. Of each come at most `--cases` sentences a row, drawn and
changed by one seed, and checked against their passages by words alone. Printed is how often they
are accepted: honest ones should be, altered ones should not.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import sentence_changes
from sentence_changes import Case, Change, lower_first, one, upper_first

from rerank.data.words import STOP_WORDS, words
from rerank.rag.answer.attribution import SupportCheck
from rerank.rag.answer.sentences import split_passage
from rerank.rag.answer.sources import sources_of
from rerank.types import RankedPassage

BE = "(?:is|are|was|were)"
NOT = re.compile(r"\b(is|are|was|were|do|does|did|has|have|could|should|would)(?: not|n['’]t)\b")
AGENT = r"((?:(?!\w+ing|\d|in |on |at )[\w-]+ ?){1,4}?)"
PASSIVE = re.compile(
    rf"((?:[\w-]+ ){{1,8}}?)({BE}) (\w+ed|built|made|found|held|won|led) by {AGENT}"
    r"((?: (?:in|on|at|for|during|to)(?: (?!by )[\w-]+){1,8})?)\."
)
ENDING = re.compile(r"(.{30,}?),? ((?:if|when|because|before|after|until|in|during|for) [^,]+)\.")
FIRST = r"(?:However|Also|Thus|Moreover|Therefore|In addition|Furthermore),? "
LAST = re.compile(
    r"((?!Al|If|When|With|For|In|As|Wh|To|Af|Be|Du|On).{40,}), (?!and|or|nor|but)[^,]+\.$"
)
PREPOSITIONS = "from to into before after with without over under above below until since"
COUNTS = "two three four five six seven eight nine ten"
LIMITS = "at least,at most,more than,less than,up to,over,under"
UNITS = """
seconds minutes hours days weeks months years
metres feet inches kilometres miles yards
meters inches kilometers yards
m cm mm km ft
kg pounds g mg lb tons
percent degrees
million billion thousand
patients mice cells people children
"""
OPPOSITES = (
    "increase decrease,increased decreased,higher lower,high low,more less,more fewer,before after,"
    "above below,over under,first last,maximum minimum,always never,all some,most few,late early,"
    "positive negative,larger smaller,long short,north south,east west,inside outside,left right,"
    "begin end,began ended,start stop,new old,upper lower,greater less,best worst,many few,"
    "same different,with without,until after"
)
PAIRS = [pair.split() for pair in OPPOSITES.split(",")]
OTHER = {word: other for a, b in PAIRS for word, other in ((a, b), (b, a))}
SAME_KIND = {unit: line.split() for line in UNITS.splitlines() for unit in line.split()}
UNIT = "|".join(sorted(SAME_KIND, key=len, reverse=True))
STOP = STOP_WORDS["english"]
SHOWN = 25


@dataclass
class Words:
    """The idf of the words of a set, as BM25's."""

    found_in: Counter[str]
    passages: int
    language: str = "english"

    def idf(self, word: str, /) -> float:
        """The inverse document frequency."""
        found = self.found_in[word]
        return math.log(1 + (self.passages - found + 0.5) / (found + 0.5))


def joined(case: Case) -> str:
    others = [s for s in case.around if s != case.text and re.fullmatch(r"[A-Z].{20,150}\.", s)]
    return f"{case.text[:-1]}, and {lower_first(case.draw.choice(others))}" if others else ""


def passive(new: str) -> Change:
    """A passive clause of a patient, a verb and an agent, written anew."""

    def change(case: Case) -> str:
        found = PASSIVE.fullmatch(case.text)
        if not found:
            return ""
        patient, be, verb, agent, rest = (part.strip() for part in found.groups())
        said = new.format(patient=lower_first(patient), be=be, verb=verb, agent=lower_first(agent))
        return upper_first(f"{said} {rest}".strip()) + "."

    return change


def fronted(case: Case) -> str:
    found = ENDING.fullmatch(case.text)
    return f"{upper_first(found[2])}, {lower_first(found[1])}." if found else ""


def contracted(case: Case) -> str:
    return one(NOT.pattern, lambda m: f"{m[1]}n't" if m[0].endswith(" not") else f"{m[1]} not")(
        case
    )


def spelled(case: Case) -> str:
    numbers = {word: str(number) for number, word in enumerate(COUNTS.split(), start=2)}
    numbers |= {number: word for word, number in numbers.items()}
    either = "|".join(numbers)
    return one(
        rf"(?<![\w.,])(?<![A-Z][a-z][a-z] )(?:{either})(?![\w.,:-]| [A-Z]| ?[ap]\.?m\b)",
        lambda m: numbers[m[0]],
    )(case)


def inflected(case: Case) -> str:
    def other(at: re.Match[str]) -> str:
        return at[0] if at[0] in STOP else at[0][:-1] if at[0].endswith("s") else f"{at[0]}s"

    made = one(r"\b[a-z]{5,}(?=[ .,])", other)(case)
    return made if words(made) == words(case.text) else ""


def without(pattern: str) -> Change:
    """The first group of a pattern that the sentence begins with."""

    def change(case: Case) -> str:
        found = re.match(pattern, case.text)
        return upper_first(found[1]).rstrip(".") + "." if found else ""

    return change


def over(case: Case) -> str:
    either = {"more than": "over", "over": "more than"}
    return one(r"\b(?:more than|over)(?= \d)", lambda m: either[m[0]])(case)


def from_passage(pattern: str, fits: Callable[[str, str], bool]) -> Change:
    """Another one of the words of the passage with this pattern in the place of one."""

    def change(case: Case) -> str:
        found = sorted(set(re.findall(pattern, " ".join(case.around))))

        def other(at: re.Match[str]) -> str:
            fitting: list[str] = [word for word in found if fits(word, at[0])]
            return case.draw.choice(fitting or [at[0]])

        return one(pattern, other)(case)

    return change


def exchanged(pattern: str, apart: int) -> Change:
    """Two parts of the sentence, this far apart, with a content word between, exchanged."""

    def change(case: Case) -> str:
        found = [m for m in re.finditer(pattern, case.text) if m[0].lower() not in STOP]
        pairs = [
            (a, b)
            for a, b in zip(found, found[apart:], strict=False)
            if words(a[0]) != words(b[0])
            and not re.search(r"\b(?:and|or)\b|,", between := case.text[a.end() : b.start()])
            and {*re.findall("[a-z]+", between)} - STOP
        ]
        if not pairs:
            return ""
        a, b = case.draw.choice(pairs)
        middle = case.text[a.end() : b.start()]
        return case.text[: a.start()] + b[0] + middle + a[0] + case.text[b.end() :]

    return change


def negated(case: Case) -> str:
    auxiliary = r"\b(is|are|was|were|can|could|has|have|will|should|must|may)\b(?! not)"
    return one(NOT.pattern, r"\1")(case) or one(auxiliary, r"\1 not")(case)


def preposition(case: Case) -> str:
    known = PREPOSITIONS.split()
    either = "|".join(known)
    return one(rf"\b(?:{either})\b", lambda m: case.draw.choice([w for w in known if w != m[0]]))(
        case
    )


def other_unit(case: Case) -> str:
    def other(at: re.Match[str]) -> str:
        return at[1] + case.draw.choice([u for u in SAME_KIND[at[2]] if u != at[2]])

    return one(rf"(\d ?)({UNIT})(?=\W)", other)(case)


def limited(case: Case) -> str:
    new = case.draw.choice(LIMITS.split(","))
    bare = r"(?<=[a-z] )(?<!least )(?<!most )(?<!than )(?<!over )(?<!about )\d+(?= [a-z])"
    return one(bare, rf"{new} \g<0>")(case)


def if_without(word: str, change: Change) -> Change:
    return lambda case: "" if re.search(rf"\b{word}\b", case.text.lower()) else change(case)


HONEST: dict[str, Change] = {
    "copied": lambda case: case.text,
    "begun with `According to the source, `": lambda case: (
        f"According to the source, {lower_first(case.text)}"
    ),
    "two sentences joined by `and`": joined,
    "its last adverbial in front": fronted,
    "active for passive": passive("{agent} {verb} {patient}"),
    "`n't` for `not`, or the other way round": contracted,
    "`3` for `three`, or the other way round": spelled,
    "`percent` for `%`": one(r"(?<=\d)%(?!\w)", " percent"),
    "`more than` for `over`, or the other way round": over,
    "a word in the singular or plural": inflected,
    "without its first word, such as `However`": without(f"{FIRST}(.+)"),
    "without an adverb": one(rf" \b(?!only|{sentence_changes.TURNING})[a-z]{{3,}}ly\b(?=[ ])", ""),
    "without what is in brackets": one(r" \([^()]+\)(?!\w|-)", ""),
    "without its last clause": without(LAST.pattern),
}
ALTERED: dict[str, Change] = {
    "a number: one digit": one(r"\d(?![\d.]*\])", lambda m: str((int(m[0]) + 1) % 10)),
    "a number: another one of the passage": from_passage(
        r"(?<![\w.,-])\d+(?:\.\d+)?(?![\w,-])", lambda new, old: new != old
    ),
    "a unit": other_unit,
    "a unit: several words": one(rf"(\d ?)({UNIT})(?=\W)", r"\1barrels per square foot"),
    "a unit: another one of the passage": from_passage(
        rf"(?<=\d )(?!(?:{'|'.join(STOP)})\b)[a-z]{{3,}}\b", lambda new, old: new[:4] != old[:4]
    ),
    "negated, or no longer": negated,
    "an opposite": one(rf"\b(?:{'|'.join(OTHER)})\b", lambda m: OTHER[m[0]]),
    "another preposition": preposition,
    "two names exchanged": exchanged(
        r"(?<=[a-z,] )[A-Z][\w-]+(?: [A-Z][\w-]+)*|^[A-Z]\w+(?= [a-z])", 1
    ),
    "two content words exchanged": exchanged(r"\b[a-z]{4,}\b", 2),
    "agent and patient exchanged": passive("{agent} {be} {verb} by {patient}"),
    "the patient as agent": passive("{patient} {verb} {agent}"),
    "`only` behind a verb": if_without("only", one(rf"\b({BE}|can|has|have)\b", r"\1 only")),
    "`only` at the beginning": if_without("only", lambda case: f"Only {lower_first(case.text)}"),
    "`only` left out": one(r"\b[Oo]nly (?=\w)", ""),
    "`at least`, `over` and the like before a number": limited,
}


HONEST |= sentence_changes.HONEST
ALTERED |= sentence_changes.ALTERED


class Made(NamedTuple):
    """A changed sentence."""

    sentence: str
    said: str  # what the passage says in its place
    claimed: str


def first_change(
    change: Change, fit: Sequence[str], around: Sequence[str], draw: random.Random
) -> Made | None:
    for sentence in draw.sample(fit, len(fit)):
        new = change(Case(sentence, around, draw))
        said, claimed = (sentence, new) if isinstance(new, str) else new
        if claimed and (said != claimed or change is HONEST["copied"]):
            return Made(sentence, said, claimed)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument("--show", default="", help="print cases of this row that went wrong")
    args = parser.parse_args()
    counts = defaultdict[str, Counter[bool]](Counter)
    shown = 0
    for folder in args.sets:
        rows = [json.loads(line) for line in (folder / "corpus.jsonl").open()]
        random.Random(0).shuffle(rows)
        found_in = Counter(w for r in rows for w in set(words(f"{r.get('title')} {r['text']}")))
        check = SupportCheck(Words(found_in, len(rows)))
        own = Counter[str]()
        for row in rows:
            around = split_passage(row["text"])
            fit = [s for s in around if re.fullmatch(r"[A-Z][^\n]{40,300}[a-z0-9)]\.", s)]
            if not fit:
                continue
            title = row.get("title") or ""
            passage = RankedPassage(row["_id"], title, row["text"], {}, 1.0, None, 0.0, 0.0, 0)
            for name, change in (HONEST | ALTERED).items():
                if own[name] >= args.cases:
                    continue
                draw = random.Random(f"{row['_id']} {name}")
                made = first_change(change, fit, around, draw)
                if not made:
                    continue
                own[name] += 1
                text = row["text"].replace(made.sentence, made.said, 1)
                checked = check(
                    f"{made.claimed[:-1]} [S1].", sources_of([replace(passage, text=text)])
                )
                accepted = all(one.supported for one in checked)
                counts[name][accepted] += 1
                if args.show == name and accepted != (name in HONEST) and shown < SHOWN:
                    shown += 1
                    print(f"- {made.said}\n  {made.claimed}")
    for kind in (HONEST, ALTERED):
        total = sum((counts[name] for name in kind), Counter[bool]())
        for name, each in [*((n, counts[n]) for n in kind), ("all", total)]:
            print(f"| {name} | {each.total()} | {100 * each[True] / max(each.total(), 1):.1f}% |")


if __name__ == "__main__":
    main()
