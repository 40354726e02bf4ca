"""The recipes of the bundled labelled sets: real text and human wording that any machine has.

A passage is the docstring of a public object of a library, or what Ruff says of a rule. A query is
a question in plain words, or what another docstring's "See Also" says of the object.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import packages_distributions, version
from itertools import accumulate
from pathlib import Path
from typing import Any

from rerank.data.beir import CORPUS, read_queries, write_corpus
from rerank.data.grouping import connected_groups
from rerank.data.labelled_set import LabelledSet
from rerank.data.lines import lines
from rerank.errors import InputError, nearest
from rerank.progress import progress
from rerank.storage.files import write_file
from rerank.types import Passage, Query

Found = dict[str, set[str]]  # query text -> names of the objects it describes
MIN_DOCSTRING = 10  # words; shorter ones only refer elsewhere
SKIPPED = re.compile(
    r"\.(_|(tests?|testing|conftest|f2py|distutils|compat|externals|core|cython_\w+|estimator_checks)(\.|$))"
)
SECTION = re.compile(r"^[ \t]*([A-Z][A-Za-z ]+)\n[ \t]*-{3,}[ \t]*$", re.MULTILINE)
DROPPED_SECTIONS = {"See Also", "Examples"}  # gives queries away; may print random numbers
PRINTED_SET = re.compile(r"\{('\w+'(?:, '\w+')+)\}")
NAME = r"(?::\w+:)?`?~?\.?[\w.]+`?(?:\(\))?"
ENTRY = re.compile(rf"^({NAME}(?:\s*,\s*{NAME})*)\s*(?::\s+(.*))?$")


@dataclass(frozen=True, slots=True)
class DocumentedObject:
    """A public object: its shortest public name, its docstring, and what it says of others."""

    name: str
    summary: str
    body: str  # the docstring without DROPPED_SECTIONS
    see_also: tuple[tuple[str, str], ...]  # (name as written, description)


def documented_objects(libraries: Collection[str]) -> dict[str, DocumentedObject]:
    """Every documented public object by its shortest public name, without copies of a docstring.

    `libraries` are import names. The same versions give the same objects.
    """
    names: dict[str, tuple[bool, int, str]] = {}  # docstring -> its best name, least first
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated names warn when they are accessed
        for name, docstring, inherited in _public_docstrings(libraries):
            key = (inherited, name.count("."), name)
            names[docstring] = min(key, names.get(docstring, key))
    objects = {name: _parse(name, docstring) for docstring, (_, _, name) in names.items()}
    return {name: objects[name] for name in sorted(objects) if objects[name].body}


def _public_docstrings(libraries: Collection[str]) -> Iterator[tuple[str, str, bool]]:
    """(qualified name, cleaned docstring, inherited) of public functions, classes and members.

    A docstring that only refers elsewhere is left out.
    """
    for module_name, module in _modules(libraries):
        names = getattr(module, "__all__", None)
        if names is None:  # of a first-level module what it defines itself
            own = dir(module) if module_name.count(".") <= 1 else ()
            names = [n for n in own if getattr(getattr(module, n), "__module__", "") == module_name]
        for name in names:
            value = getattr(module, name, None) if isinstance(name, str) else None
            if not callable(value) or name.startswith("_"):
                continue
            origin = getattr(value, "__module__", None) or module_name
            if origin.split(".")[0] not in libraries:
                continue
            qualified = f"{module_name}.{name}"
            found: list[tuple[str, Any, bool]] = [(qualified, value, False)]
            for member in dir(value) if isinstance(value, type) else ():
                owner = next((c for c in value.__mro__ if member in vars(c)), object)
                if not member.startswith("_") and owner.__module__.split(".")[0] in libraries:
                    inherited = owner is not value
                    found.append((f"{qualified}.{member}", vars(owner)[member], inherited))
            for of_one, held, inherited in found:
                plain = held.__func__ if isinstance(held, staticmethod | classmethod) else held
                docstring = plain.__doc__
                if isinstance(docstring, str) and len(docstring.split()) >= MIN_DOCSTRING:
                    yield of_one, inspect.cleandoc(docstring), inherited


def _modules(libraries: Collection[str]) -> list[tuple[str, types.ModuleType]]:
    """Public modules of the libraries, importable on this machine, in name order."""
    modules = []
    with progress(len(libraries), "reading documentation") as bar:
        for library in libraries:
            whole = library.partition(".")[0]
            if not library or library != whole:
                other = f"expected the name of a whole one, such as {whole or 'numpy'}"
                raise InputError(f"{library!r} is not a library; {other}")
            try:
                package = importlib.import_module(library)
            except ImportError as error:
                raise InputError(f"cannot import {library!r} ({error}); install it first") from None
            modules.append((library, package))
            folders = getattr(package, "__path__", [])
            walk = pkgutil.walk_packages(folders, f"{library}.", onerror=lambda _: None)
            for name in sorted(i.name for i in walk if not SKIPPED.search(i.name)):
                with suppress(Exception):  # an optional dependency that is not installed
                    modules.append((name, importlib.import_module(name)))
            bar.update()
    return modules


def _parse(name: str, docstring: str) -> DocumentedObject:
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
    body = body.strip()
    summary = " ".join(body.split("\n\n")[0].split())
    # the order of a printed set differs between runs
    body = PRINTED_SET.sub(lambda m: "{" + ", ".join(sorted(m.group(1).split(", "))) + "}", body)
    see_also: list[tuple[str, str]] = []
    names: list[str] = []
    words: list[str] = []
    for line in [*entries.strip("\n").split("\n"), "end : end"]:
        entry = None if line.startswith((" ", "\t")) else ENTRY.match(line.strip())
        if entry is None:
            words.append(line.strip())
            continue
        description = " ".join(" ".join(words).split())
        see_also += [(other, description) for other in names if description]
        names = [re.sub(r":\w+:|[`~()]", "", n).strip(" .") for n in entry.group(1).split(",")]
        words = [entry.group(2) or ""]
    return DocumentedObject(name, summary, body, tuple(see_also))


PYDATA = ("numpy", "scipy", "pandas", "sklearn")
MIN_WORDS = 4  # in a query
PLAIN = re.compile(r"[A-Z][a-z]+ ")  # the start of a summary that is neither markup nor a signature
UNANSWERABLE = 0.18  # share of the described objects whose passages leave the corpus
SPLITS = {"train": 0.30, "dev": 0.35, "test": 0.35}  # by described object


def build_pydata() -> LabelledSet:
    """The set `pydata`: about 5,800 passages and 2,000 queries, a sixth of them unanswerable."""
    objects = documented_objects(PYDATA)
    return _labelled(objects, SPLITS, "pydata", _see_also(objects))


def build_documentation(libraries: Collection[str]) -> LabelledSet:
    """A training set from any numpydoc `libraries`: summaries, removed from their passages, are
    queries too; all are in `train`.
    """
    if tested := sorted(set(libraries) & set(PYDATA)):
        raise InputError(
            f"{', '.join(tested)}: what describes these are the queries of pydata, its test "
            "queries too; give other libraries to train on"
        )
    without_summary = (
        replace(item, body=item.body.partition("\n\n")[2].strip())
        for item in documented_objects(libraries).values()
    )
    objects = {i.name: i for i in without_summary if len(i.body.split()) >= MIN_DOCSTRING}
    summaries = Found()
    for item in objects.values():
        text = re.split(r"(?<=\w)\.(?:\s|$)", item.summary)[0].strip()
        if PLAIN.match(text) and _is_query(text, item):
            summaries.setdefault(text, set()).add(item.name)
    made = _labelled(objects, {"train": 1.0}, "documentation", _see_also(objects), summaries)
    if not made.queries:
        raise InputError(f"{', '.join(libraries)}: no docstring there describes another")
    return made


def _labelled(
    objects: Mapping[str, DocumentedObject], shares: Mapping[str, float], name: str, *ways: Found
) -> LabelledSet:
    """The set of the descriptions of all `ways`, without those of several last names."""
    merged = Found()
    for text, names in (pair for way in ways for pair in way.items()):
        merged.setdefault(text, set()).update(names)
    described = {t: sorted(n) for t, n in merged.items() if len(set(map(_last_name, n))) == 1}
    groups = connected_groups(described, ())
    queries: dict[str, Query] = {}
    qrels: dict[str, dict[str, float]] = {}
    splits: dict[str, list[str]] = {split: [] for split in shares}
    removed: set[str] = set()
    for text, right in sorted(described.items()):
        group, query_id = groups[text], f"see-{_hash(text)}"
        gone = _fraction("answerable", group) < UNANSWERABLE
        if gone:
            removed.update(right)
        else:
            qrels[query_id] = dict.fromkeys(right, 1.0)
        queries[query_id] = Query(text, query_id, {"group": group, "answerable": not gone})
        at = _fraction("split", group)
        edges = zip(shares, accumulate(shares.values()), strict=True)
        splits[next((s for s, edge in edges if at < edge), [*shares][-1])].append(query_id)
    corpus = {p.doc_id: p for p in map(_passage, objects.values()) if p.doc_id not in removed}
    ordered = {split: tuple(sorted(ids)) for split, ids in splits.items()}
    return LabelledSet(corpus, queries, qrels, ordered, name)


def docstrings(libraries: Collection[str]) -> list[Passage]:
    """A passage for each of the `documented_objects`."""
    return [_passage(item) for item in documented_objects(libraries).values()]


RULES = (sys.executable, "-m", "ruff", "rule", "--all", "--output-format", "json")
ABOUT_RUFF = re.compile(  # sections about its options and fixes, and definitions of links
    r"^## (?:References|Options|Preview|[^\n]*\bFix ).*?(?=^## |\Z)|^\[.+?\]: [^\n]*$",
    re.MULTILINE | re.DOTALL | re.IGNORECASE,
)


def lint_rules() -> list[Passage]:
    """A passage for each rule of Ruff: its message, what it checks, why, and an example."""
    run = subprocess.run(RULES, check=False, capture_output=True)
    if run.returncode:
        raise InputError("ruff does not run here; install it first: pip install ruff")
    rules = [rule for rule in json.loads(run.stdout) if "Removed" not in rule["status"]]
    return [
        Passage(
            rule["name"],
            f"{rule['name'].replace('-', ' ')} ({rule['code']})",
            f"{rule['summary']}\n\n{ABOUT_RUFF.sub('', rule['explanation']).strip()}",
        )
        for rule in sorted(rules, key=lambda rule: str(rule["name"]))
    ]


def build_questions(folder: Path, passages: Iterable[Passage]) -> LabelledSet:
    """The questions of `folder` (queries, qrels, splits) over passages that the machine has.

    Passages that these package versions lack are removed from the qrels, in the files too, and
    questions that are left without any right passage.
    """
    read_queries(folder / "queries.jsonl")
    objects = {passage.doc_id: passage for passage in passages}
    for path in (folder / "qrels").glob("*.tsv"):
        header, *rows = [line for _, line in lines(path)]
        cells = ((row, row.split("\t")) for row in rows)  # whoever reads it refuses a bad row
        known = (row for row, of_row in cells if len(of_row) != 3 or of_row[1] in objects)
        write_file(path, (line + "\n" for line in (header, *known)))
    write_corpus(objects.values(), folder)
    read = LabelledSet.read(folder)
    queries = {
        i: q for i, q in read.queries.items() if i in read.qrels or not q.metadata.get("answerable")
    }
    splits = {s: tuple(i for i in ids if i in queries) for s, ids in read.splits.items()}
    return replace(read, queries=queries, splits=splits)


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


# by name: the libraries that it is built from, () if they are to be named; and what builds it
RECIPES: dict[str, tuple[tuple[str, ...], Callable[[Path, Collection[str]], LabelledSet]]] = {
    "pydata": (PYDATA, lambda _out, _libraries: build_pydata()),
    "pydata_questions": (PYDATA, lambda out, named: build_questions(out, docstrings(named))),
    "ruff_questions": (("ruff",), lambda out, _libraries: build_questions(out, lint_rules())),
    "documentation": ((), lambda _out, libraries: build_documentation(libraries)),
    "documentation_questions": ((), lambda out, named: build_questions(out, docstrings(named))),
}


def build(name: str, out: Path, libraries: Collection[str] = ()) -> dict[str, Any]:
    """Build a set into `out` and return its manifest, with the key `matches` added.

    `libraries` are the import names that the sets of `documentation` are built from. `matches`
    compares it with `out/manifest.json`: "new" (there was none; it is written now), "same", "other
    versions" of the packages, or "differs", although the versions are the same.
    """
    if name not in RECIPES:
        *others, last = RECIPES
        expected = f"expected {', '.join(others)} or {last}{nearest(name, RECIPES)}"
        raise InputError(f"no recipe for a set {name!r}; {expected}")
    fixed, recipe = RECIPES[name]
    if bool(fixed) == bool(libraries):
        given = f"{', '.join(fixed)}; only documentation from others"
        raise InputError(
            f"{name} is built from {given if fixed else 'installed libraries: name them'}"
        )
    libraries = fixed or libraries
    path, known = out / "manifest.json", {}
    if not path.exists() and (out / CORPUS).exists():
        raise InputError(f"{out}: holds a labelled set that is not {name}; give another folder")
    if path.exists():
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            built, packages, _ = known["name"], sorted(known["packages"].keys()), known["digest"]
        except (ValueError, KeyError, TypeError, AttributeError):
            why = "is not a manifest of a built set; remove it, or restore it"
            raise InputError(f"{path}: {why}") from None
        if built != name or packages != _packages(libraries):
            was = f"{built}, which was built from {packages}"
            raise InputError(f"{out}: holds {was}; give another folder")
    labelled = recipe(out, libraries)
    described = manifest(labelled, libraries)
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


def _see_also(objects: Mapping[str, DocumentedObject]) -> Found:
    """Descriptions in "See Also" sections; they also describe namesakes with the same summary."""
    namesakes: dict[tuple[str, str], set[str]] = {}
    for item in objects.values():
        namesakes.setdefault((_last_name(item.name), item.summary), set()).add(item.name)
    names_of = Found()
    for source in objects.values():
        for written, description in source.see_also:
            target, text = _resolve(written, source.name, objects), description.rstrip(".").strip()
            item = objects.get(target or source.name, source)
            if item is not source and _is_query(text, item):
                same = namesakes[_last_name(item.name), item.summary]
                names_of.setdefault(text, set()).update(same)
    return names_of


def _last_name(name: str) -> str:
    return name.rpartition(".")[2]


def _resolve(written: str, source: str, objects: Mapping[str, DocumentedObject]) -> str | None:
    """The object that a "See Also" name means, looked up from the innermost scope outwards."""
    scope = source.split(".")
    for depth in range(len(scope) - 1, -1, -1):
        name = ".".join([*scope[:depth], written])
        if name in objects:
            return name
    ends = [n for n in objects if n.startswith(f"{scope[0]}.") and n.endswith(f".{written}")]
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
