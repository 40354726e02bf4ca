"""The public objects of installed libraries, as described in their own numpydoc docstrings."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import types
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from rerank.errors import InputError
from rerank.progress import progress

MIN_DOCSTRING = 10  # words; shorter ones only refer elsewhere
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
class DocumentedObject:
    """A public object: its shortest public name, its docstring, and what it says of others."""

    name: str
    summary: str
    body: str  # the docstring without DROPPED_SECTIONS
    see_also: tuple[tuple[str, str], ...]  # (name as written, description)


def documented_objects(libraries: Collection[str]) -> dict[str, DocumentedObject]:
    """Every documented public object by its shortest public name, without copies of a docstring.

    `libraries` are import names. The same versions give the same objects.

    Raises:
        InputError: a library cannot be imported.
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
    """(qualified name, cleaned docstring, inherited) of public functions, classes and members."""
    for module_name, module in _modules(libraries):
        for name in _public_names(module_name, module):
            value = getattr(module, name, None)
            if name.startswith("_") or isinstance(value, types.ModuleType) or value is None:
                continue
            origin = getattr(value, "__module__", None) or module_name
            if not callable(value) or origin.split(".")[0] not in libraries:
                continue
            qualified = f"{module_name}.{name}"
            for docstring in _docstring(value):
                yield qualified, docstring, False
            for member in dir(value) if isinstance(value, type) else ():
                owner = next((c for c in value.__mro__ if member in vars(c)), object)
                if member.startswith("_") or owner.__module__.split(".")[0] not in libraries:
                    continue
                for docstring in _docstring(vars(owner)[member]):
                    yield f"{qualified}.{member}", docstring, owner is not value


def _public_names(module_name: str, module: types.ModuleType) -> list[str]:
    """The module's `__all__`, or else what a first-level module defines itself."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return [name for name in listed if isinstance(name, str)]
    if module_name.count(".") > 1:
        return []
    return [n for n in dir(module) if getattr(getattr(module, n), "__module__", "") == module_name]


def _docstring(value: Any) -> Iterator[str]:
    """The cleaned docstring, if it is more than a reference elsewhere."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    docstring = value.__doc__
    if isinstance(docstring, str) and len(docstring.split()) >= MIN_DOCSTRING:
        yield inspect.cleandoc(docstring)


def _modules(libraries: Collection[str]) -> list[tuple[str, types.ModuleType]]:
    """Public modules of the libraries, importable on this machine, in name order."""
    modules = []
    with progress(len(libraries), "reading documentation") as bar:
        for library in libraries:
            if not library:
                raise InputError("the name of a library is empty; expected one such as numpy")
            if "." in library:
                whole = library.split(".", maxsplit=1)[0]
                raise InputError(f"{library!r} is a part of a library; give {whole!r}")
            try:
                package = importlib.import_module(library)
            except ImportError as error:
                raise InputError(f"cannot import {library!r} ({error}); install it first") from None
            modules.append((library, package))
            walk = pkgutil.walk_packages(
                getattr(package, "__path__", []), f"{library}.", onerror=lambda _: None
            )
            for name in sorted(i.name for i in walk if not SKIPPED.search(i.name)):
                try:
                    modules.append((name, importlib.import_module(name)))
                except Exception:  # an optional dependency that is not installed
                    continue
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
    return DocumentedObject(name, summary, body, tuple(_see_also(entries)))


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
