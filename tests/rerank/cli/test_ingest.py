"""`rerank data ingest`, `update` and `quickstart`: what they print, refuse and leave alone."""

from __future__ import annotations

import json
from pathlib import Path

import docx
import httpx
import pytest
from command_line import call, refused
from server import serving

from rerank.assessment.model import CalibratedReranker
from rerank.data.beir import read_corpus


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Two documents and one that is not a document."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text("# Pump\n\nOpen the valve before the pump starts.\n")
    (folder / "b.html").write_text("<title>Filter</title><p>Clean the filter each month.</p>")
    (folder / "c.pdf").write_bytes(b"%PDF-1.4 and no more")
    return folder


def test_ingest_says_what_it_read_and_skipped(
    docs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts on stdout; the skipped file and its reason on stderr and in a file."""
    out = tmp_path / "corpus"
    assert call("data", "ingest", docs, "--out", out) == 0
    printed = capsys.readouterr()
    assert "passages: 2; files: 2 (3 read now, " in printed.out
    assert "c.pdf: it is broken" in printed.err
    assert (out / "skipped.tsv").read_text().startswith("c.pdf\tit is broken")


@pytest.mark.parametrize("command", ["data ingest", "quickstart"])
def test_what_is_left_out_of_a_file_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """In words and, with --json, as fields."""
    docs, out = tmp_path / "docs", tmp_path / "out"
    docs.mkdir()
    made = docx.Document()
    run = made.add_paragraph("Open the valve.").add_run()
    made.add_comment(run, "Really?")
    made.save(str(docs / "a.docx"))
    (docs / "b.md").write_text("Clean the filter.")
    arguments = [*command.split(), docs, "--out", out]
    arguments += ["--no-serve", "--work", tmp_path / "work"] if command == "quickstart" else []
    assert call(*arguments) == 0
    assert "a.docx: 1 comment" in capsys.readouterr().err
    assert call(*arguments, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told.get("ingested", told)["left_out"] == {"a.docx": "1 comment"}


@pytest.mark.parametrize("command", ["data ingest", "quickstart"])
def test_a_folder_that_gives_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Missing, empty, of other kinds only, a file: one sentence that names it, and no output."""
    empty, strange, out = tmp_path / "empty", tmp_path / "strange", tmp_path / "out"
    empty.mkdir()
    strange.mkdir()
    (strange / "logo.png").write_bytes(b"\x89PNG")
    for folder in (tmp_path / "nowhere", empty, strange, strange / "logo.png"):
        assert str(folder) in refused(capsys, *command.split(), folder, "--out", out)
    assert not (out / "corpus.jsonl").exists()


def test_quickstart_checks_the_journal_before_the_work(
    docs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong URL is told at once; one in the folder of the model, not there yet, is none."""
    out = tmp_path / "new" / "out"
    wrong = ("quickstart", docs, "--out", out, "--journal", "journal.db")
    assert "is not a URL of a journal" in refused(capsys, *wrong)
    assert not (out / "corpus").exists()
    right = ("--out", out, "--journal", f"sqlite:///{out}/journal.db")
    assert "nowhere" in refused(capsys, "quickstart", tmp_path / "nowhere", *right)
    assert not (out / "journal.db").exists()


def test_quickstart_leaves_other_folders_alone(
    docs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two folders of one name have one place by default; a model's own folder is no place."""
    work = tmp_path / "work"
    quickstart = ("quickstart", "--no-serve", "--work", work)
    assert call(*quickstart, docs) == 0
    corpus = (work / "docs" / "corpus" / "corpus.jsonl").read_bytes()
    other = tmp_path / "b" / "docs"
    other.mkdir(parents=True)
    (other / "a.md").write_text("Another text.")
    told = refused(capsys, *quickstart, other)
    assert f"the folder {docs}, " in told
    assert f"{other}; give another --out" in told
    assert (work / "docs" / "corpus" / "corpus.jsonl").read_bytes() == corpus
    model = work / "docs" / "model"
    assert f"{model} is the folder of a model" in refused(
        capsys, *quickstart, other, "--out", model
    )
    assert not (model / "corpus").exists()


def test_quickstart_makes_a_model_and_follows_the_documents(
    docs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run again, nothing is written; with another document, the model finds it."""
    out = tmp_path / "out"
    arguments = ("quickstart", docs, "--out", out, "--no-serve", "--work", tmp_path / "work")
    assert call(*arguments) == 0
    assert "rerank search" in capsys.readouterr().out
    manifest = (out / "model" / "manifest.json").read_bytes()
    assert call(*arguments) == 0
    assert "the same as before" in capsys.readouterr().out
    assert (out / "model" / "manifest.json").read_bytes() == manifest
    (docs / "d.txt").write_text("The lamp blinks when the battery is empty.")
    assert call(*arguments) == 0
    assert "1 added, 0 removed, 0 changed" in capsys.readouterr().out
    answer = CalibratedReranker.load(out / "model").search("when does the lamp blink")
    assert answer.top is not None
    assert answer.top.metadata["document"] == "d.txt"
    assert not answer.calibrated

    with serving(out / "model") as served:
        asked = httpx.post(f"{served.url}/v1/search", json={"query": "when does the lamp blink"})
        told = httpx.get(f"{served.url}/v1/reliability")
    assert (asked.status_code, told.status_code) == (200, 200)
    assert asked.json()["calibrated"] is False

    fresh = tmp_path / "fresh"
    corpus = out / "corpus"
    assert len(read_corpus(corpus / "corpus.jsonl")) == 3
    assert call("model", "init", corpus, "--out", fresh, "--work", tmp_path / "other") == 0
    names = sorted(p.relative_to(fresh) for p in fresh.rglob("*") if p.is_file())
    assert names == sorted(
        p.relative_to(out / "model") for p in (out / "model").rglob("*") if p.is_file()
    )
    for name in names:
        assert (fresh / name).read_bytes() == (out / "model" / name).read_bytes(), name


def test_update_of_the_same_corpus_writes_nothing(
    docs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An index, too, says so."""
    corpus, index = tmp_path / "corpus", tmp_path / "index"
    assert call("data", "ingest", docs, "--out", corpus) == 0
    assert call("data", "index", corpus, "--out", index) == 0
    assert call("model", "update", index, corpus) == 0
    assert "nothing is written" in capsys.readouterr().out
    assert str(tmp_path / "nowhere") in refused(
        capsys, "model", "update", tmp_path / "nowhere", corpus
    )


def test_names_of_files_cannot_command_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An escape sequence in the name of a document, read or skipped, is not printed as it is."""
    docs, corpus, model = tmp_path / "docs", tmp_path / "corpus", tmp_path / "model"
    docs.mkdir()
    (docs / "a\x1b[2J.md").write_text(
        "# Pump\n\nOpen the valve.\n\n# Filter\n\nClean it monthly.\n"
    )
    (docs / "b\x1b[2J.pdf").write_text("no PDF")
    assert call("data", "ingest", docs, "--out", corpus) == 0
    assert call("model", "init", corpus, "--out", model, "--work", tmp_path / "work") == 0
    assert call("search", model, "pump") == 0
    assert call("search", "--passages", model, "pump") == 0
    printed = capsys.readouterr()
    assert "a [2J.md" in printed.out
    assert "b [2J.pdf" in printed.err
    assert "\x1b" not in printed.out + printed.err
