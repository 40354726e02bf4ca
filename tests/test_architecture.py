"""What may import what, and what is public: read from the source, nothing is run for it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

from rerank import rooms

ROOT = Path(__file__).parent.parent
STATISTICS = {"calibration", "numpy", "scipy", "sklearn", "matplotlib"}
STATISTICS |= {"threadpoolctl"}  # scikit-learn's own

ROOMS = {room.package.split(".")[1] for room in rooms.ROOMS.values()}
LAYERS = (  # of rerank/, lowest first; a module imports from its own package and from lower layers
    {"errors"},
    {"protocols", "rooms"},
    {"config", "process", "progress", "normal_form", "storage"},
    {"filters"},
    {"types"},
    {"data", "inference"},
    {"client", "retrieval", "tracking"},  # tracking knows MLflow and folders, not what is in them
    {"assessment"},
    {"evaluation", "batch", "advice", "adapters"},
    {"fitting"},
    {"report"},
    {"jobs", "serving"},
    {"commands"},
    ROOMS,  # nothing imports them, and they do not import each other: `rerank.rooms` names them
    {"cli"},
)
LAYER_OF = {name: level for level, names in enumerate(LAYERS) for name in names}


def modules(package: str) -> dict[str, Path]:
    """The file of every module of a package, by the module's name."""
    paths = (ROOT / package).rglob("*.py")
    names = {p: ".".join(p.relative_to(ROOT).with_suffix("").parts) for p in paths}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(nodes: Iterable[ast.AST], known: dict[str, Path]) -> Iterator[str]:
    """The modules that these nodes import, by their full names."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "expected imports by the full name"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module for name in whole)


CALIBRATION, RERANK = modules("calibration"), modules("rerank")


@pytest.mark.parametrize("module", CALIBRATION)
def test_calibration_is_a_leaf(module: str) -> None:
    """It imports the standard library, NumPy, SciPy, scikit-learn and matplotlib, nothing else."""
    tops = {
        name.partition(".")[0]
        for name in imported(ast.walk(parsed(CALIBRATION[module])), CALIBRATION)
    }
    assert tops <= STATISTICS | sys.stdlib_module_names


@pytest.mark.parametrize("module", [name for name in RERANK if name != "rerank"])
def test_imports_point_one_way(module: str) -> None:
    """Each package of `rerank` imports from those below it alone, within functions too."""
    ours = module.split(".")[1]
    assert ours in LAYER_OF, f"rerank/{ours}: give it a place in LAYERS"
    for name in imported(ast.walk(parsed(RERANK[module])), RERANK):
        if name.partition(".")[0] == "rerank":
            assert name != "rerank", "the public face is for users; import the module itself"
            theirs = name.split(".")[1]
            assert theirs == ours or LAYER_OF[theirs] < LAYER_OF[ours], f"{module} imports {name}"


@pytest.mark.parametrize("known", [CALIBRATION, RERANK], ids=["calibration", "rerank"])
def test_no_import_comes_round_in_a_circle(known: dict[str, Path]) -> None:
    """The modules of one package do not import each other in a circle, within functions either."""
    graph = {
        module: set(imported(ast.walk(parsed(path)), known)) & (set(known) - {module})
        for module, path in known.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def bound(body: list[ast.stmt], package: str) -> Iterator[str]:
    """The names that a module body binds, but for what it imports from other packages."""
    for node in body:
        if isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] == package:
                yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.If):
            yield from bound([*node.body, *node.orelse], package)


@pytest.mark.parametrize("package", ["calibration", "rerank"])
def test_what_is_public_is_listed(package: str) -> None:
    """`__all__` holds every name of the package that begins with no underscore, and no other."""
    face = import_module(package)
    body = parsed(Path(face.__file__ or "")).body
    public = {name for name in bound(body, package) if not name.startswith("_")}
    assert sorted(face.__all__) == sorted(public)
    assert set(dir(face)) >= public
    for name in public:
        assert getattr(face, name) is not None
