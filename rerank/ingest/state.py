"""The result of the last run for each file, so that the next one reads only what changed.

A file of JSON lines in the corpus folder. It is written when all files are read, and again with the
sha256 of the corpus, when that is written. If the reading is interrupted, it holds what was read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rerank.data.canonical import to_json
from rerank.data.records import passage_row, read_passage
from rerank.errors import InputError
from rerank.storage.files import write_file
from rerank.types import Passage

STATE = "ingested.jsonl"
VERSION = 8  # of the readers' output: if it changes, all files are read again


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """A file: its sha256, its passages, and why it or a part of it was skipped."""

    sha256: str
    passages: tuple[Passage, ...] = ()
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class IngestState:
    """The files of a run. `corpus` is the sha256 of the file of passages made from them.

    `source` is the absolute path of their folder; empty if an earlier version wrote the state.
    """

    options: Mapping[str, Any]
    source: str = ""
    corpus: str = ""
    near: int = 0
    entries: Mapping[str, IngestedFile] = field(default_factory=dict)


def read_state(path: Path, options: Mapping[str, Any]) -> IngestState:
    """The last run; one without files if there is none, or if options or `VERSION` differ."""
    source = ""
    try:
        with path.open(encoding="utf-8") as lines:
            head = json.loads(next(lines, "{}"))
            source = str(head.get("source", ""))
            if (head.get("version"), head.get("options")) != (VERSION, dict(options)):
                return IngestState(options, source)
            entries = dict(_entry(json.loads(line)) for line in lines)
            return IngestState(options, source, str(head["corpus"]), int(head["near"]), entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InputError):
        return IngestState(options, source)


def write_state(path: Path, state: IngestState) -> None:
    """Write the state, completely or not at all."""
    write_file(path, _lines(state))


def _lines(state: IngestState) -> Iterator[str]:
    head = {"version": VERSION, "corpus": state.corpus, "near": state.near}
    yield to_json({**head, "options": dict(state.options), "source": state.source}) + "\n"
    for name, entry in state.entries.items():
        rows = [passage_row(passage) for passage in entry.passages]
        row = {"file": name, "sha256": entry.sha256, "passages": rows, "skipped": entry.skipped}
        yield to_json(row) + "\n"


def _entry(row: Mapping[str, Any]) -> tuple[str, IngestedFile]:
    passages = tuple(map(read_passage, row["passages"]))
    return row["file"], IngestedFile(row["sha256"], passages, row["skipped"])
