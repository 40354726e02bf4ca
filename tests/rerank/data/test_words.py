"""Words and sentences: the quick way for ASCII gives what the way for all scripts gives."""

from __future__ import annotations

from itertools import groupby

import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from rerank.data.words import (
    SENTENCE_END,
    WORD,
    _normalise,
    words,
    words_in_sentences,
)
from rerank.normal_form import normal_form


def by_sentence(text: str) -> dict[int, list[str]]:
    """The words of each sentence that has any, by its number."""
    numbered = zip(*words_in_sentences(text, language="none"), strict=True)
    return {n: [word for word, _ in said] for n, said in groupby(numbered, lambda pair: pair[1])}


def split_everywhere(normal: str) -> dict[int, list[str]]:
    """The same by the patterns for every script, one after the other."""
    parts = [WORD.findall(part) for part in SENTENCE_END.split(normal)]
    return {n: part for n, part in enumerate(parts) if part}


@given(st.text(alphabet=[*map(chr, range(128)), *"  .\n_aZ09"], max_size=200))
def test_ascii_is_no_other_language(given_text: str) -> None:
    """The same words, in the same sentences, as the patterns for every script find."""
    lower = given_text.lower()
    assert by_sentence(given_text) == split_everywhere(lower)
    assert words(given_text, language="none") == WORD.findall(lower)


@pytest.mark.parametrize("mixed", ["Größe. Maß", "naïve café; x", "a\u3002b", "e\u0301te. no"])
def test_one_letter_of_another_script_is_enough(mixed: str) -> None:
    """A text that is not ASCII as a whole goes the way for all scripts, part by part the same."""
    assert by_sentence(mixed) == split_everywhere(_normalise(mixed, "none"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("東京2024年の", ["東京", "2024", "年の"]),
        ("サーバー", ["サー", "ーバ", "バー"]),
        ("人", ["人"]),
        ("한국어 문장", ["한국", "국어", "문장"]),
        ("ที่นี่", ["ที่นี่"]),  # two letters, each with its vowel sign and tone
        ("10⁶ Ａｂc", ["10", "6", "abc"]),
        ("Straße STRASSE ΠΡΟΣ προς İs", ["strasse", "strasse", "προσ", "προσ", "is"]),
        ("می‌روم كتاب", ["میروم", "کتاب"]),
    ],
)
def test_words_of_other_scripts(text: str, expected: list[str]) -> None:
    """Pairs of characters where a script has no spaces; case folded; Arabic letters of Persian."""
    assert words(text, language="none") == expected
    assert words_in_sentences(text, language="none")[0] == expected


@given(st.text(max_size=80))
def test_english_words_are_as_before(given_text: str) -> None:
    """Words of an English index, and of the models fitted on it, do not change: to the bit."""
    stems = Stemmer.Stemmer("english").stemWords(WORD.findall(normal_form(given_text).lower()))
    assert words(given_text) == stems


@given(st.text(alphabet="漢字かなカナー한글ไทยก่a1 。. ", max_size=40))
def test_sentences_have_the_words_of_the_text(given_text: str) -> None:
    """In order, whatever the scripts."""
    parts = words_in_sentences(given_text, language="none")[0]
    whole = "".join(words(given_text, language="none"))
    assert set("".join(parts)) <= set(whole) | set(normal_form(given_text))
    assert words_in_sentences(given_text.replace("。", " "), language="none")[0] == words(
        given_text.replace("。", " "), language="none"
    )


def test_endless_accents_cost_no_time() -> None:
    """Composing a run of them takes time that grows with its square: a hundred thousand, minutes.

    They are cut after thirty; a letter with an accent stays what it is.
    """
    assert words("a" + "\u0301\u0323" * 100_000) == words("a" + "\u0301\u0323" * 15)
    assert words("Zu\u0308rich", language="none") == ["zürich"]


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("con\ufb01gure the o\ufb03ce", "configure the office"),
        ("fire\u00adwall fire\u200bwall fire\u2060wall \ufefffirewall", "firewall " * 4),
        (
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            "\u0645\u06cc\u062e\u0648\u0627\u0647\u0645",
        ),
        ("\u0e44\u0e17\u0e22\u200b\u0e14\u0e35", "\u0e44\u0e17\u0e22 \u0e14\u0e35"),
        ("\uff21\uff22\uff11\uff12", "ab12"),
        ("\uff76\uff9e \uff8a\uff9f", "\u30ac \u30d1"),
        ("cafe\u0301", "caf\u00e9"),
        ("10\u2076 10\u207b\u2076 10\u00b9\u00b2", "10^6 10^-6 10^12"),
        ("2\u00bd 2\u207f 10\u2082 a\u00b9\u2082", "2 1/2 2^n 10_2 a1_2"),
        ("25 m\u00b2 H\u2082O 3\u02b3\u1d48 x\u00b2", "25 m2 H2O 3rd x2"),
        ("models\u00b9 5\u2460 \u2460\u2461", "models 1 5 1 1 2"),
        ("Windows\u2122 \u21165 \u2163 5\u2103", "windows tm no 5 iv 5 c"),
    ],
)
def test_one_word_in_two_codings_is_one_word(written: str, plain: str) -> None:
    """Ligatures, wide forms, what nobody sees; digits of an exponent are no part of the number."""
    assert words(written, language="none") == words(plain, language="none")


CODED = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("a1⁶₂½ \u00ad\u200b№™ﬁｶﾞ①"))
)


@given(CODED)
def test_a_normal_form_is_its_own(text: str) -> None:
    assert normal_form(normal_form(text)) == normal_form(text)


def test_wide_stops_end_sentences() -> None:
    assert words_in_sentences("\u306f\u3044\uff01\u3044\u3044\uff1f\u3046", language="none")[1] == [
        0,
        1,
        2,
    ]
