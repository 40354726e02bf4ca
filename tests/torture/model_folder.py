"""Mutated model folders: each is refused with a sentence, or is the model that it was.

Bytes, JSON values and the folder itself are mutated. Half of the mutations of content are forged:
every hash is made right again, so that the reader behind the hashes meets them; what then loads
must answer with probabilities, or refuse. In no case is anything executed, unpickled, fetched or
written, and nothing but `InputError` is raised.

    python tests/torture/model_folder.py work/model --count 100000
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import hashlib
import json
import os
import random
import resource
import shutil
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import bound_to
from rerank.errors import InputError
from rerank.inference.model_cache import cache_folder
from rerank.inference.score_cache import ScoreCache
from rerank.storage.folder import with_digest
from rerank.types import Passage

QUESTION = "sort an array"
HANG = 60  # seconds that one folder may take
GROWTH = 600  # MiB of memory that a whole run may add
PICTURES = (".png", ".html")  # left out: read by nobody, and half of the bytes
EXECUTED = ("pickle.find_class", "subprocess.Popen", "os.", "socket.connect", "socket.getaddrinfo")
HARMLESS = ("os.listdir", "os.scandir")
NASTY: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 10**9, 10**30, 1.5, 1e308, -1e308, 5e-324, 0.5, -0.0),
    *("", "x", "..", "../../etc/passwd", "/dev/zero", "/etc", "\0", "\ud800", "a" * 300, "none"),
    *("nobody/nothing", "nobody/nothing@main", "a" * 10**6, [], {}, [[]], [1], [None], {"": 1}),
)
RAW = ("NaN", "Infinity", "-Infinity", "1e999", "[" * 10**5, "9" * 5000, '{"a":1,"a":2}', "nul")
MARK = "@@raw@@"

Kept = dict[str, bytes]


class Folder:
    """A model folder in memory, and its copy on disk that is spoilt and mended."""

    def __init__(self, model: Path, place: Path) -> None:
        self.place = place
        manifest = json.loads((model / "manifest.json").read_text())
        names = [n for n in manifest["files"] if Path(n).suffix not in PICTURES]
        manifest["files"] = {name: manifest["files"][name] for name in names}
        self.kept: Kept = {name: (model / name).read_bytes() for name in names}
        self.kept["manifest.json"] = json.dumps(with_digest(manifest), indent=2).encode()
        self.mend()

    def mend(self, changed: Kept | None = None) -> None:
        """The folder as it was; `changed` are the only files that differ, where that is known."""
        if changed is not None:
            self.write({name: self.kept[name] for name in changed})
            return
        shutil.rmtree(self.place, ignore_errors=True)
        for name, data in self.kept.items():
            path = self.place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def write(self, changed: Kept) -> None:
        """Files with other bytes."""
        for name, data in changed.items():
            (self.place / name).write_bytes(data)


# --- bytes ------------------------------------------------------------------------------------


def mutate_bytes(data: bytes, draw: random.Random) -> bytes:
    """The bytes with one thing done to them."""
    a, b = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    b = min(b, a + draw.choice((1, 4, 64, 4096)))
    some = data[a:b]
    return draw.choice(
        (
            lambda: data[:a] + bytes([draw.randrange(256)]) + data[a + 1 :],
            lambda: (
                data[:a] + bytes([data[a] ^ (1 << draw.randrange(8))]) + data[a + 1 :]
                if a < len(data)
                else data[:-1]
            ),
            lambda: data[:a],
            lambda: data[:a] + data[b:],
            lambda: data[:b] + some + data[b:],
            lambda: data[:a] + draw.randbytes(len(some)) + data[b:],
            lambda: data[:a] + bytes(len(some)) + data[b:],
            lambda: data + draw.randbytes(draw.choice((1, 100))),
            lambda: some + data[:a] + data[b:],
            lambda: b"",
        )
    )()


# --- JSON -------------------------------------------------------------------------------------


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def mutate_json(data: bytes, draw: random.Random) -> bytes:
    """The JSON with one value, key or item replaced, taken away or put elsewhere."""
    value = json.loads(data)
    home, key = draw.choice(list(places(value)))
    other, there = draw.choice(list(places(value)))
    how = draw.randrange(6)
    if how == 0:
        home[key] = MARK
    elif how == 1:
        del home[key]
    elif how == 2 and isinstance(home, dict):
        home[draw.choice(("", "../x", "x", "a" * 300))] = home.pop(key)
    elif how == 3:
        home[key], other[there] = other[there], home[key]
        try:
            json.dumps(value)
        except (ValueError, RecursionError):  # one held the other
            return b"{}"
    elif how == 4 and isinstance(home[key], (int, float)):
        home[key] = draw.choice((-home[key], home[key] * 1e6, home[key] + 1, float(home[key])))
    else:
        home[key] = draw.choice(NASTY)
    return json.dumps(value).replace(f'"{MARK}"', draw.choice(RAW)).encode()


# --- the folder -------------------------------------------------------------------------------


def spoil_folder(folder: Folder, draw: random.Random) -> str:
    """Do one thing to the folder itself; what it was."""
    name = draw.choice(list(folder.kept))
    path = folder.place / name
    extra = folder.place / draw.choice(("x.py", "x.pkl", ".x", "index/x.npy", "a\nb", "ü.json"))

    def elsewhere(target: str) -> None:
        path.unlink()
        path.symlink_to(target)

    def in_its_place(make: Callable[[Path], object]) -> Callable[[], None]:
        def put() -> None:
            path.unlink()
            make(path)

        return put

    def by_socket() -> None:
        path.unlink()
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))

    def deep() -> None:
        (folder.place / "/".join(["d"] * 500)).mkdir(parents=True)

    def whole_link() -> None:
        moved = folder.place.with_name("moved")
        shutil.rmtree(moved, ignore_errors=True)
        (folder.place / "index").rename(moved)
        (folder.place / "index").symlink_to(moved)

    done: dict[str, Callable[[], object]] = {
        "link": lambda: elsewhere("/etc/passwd"),
        "link to zero": lambda: elsewhere("/dev/zero"),
        "link to itself": lambda: elsewhere(path.name),
        "link to a folder": lambda: elsewhere("/"),
        "index is a link": whole_link,
        "folder": in_its_place(Path.mkdir),
        "pipe": in_its_place(os.mkfifo),
        "socket": by_socket,
        "missing": path.unlink,
        "renamed": lambda: path.rename(path.with_name("x" + path.name)),
        "extra": lambda: extra.write_bytes(b"raise SystemExit"),
        "extra of strange bytes": lambda: Path(os.fsdecode(bytes(folder.place) + b"/\xff")).touch(),
        "sparse": lambda: os.truncate(path, 2**30),
        "deep": deep,
        "empty folder": (folder.place / "empty").mkdir,
        "epoch": lambda: os.utime(path, (0, 0)),
        "far future": lambda: os.utime(path, (2**33, 2**33)),
        "other mode": lambda: path.chmod(0),
        "hard link": lambda: os.link(path, folder.place / "y.txt"),
    }
    what = draw.choice(list(done))
    done[what]()
    return f"{what}: {name}"


# --- one mutation -----------------------------------------------------------------------------


def forge(changed: Kept, folder: Folder) -> Kept:
    """The change with every hash made right, where the manifest still has a place for one."""
    whole = {**folder.kept, **changed}
    try:
        manifest = json.loads(whole["manifest.json"])
        files = manifest["files"]
        if "calibrators.json" not in changed or "manifest.json" in changed:
            learned = json.loads(whole["calibrators.json"])
            learned["bound_to"] = bound_to(manifest["config"], manifest["fingerprints"])
            whole["calibrators.json"] = changed["calibrators.json"] = json.dumps(learned).encode()
        for name in set(files) & set(whole):
            data = whole[name]
            files[name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        changed["manifest.json"] = json.dumps(with_digest(manifest)).encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # the manifest itself is beyond it
    return changed


def spoil(folder: Folder, draw: random.Random) -> tuple[str, Kept | None, bool]:
    """Do one thing to the folder; what, which files that changed, and whether it was forged."""
    if draw.random() < 0.2:
        return spoil_folder(folder, draw), None, False
    of_json = [name for name in folder.kept if name.endswith(".json")]
    if draw.random() < 0.5:
        name = draw.choice(of_json + ["manifest.json", "calibrators.json"] * 4)
        changed = {name: mutate_json(folder.kept[name], draw)}
        what = f"JSON of {name}"
    else:
        name = draw.choice(list(folder.kept) + ["manifest.json", "calibrators.json"] * 4)
        changed = {name: mutate_bytes(folder.kept[name], draw)}
        what = f"bytes of {name}"
    forged = draw.random() < 0.5
    folder.write(forge(changed, folder) if forged else changed)
    return what, changed, forged


class Watching:
    """What the interpreter is asked to execute or reach while a folder is read."""

    def __init__(self) -> None:
        self.on = False
        self.own: set[str] = set()  # the caches' own paths: made, or opened, where they are missing
        self.seen: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on or (event in ("os.mkdir", "open") and str(arguments[0]) in self.own):
            return
        ours = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]), "<frozen", "<string>")
        if event == "exec":
            code = getattr(arguments[0], "co_filename", "")
            if not code.startswith(ours):
                self.seen.append(f"exec {code}")
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & 3:
            self.seen.append(f"open for writing {arguments[0]!r}")
        elif event.startswith(EXECUTED) and not event.startswith(HARMLESS):
            self.seen.append(f"{event} {arguments!r}"[:200])


def answer(model: CalibratedReranker) -> list[Any]:
    """What a model says to one question."""
    found = model.search(QUESTION)
    if not 0 <= found.confidence <= found.sufficiency <= 1:
        raise AssertionError(f"no probabilities: {found.confidence}, {found.sufficiency}")
    brought = [Passage(str(i), "", p.full_text) for i, p in enumerate(found.ranking.passages[:5])]
    given = model.rerank(QUESTION, brought)
    if not 0 <= given.confidence <= given.sufficiency <= 1:
        raise AssertionError(f"no probabilities: {given.confidence}, {given.sufficiency}")
    told = [(a.confidence, a.sufficiency, a.ranking.doc_ids) for a in (found, given)]
    return list(told)


def attack(model: Path, *, count: int, seed: int) -> collections.Counter[str]:
    """How many folders were refused, identical, or another model; the first that breaks raises."""
    watching, told = Watching(), collections.Counter[str]()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as home:
        folder = Folder(model, Path(home) / "model")
        kept = Path(home) / "scores.sqlite"
        watching.own = {home, str(kept), str(cache_folder())}
        scores = ScoreCache(kept)
        first = CalibratedReranker.load(folder.place, cache=scores)
        expected = answer(first)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(count):
            draw = random.Random(f"{seed}-{number}")
            what, changed, forged = spoil(folder, draw)
            watching.on = True
            faulthandler.dump_traceback_later(HANG, exit=True)
            try:
                outcome = _outcome(folder.place, first, expected, forged=forged)
            except BaseException as error:
                watching.on = False
                print(f"seed {seed}, number {number}: {what}, forged: {forged}", file=sys.stderr)
                shutil.rmtree("work/broken", ignore_errors=True)
                shutil.copytree(folder.place, "work/broken", symlinks=True)
                raise SystemExit("".join(traceback.format_exception(error))) from None
            finally:
                faulthandler.cancel_dump_traceback_later()
                watching.on = False
            told[f"{'forged' if forged else 'changed'}: {outcome}"] += 1
            if watching.seen:
                raise SystemExit(f"{seed}-{number}, {what}: {watching.seen}")
            folder.mend(changed)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    if grown > GROWTH:
        raise SystemExit(f"memory grew by {grown} MiB")
    told["MiB grown"] = grown
    return told


def _outcome(place: Path, first: CalibratedReranker, expected: list[Any], *, forged: bool) -> str:
    try:
        model = CalibratedReranker.load(place)
        _share(model, first)
        said = answer(model)
    except InputError as error:
        if not str(error).strip():
            raise AssertionError("a refusal without a sentence") from None
        return "refused"
    same = (model.manifest, model.maps) == (first.manifest, first.maps)
    if same and said == expected:
        return "identical"
    if not forged:
        raise AssertionError("another model was taken, though its hashes were not made right")
    return "another model, with probabilities"


def _share(model: CalibratedReranker, first: CalibratedReranker) -> None:
    """Give a model the weights that the first one has loaded, where they are the same."""
    ours, theirs = model.pipeline.models, first.pipeline.models
    if ours is None or theirs is None:
        return
    a, b = ours.encoder, theirs.encoder
    if (a.model, a.max_length) == (b.model, b.max_length):
        ours = replace(ours, encoder=b)
    c, d = ours.reranker, theirs.reranker
    if (c.model, c.scorer.traits) == (d.model, d.scorer.traits):
        ours = replace(ours, reranker=d)
    model.pipeline.models = ours


def main() -> None:
    """Attack a model folder and print what became of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args()
    start = time.monotonic()
    for outcome, number in sorted(attack(o.model, count=o.count, seed=o.seed).items()):
        print(f"{outcome:<45}{number:>9,}")
    print(f"{o.count:,} folders in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
