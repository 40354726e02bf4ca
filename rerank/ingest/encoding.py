"""Bytes to text: UTF-8, UTF-16 with its mark, what the file declares, else Windows-1252."""

from __future__ import annotations

import codecs
import re

from rerank.ingest.document import UnreadableError

DECLARED = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?([A-Za-z0-9_.:-]+)""")
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
# Python's own escapes; and wide characters, which would have zero bytes or a mark
NEVER = re.compile(r".*escape|ucs|utf[-_]?(16|32)[-_]?(le|be)?$", re.IGNORECASE)


def decoded(data: bytes) -> str:
    r"""The text of a file, with line feeds as line ends and without control characters.

    Raises:
        UnreadableError: it has a zero byte, so it is not text.
    """
    known = [encoding for mark, encoding in MARKS.items() if data.startswith(mark)]
    if not known and b"\0" in data:
        raise UnreadableError("binary data, not text")
    declared = DECLARED.search(data[:2048])
    for encoding in (*known, "utf-8", *([declared[1].decode()] if declared else []), "cp1252"):
        if not known and NEVER.match(encoding):
            continue
        try:
            text = data.decode(encoding)
            text.encode()  # a file may declare UTF-7, which holds unpaired surrogates
            break
        except (UnicodeError, LookupError):
            continue
    else:
        text = data.decode("latin-1")
    return CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
