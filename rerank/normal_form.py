"""One coding for texts that read alike, for whatever compares or reads them: words and networks."""

from __future__ import annotations

import unicodedata

import regex

RAISED, LOWERED = "⁰¹²³⁴-⁹", "₀-₉"
WHOLE = "¼-¾⅐-⅟↉①-⒛⓪㉑-㉟㊱-㊿"  # fractions, and numbers in a circle or with a full stop
APART = (  # places in a text that a number must not cross; in the syntax of Oniguruma too
    rf"(?<=[\p{{Nd}}{LOWERED}])(?=[{RAISED}⁺⁻ⁿⁱˣʸᵏ])|(?<=[\p{{Nd}}{RAISED}])(?=[{LOWERED}])"
    rf"|(?<=[{RAISED}{LOWERED}])(?=\p{{Nd}})|(?<=\p{{L}}{{3}})(?=[{RAISED}])"
    rf"|(?<=\p{{N}})(?=[{WHOLE}])|(?<=[{WHOLE}])(?=\p{{N}})|(?=[™℠])|(?<=№)"
)
# what nobody sees, such as soft hyphens; a space of no width is one where a script has no others
IGNORED = (
    r"(?!\u200B)\p{Default_Ignorable_Code_Point}"
    r"|(?<![\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}])\u200B"
)
_APART, _IGNORED = regex.compile(APART), regex.compile(IGNORED)
LONGEST_FORM = 18  # characters that one becomes, at most
MARKS = regex.compile(r"(\p{M}{30})\p{M}++")  # no language writes so many on a letter


def normal_form(text: str) -> str:
    """The text with one coding for what reads alike: Unicode's NFKC, without what nobody sees.

    Digits that are raised, lowered or parts of a fraction stay apart from the number before them:
    10⁶ becomes 10^6, not 106. Runs of combining marks are cut, as in the Stream-Safe Text Format of
    Unicode's UAX #15: composing takes the square of their length.
    """
    if text.isascii():
        return text
    text = MARKS.sub(r"\1", _IGNORED.sub("", text))
    if unicodedata.is_normalized("NFKC", text):
        return text
    return unicodedata.normalize("NFKC", _APART.sub("^", text))


def beginning(text: str, size: int) -> str:
    """The first `size` characters; fewer if their normal form is more than twice as long."""
    read = text[:size]
    return read if len(normal_form(read)) <= 2 * size else read[: size // LONGEST_FORM]
