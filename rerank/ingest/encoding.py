"""Bytes to text: UTF-8, what the file declares, else what its bytes tell; never a guess unsaid."""

from __future__ import annotations

import codecs
import re
import unicodedata
from contextlib import suppress

import chardet

from rerank.ingest.document import UnreadableError, clauses, counted

DECLARED = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?([A-Za-z0-9_.:-]+)""")
MARKS = {  # UTF-32's mark begins with that of UTF-16
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
LOW = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f]")  # most often the halves of wide characters
OVERSTRUCK = re.compile(".\b")  # bold or underlined on a typewriter, as in old manuals
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
# Python's own escapes; and wide characters, which would have zero bytes or a mark
NEVER = re.compile(r".*escape|ucs|utf[-_]?(7|16|32)[-_]?(le|be)?$", re.IGNORECASE)
# what programs declare without a look at the text, if they declare anything: no more than a hint
BY_DEFAULT = re.compile(r"utf-?8|(us-)?ascii|(iso-?8859-?|latin-?|l)1|(cp|windows-)1252", re.I)
WIDER = {  # what browsers read for a name: more characters, the same otherwise
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "tis-620": "cp874",
}
ASCII = bytes([9, 10, 13, *range(32, 127)])
ESCAPED = (  # encodings that switch to two bytes by a mark
    (re.compile(rb"\x1b\$\)C"), ["iso2022_kr"]),
    (re.compile(rb"\x1b\$(?!\))"), ["iso2022_jp_ext", "iso2022_jp_2004", "iso2022_jp_2"]),
    (re.compile(rb"~\{(?:[!-#0-W][!-~])+~\}"), ["hz"]),
)
DETECTED = [f"windows-{number}" for number in range(1250, 1259)]
DETECTED += ["iso-8859-2", "iso-8859-5", "iso-8859-7", "koi8-r", "koi8-u", "cp866", "cp850"]
DETECTED += ["macroman", "cp852", "cp857", "iso-8859-6", "iso-8859-15", "maccyrillic", "shift_jis"]
DETECTED += ["cp932", "euc-jp", "gb18030", "big5", "euc-kr", "cp949", "johab", "tis-620", "cp874"]
FEW = 5  # bytes that are not ASCII; fewer do not tell the encoding
NOT_UTF_8 = ("byte is not UTF-8", "bytes are not UTF-8")
CLOSE = 0.97  # share of the best confidence from which on another encoding may be the right one
MIXED = re.compile("[A-Za-z][Ͱ-ۿ]|[Ͱ-ۿ][A-Za-z]")  # Latin letters beside others
ODD = re.compile(  # what is rare in prose, and common where signs are read in a wrong encoding
    rf"""[a-zß-ÿ][A-ZÀ-Þ] | {MIXED.pattern} | \d(?![×÷])[À-ÿ] | (?![×÷])[À-ÿ]\d
    | \bì | î\b | \b[íïñóöü]\b | í(?:s|t|re|ll|ve|d|m)\b | [^\W\d_][©«±»°½¼¾¦¨´¸][^\W\d_]
    | [^\w\s!-~‘-‟–—…€£§°•·«»±©®™½¼¾×÷]""",
    re.VERBOSE,
)
NOT_TEXT = re.compile(r"[\x80-\x9f\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff]")


def decoded(data: bytes) -> tuple[str, str]:
    r"""The text of a file, with line feeds as line ends and without control characters.

    Also what could not be read, for `Document.skipped`: bytes that are not UTF-8 in a file that is
    for the rest. Each of their places has a U+FFFD.
    """
    marked = next((name for mark, name in MARKS.items() if data.startswith(mark)), None)
    if marked and marked != "utf-8-sig":
        text = data.decode(marked, "replace")
        unread = counted(text.count("\ufffd"), f"character is not {marked.upper()}")
    elif 4 * len(LOW.findall(data)) > len(data) or b"\0" in data:  # UTF-16 or UTF-32, no mark
        number, rest = data.count(b"\0"), data.replace(b"\0", b"")
        is_stray = 0 < 100 * number <= len(data) and rest and not LOW.search(rest)
        found = _nearly_utf_8(rest) if is_stray else None
        text, unread = "" if found else _wide(data), ""
        if not text and is_stray:
            text, unread = found or _other(rest)
            unread = clauses(counted(number, "NUL byte"), unread)
        if not text or CONTROLS.search(text):
            raise UnreadableError("binary data, not text")
    else:
        names = (name for mark, known in ESCAPED if mark.search(data) for name in known)
        escaped = next(filter(None, (_strict(data, name) for name in names)), "")
        if not escaped and b"\x1b$)" in data:
            raise UnreadableError("its encoding is unknown")
        text, unread = (escaped, "") if escaped else _nearly_utf_8(data) or _other(data)
    text = OVERSTRUCK.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return CONTROLS.sub("", text), unread


def _wide(data: bytes) -> str:
    """The text in UTF-16 or UTF-32; "" if it is not.

    The high bytes of its characters are of fewer kinds than the low ones; ASCII of one byte each
    is no Chinese.
    """
    if len(data.translate(None, ASCII)) < 0.1 * len(data):
        return ""
    order = 1 if len({*data[1::2]}) <= len({*data[::2]}) else -1
    for name in ("utf-32-le", "utf-32-be", *("utf-16-le", "utf-16-be")[::order]):
        text = _strict(data, name) or ""
        if text and not CONTROLS.search(text) and "Cn" not in map(unicodedata.category, text):
            return text
    return ""


def _nearly_utf_8(data: bytes) -> tuple[str, str] | None:
    """The text, if most of what is not ASCII is UTF-8; and how many bytes are not."""
    with suppress(UnicodeError):  # signs above U+FFFF in two halves, as Java and Oracle write them
        halves = data.decode("utf-8-sig", "surrogatepass")
        return halves.encode("utf-16", "surrogatepass").decode("utf-16"), ""
    text = data.decode("utf-8-sig", "replace")
    lost = text.count("\ufffd") - data.count("\ufffd".encode())
    if not lost:
        return text, ""
    if sum(not char.isascii() for char in text) < 3 * lost:
        return None
    kept = data.decode("utf-8-sig", "ignore")
    number = len(data.removeprefix(codecs.BOM_UTF8)) - len(kept.encode())
    return text, counted(number, *NOT_UTF_8)


def _other(data: bytes) -> tuple[str, str]:
    """The text in what the file declares, if it is no default; else as its bytes tell."""
    declared = DECLARED.search(data[:2048])
    name = declared[1].decode() if declared else "utf-8"
    if not BY_DEFAULT.fullmatch(name) and not NEVER.match(name):
        text = _strict(data, name)
        if text is not None:
            return text, ""
    odd = sum(byte > 127 for byte in data)
    if odd < FEW:  # text that reads alike in Western and Central Europe and in Turkey is kept
        texts = {_strict(data, name) for name in ("cp1252", "cp1250", "cp1254")}
        text = texts.pop()
        if len(data) < 2 * odd + 2:
            raise UnreadableError("its encoding is unknown")
        if texts or text is None:
            return data.decode("utf-8", "replace"), counted(odd, *NOT_UTF_8)
        return text, ""
    undeclared = DECLARED.sub(b"", data)  # the library believes what is declared
    found = chardet.detect_all(undeclared, ignore_threshold=True, include_encodings=DETECTED)
    read = [(_strict(data, one["encoding"]), one) for one in found if one["encoding"]]
    known = [(text, one) for text, one in read if text is not None]
    if not known:
        raise UnreadableError("its encoding is unknown")
    known = [pair for pair in known if not _is_mixed(pair[0])] or known
    best = known[0][1]["confidence"]
    close = [(text, one) for text, one in known if one["confidence"] >= CLOSE * best]
    marks = [(len(ODD.findall(text)), one["encoding"] != "Windows-1252") for text, one in close]
    text, one = close[marks.index(min(marks))]
    others = {
        each[0] for each, (number, _) in zip(close, marks, strict=True) if number == min(marks)[0]
    }
    name = one["encoding"]
    doubt = (f"byte may be another sign than in {name}", f"bytes may be other signs than in {name}")
    return text, counted(odd, *doubt) if len(others) > 1 else ""


def _is_mixed(text: str) -> bool:
    """Whether many words have letters of two scripts, as French ones that are read as Russian."""
    words = [word for word in re.findall(r"[^\W\d_]+", text) if not word.isascii()]
    return 3 * sum(MIXED.search(word) is not None for word in words) > len(words)


def _strict(data: bytes, name: str) -> str | None:
    """The text in an encoding; None if it is not, or if there is no such encoding of text."""
    try:
        known = codecs.lookup(name).name
        text = data.decode(WIDER.get(known, known))
    except (UnicodeError, LookupError):
        return None
    return None if NOT_TEXT.search(text) else text
