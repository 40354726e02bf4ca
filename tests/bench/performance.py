"""Write the page of speeds: what the scripts beside this one print, under how it is measured.

    python tests/bench/performance.py [--out docs/performance.md] [--passages 10000 100000 1000000]

The page is written after each section; the sections that are not measured yet, or not at all with
`--only`, stay as they are in `--out`. The page is the same but for its numbers each time; it names
the processor and the versions of what was measured, and nothing else of the machine. Progress goes
to stderr.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rerank.storage.files import write_file

INSTRUCTIONS = {  # of /proc/cpuinfo, on which the speed of int8 and bf16 depends
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_vnni": "VNNI (for int8)",
    "avx512_bf16": "BF16",
    "amx_bf16": "AMX",
}
HERE = Path(__file__).resolve().parent
HEADING = """\
# Performance

`make bench` writes this page and measures every number on it, those of a section in one run.

**How to read it.** Ways of doing one thing are run in turns, on the same input. A ratio is taken
within a round; the table gives its median and, in brackets, the lowest and the highest of all
rounds. Times depend on the machine, ratios much less.

**Who takes part.** All have the same weights, lengths and number of threads, tokenise the text
themselves, and give raw logits. The last column has the largest difference from the first row's.
`predict` is the method of sentence-transformers' `CrossEncoder`. FlashRank runs our weights. A
library that was not installed has no row. Above 100,000 passages, rank-bm25 and FAISS's graph are
left out. *Of our candidates*: the share of our best 100 passages that it returns too, which is no
measure of quality (bm25s has another formula of BM25, atire).

**The limit.** For scoring: the operations that the model needs, at the rate at which the same
cores multiply matrices in fp32; int8 and bf16 may pass it. For exact dense search: the time to
read all vectors from memory once.

**Another processor.** A score does not depend on batch, thread or order. On another kind of
processor an int8 score may differ: of 20 pairs, 10 had the same logit on AVX2 (emulated) as with
AMX, the others differed by up to .05; fp32 by up to 5e-7. Calibrate on the kind of processor that
you serve on, or with `--precision fp32`.

**Without AMX.** The same commands on an AMD EPYC with AVX-512, VNNI and BF16, times as fast as
`predict` on one core and on two: ours in int8 4.10 and 4.38, in bf16 2.59 and 2.70, in fp32 1.66
and 1.80; sentence-transformers' OpenVINO backend 2.37 and 2.39. Indexing, beside
sentence-transformers in fp32: ours in int8 4.34, in fp32 1.97; sentence-transformers in bf16 2.89.

**With AMX** the lead over OpenVINO is smaller: there both come near the rate at which the cores
multiply matrices at all, and int8 gains nothing over bf16. Ours in fp32 indexes no faster than
sentence-transformers; `--encoder-precision int8` does.
"""


PREFACES = {
    "One question": """\
Shares are of the processor's time of one question, stage by stage, asked alone. Below, the same
questions in one bulk call, one at a time, and all at once over HTTP, with client and server on this
machine; the answers are equal.

"""
}


def machine(information: str) -> str:
    """The processor's name, cores and vector instructions, from the text of /proc/cpuinfo."""
    entries = [line.partition(":") for line in information.splitlines()]
    values = {key.strip(): value.strip() for key, _, value in entries}
    cores = sum(key.strip() == "processor" for key, _, _ in entries)
    flags = values.get("flags", "").split()
    has = ", ".join(words for flag, words in INSTRUCTIONS.items() if flag in flags)
    lacks = ", ".join(words for flag, words in INSTRUCTIONS.items() if flag not in flags)
    name = values.get("model name", "an unnamed processor")
    return f"{name}, {cores} cores; it has {has or 'no AVX'}{lacks and f', and lacks {lacks}'}"


def printed(script: str, *arguments: str) -> Iterator[str]:
    """The lines that a script beside this one prints, as they come.

    Raises:
        SystemExit: the script failed.
    """
    command = [sys.executable, "-u", str(HERE / script), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield from process.stdout or ()
    if process.returncode:
        raise SystemExit(f"{script} ended with status {process.returncode}")


def sections(page: str) -> dict[str, str]:
    """The sections of a page by their headings."""
    parts = re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0].removeprefix("## "): part for part in parts}


def measured(heading: str, script: str, *arguments: str) -> str:
    """The section that a script measures; it is printed as it comes."""
    lines = [f"## {heading}\n\n{PREFACES.get(heading, '')}"]
    print(lines[0], end="", flush=True)
    for line in printed(script, *arguments):
        print(line, end="", flush=True)
        lines.append(line)
    return "".join(lines)


def page(found: Sequence[str]) -> Iterator[str]:
    """The page of these sections, in parts."""
    processor = Path("/proc/cpuinfo")
    information = processor.read_text(encoding="utf-8") if processor.exists() else ""
    yield f"{HEADING}\n**The machine.** {machine(information)}.\n\n"
    yield "\n\n".join(section.rstrip("\n") for section in found) + "\n"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", default="datasets/pydata")
    parser.add_argument("--model", default="work/model")
    parser.add_argument("--pairs", default="192")
    parser.add_argument("--rounds", default="3")
    parser.add_argument("--peers", default="work/peers", help="environment of the backends")
    parser.add_argument("--passages", nargs="+", default=["10000", "100000"])
    parser.add_argument("--only", nargs="+", default=[], help="headings of sections to measure")
    parser.add_argument("--out", type=Path, help="page to write")
    o = parser.parse_args()
    shared = ["--set", o.set, "--rounds", o.rounds]
    scripts = {
        "Scoring pairs": ["scoring.py", *shared, "--pairs", o.pairs, "--peers", o.peers],
        "Indexing": ["indexing.py", *shared],
        "First stage": ["first_stage.py", *shared, "--passages", *o.passages],
        "One question": ["question.py", o.model, *shared],
        "Fit": ["fit.py"],
    }
    if wrong := set(o.only).difference(scripts):
        parser.error(f"there is no section {', '.join(wrong)}, only {', '.join(scripts)}")
    found = sections(o.out.read_text(encoding="utf-8")) if o.out and o.out.exists() else {}
    for heading in o.only or scripts:
        found[heading] = measured(heading, *scripts[heading])
        if o.out:  # after each section: they take half an hour together
            o.out.parent.mkdir(parents=True, exist_ok=True)
            write_file(o.out, page([found[h] for h in scripts if h in found]))


if __name__ == "__main__":
    main()
