"""The check of a sentence knows the same in other words from what only looks like it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_made import EnglishWords

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
    "Release 7.4.2 needs libfoo 2.8.1 or later": (
        ["Release 7.4.2 needs libfoo 2.8.1 or newer"],
        ["Release 7.4 needs libfoo 2.8.1 or later", "Release 7.4.2 needs libfoo 2.8.1 or earlier"],
    ),
    "The claim was filed on 7/9/2023 in Leeds": (
        [],
        ["The claim was filed on 9/7/2023 in Leeds"],
    ),
    "The visitors won 3-8 and 4 of 9 players scored": (
        ["The visitors won 3-8 and 4 out of 9 players scored"],
        ["The visitors lost 3-8", "The visitors won 8-3", "9 of 4 players scored"],
    ),
    "The pool closes on 11 and 12 June. In July it stays open": (
        ["The pool closes on June 11 and 12"],
        ["The pool opens on 11 and 12 June", "The pool closes on 11 and 12 July"],
    ),
    "Prices fell by a third to $60. The 60 prices concern half of them": (
        ["Prices fell by one third to 60 dollars"],
        ["Prices fell by a half to $60", "Prices fell by a third to €60"],
    ),
    "Store the gel between -15 °C and +30 °C. The gel keeps 15 weeks": (
        ["Store the gel from -15 °C to 30 °C", "Store the gel between minus 15 and plus 30 °C"],
        ["Store the gel between 15 °C and 30 °C"],
    ),
    "Sales rose 14% to €2 million": (["Sales rose 14 percent to 2 million euros"], []),
    "The film lasts one and a half hours": (["The film lasts 1.5 hours"], []),
    "The judge ruled that the broker is not liable, since the client knew the risk": (
        ["The broker is not liable, since the client knew the risk"],
        ["The broker is liable, since the client knew the risk"],
    ),
    "Under Section 8(3), the tenant shall inform the owner within 6 days": (
        ["Within 6 days the tenant shall inform the owner under Section 8(3)"],
        ["Within 6 days the tenant shall inform the owner under Section 8(4)"],
    ),
    "Owners of the blue card can open the gate, but guests cannot": (
        ["Owners of the blue card are able to open the gate"],
        ["Owners of the blue card cannot open the gate"],
    ),
    "If a login fails twice, the account is locked": (
        ["If a login fails two times, the account is locked"],
        ["If a login fails once, the account is locked"],
    ),
    "The night guard won't open the gate": (["The night guard will not open the gate"], []),
    "The north pump delivers 40 litres per minute and the south pump delivers 65 litres": (
        ["The south pump delivers 65 litres"],
        ["The north pump delivers 65 litres", "The south pump delivers 40 litres per minute"],
    ),
    "Mortality was 4% in the control arm and 2% in the treatment arm": (
        ["Mortality was 2% in the treatment arm", "In the control arm mortality was 4%"],
        ["Mortality was 4% in the treatment arm", "Mortality was 2% in the control arm"],
    ),
    "The firm bought Acme in 2018 and bought Borealis in 2021": (
        ["The firm bought Borealis in 2021"],
        ["The firm bought Borealis in 2018", "The firm bought Acme in 2021"],
    ),
    "To protect Anna at the expense of Robert, they moved the files of Anna": (
        [],
        ["To protect Robert at the expense of Anna, they moved the files of Anna"],
    ),
    "The lamp is sold in red, green, white and black": (
        ["The lamp is sold in black, white, red and green"],
        ["The lamp is sold in black, white, red and blue"],
    ),
    "The plans Basic, Extra and Full cost 4, 5 and 6 euros respectively": (
        [],
        ["The plans Full, Extra and Basic cost 4, 5 and 6 euros respectively"],
    ),
    "The budget was approved by the mayor in May, and the loan was rejected by the board in June": (
        ["The mayor approved the budget in May", "The board rejected the loan in June"],
        ["The mayor rejected the budget in May", "The board approved the loan in June"],
    ),
    "The warranty covers parts for 24 months and labour for 12": (
        ["The warranty covers labour for 12 months and parts for 24"],
        ["The warranty covers labour for 24 months", "The warranty covers parts for 12 months"],
    ),
    "The pump is oiled daily, and cleaned once a week for approx. 2 hours": (
        ["The pump is oiled every day", "The pump is cleaned once weekly for about 2 hours"],
        ["The pump is oiled every week", "The pump is cleaned once daily for 2 hours"],
    ),
    "Close valve A before you open valve B": (
        ["Before you open valve B, close valve A"],
        ["Close valve B before you open valve A"],
    ),
    "Every second Tuesday the market is held in Oak Street": (
        ["The market is held in Oak Street every other Tuesday"],
        ["Every Tuesday the market is held in Oak Street"],
    ),
    "Members who joined before 2015 get a longer holiday": (
        ["A longer holiday is for members who joined before 2015"],
        ["Members who joined in 2015 get a longer holiday"],
    ),
    "Oslo is wetter than Turin but drier than Bergen": (
        ["Oslo is drier than Bergen", "Oslo is wetter than Turin"],
        ["Oslo is drier than Turin"],
    ),
    "Lena wrote the novel and Karl the play": (
        ["Lena wrote the novel"],
        ["Karl wrote the novel"],
    ),
    "Only pilots may enter the hangar": (
        ["Only pilots can enter the hangar"],
        ["Everyone may enter the hangar", "Anybody may enter the hangar"],
    ),
    "Nobody but Irene has signed the letter": (
        ["No one except Irene has signed the letter"],
        ["Irene has not signed the letter"],
    ),
    "The exam was moved from Thursday to Friday": (
        ["The exam was moved to Friday"],
        ["The exam was moved to Thursday"],
    ),
    "The quota was raised from 40 to 70 tons": (
        ["The quota was raised to 70 tons"],
        ["The quota was raised to 40 tons"],
    ),
    "Unlike the small tent, the large one has a porch": (
        ["The large tent has a porch"],
        ["The small tent has a porch"],
    ),
    "The farm grows barley instead of wheat": (
        ["The farm grows barley", "The farm grows barley rather than wheat"],
        ["The farm grows wheat"],
    ),
    "The candle burns 9 hours if the window is shut, otherwise 6": (
        [
            "The candle burns 9 hours if the window is shut",
            "If the window is shut, the candle burns 9 hours",
        ],
        ["The candle burns 9 hours"],
    ),
    "Deposits are returned provided that the key is handed in": (
        ["Deposits are returned if the key is handed in"],
        ["Deposits are returned"],
    ),
    "Dogs aged 2 to 9 eat twice, and dogs under 2 eat more often": (
        ["Dogs aged 2 to 9 eat twice"],
        ["Dogs aged 2 to 9 eat more often"],
    ),
    "The reason is not clear. It was unclear before": (["The reason is unclear"], []),
    "The kettle boils one litre": (["The kettle boils 1 litre"], ["The kettle boils 2 litres"]),
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
        ("the twenty-second, not 3 seconds or one second", "the 22th, not 3 seconds or 1 second"),
        ("two thirds of 1½ hours", "66.7 percent of 1.5 hours"),
        (
            "from 8 to 10 May, or March 28 to 5 April",
            "from Mai m5_8 to Mai m5_10, or March m3_28 to April m4_5",
        ),
        ("$5-$10, between 37% and 70 percent", " 5 thru 10 dollar, 37 thru 70 percent"),
        (f"1 hundred {'9' * 5000}", f"100 {'9' * 5000}"),
    ],
)
def test_a_quantity_has_one_form(text: str, same: str) -> None:
    """Which stays as it is; other languages keep their words."""
    assert plain(text, "english") == plain(plain(text, "english"), "english") == same
    assert plain(text, "german") == text


@pytest.mark.parametrize(
    "quoted",
    [
        "Not applicable.",
        "Barley.",
        "Find your .doc, .pdf, and .xls files there.",
        "If not, no one may open it.",
        "| Plan | -3 | 1/2/2024 | 192.168.0.10 |",
        "x = f(y[3]) - 2**8  # see 1.2.3",
        "Ring 555-0142 (Mon.-Fri., 9-5)!",
        "Nicht alle 3,5 % der Gäste dürfen am Montag hinein.",
        "L'accord n'est pas valable avant le 1er juin 2024.",
        "本合同自2024年1月1日起生效。",
    ],
)
@pytest.mark.parametrize("language", ["english", "german", "none"])
def test_a_whole_sentence_of_the_source_has_support(
    quoted: str, language: str, sources: list[Source]
) -> None:
    """Whatever it is made of, and beside sentences that deny it; but no part of one."""
    text = f"It was not applied.\n\n{quoted}\n\nIt is untrue that 3 gates open."
    source = replace(sources[0], passage=replace(sources[0].passage, text=text))
    check = SupportCheck(EnglishWords(lambda _: 1.0, language))
    ended = quoted[-1] if quoted[-1] in ".!。" else ""
    for cited in (f"{quoted.removesuffix(ended)} [S1]{ended}", f"{quoted} [S1]"):
        (found,) = check(cited, [source])
        assert found.supported
    (found,) = check("3 gates open [S1].", [source])
    assert language != "english" or not found.supported


@pytest.mark.parametrize(
    ("language", "text", "denied"),
    [
        ("german", "Die Pumpe ist dicht", "Die Pumpe ist nicht dicht"),
        ("french", "La pompe doit tourner", "La pompe ne doit pas tourner"),
        ("spanish", "Los socios pueden borrar los datos", "Los socios no pueden borrar los datos"),
    ],
)
def test_a_denial_of_another_language_is_none_to_add_or_leave_out(
    language: str, text: str, denied: str, sources: list[Source]
) -> None:
    """In either direction."""
    check = SupportCheck(EnglishWords(lambda _: 1.0, language))
    for said, claim in ((text, denied), (denied, text)):
        source = replace(sources[0], passage=replace(sources[0].passage, text=f"{said}."))
        assert [check(f"{c} [S1].", [source])[0].supported for c in (said, claim)] == [True, False]


def test_a_sentence_without_end_has_no_support(sources: list[Source], lexicon: Lexicon) -> None:
    """Its comparison would take as long as one likes; a whole sentence of the source needs none."""
    text = " ".join(f"word{i}" for i in range(LONGEST // 4))
    source = replace(sources[0], passage=replace(sources[0].passage, text=f"{text}."))
    part = text.rpartition(" ")[0]
    for claim, supported in ((text, True), (part, False), (text[: LONGEST // 2], True)):
        (found,) = SupportCheck(lexicon)(f"{claim} [S1].", [source])
        assert found.supported == supported
