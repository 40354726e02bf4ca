"""The check of a sentence knows the same in other words from what only looks like it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rerank.data.words import Lexicon
from rerank.rag.answer.attribution import LONGEST, SupportCheck
from rerank.rag.answer.quantities import plain
from rerank.rag.answer.sources import Source

# a sentence of the source; then what says the same, and what does not
COMPARED = {
    "Water of the lake boils at 97 degrees Celsius there": (
        ["Water of the lake boils at 97 °C there"],
        ["Water of the lake boils at 97 °F there", "Water of the lake boils at -97 °C there"],
    ),
    "The store is kept at minus 30 degrees in winter": (
        [
            "The store is kept at -30 degrees in winter",
            "The store is kept at 30° below zero in winter",
        ],
        ["The store is kept at 30 degrees in winter"],
    ),
    "The office opens at 8:15 am on every weekday": (
        ["The office opens at 08:15 on every weekday"],
        [
            "The office opens at 8:15 pm on every weekday",
            "The office opens at 20:15 on every weekday",
        ],
    ),
    "The lease ends on 3 March 2031 in Oslo": (
        ["The lease ends on March 3, 2031 in Oslo", "The lease ends on 2031-03-03 in Oslo"],
        ["The lease ends on March 4, 2031 in Oslo", "The lease ends on 3 May 2031 in Oslo"],
    ),
    "The hall seats three hundred and forty people downstairs": (
        ["The hall seats 340 people downstairs"],
        ["The hall seats 304 people downstairs"],
    ),
    "The region has 2.5 million inhabitants": (
        ["The region has 2,500,000 inhabitants", "The region has 2 500 000 inhabitants"],
        ["The region has 250,000 inhabitants"],
    ),
    "Guests must be at least 16 years old": (
        ["Guests must be 16 years or older", "Guests have to be at least 16 years old"],
        ["Guests must be 16 years or younger", "Guests should be at least 16 years old"],
    ),
    "The visit takes no longer than 45 minutes": (
        ["The visit takes at most 45 minutes", "The visit takes 45 minutes or less"],
        ["The visit takes no less than 45 minutes", "The visit takes longer than 45 minutes"],
    ),
    "About 15% of the members vote by mail": (
        ["About 15 per cent of the members vote by mail"],
        ["About 15 of the members vote by mail"],
    ),
    "The ticket of the third tour costs €60": (
        ["The ticket of the 3rd tour costs 60 EUR"],
        ["The ticket of the fourth tour costs €60", "The ticket of the third tour costs 60 USD"],
    ),
    "The cabins hold between 4 and 9 guests": (
        ["The cabins hold 4-9 guests", "The cabins hold from 4 to 9 guests"],
        ["The cabins hold 4 or 9 guests", "The cabins hold 4 and 9 guests"],
    ),
    "A quarter of the crew is twice as fast as the others": (
        ["25% of the crew is two times as fast as the others"],
        [
            "A third of the crew is twice as fast as the others",
            "A quarter of the crew is as fast as the others",
        ],
    ),
    "The alarm is turned off before the gates open": (
        ["Before the gates open, the alarm is turned off"],
        ["The alarm is turned on before the gates open"],
    ),
    "The surgeon advises a non-invasive method, which is painless": (
        ["The surgeon advises a noninvasive method, which is not painful"],
        [
            "The surgeon advises an invasive method, which is painless",
            "The surgeon advises a non-invasive method, which is painful",
        ],
    ),
    "The flight was delayed because the storm closed the airport": (
        ["Because the storm closed the airport, the flight was delayed"],
        ["The storm closed the airport because the flight was delayed"],
    ),
    "The lights dim if the doors close": (
        ["If the doors close, the lights dim"],
        ["The doors close if the lights dim", "If the lights dim, the doors close"],
    ),
    "Visitors need a ticket and a badge": (
        ["Visitors need a badge and a ticket"],
        ["Visitors need a ticket or a badge"],
    ),
    "The mayor seldom paid the company": (
        ["The mayor rarely paid the company", "The mayor hardly ever paid the company"],
        ["The mayor paid the company", "The mayor almost paid the company"],
    ),
    "The editor took money from the agency": (
        [],
        [
            "It is untrue that the editor took money from the agency",
            "The editor denied that he took money from the agency",
            "The editor allegedly took money from the agency",
            "The editor may have taken money from the agency",
        ],
    ),
    "The cottage has no cellar below the kitchen": (
        [
            "The cottage does not have a cellar below the kitchen",
            "The cottage lacks a cellar below the kitchen",
        ],
        ["The cottage has a cellar below the kitchen"],
    ),
    "Nurses recovered within a month": ([], ["All nurses recovered within a month"]),
    "Every nurse may bring a child to the party": (
        ["All nurses can bring a child to the party"],
        [
            "Some nurses may bring a child to the party",
            "Every nurse must bring a child to the party",
            "Every nurse brings a child to the party",
        ],
    ),
    "The box contains:\n- a small pump\n- two valves\n- a long hose": (
        ["The box contains a small pump, two valves and a long hose"],
        ["The box contains a small pump, three valves and a long hose"],
    ),
}


@pytest.mark.parametrize(
    ("text", "claim", "supported"),
    [
        (text, claim, supported)
        for text, both in COMPARED.items()
        for supported, claims in zip((True, False), both, strict=True)
        for claim in claims
    ],
)
def test_the_same_in_other_words_has_support_and_another_statement_has_none(
    text: str, claim: str, supported: bool, sources: list[Source], lexicon: Lexicon
) -> None:
    """Numbers, dates, limits, hedges, quantifiers, modal verbs, causes and denials."""
    source = replace(sources[0], passage=replace(sources[0].passage, text=f"{text}."))
    (found,) = SupportCheck(lexicon)(f"{claim} [S1].", [source])
    assert found.supported == supported


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("twenty-one of 2 hundred and five", "21 of 205"),
        ("from 9 to 11 am, or at 12 p.m.", "9_00 thru 11_00, or at 12_00."),
        ("the twenty-second, not 3 seconds or one second", "the 22th, not 3 seconds or one second"),
        ("two thirds of 1½ hours", "66.7 percent of 1.5 hours"),
        (f"1 hundred {'9' * 5000}", f"100 {'9' * 5000}"),
    ],
)
def test_a_quantity_has_one_form(text: str, same: str) -> None:
    """Which stays as it is; other languages keep their words."""
    assert plain(text, "english") == plain(plain(text, "english"), "english") == same
    assert plain(text, "german") == text


def test_a_sentence_without_end_has_no_support(sources: list[Source], lexicon: Lexicon) -> None:
    """Its comparison would take as long as one likes."""
    text = " ".join(f"word{i}" for i in range(LONGEST // 4))
    source = replace(sources[0], passage=replace(sources[0].passage, text=f"{text}."))
    for claim, supported in ((text, False), (text[: LONGEST // 2], True)):
        (found,) = SupportCheck(lexicon)(f"{claim} [S1].", [source])
        assert found.supported == supported
