"""What it takes to deploy: size, start and memory of an environment, beside two other libraries'.

    python tests/bench/deploy.py work/deployed --home work/environments

Each library gets a fresh environment of its own, and no network when it runs. `MODEL` is a
self-contained model folder; the others read its cross-encoder's weights. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from peers import FLASHRANK, export_padded

from rerank.inference.model_files import resolve

ROOT = Path(__file__).parents[2]
TIMES = 5
TEXTS = """
query = "median along an axis while ignoring NaNs"
texts = [f"Function number {i} computes the median of an array of numbers." for i in range(10)]
"""
TELL = """
import json, resource
used = resource.getrusage(resource.RUSAGE_SELF)
with open("/proc/self/status") as lines:
    memory = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
told = {"cpu": used.ru_utime + used.ru_stime, "memory": memory / 1024, "answer": answer}
print(json.dumps(told), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Way:
    """One line of the table: what is asked, in which environment, by which code."""

    name: str
    environment: str
    code: str  # sets `answer`, a number


def main() -> None:
    """Make the environments that are missing, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="self-contained model folder")
    parser.add_argument("--home", type=Path, required=True, help="folder for the environments")
    o = parser.parse_args()
    home, model = o.home.resolve(), o.model.resolve()
    home.mkdir(parents=True, exist_ok=True)
    weights = resolve("minilm-reranker").folder
    wheel = _wheel(home)
    requirements = {
        "core": [str(wheel)],
        "flashrank": ["FlashRank==0.2.10"],
        "sentence-transformers": ["sentence-transformers", "torch"],
    }
    environments = {name: _environment(home, name, its) for name, its in requirements.items()}
    ways = [
        Way("this project: `search`", "core", _ours(model, "search(query)")),
        Way("this project: `rerank`, 10 passages", "core", _ours(model, "rerank(query, texts)")),
        Way("FlashRank, 10 passages", "flashrank", _flashrank(home, weights)),
        Way("CrossEncoder, 10 passages", "sentence-transformers", _cross_encoder(weights)),
    ]
    print("| | environment, MB | first answer, s | of it CPU, s | memory, MB |")
    print("|---|---|---|---|---|")
    for way in ways:
        place = environments[way.environment]
        runs = [_run(place, way.code) for _ in range(TIMES)]
        seconds, cpu, memory = (
            statistics.median(run[key] for run in runs) for key in ("seconds", "cpu", "memory")
        )
        print(f"| {way.name} | {_size(place)} | {seconds:.1f} | {cpu:.1f} | {memory:.0f} |")


def _ours(model: Path, call: str) -> str:
    return f"""{TEXTS}
import rerank
answer = rerank.load({str(model)!r}).{call}.confidence
"""


def _flashrank(home: Path, weights: Path) -> str:
    """FlashRank with our weights in the place of its smallest model: its hub cannot be reached."""
    name, file = FLASHRANK
    place = home / "flashrank-models" / name
    if not place.is_dir():
        shutil.copytree(weights, place)
        export_padded(weights, place / file)
    return f"""{TEXTS}
from flashrank import Ranker, RerankRequest
ranker = Ranker({name!r}, cache_dir={str(place.parent)!r}, max_length=192, log_level="WARNING")
found = ranker.rerank(RerankRequest(query, [{{"text": text}} for text in texts]))
answer = float(found[0]["score"])
"""


def _cross_encoder(weights: Path) -> str:
    return f"""{TEXTS}
from sentence_transformers import CrossEncoder
model = CrossEncoder({str(weights)!r}, max_length=192, device="cpu")
answer = float(max(model.predict([(query, text) for text in texts])))
"""


def _wheel(home: Path) -> Path:
    made = home / "wheel"
    if not any(made.glob("*.whl")):
        command = [
            sys.executable,
            "-I",
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "-w",
            str(made),
        ]
        subprocess.run([*command, str(ROOT)], check=True)
        shutil.rmtree(ROOT / "build", ignore_errors=True)  # else the next wheel has its files, too
    return next(made.glob("*.whl"))


def _environment(home: Path, name: str, requirements: list[str]) -> Path:
    """A virtual environment with these alone, made once; compiled files are left out."""
    place = home / name
    if not (place / "installed").is_file():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        install = [str(place / "bin" / "python"), "-I", "-m", "pip", "install", "--quiet"]
        install += ["--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
        subprocess.run([*install, *requirements], check=True)
        (place / "installed").touch()
    return place


def _size(place: Path) -> int:
    """Megabytes of what is installed, pip and setuptools apart."""
    packages = next(place.glob("lib/python*/site-packages"))
    ours = [p for p in packages.iterdir() if not p.name.startswith(("pip", "setuptools"))]
    told = subprocess.run(["du", "-smc", *ours], capture_output=True, text=True, check=True)
    return int(told.stdout.splitlines()[-1].split()[0])


def _run(place: Path, code: str) -> dict[str, float]:
    """One process, from its start to its first answer, without a network."""
    alone = ["unshare", "--net"] if _can_unshare() else []
    command = [*alone, str(place / "bin" / "python"), "-c", code + TELL]
    kept = ("PATH", "LANG")
    environment = {key: os.environ[key] for key in kept if key in os.environ}
    environment |= {"HF_HUB_OFFLINE": "1", "HOME": str(place)}
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=place
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - start
    if not line:
        raise SystemExit(f"{place.name}: no answer")
    return {"seconds": seconds, **json.loads(line)}


def _can_unshare() -> bool:
    return shutil.which("unshare") is not None and not subprocess.call(["unshare", "-n", "true"])


if __name__ == "__main__":
    main()
