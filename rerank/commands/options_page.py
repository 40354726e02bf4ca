"""docs/options.md: every option of every configuration, from its field."""

from __future__ import annotations

from rerank.commands.all_commands import COMMANDS
from rerank.commands.options import flag, shown
from rerank.config import options_of


def options_page() -> str:
    """The page as Markdown; a test compares docs/options.md with it."""
    pages = [
        "# Options",
        "Made from the code (`rerank.commands.options_page`), which a test compares with this "
        "page. In Python an option is the field of the same name, with underscores; some are in "
        "`thresholds` of `Config`, or in `strategy` and `language_model` of `AnswerConfig`. "
        "`--help` of a command lists its other options, too. Every command also takes `--quiet`: "
        "it shows no progress. Those that print results take `--json`: they print one JSON object.",
    ]
    for command in COMMANDS:
        kind = command.config
        if kind is None:
            continue
        pages.append(f"## `rerank {command.name}`: `{kind.__module__}.{kind.__name__}`")
        rows = ["| option | default | values | meaning |", "|---|---|---|---|"]
        rows += [
            f"| `{flag(field.name)}` | {shown(field.default)} "
            f"| {option.values(type(field.default))} | {option.help} |"
            for field, option in options_of(kind)
        ]
        pages.append("\n".join(rows))
    return "\n\n".join(pages) + "\n"
