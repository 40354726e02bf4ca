"""How a fit grows with the labels: `calibrate` on lists of 50 passages, for which no model runs.

python tests/bench/fit.py [--labels 100 300 1000 2400]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ratios import table

from rerank.process import cores

sys.path.append(str(Path(__file__).parents[1] / "support"))
from known_lists import known_lists, write_lines


def main() -> None:
    """Fit, report and measure on each number of labels, each in a process of its own."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--labels", type=int, nargs="+", default=[100, 300, 1000, 2400])
    o = p.parse_args()
    rows, cpu = {}, 0.0
    with tempfile.TemporaryDirectory() as folder:
        for count in o.labels:
            lists = write_lines(Path(folder, "lists.jsonl"), known_lists(count, length=50))
            begun = time.perf_counter()
            command = [sys.executable, "-m", "rerank.cli", "calibrate", str(lists), "--quiet"]
            command += ["--overwrite", "--out", f"{folder}/model", "--work", f"{folder}/work"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent, cpu = used.ru_utime + used.ru_stime - cpu, used.ru_utime + used.ru_stime
            rows[f"{count:,} labels"] = {
                "seconds": f"{time.perf_counter() - begun:.0f}",
                "of the processor": f"{spent:.0f}",
                "of the processor, a label": f"{spent / count:.3f}",
                "largest process so far, MiB": f"{used.ru_maxrss // 1024}",
            }
    print(f"`calibrate` on lists of 50 passages, {cores()} cores.\n\n{table(rows)}")


if __name__ == "__main__":
    main()
