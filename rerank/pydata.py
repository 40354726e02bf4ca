"""The recipe of the bundled labelled set: real text and human wording that any machine has.

A passage is the docstring of one public object of NumPy, SciPy, pandas or scikit-learn as
installed, less its "See Also" and "Examples" sections. A query is the "See Also" description that
another object's docstring gives of it, in words that do not stand in its own docstring. Nothing is
copied into the repository. This file knows nothing of retrieval.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import pkgutil
import re
import types
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rerank.labelled_set import (
    LabelledSet,
    read_labelled_set,
    read_queries,
    write_corpus,
    write_labelled_set,
)
from rerank.progress import progress
from rerank.types import InputError, Passage, Query

LIBRARIES = {"numpy": "numpy", "scipy": "scipy", "pandas": "pandas", "sklearn": "scikit-learn"}
LEAST_WORDS = 4  # in a query
LEAST_DOCSTRING = 10  # words; shorter ones only point elsewhere
UNANSWERABLE = 0.18  # share of the described objects whose passages leave the corpus
SPLITS = {"train": 0.30, "dev": 0.35, "test": 0.35}  # by described object
SKIPPED = re.compile(
    r"\.(_|(tests?|testing|conftest|f2py|distutils|compat|externals|core|cython_\w+|estimator_checks)(\.|$))"
)
SECTION = re.compile(r"^[ \t]*([A-Z][A-Za-z ]+)\n[ \t]*-{3,}[ \t]*$", re.MULTILINE)
DROPPED_SECTIONS = {
    "See Also",  # would give queries away
    "Examples",  # some are run at import and print random numbers
}
PRINTED_SET = re.compile(r"\{('\w+'(?:, '\w+')+)\}")
NAME = r"(?::\w+:)?`?~?\.?[\w.]+`?(?:\(\))?"
ENTRY = re.compile(rf"^({NAME}(?:\s*,\s*{NAME})*)\s*(?::\s+(.*))?$")


@dataclass(frozen=True, slots=True)
class _Object:
    """A public object: its shortest public name, its docstring, and what it tells of others."""

    name: str
    summary: str
    body: str  # the docstring without DROPPED_SECTIONS
    see_also: tuple[tuple[str, str], ...]  # (name as written, description)


def build_pydata() -> LabelledSet:
    """The set `pydata`: about 5,800 passages and 2,000 queries, a sixth of them unanswerable.

    The same package versions give the same set.
    """
    objects = _public_objects()
    described = _descriptions(objects)
    groups = _connected(described)
    queries: dict[str, Query] = {}
    qrels: dict[str, dict[str, float]] = {}
    splits: dict[str, list[str]] = {name: [] for name in SPLITS}
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
        splits[_split_of(group)].append(query_id)
    corpus = {p.doc_id: p for p in map(_passage, objects.values()) if p.doc_id not in removed}
    ordered = {name: tuple(sorted(ids)) for name, ids in splits.items()}
    return LabelledSet(corpus, queries, qrels, ordered, "pydata")


def build_pydata_questions(folder: Path) -> LabelledSet:
    """The questions of `folder` (queries, qrels, splits) over every docstring, none removed.

    Raises:
        InputError: a question names an object that these package versions do not have.
    """
    read_queries(folder / "queries.jsonl")
    corpus = {p.doc_id: p for p in map(_passage, _public_objects().values())}
    write_corpus(corpus.values(), folder)
    return read_labelled_set(folder)


def manifest(labelled: LabelledSet) -> dict[str, Any]:
    """What a built set is: package versions, counts, digest."""
    return {
        "name": labelled.name,
        "packages": {package: version(package) for package in LIBRARIES.values()},
        "counts": labelled.counts(),
        "digest": labelled.digest(),
    }


def build(name: str, out: Path) -> dict[str, Any]:
    """Build a bundled set into `out` and return its manifest, with `matches` beside it.

    `matches` is True or False where `out/manifest.json` holds a digest for these very package
    versions, and None where it was made with others.

    Raises:
        InputError: there is no bundled set of that name, or `out` holds something else.
    """
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
    else:
        raise InputError(f"no bundled set {name!r}; expected pydata or pydata_questions")
    made = manifest(labelled)
    if not path.exists():
        path.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    known = json.loads(path.read_text(encoding="utf-8"))
    same_packages = known.get("packages") == made["packages"]
    return made | {"matches": known.get("digest") == made["digest"] if same_packages else None}


def _passage(item: _Object) -> Passage:
    return Passage(item.name, item.name, item.body)


# --- the public objects -----------------------------------------------------------------------


def _public_objects() -> dict[str, _Object]:
    """Every documented public object by its shortest public name, copies of a docstring dropped."""
    names: dict[str, tuple[bool, int, str]] = {}  # docstring -> its best name, least first
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated names warn when they are looked at
        for name, docstring, inherited in _documented():
            key = (inherited, name.count("."), name)
            names[docstring] = min(key, names.get(docstring, key))
    found = {name: _parse(name, docstring) for docstring, (_, _, name) in names.items()}
    return {name: found[name] for name in sorted(found) if found[name].body}


def _documented() -> Iterator[tuple[str, str, bool]]:
    """(qualified name, cleaned docstring, inherited) of public functions, classes and members."""
    for module_name, module in _modules():
        for name in _public_names(module_name, module):
            value = getattr(module, name, None)
            if name.startswith("_") or isinstance(value, types.ModuleType) or value is None:
                continue
            origin = getattr(value, "__module__", None) or module_name
            if not callable(value) or origin.split(".")[0] not in LIBRARIES:
                continue
            qualified = f"{module_name}.{name}"
            for docstring in _docstring(value):
                yield qualified, docstring, False
            for member in dir(value) if isinstance(value, type) else ():
                owner = next((c for c in value.__mro__ if member in vars(c)), object)
                if member.startswith("_") or owner.__module__.split(".")[0] not in LIBRARIES:
                    continue
                for docstring in _docstring(vars(owner)[member]):
                    yield f"{qualified}.{member}", docstring, owner is not value


def _public_names(module_name: str, module: types.ModuleType) -> list[str]:
    """The module's own list of what is public, else what a first-level module defines itself."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return [name for name in listed if isinstance(name, str)]
    if module_name.count(".") > 1:
        return []
    return [n for n in dir(module) if getattr(getattr(module, n), "__module__", "") == module_name]


def _docstring(value: Any) -> Iterator[str]:
    """The cleaned docstring, if it says more than a pointer elsewhere."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    docstring = value.__doc__
    if isinstance(docstring, str) and len(docstring.split()) >= LEAST_DOCSTRING:
        yield inspect.cleandoc(docstring)


def _modules() -> list[tuple[str, types.ModuleType]]:
    """Public modules of the four libraries, importable on this machine, in name order."""
    found = []
    with progress(len(LIBRARIES), "reading documentation") as bar:
        for library in LIBRARIES:
            package = importlib.import_module(library)
            found.append((library, package))
            walk = pkgutil.walk_packages(package.__path__, f"{library}.", onerror=lambda _: None)
            for name in sorted(i.name for i in walk if not SKIPPED.search(i.name)):
                try:
                    found.append((name, importlib.import_module(name)))
                except Exception:  # an optional dependency that is not installed
                    continue
            bar.update()
    return found


def _parse(name: str, docstring: str) -> _Object:
    """Split a numpydoc docstring into its summary, its "See Also" entries and the rest."""
    heads = [*SECTION.finditer(docstring)]
    ends = [*(h.start() for h in heads[1:]), len(docstring)]
    body, entries = docstring[: heads[0].start()] if heads else docstring, ""
    for head, end in zip(heads, ends, strict=False):
        title = head.group(1).strip()
        if title == "See Also":
            entries = docstring[head.end() : end]
        if title not in DROPPED_SECTIONS:
            body += docstring[head.start() : end]
    summary = " ".join(body.strip().split("\n\n")[0].split())
    return _Object(name, summary, _stable(body.strip()), tuple(_see_also(entries)))


def _stable(text: str) -> str:
    """The text with printed sets sorted: their order changes from one run to the next."""
    return PRINTED_SET.sub(lambda m: "{" + ", ".join(sorted(m.group(1).split(", "))) + "}", text)


def _see_also(section: str) -> Iterator[tuple[str, str]]:
    """(name, description) pairs of a numpydoc "See Also" section."""
    names: list[str] = []
    words: list[str] = []
    for line in [*section.strip("\n").split("\n"), "end : end"]:
        entry = None if line.startswith((" ", "\t")) else ENTRY.match(line.strip())
        if entry is None:
            words.append(line.strip())
            continue
        description = " ".join(" ".join(words).split())
        yield from ((name, description) for name in names if description)
        names = [re.sub(r":\w+:|[`~()]", "", n).strip(" .") for n in entry.group(1).split(",")]
        words = [entry.group(2) or ""]


# --- the queries ------------------------------------------------------------------------------


def _descriptions(objects: Mapping[str, _Object]) -> dict[str, frozenset[str]]:
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


def _resolve(written: str, source: str, objects: Mapping[str, _Object]) -> str | None:
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


def _split_of(group: str) -> str:
    at, edge = _fraction("split", group), 0.0
    for name, share in SPLITS.items():
        edge += share
        if at < edge:
            return name
    return name
