"""Puts what `make demo` has printed into README.md: `make readme`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
SHOWN = re.compile(r"(The demo prints[^\n]*\n\n```text\n).*?(```)", re.DOTALL)
REASONS = re.compile(r"(^ {5}start:.*\n.*\n)(?: {5}.*\n)*", re.MULTILINE)  # the first two are shown


def with_demo(page: str, printed: str) -> str:
    """The page with the sentences of a run of the demo and its three answers."""
    head, *answers = printed.rstrip().split("\n\n")
    sentences = [line for line in head.splitlines() if line.startswith(("Top passage", "One of"))]
    answered = (REASONS.sub(r"\1", f"{answer}\n") for answer in answers)
    shown = "\n".join(["\n".join((*sentences, "")), *answered])
    return SHOWN.sub(lambda block: f"{block[1]}{shown}{block[2]}", page)


if __name__ == "__main__":
    printed = Path(sys.argv[1]).read_text(encoding="utf-8")
    README.write_text(with_demo(README.read_text(encoding="utf-8"), printed), encoding="utf-8")
