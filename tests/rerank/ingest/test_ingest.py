"""A folder to a corpus: what is written, what a second run reads, what is skipped and why."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_line import call
from docx import Document as Docx
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls

from rerank.data.beir import CORPUS, read_corpus
from rerank.errors import FolderError, InputError
from rerank.ingest.document import Document, ReaderEndedError
from rerank.ingest.ingest import DUPLICATES, SKIPPED, STATE, ingest
from rerank.ingest.isolated import IsolatedReader, format_of
from rerank.ingest.passages import IngestConfig
from rerank.storage.folder import MANIFEST, reserved, write_folder

LONG = "The reader takes one file after the other and keeps what it has made of each of them. "


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Five documents in two folders, of which two say the same, and a picture."""
    folder = tmp_path / "docs"
    (folder / "more").mkdir(parents=True)
    (folder / "a.md").write_text(f"# Setup\n\n{LONG}\n\n## Linux\n\nRun make.\n")
    (folder / "b.html").write_text("<title>B</title><p>Press the button.</p>")
    (folder / "c.txt").write_bytes("Größe und Maße.".encode("latin-1"))
    (folder / "more" / "copy.md").write_text(f"# Setup\n\n{LONG}\n")
    (folder / "more" / "like.md").write_text(f"# Setup\n\n{LONG} Indeed.\n")
    (folder / "logo.png").write_bytes(b"\x89PNG")
    return folder


def files_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_a_folder_becomes_a_corpus(docs: Path, tmp_path: Path) -> None:
    """Copies are left out, what is nearly the same is kept, and both are told."""
    found = ingest(docs, tmp_path / "out")
    corpus = read_corpus(tmp_path / "out" / CORPUS)
    assert (found.passages, found.files, found.read, found.gone) == (5, 5, 5, 0)
    assert (found.exact, found.near, found.other, found.skipped) == (1, 1, {".png": 1}, {})
    assert {p.metadata["document"] for p in corpus.values()} == {
        "a.md",
        "b.html",
        "c.txt",
        "more/like.md",
    }
    table = (tmp_path / "out" / DUPLICATES).read_text().splitlines()
    assert [line.split("\t")[0] for line in table] == ["copy, left out", "nearly the same"]


def test_equal_texts_of_other_titles_are_no_copies(tmp_path: Path) -> None:
    """What is said of one product is not said of the other."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in "AB":
        (folder / f"{name}.md").write_text(f"---\ntitle: Product {name}\n---\n## Reset\n\n{LONG}\n")
    found = ingest(folder, tmp_path / "out")
    assert (found.passages, found.exact) == (2, 0)
    titles = {p.title for p in read_corpus(tmp_path / "out" / CORPUS).values()}
    assert {title[:9] for title in titles} == {"Product A", "Product B"}


def test_a_second_run_reads_only_what_changed(docs: Path, tmp_path: Path) -> None:
    """What it writes equals what a first run would write, to the byte."""
    out = tmp_path / "out"
    ingest(docs, out)
    before = files_of(out)
    again = ingest(docs, out)
    assert (again.read, again.gone, again.near, again.exact) == (0, 0, 1, 1)
    assert files_of(out) == before

    (docs / "b.html").write_text("<title>B</title><p>Pull the lever.</p>")
    (docs / "d.md").write_text("A new one.")
    (docs / "a.md").unlink()  # then its copy counts
    third = ingest(docs, out)
    assert (third.read, third.gone, third.exact) == (2, 1, 0)
    ingest(docs, tmp_path / "fresh")
    assert files_of(out) == files_of(tmp_path / "fresh")
    documents = {p.metadata["document"] for p in read_corpus(out / CORPUS).values()}
    assert "more/copy.md" in documents
    assert "a.md" not in documents


def test_what_was_read_before_ctrl_c_is_not_read_again(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run reads the rest, and writes what one run alone would have written."""
    read, seen = IsolatedReader.read, list[bytes]()

    def interrupted(reader: IsolatedReader, kind: str, data: bytes) -> Document:
        seen.append(data)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return read(reader, kind, data)

    monkeypatch.setattr(IsolatedReader, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ingest(docs, tmp_path / "out")
    assert ingest(docs, tmp_path / "out").read == 2
    ingest(docs, tmp_path / "at-once")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "at-once")


def test_other_options_and_a_broken_state_read_all_anew(docs: Path, tmp_path: Path) -> None:
    """Nothing of another length is taken over; a corpus changed by hand is written anew."""
    out = tmp_path / "out"
    assert ingest(docs, out).read == 5
    assert ingest(docs, out, IngestConfig(passage_tokens=60)).read == 5
    ingest(docs, out)
    before = files_of(out)
    (out / CORPUS).write_text("{}\n")
    assert ingest(docs, out).read == 0
    assert files_of(out) == before
    (out / STATE).write_text("{broken")
    assert ingest(docs, out).read == 5
    assert files_of(out) == before


def test_what_cannot_be_read_is_skipped_with_its_reason(docs: Path, tmp_path: Path) -> None:
    """A link, a pipe, a file that is too large, binary data, an empty one: the rest is read."""
    secret = tmp_path / "secret.md"
    secret.write_text("The password is in here.")
    (docs / "link.md").symlink_to(secret)
    (docs / "away").symlink_to(tmp_path)
    (docs / "large.txt").write_bytes(b"word " * 300_000)
    (docs / "binary.txt").write_bytes(b"\0\1\2")
    (docs / "empty.md").write_text(" \n")
    (docs / os.fsdecode(b"odd\xff.md")).write_text("A name in no encoding.")
    os.mkfifo(docs / "pipe.md")
    found = ingest(docs, tmp_path / "out", IngestConfig(largest=1))
    assert found.skipped == {
        "away": "a link, which is not followed",
        "binary.txt": "binary data, not text",
        "empty.md": "there is no text in it",
        "large.txt": "it has more than 1 MiB (--largest)",
        "link.md": "a link, which is not followed",
        "odd\\udcff.md": "its name is not UTF-8",
        "pipe.md": "neither a file nor a folder",
    }
    table = (tmp_path / "out" / SKIPPED).read_text()
    assert table == "".join(f"{name}\t{why}\n" for name, why in sorted(found.skipped.items()))
    assert "password" not in (tmp_path / "out" / CORPUS).read_text()
    assert found.passages == 5
    assert ingest(docs, tmp_path / "out", IngestConfig(largest=1)).read == 0


def test_what_a_file_leaves_out_is_told_beside_its_passages(tmp_path: Path) -> None:
    """Apart from the files that are skipped whole; a file without text says what it holds."""
    docs, out = tmp_path / "docs", tmp_path / "out"
    docs.mkdir()
    chart = "<w:r><w:drawing><c:chart xmlns:c='c'/></w:drawing></w:r>"
    for name, text in (("a", "Text."), ("b", "")):
        made = Docx()
        made.add_paragraph(text)._p.append(
            parse_xml(chart.replace("<w:r>", f"<w:r {nsdecls('w')}>"))
        )
        made.save(str(docs / f"{name}.docx"))
    found = ingest(docs, out)
    assert (found.passages, found.files) == (1, 1)
    assert found.left_out == {"a.docx": "1 chart"}
    assert found.skipped == {"b.docx": "there is no text in it; 1 chart"}
    table = "a.docx\tleft out: 1 chart\nb.docx\tthere is no text in it; 1 chart\n"
    assert (out / SKIPPED).read_text() == table
    again = ingest(docs, out)
    assert (again.read, again.left_out, again.skipped) == (0, found.left_out, found.skipped)


def test_a_long_heading_is_not_copied_into_each_passage(tmp_path: Path) -> None:
    """Its text is kept once; corpus and state stay of the size of the documents."""
    docs, out = tmp_path / "docs", tmp_path / "out"
    docs.mkdir()
    text = "".join(f"<p>Sentence {i} {LONG}" for i in range(600))
    long = " ".join(f"heading{i}" for i in range(16_000))
    (docs / "a.html").write_text(f"<h1>{long}</h1><h2>{long}</h2>{text}")
    found = ingest(docs, out)
    assert found.passages > 300
    written = (out / CORPUS).read_text()
    assert len(written) < 10 * (docs / "a.html").stat().st_size
    assert "heading15999" in written


def test_a_folder_without_documents_is_refused(tmp_path: Path) -> None:
    """One sentence, and nothing is written; a corpus that stands there stays."""
    out, docs = tmp_path / "out", tmp_path / "docs"
    with pytest.raises(InputError, match="no such folder"):
        ingest(docs, out)
    docs.mkdir()
    with pytest.raises(InputError, match="docs holds no file; expected"):
        ingest(docs, out)
    (docs / "a.bin").write_bytes(b"a")
    with pytest.raises(InputError, match="docs holds 1 file; expected"):
        ingest(docs, out)
    with pytest.raises(InputError, match=r"a\.bin is a file; expected a folder of documents"):
        ingest(docs / "a.bin", out)
    (docs / "a.md").write_text("")
    with pytest.raises(InputError, match=r"a\.md: there is no text in it"):
        ingest(docs, out)
    assert not out.exists()
    (docs / "a.md").write_text("Text.")
    ingest(docs, out)
    before = files_of(out)
    (docs / "a.md").unlink()
    with pytest.raises(InputError):
        ingest(docs, out)
    assert files_of(out) == before


def test_the_corpus_of_another_is_not_replaced(docs: Path, tmp_path: Path) -> None:
    """Nor that of a run that is still at work; labels beside the corpus stay."""
    out = tmp_path / "out"
    out.mkdir()
    (out / CORPUS).write_text("mine")
    with pytest.raises(FolderError, match="not made by"):
        ingest(docs, out)
    (out / CORPUS).unlink()
    (out / "queries.jsonl").write_text("mine")
    with reserved(out), pytest.raises(FolderError, match="another job"):
        ingest(docs, out)
    ingest(docs, out)
    assert (out / "queries.jsonl").read_text() == "mine"


def test_the_corpus_of_another_folder_is_not_replaced(docs: Path, tmp_path: Path) -> None:
    """Whatever the options. A folder that was moved is known by its files."""
    out, moved, other = (tmp_path / name for name in ("out", "moved", "other"))
    (tmp_path / "link").symlink_to(docs)
    ingest(tmp_path / "link", out)  # the folder counts, not the name that it was given by
    other.mkdir()
    (other / "else.md").write_text("Another text.")
    before = files_of(out)
    for config in (None, IngestConfig(passage_tokens=60)):
        with pytest.raises(FolderError, match=f"{docs}, .*{other}; give another --out") as told:
            ingest(other, out, config)
    assert files_of(out) == before
    docs.rename(moved)
    again = ingest(moved, out)
    assert (again.passages, again.read) == (5, 0)
    assert (out / CORPUS).read_bytes() == before[CORPUS]
    for name in (CORPUS, STATE):
        assert str(out / name) in str(told.value)
        (out / name).unlink()
    assert ingest(other, out).passages == 1


def test_a_state_without_its_folder_learns_it(docs: Path, tmp_path: Path) -> None:
    """One of an earlier version names none: its files are not read again, but it is from now on."""
    out = tmp_path / "out"
    ingest(docs, out)
    before = files_of(out)
    head, _, rest = before[STATE].decode().partition("\n")
    known = {k: v for k, v in json.loads(head).items() if k != "source"}
    (out / STATE).write_text(json.dumps(known) + "\n" + rest)
    assert ingest(docs, out).read == 0
    assert files_of(out) == before


def test_a_corpus_within_the_folder_is_not_read(docs: Path) -> None:
    """What a run writes is not a document of the next one."""
    first = ingest(docs, docs / "corpus")
    (docs / "corpus" / "notes.md").write_text("Not a document.")
    assert ingest(docs, docs / "corpus").passages == first.passages


def test_a_model_within_the_folder_is_not_read(docs: Path, tmp_path: Path) -> None:
    """Its report is no document, wherever the model lies."""

    def fill(folder: Path) -> dict[str, str]:
        (folder / "report.txt").write_text("The report of a model.")
        return {}

    first = ingest(docs, tmp_path / "corpus")
    write_folder(docs / "model", fill)
    second = ingest(docs, tmp_path / "corpus")
    assert second.passages == first.passages
    assert second.skipped == {**first.skipped, "model": "a model or an index, not documents"}
    (docs / "model" / MANIFEST).write_text('{"format_version": 99, "files": []}')
    assert ingest(docs, tmp_path / "corpus") == second  # also of a newer version


def test_a_run_that_ends_before_its_corpus_is_resumed(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, in the reading or after it: nothing is read again."""
    out, read, seen = tmp_path / "out", IsolatedReader.read, list[bytes]()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def reading(reader: IsolatedReader, kind: str, data: bytes) -> Document:
        seen.append(data)
        if len(seen) == 4:
            full()
        return read(reader, kind, data)

    with monkeypatch.context() as patch:
        patch.setattr(IsolatedReader, "read", reading)
        with pytest.raises(OSError, match="No space"):
            ingest(docs, out)
    with monkeypatch.context() as patch:
        patch.setattr("rerank.ingest.ingest.write_corpus", full)
        with pytest.raises(OSError, match="No space"):
            ingest(docs, out)
    assert ingest(docs, out).read == 0
    ingest(docs, tmp_path / "at-once")
    assert files_of(out) == files_of(tmp_path / "at-once")


def test_a_file_that_ended_its_reader_is_tried_again(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine was busy, or short of memory; another time it may not be."""
    read = IsolatedReader.read

    def slow(reader: IsolatedReader, kind: str, data: bytes) -> Document:
        if b"button" in data:
            raise ReaderEndedError("reading it takes longer than 60 seconds")
        return read(reader, kind, data)

    with monkeypatch.context() as patch:
        patch.setattr(IsolatedReader, "read", slow)
        for count in (5, 0):  # the same result again: nothing counts as read
            found = ingest(docs, tmp_path / "out")
            assert found.skipped == {"b.html": "reading it takes longer than 60 seconds"}
            assert found.read == count
    assert ingest(docs, tmp_path / "out").read == 1
    assert ingest(docs, tmp_path / "out").read == 0


def test_the_command_prints_json(
    docs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the files of other kinds by their suffix."""
    assert call("data", "ingest", docs, "--out", tmp_path / "out", "--json") == 0
    assert json.loads(capsys.readouterr().out)["other"] == {".png": 1}


def test_suffixes_of_word_have_its_reader() -> None:
    """Documents and templates, with macros (which do not run) or without."""
    assert {format_of(f"a{suffix}") for suffix in (".docx", ".DOCM", ".dotx", ".dotm")} == {"docx"}
