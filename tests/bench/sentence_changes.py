"""Changes of sentences by kind: numbers, dates, limits, hedges, quantifiers, causes and the like.

A change gives a claim, or a pair: what the passage says in place of the sentence, and the claim.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple


class Case(NamedTuple):
    """A sentence of a passage, and all sentences of it."""

    text: str
    around: Sequence[str]
    draw: random.Random


Change = Callable[[Case], str | tuple[str, str]]  # "" where it cannot be made


def lower_first(text: str) -> str:
    first = text.split(" ", 1)[0]
    return text[0].lower() + text[1:] if first[1:].islower() or len(first) == 1 else text


def upper_first(text: str) -> str:
    return text[0].upper() + text[1:]


def one(pattern: str, new: str | Callable[[re.Match[str]], str]) -> Callable[[Case], str]:
    """A change of one place where a pattern is found, at random."""

    def change(case: Case) -> str:
        found = list(re.finditer(pattern, case.text))
        if not found:
            return ""
        at = case.draw.choice(found)
        made = new(at) if callable(new) else at.expand(new)
        return case.text[: at.start()] + made + case.text[at.end() :]

    return change


def forms(pattern: str, *written: str | Callable[[re.Match[str]], str]) -> Change:
    """One place where a pattern is found, said in one of these forms and claimed in another."""

    def change(case: Case) -> str | tuple[str, str]:
        found = list(re.finditer(pattern, case.text))
        if not found:
            return ""
        at = case.draw.choice(found)
        said, claimed = (
            case.text[: at.start()]
            + (f(at) if callable(f) else at.expand(f))
            + case.text[at.end() :]
            for f in case.draw.sample(written, 2)
        )
        return "" if said == claimed else (said, claimed)

    return change


def either(*changes: Change) -> Change:
    """The first of these changes that can be made, in a drawn order."""

    def change(case: Case) -> str | tuple[str, str]:
        tried = (each(case) for each in case.draw.sample(changes, len(changes)))
        return next((made for made in tried if made), "")

    return change


def reverse(change: Change) -> Change:
    """What was claimed is said, and what was said is claimed."""

    def turned(case: Case) -> str | tuple[str, str]:
        made = change(case)
        return (
            (made, case.text) if isinstance(made, str) and made else (made and (made[1], made[0]))
        )

    return turned


def another(*group: str) -> Callable[[Case], str]:
    """One of these words or phrases in the place of another one."""
    known = "|".join(sorted(group, key=len, reverse=True))

    def change(case: Case) -> str:
        return one(
            rf"\b(?:{known})\b", lambda at: case.draw.choice([w for w in group if w != at[0]])
        )(case)

    return change


def added_at_end(*written: str) -> Change:
    """The end of a sentence, said in one of these ways and claimed in another."""

    def change(case: Case) -> tuple[str, str]:
        said, claimed = case.draw.sample(written, 2)
        said, claimed = (f"{case.text[:-1]} {end}".rstrip(".") + "." for end in (said, claimed))
        return said, claimed

    return change


COUNTED = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
BY_TEN = "zero ten twenty thirty forty fifty sixty seventy eighty ninety"
ONES, TENS = COUNTED.split(), BY_TEN.split()
NTH_WORDS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
)
NTH = NTH_WORDS.split()


def in_words(number: int) -> str:
    if number < 20:
        return ONES[number]
    if number < 100:
        return TENS[number // 10] + (f"-{ONES[number % 10]}" if number % 10 else "")
    large, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    rest = in_words(number % large) if number % large else ""
    return f"{in_words(number // large)} {name}" + (f" and {rest}" if rest else "")


def nth(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number in (11, 12, 13) else ending}"


MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
DATE = rf"\b(?:(\d\d?) ({MONTHS})|({MONTHS}) (\d\d?)),? (\d{{4}})\b"


def dated(form: str) -> Callable[[re.Match[str]], str]:
    def written(at: re.Match[str]) -> str:
        day, month = int(at[1] or at[4]), at[2] or at[3]
        if not 0 < day < 29:
            return at[0]
        date = datetime.strptime(f"{day} {month} {at[5]}", "%d %B %Y")
        return date.strftime(form.replace("NTH", nth(day)).replace("%e", str(day)))

    return written


def listed(case: Case) -> tuple[str, str] | str:
    """The items of a sentence as a list in the passage."""
    found = re.fullmatch(
        r"((?:(?! and | or )[^,;:]){15,}? "
        r"(?:are|include|includes|contains|has|have|of|for|with|as)) "
        r"((?:[\w' -]{3,40}, ){1,6}[\w' -]{3,40}),? and ([\w' -]{3,40})\.",
        case.text,
    )
    if not found:
        return ""
    items = [*found[2].split(", "), found[3]]
    mark = case.draw.choice(["- ", "* ", "• "])
    return f"{found[1]}:\n" + "\n".join(mark + item for item in items) + "\n", case.text


def turned(word: str) -> Callable[[Case], str]:
    """The two clauses that a conjunction joins, exchanged."""

    def change(case: Case) -> str:
        behind = re.fullmatch(rf"([^,;:]{{25,}}) ({word}) ([^,;:]{{15,}})\.", case.text)
        before = re.fullmatch(rf"({word}) ([^,;:]{{15,}}), ([^,;:]{{20,}})\.", case.text, re.I)
        if behind:
            return f"{upper_first(behind[3])} {behind[2]} {lower_first(behind[1])}."
        if before:
            return f"{before[1]} {lower_first(before[3])}, {before[2]}."
        return ""

    return change


def in_front(word: str) -> Callable[[Case], str]:
    """A clause with this conjunction before the other one instead of behind it, or otherwise."""

    def change(case: Case) -> str:
        behind = re.fullmatch(rf"([^,;:]{{25,}}) ({word} [^,;:]{{15,}})\.", case.text)
        before = re.fullmatch(rf"({word} [^,;:]{{15,}}), ([^,;:]{{20,}})\.", case.text, re.I)
        if behind:
            return f"{upper_first(behind[2])}, {lower_first(behind[1])}."
        return f"{upper_first(before[2])} {lower_first(before[1])}." if before else ""

    return change


AMOUNT = (
    r"(?<=[a-z] )(?<!least )(?<!most )(?<!than )(?<!over )(?<!about )(?<!to )(?<!and )(?<!minus )"
)
AMOUNT += r"(\d+) ((?!(?:in|of|and|to|or|the|for|with|that|which|was|is) )[a-z]{3,})(?= [a-z]|\.)"
BE = r"(?<![Tt]here )\b(is|are|was|were)\b(?! not| no )"
HEDGING = (
    "rarely|seldom|scarcely ever|hardly ever|supposedly|purportedly|allegedly|almost|nearly|"
    "possibly|presumably|perhaps|by no means|barely|reportedly"
)
HEDGES = HEDGING.split("|")
TURNING = (  # adverbs that may not be left out
    "rarely|supposedly|purportedly|allegedly|reportedly|nearly|hardly|possibly|barely|scarcely|"
    "usually|apparently|virtually|practically|generally|normally|frequently|commonly|mostly|"
    "typically"
)
FRAMING = (
    "It is false that|It is not true that|It is a myth that|The authors denied that|"
    "It is doubtful that|The authors rejected the claim that|It has been disproved that|"
    "It is unlikely that|Few believe that"
)
FRAMES = FRAMING.split("|")
HOW_MANY = "all|most|some|few|several|no|none"
QUANTIFIED = (
    r"\b(?:all|most|some|many|few|several|no|both|every|each)(?: of)?(?= (?:the |these )?[a-z]{3,})"
)
PLURAL = r"\b(?<!of )[Tt]he (?=[a-z]{4,}s (?:are|were|have|had|can|may|do|did)\b)"
MODAL = r"\b(may|might|can|could|must|should)\b(?! not\b|not\b)(?= [a-z]+\b)"
BARE = r"\b(is|are|was|were|an?|the|of|with) ([a-z]{3,}(?:able|ible|ive|al|ic|ful|ous|ary|ed))\b"
VERB_PASSIVE = re.compile(
    r"((?:The|A|An|This|It|He|She|[A-Z]\w+)(?: (?!that|which|who)[\w-]+){0,6}?) (is|are|was|were) "
    r"(\w+ed|built|made|found|held|won|led) by "
    r"((?:(?!\w+ing|\d|in |on |at )[\w-]+ ?){1,4}?)((?: (?:in|on|at|for|during|to)"
    r"(?: (?!by )[\w-]+){1,8})?)\."
)


def active(said_to_claim: str) -> Change:
    """A passive sentence, said in the active voice and claimed in this one."""

    def change(case: Case) -> tuple[str, str] | str:
        found = VERB_PASSIVE.fullmatch(case.text)
        if not found:
            return ""
        patient, be, verb, agent, rest = (part.strip() for part in found.groups())
        named = {"be": be, "verb": verb}
        named |= {"patient": lower_first(patient), "agent": lower_first(agent)}
        said, claimed = (
            upper_first(f"{form.format(**named)} {rest}".strip()) + "."
            for form in ("{agent} {verb} {patient}", said_to_claim)
        )
        return said, claimed

    return change


def hedged(case: Case) -> str:
    return one(BE, lambda at: f"{at[0]} {case.draw.choice(HEDGES)}")(case)


def framed(case: Case) -> str:
    return f"{case.draw.choice(FRAMES)} {lower_first(case.text)}"


def opposed(case: Case) -> str:
    """A prefix or ending that denies a word, added or taken away."""
    prefix = case.draw.choice(["non-", "non", "un"])
    added = one(BARE, rf"\1 {prefix}\2")
    taken = one(
        r"\b(?:un|non-?|in|im|ir)([a-z]{3,}(?:able|ible|ive|al|ic|ful|ous|ary|ed|ent|ant))\b", r"\1"
    )
    ending = either(one(r"\b([a-z]{3,})less\b", r"\1ful"), one(r"\b([a-z]{3,})ful\b", r"\1less"))
    made = either(added, taken, ending)(case)
    return made if isinstance(made, str) else ""


def quantified(case: Case) -> str:
    words = HOW_MANY.split("|")
    return one(
        QUANTIFIED, lambda at: case.draw.choice(words) if at[0].split()[0] != "no" else "all"
    )(case)


def quantifier_added(case: Case) -> str:
    new = case.draw.choice(
        ["all the ", "most of the ", "some of the ", "few of the ", "none of the "]
    )
    made = one(PLURAL, new)(case)
    return upper_first(made) if made else ""


def modal_dropped(at: re.Match[str]) -> str:
    return "is" if at[2] == "be" else f"{at[2]}s"


def ranged(case: Case) -> str:
    number = r"(?<![\w.,–/-])(\d+(?:\.\d+)?)"
    end = r"(\d+(?:\.\d+)?)(?![\w,–/-]|\.\d)"
    new = case.draw.choice([r"\1 and \2", r"\1 or \2", r"\2", r"\1"])
    return one(rf"(?:\b(?:between|from) )?{number}(?: to | ?[–-] ?){end}", new)(case)


HONEST: dict[str, Change] = {
    "a number above twelve in words, or in digits": forms(
        r"(?<![\w.,:$€£/–-])(?<!\d )(1[3-9]|[2-9]\d|[1-9]\d0|[1-9]000)(?= [a-z])",
        r"\1",
        lambda at: in_words(int(at[1])),
    ),
    "thousands with and without a separator": forms(
        r"(?<![\w.,$-])(\d{1,3}),(\d{3})(?![\w,.-])", r"\1,\2", r"\1\2", "\\1\u202f\\2"
    ),
    "millions in digits": forms(
        r"(?<![\w.,])(\d{1,3}(?:\.\d)?) (million|billion)\b(?! dollars)",
        r"\1 \2",
        lambda at: f"{round(float(at[1]) * 10) * (10**5 if at[2] == 'million' else 10**8):,}",
    ),
    "degrees as a sign": forms(
        r"(?<=\d)(?: ?° ?([CF])\b| degrees (Celsius|Fahrenheit))",
        lambda at: " degrees Celsius" if "C" in at[0] else " degrees Fahrenheit",
        lambda at: " °C" if "C" in at[0] else " °F",
    ),
    "a limit behind a number": forms(AMOUNT, r"at least \1 \2", r"\1 \2 or more"),
    "an age": forms(
        AMOUNT, r"at least \1 years", r"\1 years or older", r"no younger than \1 years"
    ),
    "`no longer than` and its like": either(
        forms(AMOUNT, r"at most \1 \2", r"no longer than \1 \2", r"no more than \1 \2"),
        forms(AMOUNT, r"at most \1 \2", r"not exceeding \1 \2", r"\1 \2 or fewer"),
        forms(AMOUNT, r"at least \1 \2", r"no shorter than \1 \2", r"a minimum of \1 \2"),
        forms(AMOUNT, r"under \1 \2", r"fewer than \1 \2", r"shorter than \1 \2"),
    ),
    "`per cent`, `percent`, `%`": forms(
        r"(?<=\d) ?(?:%|per ?cent)(?!\w)", "%", " per cent", " percent"
    ),
    "an ordinal in digits": forms(
        rf"\b(?<!-)(?:{'|'.join(NTH)})\b(?!-)(?! per)",
        r"\g<0>",
        lambda at: nth(NTH.index(at[0]) + 1) if at[0] != "second" or at.start() else at[0],
    ),
    "another form of money": forms(
        r"(?<![\w.])\$(\d+(?:\.\d+)?)(?![\w,.-]| (?:million|billion))",
        r"$\1",
        r"\1 USD",
        r"\1 dollars",
        r"USD \1",
    ),
    "the time of the day, with or without pm": either(
        added_at_end("at 2:30 pm", "at 14:30", "at 2.30 p.m."),
        added_at_end("at 9 am", "at 09:00", "at 9:00 a.m."),
        added_at_end("at 11:05 PM", "at 23:05"),
    ),
    "a date in another form": forms(
        DATE, dated("%e %B %Y"), dated("%B %e, %Y"), dated("%Y-%m-%d"), dated("the NTH of %B %Y")
    ),
    "another form of a sign": forms(AMOUNT, r"minus \1 \2", r"-\1 \2", "\u2212\\1 \\2"),
    "a list of items as a sentence": listed,
    "`has no`, `does not have`, `lacks`": forms(
        r"\bhas an? (?=[a-z])", "has no ", "does not have a ", "lacks a "
    ),
    "another word of necessity or ability": either(
        forms(r"\bmust (?=[a-z])(?!not|have)", "must ", "has to ", "is required to "),
        forms(r"\b(?:can|may) (?=[a-z])(?!not|have)", "can ", "is able to "),
    ),
    "another word for how many": either(
        forms(r"\b[Mm]ost (?=(?:of )?the |[a-z]+s\b)(?!of)", "most ", "the majority of "),
        forms(r"\b[Aa]ll (?=(?:of )?the )", "all ", "all of "),
        forms(r"\b(?<!a )few (?=[a-z]+s\b)", "few ", "only a few "),
    ),
    "cause or condition in front, or behind": either(*map(in_front, ("because", "if", "unless"))),
    "another word for a cause": forms(
        r"\b(?:because of|due to|owing to)\b", "because of", "due to", "owing to", "as a result of"
    ),
    "a range in another form": forms(
        r"(?<![\w.,–/-])(?:between (\d+(?:\.\d+)?) and (\d+(?:\.\d+)?)|(\d\d?) ?[–-] ?(\d\d?))"
        r"(?![\w,–/-]|\.\d)",
        lambda at: f"between {at[1] or at[3]} and {at[2] or at[4]}",
        lambda at: f"{at[1] or at[3]} to {at[2] or at[4]}",
        lambda at: f"{at[1] or at[3]}-{at[2] or at[4]}",
        lambda at: f"from {at[1] or at[3]} to {at[2] or at[4]}",
    ),
    "a fraction in another form": either(
        forms(
            r"\b(?:one|a)[- ](?:quarter|fourth) of\b", "a quarter of", "one quarter of", "25% of"
        ),
        forms(r"\btwo[- ]thirds\b", "two thirds", "two-thirds"),
        forms(r"\b[Hh]alf of\b", "half of", "50% of", "50 percent of"),
    ),
    "passive for active": active("{patient} {be} {verb} by {agent}"),
    "two words around `and` exchanged": one(
        r"(?<=[a-z] )(?<!between )\b([a-z]{4,}) and ([a-z]{4,})(?=\.)", r"\2 and \1"
    ),
    "`not` for a prefix": forms(
        r"\b(is|are|was|were) un((?:clear|known|likely|able|common|usual|necessary|stable|"
        r"important|"
        r"certain|available|affected|changed|related|aware|safe|equal|even|fair|happy)\b)",
        r"\1 un\2",
        r"\1 not \2",
    ),
    "another hedge of the same kind": either(
        forms(BE, r"\1 almost", r"\1 nearly"), forms(BE, r"\1 rarely", r"\1 seldom")
    ),
}
SIGNED = one(AMOUNT, r"minus \1 \2")
ALTERED: dict[str, Change] = {
    "a sign added or left out": either(
        SIGNED, reverse(SIGNED), reverse(one(AMOUNT, "\u2212\\1 \\2")), one(AMOUNT, r"-\1 \2")
    ),
    "below zero or not": either(
        added_at_end("at 20 degrees", "at 20 degrees below zero"),
        added_at_end("at 7 °C", "at -7 °C"),
    ),
    "`am` for `pm`": either(
        added_at_end("at 9:40 am", "at 9:40 pm"),
        added_at_end("at 7 p.m.", "at 7 a.m."),
        added_at_end("at 14:30", "at 2:30 am"),
    ),
    "`on` for `off`, `in` for `out`": either(
        one(r"\boff\b", "on"),
        one(r"\b([a-z]{3,}(?:ed|s|ing|t|ut|ok|wn|en)) out\b(?! of)", r"\1 in"),
        one(r"\b(turned|turns|put|switched|carried|goes|moved|went) on\b", r"\1 off"),
        added_at_end("with the light turned off", "with the light turned on"),
    ),
    "`non-`, `un-`, `-less` added or left out": opposed,
    "cause and effect exchanged": either(
        turned("because"), turned("since"), turned("so(?! that| far)")
    ),
    "a condition and what follows from it exchanged": either(turned("if"), turned("unless")),
    "passive for active with the roles exchanged": active("{agent} {be} {verb} by {patient}"),
    "`or` for `and`": one(r"(?<=[a-z] )(?<!both )\b([a-z]{4,}) and ([a-z]{4,})\b", r"\1 or \2"),
    "`and` for `or`": one(r"(?<=[a-z] )\b([a-z]{4,}) or ([a-z]{4,})\b", r"\1 and \2"),
    "a hedge added": hedged,
    "a hedge left out": reverse(hedged),
    "`it is false that` and its like": framed,
    "`has no` or `lacks` for `has`": either(
        one(r"\bhas (?:an? |the )?(?=[a-z]{3,}\b)(?!been|had|not|no )(?![a-z]+ed\b)", "lacks "),
        one(r"\bhas an? (?=[a-z])", "has no "),
        reverse(one(r"\bhas an? (?=[a-z])", "lacks a ")),
        reverse(one(r"\bhas an? (?=[a-z])", "has no ")),
    ),
    "another ordinal": another(*NTH[:12]),
    "another day or month": either(
        one(rf"\b({MONTHS}) (\d\d?)\b", lambda at: f"{at[1]} {int(at[2]) % 28 + 1}"),
        one(rf"\b(\d\d?) ({MONTHS})\b", lambda at: f"{int(at[1]) % 28 + 1} {at[2]}"),
        lambda case: one(
            rf"\b(\d\d?,? )?(?:{MONTHS})(?= \d)",
            lambda at: (at[1] or "") + case.draw.choice(MONTHS.split("|")),
        )(case),
        reverse(one(DATE, lambda at: dated("%Y-%m-%d")(at)[:-1] + "9")),
    ),
    "another quantifier": quantified,
    "a quantifier added": quantifier_added,
    "another modal verb": another("must", "may", "should", "will"),
    "a modal verb added": one(
        r"(?<=[a-z] )(is|are)\b(?! not)",
        lambda at: "may be" if at.start() % 2 else "must be",
    ),
    "a modal verb left out": one(rf"{MODAL} ((?!have|not)[a-z]+)\b", modal_dropped),
    "another multiple": either(
        another("twice", "three times", "four times"),
        another("doubled", "tripled", "halved"),
        another("two-fold", "three-fold", "twofold", "threefold", "fourfold"),
        reverse(one(r"\b(as (?!well|much|far|soon|long|part)[a-z]+ as)\b", r"twice \1")),
    ),
    "another fraction": another(
        "half", "a third", "one third", "two thirds", "a quarter", "three quarters"
    ),
    "`percent` left out, or percentage points": either(
        one(r"(?<=\d) ?(?:%|percent)(?!\w)", " percentage points"), one(r"(?<=\d) ?%(?= of)", " ")
    ),
    "a range as two numbers, or one end of it": ranged,
}
