"""A folder of documents to a corpus in the BEIR layout; a later run reads only what changed.

The corpus folder may hold queries and labels too: only the files named here are written. One holds
the result of each file. It is written when all files are read, and again with the sha256 of the
corpus, when that is written; if the reading is interrupted, it holds what was read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from rerank.data.beir import CORPUS, write_corpus
from rerank.data.checks import is_encodable, to_json
from rerank.data.duplicates import near_duplicates
from rerank.data.records import passage_row, read_passage
from rerank.errors import FolderError, InputError, optional
from rerank.ingest.document import ReaderEndedError, UnreadableError, clauses, counted
from rerank.ingest.isolated import KNOWN, IsolatedReader, format_of, reader
from rerank.ingest.passages import IngestConfig, split_document
from rerank.progress import progress
from rerank.storage.files import read_bytes, sha256_file, write_file
from rerank.storage.folder import is_ours, reserved
from rerank.types import Passage

SKIPPED, DUPLICATES, STATE = "skipped.tsv", "duplicates.tsv", "ingested.jsonl"
VERSION = 11  # of the readers' output: if it changes, all files are read again
MEBIBYTE = 2**20
# names of what Sphinx writes beside the pages: copies and lists of links
GENERATED = re.compile(r"_sources|_static|genindex.*\.html|.*modindex\.html")


@dataclass(frozen=True, slots=True)
class Ingested:
    """The result of a run."""

    passages: int
    files: int  # that gave at least one passage
    read: int  # in this run, including skipped ones; the others are unchanged
    gone: int  # since the last run
    skipped: Mapping[str, str]  # why a file was skipped, by file
    left_out: Mapping[str, str]  # what of a file that was read is not in its passages, by file
    other: Mapping[str, int]  # files of other formats, by their suffix
    exact: int  # passages left out: another has the same title and text
    near: int  # pairs of passages that are nearly the same; both are kept


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

    source: str = ""
    corpus: str = ""
    near: int = 0
    entries: Mapping[str, IngestedFile] = field(default_factory=dict)


def ingest(folder: str | Path, out: str | Path, config: IngestConfig | None = None) -> Ingested:
    """Read the documents below `folder` into `out`: corpus.jsonl, skipped.tsv, duplicates.tsv.

    The result depends only on the files and the configuration, not on earlier runs.
    """
    folder, out, config = Path(folder), Path(out), config or IngestConfig()
    if not folder.is_dir():
        came = " is a file" if folder.is_file() else ": no such folder"
        raise InputError(f"{folder}{came}; expected a folder of documents ({KNOWN})")
    folder = folder.resolve()
    with reserved(out):
        if (out / CORPUS).exists() and not (out / STATE).exists():
            raise FolderError(
                f"{out / CORPUS} was not made by `rerank data ingest`, and is not replaced; give "
                "another --out"
            )
        before = read_state(out / STATE, config)
        source = str(folder).encode(errors="backslashreplace").decode()
        there, unread = walk(folder, leave_out=out.resolve())
        files = {name: path for name, path in there.items() if format_of(name)}
        if not files:
            came = counted(len(there), "file") or "no file"
            raise InputError(f"{folder} holds {came}; expected documents of these kinds: {KNOWN}")
        same = len(before.entries.keys() & files.keys())  # half of them: the folder was moved
        if before.source not in ("", source) and (not same or 2 * same < len(before.entries)):
            raise FolderError(
                f"{out} holds the corpus of the folder {before.source}, and is not replaced by "
                f"that of {folder}; give another --out. If the folder was moved, delete "
                f"{out / CORPUS} and {out / STATE} first: then all files are read again"
            )
        entries = _read(files, replace(before, source=source), config, out)
        suffixes = {name: PurePosixPath(name).suffix.lower() for name in {**there, **unread}}
        links = {n: why for n, why in unread.items() if format_of(n) or not suffixes[n]}
        told = {name: entry for name, entry in entries.items() if entry.skipped}
        skipped = links | {name: e.skipped for name, e in told.items() if not e.passages}
        left_out = {name: entry.skipped for name, entry in told.items() if entry.passages}
        unique: dict[tuple[str, str], Passage] = {}
        copies: list[tuple[str, ...]] = []
        for passage in (p for entry in entries.values() for p in entry.passages):
            first = unique.setdefault((passage.title, passage.text), passage)
            if first is not passage:
                copies.append(("copy, left out", first.doc_id, passage.doc_id))
        kept = list(unique.values())
        if not kept:
            name, why = min(skipped.items())
            raise InputError(
                f"{folder}: no text could be read: {len(skipped)} files are skipped, such as "
                f"{name}: {why}"
            )
        out.mkdir(exist_ok=True)
        parts = {name: f"left out: {what}" for name, what in left_out.items()}
        _write_table(out / SKIPPED, sorted((skipped | parts).items()))
        state, corpus = before, out / CORPUS
        changed = source != before.source or entries != before.entries
        if changed or not corpus.is_file() or sha256_file(corpus) != before.corpus:
            state = IngestState(source, entries=entries)
            write_state(out / STATE, state, config)
            pairs = near_duplicates([p.full_text for p in kept], label="comparing passages")
            near = [("nearly the same", kept[a].doc_id, kept[b].doc_id) for a, b in pairs]
            write_corpus(kept, out)
            _write_table(out / DUPLICATES, [*copies, *near])
            state = replace(state, corpus=sha256_file(corpus), near=len(near))
            write_state(out / STATE, state, config)
    return Ingested(
        passages=len(kept),
        files=sum(bool(entry.passages) for entry in entries.values()),
        read=sum(before.entries.get(name) is not entry for name, entry in entries.items()),
        gone=len(before.entries.keys() - entries.keys()),
        skipped=skipped,
        left_out=left_out,
        other=dict(Counter(suffixes[name] for name in there if name not in files)),
        exact=len(copies),
        near=state.near,
    )


def read_state(path: Path, config: IngestConfig) -> IngestState:
    """The last run; one without files if there is none, or if options or `VERSION` differ."""
    source = ""
    try:
        with path.open(encoding="utf-8") as lines:
            head = json.loads(next(lines, "{}"))
            source = str(head.get("source", ""))
            if (head.get("version"), head.get("options")) != (VERSION, asdict(config)):
                return IngestState(source)
            entries = {
                row["file"]: IngestedFile(
                    row["sha256"], tuple(map(read_passage, row["passages"])), row["skipped"]
                )
                for row in map(json.loads, lines)
            }
            return IngestState(source, str(head["corpus"]), int(head["near"]), entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InputError):
        return IngestState(source)


def write_state(path: Path, state: IngestState, config: IngestConfig) -> None:
    """Write the state, completely or not at all."""
    head: dict[str, Any] = {"version": VERSION, "options": asdict(config), "source": state.source}
    rows: Iterator[dict[str, Any]] = (
        {
            **{"file": name, "sha256": entry.sha256, "skipped": entry.skipped},
            "passages": list(map(passage_row, entry.passages)),
        }
        for name, entry in state.entries.items()
    )
    first = {**head, "corpus": state.corpus, "near": state.near}
    write_file(path, (to_json(row) + "\n" for row in (first, *rows)))


def walk(folder: Path, *, leave_out: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Every regular file below `folder`, and the reasons for skipped ones, by path with slashes.

    Hidden and `GENERATED` ones and `leave_out` are left out; links are not followed. Folders that
    this package wrote, such as models, are skipped. Both folders are absolute.
    """
    files: dict[str, Path] = {}
    skipped: dict[str, str] = {}
    below = [folder]
    while below:
        here = below.pop()
        try:
            with os.scandir(here) as entries:
                found = list(entries)
        except OSError as error:
            if here == folder:
                raise
            skipped[here.relative_to(folder).as_posix()] = f"cannot be read: {error.strerror}"
            continue
        for entry in found:
            path = Path(entry.path)
            name = path.relative_to(folder).as_posix()
            if path == leave_out or GENERATED.fullmatch(entry.name) or entry.name.startswith("."):
                continue
            if not is_encodable(name):
                skipped[name.encode(errors="backslashreplace").decode()] = "its name is not UTF-8"
            elif entry.is_symlink():
                skipped[name] = "a link, which is not followed"
            elif entry.is_dir():
                ours = False
                with suppress(OSError):  # an unreadable folder is skipped later, with its reason
                    ours = is_ours(path)
                if ours:
                    skipped[name] = "a model or an index, not documents"
                else:
                    below.append(path)
            elif entry.is_file():
                files[name] = path
            else:
                skipped[name] = "neither a file nor a folder"
    return dict(sorted(files.items())), dict(sorted(skipped.items()))


def _read(
    files: Mapping[str, Path], before: IngestState, config: IngestConfig, out: Path
) -> dict[str, IngestedFile]:
    """The entry of each file; that of the last run if the file is unchanged.

    If it is interrupted, what is read is kept in `out`, so that the next run resumes.
    """
    with optional():
        for kind in sorted({format_of(name) or "" for name in files}):
            reader(kind)  # report a missing library now, not once per file
    entries: dict[str, IngestedFile] = {}
    with (
        IsolatedReader(seconds=config.seconds) as isolated,
        progress(len(files), "reading documents", unit="file") as bar,
    ):
        try:
            for name, path in files.items():
                entries[name] = _entry(name, path, before.entries.get(name), isolated, config)
                bar.update()
        except BaseException:
            kept = {**before.entries, **entries}
            out.mkdir(exist_ok=True)
            write_state(out / STATE, IngestState(before.source, entries=kept), config)
            raise
    return entries


def _entry(
    name: str,
    path: Path,
    before: IngestedFile | None,
    isolated: IsolatedReader,
    config: IngestConfig,
) -> IngestedFile:
    try:
        data = read_bytes(path, config.largest * MEBIBYTE, follow=False)
    except FolderError:
        why = f"it has more than {config.largest} MiB (--largest)"
    except OSError as error:
        why = f"it cannot be read: {error.strerror or error}"
    else:
        digest = hashlib.sha256(data).hexdigest()
        if before is not None and before.sha256 == digest:
            return before
        try:
            document = isolated.read(format_of(name) or "", data)
            passages = split_document(document, name, max_pieces=config.passage_tokens)
            empty = "" if passages else "there is no text in it"
            return IngestedFile(digest, tuple(passages), clauses(empty, document.skipped))
        except ReaderEndedError as error:  # another time it may not: the file is read again
            why = str(error)
        except UnreadableError as error:
            return IngestedFile(digest, skipped=str(error))
    entry = IngestedFile("", skipped=why)
    return before if before == entry else entry  # an equal one does not count as read


def _write_table(path: Path, rows: Iterable[Sequence[str]]) -> None:
    """Write tab-separated lines; white space within a cell becomes one space."""
    write_file(path, ("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows))
