"""Bytes to text: what is read, what is named, and what is refused rather than read wrongly."""

from __future__ import annotations

import pytest

from rerank.ingest.document import UnreadableError
from rerank.ingest.encoding import decoded

GERMAN = "Die Rückgabe ist möglich. Bitte prüfen Sie die Größe. Gut für Österreich."
POLISH = "Zwrot jest możliwy. Opłata wynosi pięć złotych za każdą przesyłkę."
RUSSIAN = "Возврат товара возможен."
JAPANESE = "返品は三十日以内に限ります。\n"
CHINESE = "退货须在三十天内办理。\n"
KOREAN = (
    "\ubc18\ud488\uc740 \uc0bc\uc2ed \uc77c \uc774\ub0b4\uc5d0 \uac00\ub2a5\ud569\ub2c8\ub2e4.\n"
)
WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-16", "utf-32", "utf-8-sig")


@pytest.mark.parametrize(
    ("text", "encodings"),
    [
        (GERMAN, ("cp1252", "latin-1", *WIDE)),
        (POLISH, ("cp1250", "iso-8859-2", *WIDE)),
        (RUSSIAN, ("cp1251", "koi8-r", "iso-8859-5", "cp866", *WIDE)),
        (JAPANESE, ("shift_jis", "euc-jp", "iso2022_jp", *WIDE)),
        (CHINESE, ("gb18030",)),
        (KOREAN, ("euc-kr", *WIDE)),
    ],
)
def test_an_undeclared_encoding_is_read_rightly(text: str, encodings: tuple[str, ...]) -> None:
    for encoding in encodings:
        assert decoded(text.encode(encoding)) == (text, ""), encoding


@pytest.mark.parametrize("declared", ["iso-8859-1", "utf-8", "windows-1252", "us-ascii"])
def test_what_is_declared_by_default_is_not_believed(declared: str) -> None:
    head = f'<meta http-equiv="content-type" content="text/html; charset={declared}">'
    assert decoded((head + RUSSIAN).encode("cp1251")) == (head + RUSSIAN, "")
    assert decoded((head + GERMAN).encode("cp1252")) == (head + GERMAN, "")


@pytest.mark.parametrize("encoding", ["iso-8859-2", "windows-1250"])
def test_another_declaration_is_believed(encoding: str) -> None:
    """However short the text."""
    text = f"<?xml version='1.0' encoding='{encoding}'?>\u0142"
    assert decoded(text.encode(encoding)) == (text, "")


def test_a_name_is_that_of_the_wider_encoding_as_in_browsers() -> None:
    text = "<meta charset=shift_jis>\u2460 \u9ad9"  # of Windows' Shift-JIS
    assert decoded(text.encode("cp932")) == (text, "")


@pytest.mark.parametrize("data", [b"\x83\xe4", b"\xb1\xb3"])
def test_bytes_that_tell_no_encoding_are_refused(data: bytes) -> None:
    """Never wrong letters that nobody is told of."""
    with pytest.raises(UnreadableError, match="its encoding is unknown"):
        decoded(data)


def test_bad_bytes_are_counted() -> None:
    """A bad byte has a U+FFFD in its place; a character cut in two counts its bytes."""
    text = "\u20ac " * 10
    assert decoded(text.encode() + b"\xe2\x82") == (text + "\ufffd", "2 bytes are not UTF-8")
    assert decoded("\ufffd".encode()) == ("\ufffd", "")


def test_a_few_odd_bytes_are_read_where_they_are_sure_and_named_where_not() -> None:
    """Alike in the encodings of many languages, or lost alone."""
    assert decoded("Caf\u00e9 M\u00fcller".encode("latin-1")) == ("Caf\u00e9 M\u00fcller", "")
    assert decoded("mo\u017cliwy zwrot".encode("cp1250")) == (
        *("mo\ufffdliwy zwrot", "1 byte is not UTF-8"),
    )


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("The driver’s licence — a copy isn’t enough. €300. “Quoted” café", "cp1252"),
        ("The range is 10–20 °C; tolerance ±2 µm. Price €300 or £250. © 2020 ACME®™", "cp1252"),
        ("The range is 10–20 °C; tolerance ±2 µm. Price €300 or £250. © 2020 ACME®™", "macroman"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy. Poplatek činí třicet korun.", "iso8859-2"),
        ("Die Prüfung der Geräte erfolgt jährlich, bei Schäden früher. Gebühr: 30 €", "iso8859-15"),
        ("يمكن إرجاع المنتج خلال ثلاثين يوما من تاريخ الشراء.", "iso8859-6"),
        ("상품은 구매 후 삼십일 이내에 반품할 수 있습니다.", "iso2022_kr"),
        ("Насос включается, когда уровень воды в баке опускается.", "mac-cyrillic"),
        ("Su seviyesi işaretin altına düştüğünde pompa çalışır. Işık, şişe, ğ.", "cp857"),
        ("수조의 수위가 표시보다 낮아지면 펌프가 작동합니다.", "johab"),
    ],
)
def test_of_encodings_that_fit_alike_the_one_of_plain_prose_is_taken(
    text: str, encoding: str
) -> None:
    """The library's order of these is chance; quotation marks and prices depend on it."""
    assert decoded(text.encode(encoding)) == (text, "")


def test_a_guess_is_said() -> None:
    """Turkish reads as Icelandic as well."""
    text = "Ürün iadesi otuz gün içinde yapılabilir; ücret şubeye ödenir. Işık güzel şey."
    found, unread = decoded(text.encode("cp1254"))
    assert found in (text, text.encode("cp1254").decode("cp1252"))
    assert unread == "12 bytes may be other signs than in Windows-1252"


def test_a_stray_nul_byte_costs_itself() -> None:
    """Text is not binary data for it; many of them are no text."""
    text = "The pump runs when the level drops, not before. " * 3
    assert decoded(f"{text}\0é".encode()) == (f"{text}é", "1 NUL byte")
    for data in (f"{text}\0\0\0\0".encode(), bytes(range(256)), b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"):
        with pytest.raises(UnreadableError, match="binary"):
            decoded(data)


def test_a_stray_nul_byte_costs_itself_in_other_encodings() -> None:
    text = "Der Fluss fließt über die Felder, wo früher Häuser für Fischer gewesen sind. " * 2
    assert decoded(f"{text}\0".encode("cp1252")) == (text, "1 NUL byte")


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be", "utf-32-le"])
@pytest.mark.parametrize(
    "text",
    [
        "ポンプは毎朝六時に始動します。作業員は手袋を着用すること。\n",
        "泵在每天早上六点启动。请先关闭阀门，然后检查压力表的读数。\n",
        "펌프는 매일 아침 여섯 시에 시작합니다.\n",
        "Насос запускается каждое утро в шесть часов.\n",
        "पंप हर सुबह छह बजे शुरू होता है।\n",
        "The pump starts at six.\n",
        "Пуск",
    ],
)
def test_wide_characters_need_no_mark(text: str, order: str) -> None:
    assert decoded(text.encode(order)) == (text, "")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("泵在早上六点启动。\nPump: ~5 bar", "hz"),
        ("펌프는 매일 아침 시작합니다.\n", "iso2022_kr"),
        ("手袋を着用すること。\n", "iso2022_jp"),
        ("Use ~{name~} and ~{x}.", "ascii"),
        ("An é, 泵 and ~{AB~}.", "utf-8"),
    ],
)
def test_marks_that_switch_to_two_bytes_are_read(text: str, encoding: str) -> None:
    assert decoded(text.encode(encoding)) == (text, "")


def test_marks_of_an_unknown_encoding_are_refused() -> None:
    """ISO-2022-CN, as ASCII, would be wrong letters."""
    with pytest.raises(UnreadableError, match="encoding"):
        decoded(b"\x1b$)A\x0e1CTZAy5cFt6/\x0f")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Élève reçu à l'école : 12 € à payer.\n", "cp1252"),
        ("Café très cher, à côté d'ici, noël.\n", "cp1252"),
        ("El niño está aquí. ¿Qué pasó mañana?\n", "cp850"),
    ],
)
def test_words_of_two_scripts_tell_a_wrong_encoding(text: str, encoding: str) -> None:
    assert decoded(text.encode(encoding)) == (text, "")


def test_bold_of_a_typewriter_is_read_once() -> None:
    """A sign that is struck again, or underlined, as in formatted manual pages."""
    assert decoded(b"N\bNA\bAM\bME\bE _\bx") == ("NAME x", "")


def test_signs_in_two_halves_are_read() -> None:
    """As Java and Oracle write emoji in what they call UTF-8."""
    assert decoded(b"ok \xed\xa0\xbd\xed\xb8\x80 gr\xc3\xbcn") == ("ok \U0001f600 grün", "")
