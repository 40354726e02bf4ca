"""docs/options.md: exit codes, environment variables, and every option of every configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import get_type_hints

from rerank.cli import COMMANDS, find
from rerank.commands.command import default_text, flag, parameters

EXIT_CODES = {
    "0": "done",
    "1": "the answer is no: an alarm, or a failed check",
    "2": "bad input, a missing extra, a disk that is full: one sentence on stderr",
    "3": "MLflow, a language model or a search system does not answer, or refuses; everything "
    "written before is complete. In `rescore`: done, except for rejected rows",
    "130": "interrupted (Ctrl-C)",
    "141": "nobody reads the output any more, as after `head`",
}
IN_PYTHON = (
    "In Python each error is a subclass of `RerankError`: `InputError`, `MissingExtraError` and "
    "`JournalError` are code 2, `TrackingError`, `EndpointError` and `RetrieverError` code 3. All "
    "are in `rerank.errors`."
)
VARIABLES = {
    "`RERANK_CORES`": "how many cores models and fits use (default: all that the process may use, "
    "by its affinity and the CPU quotas of its control groups)",
    "`RERANK_CACHE`": "folder of unpacked weights and exported networks (default: "
    "`calibrated-rerank` in the user's cache)",
    "`RERANK_DEVICE`, `RERANK_TRUST_REMOTE_CODE=1`": "as "
    "[`--device` and `--trust-remote-code`](your-models.md#a-reranker-or-an-encoder)",
    "`RERANK_API_KEYS`": "[keys of the server](serving.md#keys), separated by commas",
    "`RERANK_RETRIEVER_URL`, `RERANK_RETRIEVER_KEY`": "address and key of "
    "[another search system](your-models.md#a-search-system)",
    "`OPENAI_API_KEY`": "key of the language model of `answer --llm`",
    "`MLFLOW_TRACKING_URI`": "where runs and models are [kept](production.md#mlflow)",
    "`RAY_ADDRESS`": "the cluster of [`rescore --engine ray`](rescoring.md#on-a-cluster)",
}


def options_page() -> str:
    """The page as Markdown; a test compares docs/options.md with it."""
    pages = [
        "# Options",
        "Made from the code (`docs/generator/options.py`), which a test compares with this "
        "page. In Python an option is the field of the same name, with underscores; some are in "
        "`thresholds` of `Config`, or in `strategy` and `language_model` of `AnswerConfig`. "
        "`--help` of a command lists its other options, too. Every command also takes `--quiet`: "
        "it shows no progress. Those that run networks take `--device` and `--trust-remote-code`, "
        "those that print results `--json`: they print one JSON object.",
    ]
    pages += ["## Exit codes", _table("code", "meaning", EXIT_CODES), IN_PYTHON]
    pages += ["## Environment variables", _table("variable", "holds", VARIABLES)]
    for kind, names in configurations().items():
        commands = ", ".join(f"`rerank {name}`" for name in names)
        pages.append(f"## {commands}: `{kind.__module__}.{kind.__name__}`")
        rows = ["| option | default | values | meaning |", "|---|---|---|---|"]
        rows += [
            f"| `{flag(x.name)}` | {default_text(x.default)} | {x.option.values(x.kind)} "
            f"| {x.option.help} |"
            for x in parameters(kind)
        ]
        pages.append("\n".join(rows))
    return "\n\n".join(pages) + "\n"


def configurations() -> dict[type, list[str]]:
    """The configurations of which every field is an option, with the commands that take them."""
    found: dict[type, list[str]] = {}
    for name in COMMANDS:
        for kind in get_type_hints(find(name).function, include_extras=True).values():
            own = "commands" in kind.__module__.split(".")  # of a command, as its arguments
            if is_dataclass(kind) and not own:
                found.setdefault(kind, []).append(name)
    return found


def _table(first: str, second: str, rows: Mapping[str, str]) -> str:
    lines = [f"| {first} | {second} |", "|---|---|"]
    return "\n".join(lines + [f"| {key} | {value} |" for key, value in rows.items()])


if __name__ == "__main__":
    (Path(__file__).parents[1] / "options.md").write_text(options_page(), encoding="utf-8")
