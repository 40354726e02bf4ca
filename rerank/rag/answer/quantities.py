"""The numbers, times, dates, units and limits of a text, each in one form.

In English "twenty-one" becomes 21, "2 pm" 14_00, "5 May" May m5_5, "-20" minus_20, "a quarter"
25 percent, "5-10" 5 thru 10, and "18 or older" at least 18. Other languages keep their words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from unicodedata import numeric

from rerank.data.words import STOP_WORDS, Lexicon, cached_by_bytes, content_words, words
from rerank.rag.answer.relations import PHRASES

NEAR = 60  # characters beside a number in which its unit is looked for
NUMBER = re.compile(r"(?<![\w.])(?:minus_)?\d++(?:\.\d++)?(?!th\b)")
RANGE = rf"(?:\s?(?:-|–|to|thru|and|or)\s?{NUMBER.pattern}){{0,3}}"
UNIT = re.compile(rf"{RANGE}[ -]?([^\W\d_]+)")  # what follows a number or a range
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))|(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
SPACED = re.compile(r"(?<![\w.])(?<!\d )\d{1,3}(?: \d{3}){1,3}(?![\w.]*\d| \d)")
LONGEST_INTRODUCTION = 300  # characters before a list that are read as the sentence of its items
LIST = re.compile(r":[ \t]*\n{1,2}((?:[ \t]*(?:[-*•]|\d{1,3}[.)])[ \t][^\n]{1,80}\n*){2,})")

COUNTS = """
one two three four five six seven eight nine
ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
"""
ORDINALS = """
first second third fourth fifth sixth seventh eighth ninth
tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth
"""
WORDS, NTH = COUNTS.split(), ORDINALS.split()
ONES, TENS = WORDS[:9], re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")
VALUES = {word: n for form in (WORDS, NTH) for n, word in enumerate(form, start=1)}
VALUES |= {ten[:-1] + y: 10 * n for n, ten in enumerate(TENS, start=2) for y in ("y", "ieth")}
SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
PARTS = {"half": 2, "halve": 2, "quarter": 4} | {word: VALUES[word] for word in NTH[2:12]}
MONTHS = "January February March April May June July August September October November December"
MONTH_OF = {m[:n]: i for i, m in enumerate(MONTHS.split(), 1) for n in (3, 4, len(m))}
EVERY = {"daily": "day", "weekly": "week", "monthly": "month", "yearly": "year"}
POWERS = {"": "", "k": "kilo", "c": "centi", "m": "milli", "M": "mega", "G": "giga"}
BASES = {"m": "meter", "g": "gram", "s": "second", "l": "liter", "B": "byte", "W": "watt"}
MONEY = {"$": "dollar", "€": "euro", "£": "pound"}
SPELLED = {p + b: POWERS[p] + BASES[b] for p, b in product(POWERS, BASES)} | {
    **{"%": "percent", "°C": "degree celsius", "°F": "degree fahrenheit", "°": "degree"},
    **{"USD": "dollar", "EUR": "euro", "GBP": "pound", "lb": "pound", "ft": "foot"} | MONEY,
    **{"feet": "foot", "h": "hour", "hr": "hour", "min": "minute", "sec": "second"},
}


def _any(names: Iterable[str]) -> str:
    return f"(?:{'|'.join(sorted(names, key=len, reverse=True))})"


def _shown(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.10g}"


def _value(found: re.Match[str]) -> str:
    """The sum of the tens and ones; "First, ..." begins a list, and is left."""
    if found[0][0].isupper() and found.string[found.end() :][:1] == ",":
        return found[0]
    parts = re.split("[ -]", found[0].lower())
    return str(sum(map(VALUES.__getitem__, parts))) + "th" * (
        parts[-1][-2:] in ("th", "st", "nd", "rd")
    )


def _scaled(found: re.Match[str]) -> str:
    """Hundreds, thousands and so on, with the smaller number behind them."""
    size, rest = SCALES[found["scale"].lower()], int(found["rest"] or 0)
    value = (float(found["first"]) if found["first"][0].isdigit() else 1) * size
    return _shown(value + rest) if rest < size else f"{_shown(value)}{found['behind']}"


def _part(found: re.Match[str]) -> str:
    many, part = (
        (found["many"] or "1").lower(),
        (found["part"] or found["one"] or found["less"] or "half").lower(),
    )
    share = (
        numeric(found["sign"]) if found["sign"] else (VALUES.get(many) or int(many)) / PARTS[part]
    )
    whole = found["whole"]
    return _shown(int(whole) + share) if whole else f"{_shown(round(100 * share, 1))} percent"


def _time(found: re.Match[str]) -> str:
    hour, half = int(found["hour"]), found["half"]
    return f"{hour % 12 + 12 * (half in 'pP') if half else hour}_{found['minute'] or '00'}"


def _date(found: re.Match[str]) -> str:
    """With the name of the month, which may be told without the day."""
    month, day = found["month"], int(found["day"])
    number = MONTH_OF.get(month) or int(month)
    if not (1 <= number <= 12 and 1 <= day <= 31):
        return found[0]
    return f"{MONTHS.split()[number - 1]} m{number}_{day} {found['year'] or ''}".rstrip()


A = r"\d+(?:[._]\d+)*"  # a number, a time or a version
SIGNED = rf"(?:\b(?:minus|negative) |(?<![^\s(\[=<>])[-\u2212])?{A}"
LOW, HIGH = (  # of a range; its ends have the same unit
    rf"(?P<low>(?P<money>[$€£])?{SIGNED})(?: ?(?P<unit>%|percent\b|°[CF]?))?",
    rf"(?(money)(?P=money)?)(?P<high>{SIGNED})(?![\w-]|\.\d)(?(unit)(?= ?(?:(?P=unit)|%|percent)))",
)
BETWEEN = r"(?: (?:and|or|to) | ?[-–] ?)"  # two days of a month
# the full stop of an abbreviation, not of a sentence
MONTH_NAME = _any(MONTH_OF)
MONTH = rf"(?P<month>{MONTH_NAME})\b(?:(?<!May)(?<!June)(?<!July)(?<![a-z]{{4}})\.(?=,| [a-z\d]))?"
YEAR = r"(?:,? (?P<year>\d{4})\b)?"
RANGED, TH = r"\g<low> thru \g<high>", "(?:st|nd|rd|th)?"
DAY = r"\b(?P<day>\d\d?)(?:st|nd|rd|th)?(?![\d:_.]{0,9}\d|\w)"
HALF = r"(?P<half>[ap])\.?m\b(?:\.(?=\s+(?-i:[a-z])))?"
PART = _any(PARTS)
UP = "(?:more|greater|higher|larger|longer|older|later|newer|taller|heavier)"
DOWN = "(?:less|fewer|lower|smaller|shorter|younger|earlier|lighter)"
LETTERS = _any(filter(str.isalpha, SPELLED))
CHANGED = r"(?:rais|ris|increas|f[ae]ll|drop|decreas|declin|reduc|extend|mov)\w*|rose|gr[eo]w\w*"
AMOUNT = r"(?= \d)"
OR = rf"(?<![\w.])({A}(?: (?!or\b|and\b)[a-z]+){{0,3}}) (?:or|and)"
FORMS: dict[str, str | Callable[[re.Match[str]], str]] = {  # in this order
    r"\bcannot\b|\bcan['’]t\b": "can not",
    r"\bwon['’]t\b": "will not",
    r"n['’]t\b": " not",
    rf"(?-i:\b({MONTH_NAME} )?(\d\d?){TH}(?={BETWEEN}\d\d?{TH} ({MONTH_NAME})\b))": (
        lambda found: found[0] if found[1] else f"{found[2]} {found[3]}"
    ),
    rf"(?-i:\b({MONTH_NAME}) (\d\d?{BETWEEN})(?={DAY}(?! {MONTH_NAME}\b)))": r"\1 \2\1 ",
    rf"(?-i:{DAY}(?: of)? {MONTH}{YEAR})": _date,
    rf"(?-i:\b{MONTH} {DAY}{YEAR})": _date,
    r"\b(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)\b": _date,
    r"(?-i:(?<=[\w,(] )May\b|\bMay(?= (?:m5_|\d{4})))": "Mai",  # no verb
    rf"(?<![\w:.])(\d\d?)(?= ?(?:to|and|-|–) ?\d\d?(?:[:.]\d\d)? ?{HALF})": r"\1 \g<half>m",
    rf"(?<![\w:.])(?P<hour>\d\d?)(?:[:.](?P<minute>\d\d))? ?(?:{HALF}|o['’]clock\b)": _time,
    r"(?<![\w:.])(?P<hour>\d\d?):(?P<minute>\d\d)(?P<half>)(?![:\d])": _time,
    r"\b(?:12 )?noon\b": "12_00",
    r"\b(?:12 )?midnight\b": "0_00",
    rf"\b(\d+|{_any(ONES)}) and a half\b": lambda found: (
        f"{VALUES.get(found[1].lower(), found[1])}½"
    ),
    r"\b(?:an?|one) (\w+) and a half\b": r"1½ \1s",
    r"(?<![\d/])(?P<whole>\d{0,9})(?P<sign>[\u00bc-\u00be\u2150-\u215e])"
    rf"|\b(?:(?P<many>\d|{_any(ONES)})[ -](?P<part>{PART})s?|an? (?P<one>{PART})(?= of\b)"
    rf"|(?<=\bby )an? (?P<less>{PART})(?=[^\w\s]|$| (?:in|from|to|since|on|and|while|when)\b)"
    r"|half(?!-))\b": _part,
    rf"\b(?:{_any(TENS)}[ -]{_any(NTH)}|{_any({*NTH} - {'second'})})\b": _value,
    rf"\b{_any(ten[:-1] for ten in TENS)}ieth\b": _value,
    rf"\b{_any(TENS)}(?:[ -]{_any(ONES)})?\b|\b{_any(WORDS[1:])}\b": _value,
    r"(?<!\d[ -])(?<!\bper )(?<!\bone )\bsecond\b(?! later)": _value,
    r"(?<![\w.])(\d+)(?:st|nd|rd)\b": r"\1th",
}
FORMS |= {
    rf"(?<![\w.])(?P<first>\d{{1,9}}(?:\.\d{{1,9}})?|an?|one)[ -](?P<scale>{scale})s?\b"
    rf"(?P<behind>(?:(?: and)? (?P<rest>\d{{1,9}})(?![.,]?\d|[ -]{_any(SCALES)}))?)": _scaled
    for scale in SCALES
}
FORMS |= {
    r"\btwice\b": "2 times",
    rf"\bonce\b(?=[,.;]|$| (?:a|per|every|each|{_any(EVERY)})\b)": "1 times",
    rf"(?:\b(?:every|each|per|(?<=\btimes )an?) )({_any(EVERY.values())})\b": (
        lambda found: next(ly for ly, period in EVERY.items() if period == found[1].lower())
    ),
    r"\bannually\b": "yearly",
    r"\bevery other\b": "sometimes 2th",  # not every one
    r"\b(?:every|each) (?=\d+th\b)": "sometimes ",
    r"\bbefore(?= (?:\d{4}\b|\d+_\d))": "under",
    r"\bafter(?= (?:\d{4}\b|\d+_\d))": "over",
    r"(?-i:(?<=[a-z] )A\b)(?!['’-]|\.\w)": "LetterA",  # as in "valve A"
    r"\bper cent\b": "percent",
    rf"\bapprox(?:\.|imately)(?= {SIGNED})": "about",
    r"\b(met|lit)re(?=s?\b)": r"\1er",
    rf"\bone (?={_any({*SPELLED.values(), *EVERY.values()})}\b)": "1 ",
    r" ?\bdegrees? (?=(?-i:[CF])\b)": "°",
    r"(?<![\w+)])(?:\+|(?<!\d )\bplus )(?=\d)": "",
    rf"\b(?:{CHANGED})\b[^.,;]{{0,30}}? from {SIGNED} to (?=\d)": (
        lambda found: f"{found[0]} "  # not a range
    ),
    rf"(?:\bfrom )?(?<![\w.-]){LOW}(?: (?:to|through) | ?[-–—] ?){HIGH}": RANGED,
    rf"\bbetween {LOW} and {HIGH}": RANGED,
    rf" ?(?:\bUS)?([$€£]|\b(?:USD|EUR|GBP)\b)\s?({A}(?: thru {SIGNED})?)": (
        lambda found: f" {found[2]} {SPELLED[found[1].upper()]}"
    ),
    rf"(?-i:({NUMBER.pattern})[ -]?(° ?[CF]\b|[%°$€£]|{LETTERS}\b))": (
        lambda found: f"{found[1]} {SPELLED[found[2].replace(' ', '')]}"
    ),
    r"\b(?:minus|negative) (?=\d)|(?<![^\s(\[=<>])(?<!\d )[-\u2212](?=\d)": "minus_",
    rf"(?<![\w.])({A}(?: degrees?)?(?: celsius| fahrenheit)?) below (?:zero|freezing)\b": (
        r"minus_\1"
    ),
    rf"\bnot be (?=(?:{UP}|{DOWN}) than\b)": "be no ",
    rf"\b(?:no|not) {DOWN} than{AMOUNT}|\ba minimum of{AMOUNT}": "at least",
    rf"\b(?:(?:no|not) {UP} than|up to|a maximum of|not exceeding){AMOUNT}": "at most",
    rf"\b(?:{UP} than|above|exceeding){AMOUNT}": "over",
    rf"\b(?:{DOWN} than|below){AMOUNT}": "under",
    rf"{OR} (?:{UP}|over|above|up)\b(?! than\b| \d)": r"at least \1",
    rf"{OR} (?:{DOWN}|under|below)\b(?! than\b| \d)": r"at most \1",
}
FORMS |= PHRASES
FORMS |= {  # "A for 24 months and B for 12"
    rf"\b(?P<by>(?:for|at|in|to|by) )({A})( [a-z]+)( and (?:the )?\w+(?: \w+)? )(?P=by)({A})"
    r"(?=[.,;](?!\d)|$)": r"\1\2\3\4\1\5\3"
}
COMPILED = [(re.compile(pattern, re.IGNORECASE), form) for pattern, form in FORMS.items()]


def _bytes_of(text: str) -> int:
    return 4 * len(text)


@cached_by_bytes(2**24, _bytes_of)
def plain(text: str, language: str) -> str:
    """The text, quantities and phrases in one form, and lists of short items as sentences too."""
    text = re.sub(r"[^\S\n]{2,}", " ", re.sub(r"\n\s*\n", "\n\n", text))
    for items in list(LIST.finditer(text)):
        introduction = text[max(0, items.start() - LONGEST_INTRODUCTION) : items.start()]
        own = [re.sub(r"^\W+(?:\d+\W+)?|[.,;\s]+$", "", item) for item in items[1].split("\n")]
        text += f"\n\n{introduction.rpartition(chr(10))[2]}: {', '.join(filter(None, own))}."
    text = THOUSANDS.sub("", text)
    if language in STOP_WORDS:
        text = SPACED.sub(lambda found: found[0].replace(" ", ""), text)
        for pattern, form in COMPILED:
            text = pattern.sub(form, text)
    return text


def has_units(claim: str, evidence: str, lexicon: Lexicon) -> bool:
    """Whether each number of a claim has its unit in the evidence, if it has one there.

    The unit is the word behind the number, also of a range; a percentage may not lose it. Both
    texts are `plain`.
    """
    if lexicon.language not in STOP_WORDS:  # any word may follow a number
        return True
    there: dict[str, set[str]] = {}
    for number, behind in _measured(evidence, lexicon):
        told = behind[:1] if behind[:1] == ["percent"] else behind[:3]
        there.setdefault(number, set()).update(told or [""])
    return all(
        {"", *behind[:1]} & units if behind else "percent" not in units or "" in units
        for number, behind in _measured(claim, lexicon)
        if (units := there.get(number))
    )


def _measured(text: str, lexicon: Lexicon) -> Iterator[tuple[str, list[str]]]:
    """Each number with the stems behind it; none if it has no unit."""
    for number in NUMBER.finditer(text):
        unit = UNIT.match(text, number.end())
        behind = ""
        if unit and content_words(unit[1], language=lexicon.language):
            after = text[unit.start(1) : unit.start(1) + NEAR]
            behind = re.split(r"[\d,;:.()]", after, maxsplit=1)[0]
        yield number[0], words(behind, language=lexicon.language)
