"""The recipes of the bundled labelled sets: real text and human wording that any machine has.

A passage is the docstring of one public object of an installed library, without its "See Also" and
"Examples" sections. A query is the "See Also" description of that object in another object's
docstring, in words that its own docstring does not contain.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from importlib.metadata import packages_distributions, version
from itertools import accumulate
from pathlib import Path
from typing import Any

from rerank.data.beir import CORPUS, read_queries, write_corpus
from rerank.data.build.docstrings import MIN_DOCSTRING, DocumentedObject, documented_objects
from rerank.data.grouping import connected_groups
from rerank.data.labelled_set import LabelledSet
from rerank.data.lines import lines
from rerank.errors import InputError, nearest
from rerank.storage.files import write_file
from rerank.types import Passage, Query

PYDATA = ("numpy", "scipy", "pandas", "sklearn")
MIN_WORDS = 4  # in a query
PLAIN = re.compile(r"[A-Z][a-z]+ ")  # the start of a summary that is neither markup nor a signature
UNANSWERABLE = 0.18  # share of the described objects whose passages leave the corpus
SPLITS = {"train": 0.30, "dev": 0.35, "test": 0.35}  # by described object


def build_pydata() -> LabelledSet:
    """The set `pydata`: about 5,800 passages and 2,000 queries, a sixth of them unanswerable.

    The same package versions give the same set.
    """
    objects = documented_objects(PYDATA)
    return _labelled(objects, _merge_descriptions(_see_also(objects)), SPLITS, "pydata")


def build_documentation(libraries: Collection[str]) -> LabelledSet:
    """A training set from any numpydoc `libraries`: summaries are queries too; all are in `train`.

    The summary of a docstring is removed from its passage.

    Raises:
        InputError: a library is not installed or is one of pydata's, or no docstring describes
            another object.
    """
    if tested := sorted(set(libraries) & set(PYDATA)):
        raise InputError(
            f"{', '.join(tested)}: what describes these are the queries of pydata, its test "
            "queries too; give other libraries to train on"
        )
    objects = {}
    for name, item in documented_objects(libraries).items():
        body = item.body.partition("\n\n")[2].strip()
        if len(body.split()) >= MIN_DOCSTRING:
            objects[name] = replace(item, body=body)
    described = _merge_descriptions(_see_also(objects), _summaries(objects))
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
    groups = connected_groups({text: sorted(right) for text, right in described.items()}, ())
    queries: dict[str, Query] = {}
    qrels: dict[str, dict[str, float]] = {}
    splits: dict[str, list[str]] = {split: [] for split in shares}
    removed: set[str] = set()
    for text in sorted(described):
        right, group = described[text], groups[text]
        query_id = f"see-{_hash(text)}"
        gone = _fraction("answerable", group) < UNANSWERABLE
        if gone:
            removed |= right
        else:
            qrels[query_id] = dict.fromkeys(sorted(right), 1.0)
        queries[query_id] = Query(text, query_id, {"group": group, "answerable": not gone})
        at = _fraction("split", group)
        edges = zip(shares, accumulate(shares.values()), strict=True)
        splits[next((s for s, edge in edges if at < edge), [*shares][-1])].append(query_id)
    corpus = {p.doc_id: p for p in map(_passage, objects.values()) if p.doc_id not in removed}
    ordered = {split: tuple(sorted(ids)) for split, ids in splits.items()}
    return LabelledSet(corpus, queries, qrels, ordered, name)


def build_questions(folder: Path, libraries: Collection[str]) -> LabelledSet:
    """The questions of `folder` (queries, qrels, splits) over every docstring of the libraries.

    Objects that these package versions do not have are removed from the qrels, in the files too,
    and questions that are left without any right passage.

    Raises:
        InputError: a file is missing, or bad lines, which are listed.
    """
    read_queries(folder / "queries.jsonl")
    objects = documented_objects(libraries)
    for path in (folder / "qrels").glob("*.tsv"):
        header, *rows = [line for _, line in lines(path)]
        cells = ((row, row.split("\t")) for row in rows)  # whoever reads it refuses a bad row
        known = (row for row, of_row in cells if len(of_row) != 3 or of_row[1] in objects)
        write_file(path, (line + "\n" for line in (header, *known)))
    write_corpus(map(_passage, objects.values()), folder)
    labelled = LabelledSet.read(folder)
    lost = {
        i
        for i, q in labelled.queries.items()
        if q.metadata.get("answerable") and i not in labelled.qrels
    }
    return replace(
        labelled,
        queries={i: q for i, q in labelled.queries.items() if i not in lost},
        splits={s: tuple(i for i in ids if i not in lost) for s, ids in labelled.splits.items()},
    )


def manifest(labelled: LabelledSet, libraries: Collection[str] = PYDATA) -> dict[str, Any]:
    """The manifest of a set built from `libraries`: package versions, counts, digest."""
    return {
        "name": labelled.name,
        "packages": {package: version(package) for package in _packages(libraries)},
        "counts": labelled.counts(),
        "digest": labelled.digest(),
    }


def _packages(libraries: Collection[str]) -> list[str]:
    distributions = packages_distributions()
    return sorted({package for library in libraries for package in distributions.get(library, ())})


RECIPES: dict[str, Callable[[Path, Collection[str]], LabelledSet]] = {
    "pydata": lambda _out, _libraries: build_pydata(),
    "pydata_questions": lambda out, _libraries: build_questions(out, PYDATA),
    "documentation": lambda _out, libraries: build_documentation(libraries),
    "documentation_questions": build_questions,
}


def build(name: str, out: Path, libraries: Collection[str] = ()) -> dict[str, Any]:
    """Build a set into `out` and return its manifest, with the key `matches` added.

    `libraries` are the import names that the sets of `documentation` are built from. `matches`
    compares it with the earlier `out/manifest.json`: "new" (there was none; it is written now),
    "same", "other versions" of the packages, or "differs", although the versions are the same.

    Raises:
        InputError: there is no set of that name, it is not built from these libraries, `out` holds
            something else, or its manifest is damaged.
    """
    if name not in RECIPES:
        *others, last = RECIPES
        raise InputError(
            f"no recipe for a set {name!r}; expected {', '.join(others)} or {last}"
            f"{nearest(name, RECIPES)}"
        )
    from_others = name.startswith("documentation")
    if from_others != bool(libraries):
        raise InputError(
            f"{name} is built from installed libraries: name them"
            if from_others
            else f"{name} is built from {', '.join(PYDATA)}; only documentation from others"
        )
    path = out / "manifest.json"
    if not path.exists() and (out / CORPUS).exists():
        raise InputError(f"{out}: holds a labelled set that is not {name}; give another folder")
    known = {}
    if path.exists():
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            if not (isinstance(known["packages"], dict) and isinstance(known["digest"], str)):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{path}: is not a manifest of a built set; remove it, or restore it"
            ) from None
    if known and known.get("name") != name:
        raise InputError(f"{out}: its manifest is not that of {name}; give another folder")
    if known and sorted(known["packages"]) != _packages(libraries or PYDATA):
        raise InputError(f"{out}: was built from {sorted(known['packages'])}; give another folder")
    labelled = RECIPES[name](out, libraries)
    described = manifest(labelled, libraries or PYDATA)
    if not known:  # before the set: a build that is interrupted can be run again
        out.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(described, indent=2) + "\n")
    labelled.write(out)
    matches = "same" if known.get("digest") == described["digest"] else "differs"
    if known.get("packages") != described["packages"]:
        matches = "other versions" if known else "new"
    return described | {"matches": matches}


def _passage(item: DocumentedObject) -> Passage:
    return Passage(item.name, item.name, item.body)


Found = dict[str, set[str]]  # query text -> names of the objects it describes


def _merge_descriptions(*ways: Found) -> dict[str, frozenset[str]]:
    """The descriptions of all sources together, without those of objects of several last names."""
    right_names: dict[str, frozenset[str]] = {}
    for names_of in ways:
        for text, names in names_of.items():
            right_names[text] = right_names.get(text, frozenset()) | names
    return {
        text: right
        for text, right in right_names.items()
        if len({name.rsplit(".", 1)[-1] for name in right}) == 1
    }


def _summaries(objects: Mapping[str, DocumentedObject]) -> Found:
    """First sentences of summaries: each describes the objects whose docstrings begin with it."""
    names_of: Found = {}
    for item in objects.values():
        text = re.split(r"(?<=\w)\.(?:\s|$)", item.summary)[0].strip()
        if PLAIN.match(text) and _is_query(text, item):
            names_of.setdefault(text, set()).add(item.name)
    return names_of


def _see_also(objects: Mapping[str, DocumentedObject]) -> Found:
    """Descriptions in "See Also" sections; they also describe namesakes with the same summary."""
    namesakes: dict[tuple[str, str], set[str]] = {}
    for item in objects.values():
        namesakes.setdefault((item.name.rsplit(".", 1)[-1], item.summary), set()).add(item.name)
    names_of: Found = {}
    for source in objects.values():
        for written, description in source.see_also:
            target = _resolve(written, source.name, objects)
            if target is None or target == source.name:
                continue
            text, item = description.rstrip(".").strip(), objects[target]
            if _is_query(text, item):
                same = namesakes[(item.name.rsplit(".", 1)[-1], item.summary)]
                names_of.setdefault(text, set()).update(same)
    return names_of


def _resolve(written: str, source: str, objects: Mapping[str, DocumentedObject]) -> str | None:
    """The object that a "See Also" name means, looked up from the innermost scope outwards."""
    scope = source.split(".")
    for depth in range(len(scope) - 1, -1, -1):
        name = ".".join([*scope[:depth], written])
        if name in objects:
            return name
    tail = "." + written
    ends = [n for n in objects if n.endswith(tail) and n.split(".")[0] == scope[0]]
    return ends[0] if len(ends) == 1 else None


def _is_query(text: str, item: DocumentedObject) -> bool:
    """Whether a text has words enough, which the object's own docstring does not contain."""
    words, in_body = (re.findall(r"\w+", t.lower()) for t in (text, item.body))
    return len(words) >= MIN_WORDS and " ".join(words) not in " ".join(in_body)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _fraction(purpose: str, group: str) -> float:
    """A number in [0, 1) drawn from a group's name, the same on every machine."""
    return int(_hash(f"{purpose}:{group}"), 16) / 16**12
