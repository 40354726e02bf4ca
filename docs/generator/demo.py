"""Put what `make demo` has printed into README.md: `python docs/generator/demo.py work/demo.txt`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
SHOWN = re.compile(r"(The demo prints[^\n]*\n\n```text\n).*?(```)", re.DOTALL)
WHY = re.compile(r"^ {5}(?!start:).*\n", re.MULTILINE)  # all but the first reason of an answer


def with_demo(page: str, printed: str) -> str:
    """The page with the sentences of a run of the demo and its three answers."""
    head, *answers = printed.rstrip().split("\n\n")
    sentences = [line for line in head.splitlines() if line.startswith(("Top passage", "One of"))]
    shown = "\n\n".join(["\n".join(sentences), *(WHY.sub("", f"{one}\n") for one in answers)])
    return SHOWN.sub(lambda block: f"{block[1]}{shown.rstrip()}\n{block[2]}", page)


if __name__ == "__main__":
    printed = Path(sys.argv[1]).read_text(encoding="utf-8")
    README.write_text(with_demo(README.read_text(encoding="utf-8"), printed), encoding="utf-8")
