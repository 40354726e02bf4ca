"""The recipes of the bundled labelled sets: real text and human wording that any machine has.

A passage is the docstring of one public object of a library as installed, less its "See Also" and
"Examples" sections. A query is the "See Also" description that another object's docstring gives of
it, in words that do not stand in its own docstring. Nothing is copied into the repository. This
file knows nothing of retrieval.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from rerank.beir import read_labelled_set, read_queries, write_corpus, write_labelled_set
from rerank.docstrings import LEAST_DOCSTRING, DocumentedObject, documented_objects
from rerank.labelled_set import LabelledSet
from rerank.types import InputError, Passage, Query

PYDATA = ("numpy", "scipy", "pandas", "sklearn")
LEAST_WORDS = 4  # in a query
PLAIN = re.compile(r"[A-Z][a-z]+ ")  # how a summary begins that is neither markup nor a signature
UNANSWERABLE = 0.18  # share of the described objects whose passages leave the corpus
SPLITS = {"train": 0.30, "dev": 0.35, "test": 0.35}  # by described object


def build_pydata() -> LabelledSet:
    """The set `pydata`: about 5,800 passages and 2,000 queries, a sixth of them unanswerable.

    The same package versions give the same set.
    """
    objects = documented_objects(PYDATA)
    return _labelled(objects, _descriptions(objects), SPLITS, "pydata")


def build_documentation(libraries: Collection[str]) -> LabelledSet:
    """A set to train on, of any numpydoc `libraries`: queries are summaries, too, and all `train`.

    The summary of a docstring leaves its passage, and so becomes one more description of it in
    words that do not stand there.

    Raises:
        InputError: a library is not installed, or none has a description to give.
    """
    objects = {}
    for name, item in documented_objects(libraries).items():
        rest = item.body.partition("\n\n")[2].strip()
        if len(rest.split()) >= LEAST_DOCSTRING:
            objects[name] = replace(item, body=rest)
    described = {**_summaries(objects), **_descriptions(objects)}
    if not described:
        raise InputError(f"{', '.join(libraries)}: no docstring there describes another")
    return _labelled(objects, described, {"train": 1.0}, "documentation")


def _labelled(
    objects: Mapping[str, DocumentedObject],
    described: Mapping[str, frozenset[str]],
    shares: Mapping[str, float],
    name: str,
) -> LabelledSet:
    """The set of `described` (query text -> names of the objects it describes)."""
    groups = _connected(described)
    queries: dict[str, Query] = {}
    qrels: dict[str, dict[str, float]] = {}
    splits: dict[str, list[str]] = {split: [] for split in shares}
    removed: set[str] = set()
    for text in sorted(described):
        right, group = described[text], groups[text]
        query_id = "see-" + _hash(text)[:12]
        gone = _fraction("answerable", group) < UNANSWERABLE
        if gone:
            removed |= right
        else:
            qrels[query_id] = dict.fromkeys(sorted(right), 1.0)
        queries[query_id] = Query(query_id, text, {"group": group, "answerable": not gone})
        splits[_split_of(group, shares)].append(query_id)
    corpus = {p.doc_id: p for p in map(_passage, objects.values()) if p.doc_id not in removed}
    ordered = {split: tuple(sorted(ids)) for split, ids in splits.items()}
    return LabelledSet(corpus, queries, qrels, ordered, name)


def build_pydata_questions(folder: Path) -> LabelledSet:
    """The questions of `folder` (queries, qrels, splits) over every docstring, none removed.

    Raises:
        InputError: a question names an object that these package versions do not have.
    """
    read_queries(folder / "queries.jsonl")
    corpus = {p.doc_id: p for p in map(_passage, documented_objects(PYDATA).values())}
    write_corpus(corpus.values(), folder)
    return read_labelled_set(folder)


def manifest(labelled: LabelledSet, libraries: Collection[str] = PYDATA) -> dict[str, Any]:
    """What a set built from `libraries` is: package versions, counts, digest."""
    packages = {package for library in libraries for package in packages_distributions()[library]}
    return {
        "name": labelled.name,
        "packages": {package: version(package) for package in sorted(packages)},
        "counts": labelled.counts(),
        "digest": labelled.digest(),
    }


def build(name: str, out: Path, libraries: Collection[str] = PYDATA) -> dict[str, Any]:
    """Build a set into `out` and return its manifest, with `matches` beside it.

    `libraries` are import names; only `documentation` is built from any but the four of pydata.

    `matches` is True or False where `out/manifest.json` holds a digest for these very package
    versions, and None where it was made with others.

    Raises:
        InputError: there is no set of that name, or not of these libraries, or `out` holds
            something else.
    """
    if name != "documentation" and set(libraries) != set(PYDATA):
        raise InputError(f"{name} is built from {', '.join(PYDATA)}; documentation from any others")
    path = out / "manifest.json"
    if not path.exists() and (out / "corpus.jsonl").exists():
        raise InputError(f"{out}: holds a labelled set that is not {name}; give another folder")
    if path.exists() and json.loads(path.read_text(encoding="utf-8")).get("name") != name:
        raise InputError(f"{out}: its manifest is not that of {name}; give another folder")
    if name == "pydata":
        labelled = build_pydata()
        write_labelled_set(labelled, out)
    elif name == "pydata_questions":
        labelled = build_pydata_questions(out)
    elif name == "documentation":
        labelled = build_documentation(libraries)
        write_labelled_set(labelled, out)
    else:
        expected = "pydata, pydata_questions or documentation"
        raise InputError(f"no recipe for a set {name!r}; expected {expected}")
    made = manifest(labelled, libraries)
    if not path.exists():
        path.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    known = json.loads(path.read_text(encoding="utf-8"))
    same_packages = known.get("packages") == made["packages"]
    return made | {"matches": known.get("digest") == made["digest"] if same_packages else None}


def _passage(item: DocumentedObject) -> Passage:
    return Passage(item.name, item.name, item.body)


# --- the queries ------------------------------------------------------------------------------


def _summaries(objects: Mapping[str, DocumentedObject]) -> dict[str, frozenset[str]]:
    """First sentence of a summary -> names of the objects whose docstring begins with it."""
    found: dict[str, set[str]] = {}
    for item in objects.values():
        text = re.split(r"(?<=\w)\.(?:\s|$)", item.summary)[0].strip()
        wordy = PLAIN.match(text) and len(re.findall(r"\w+", text)) >= LEAST_WORDS
        if wordy and _squash(text) not in _squash(item.body):
            found.setdefault(text, set()).add(item.name)
    return {text: frozenset(right) for text, right in found.items() if _one_thing(right)}


def _descriptions(objects: Mapping[str, DocumentedObject]) -> dict[str, frozenset[str]]:
    """Query text -> names of the objects it describes, namesakes with the same summary included."""
    namesakes: dict[tuple[str, str], set[str]] = {}
    for item in objects.values():
        namesakes.setdefault((item.name.rsplit(".", 1)[-1], item.summary), set()).add(item.name)
    found: dict[str, set[str]] = {}
    for source in objects.values():
        for written, description in source.see_also:
            target = _resolve(written, source.name, objects)
            if target is None or target == source.name:
                continue
            text = description.rstrip(".").strip()
            if len(re.findall(r"\w+", text)) < LEAST_WORDS:
                continue
            item = objects[target]
            if _squash(text) in _squash(item.body):
                continue
            same = namesakes[(item.name.rsplit(".", 1)[-1], item.summary)]
            found.setdefault(text, set()).update(same)
    return {text: frozenset(right) for text, right in found.items() if _one_thing(right)}


def _one_thing(names: set[str]) -> bool:
    """Whether the names mean one thing; "Equivalent method on Series" describes many."""
    return len({name.rsplit(".", 1)[-1] for name in names}) == 1


def _resolve(written: str, source: str, objects: Mapping[str, DocumentedObject]) -> str | None:
    """The object a "See Also" name means: looked up from the innermost scope outwards."""
    scope = source.split(".")
    for depth in range(len(scope) - 1, -1, -1):
        name = ".".join([*scope[:depth], written])
        if name in objects:
            return name
    tail = "." + written
    ends = [n for n in objects if n.endswith(tail) and n.split(".")[0] == scope[0]]
    return ends[0] if len(ends) == 1 else None


def _squash(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _connected(described: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Query text -> the least name of its connected component of described objects."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for right in described.values():
        first, *others = sorted(right)
        for other in others:
            a, b = sorted((root(first), root(other)))
            parent[b] = a
    return {text: root(min(right)) for text, right in described.items()}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _fraction(purpose: str, group: str) -> float:
    """A number in [0, 1) drawn from a group's name, the same on every machine."""
    return int(_hash(f"{purpose}:{group}")[:12], 16) / 16**12


def _split_of(group: str, shares: Mapping[str, float]) -> str:
    at, edge = _fraction("split", group), 0.0
    for name, share in shares.items():
        edge += share
        if at < edge:
            return name
    return name
