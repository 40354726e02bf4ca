"""A passage between its neighbours: in order, of its document alone, and never more than asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rerank.data.beir import read_corpus
from rerank.retrieval.corpus import LINES, Corpus, in_document, write_passages
from rerank.types import Passage


def corpus_of(folder: Path, *passages: Passage) -> Corpus:
    """A corpus of passages, on disk as an index holds it."""
    write_passages(passages, folder)
    return Corpus(folder)


def passage(name: str, document: str, **metadata: Any) -> Passage:
    return Passage(name, "", f"text of {name}", {"document": document, **metadata})


def ids(passages: Sequence[Passage]) -> list[str]:
    return [one.doc_id for one in passages]


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The passages that `ingest` cut a file into give back its text, in order, and no other's."""
    ingest = pytest.importorskip("rerank.ingest.ingest").ingest
    cut = pytest.importorskip("rerank.ingest.passages").IngestConfig(passage_tokens=64)
    said = [f"Sentence {i} of the guide says a little about arrays." for i in range(40)]
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "guide.md").write_text("# Guide\n\n" + " ".join(said))
    (documents / "other.md").write_text("# Other\n\nAnother text.")
    ingest(documents, tmp_path / "set", cut)
    corpus = corpus_of(tmp_path, *read_corpus(tmp_path / "set" / "corpus.jsonl").values())
    found = in_document(corpus, 3)
    assert found.document == "guide.md"
    assert " ".join(one.text for one in found.passages) == " ".join(said)
    assert found.passages[found.found] == corpus.passage(3)
    assert (found.more_before, found.more_after) == (False, False)
    (alone,) = in_document(corpus, len(corpus) - 1).passages
    assert alone.text == "Another text."


def test_positions_order_what_the_corpus_does_not(tmp_path: Path) -> None:
    """Where every passage has one; else the corpus does."""
    known = [passage(f"p{n}", "a", position=n) for n in (3, 10, 2)]
    found = in_document(corpus_of(tmp_path, passage("x", "b"), *known), 1)
    assert ids(found.passages) == ["p2", "p3", "p10"]
    assert found.found == 1
    found = in_document(corpus_of(tmp_path, *known, passage("last", "a")), 1)
    assert ids(found.passages) == ["p3", "p10", "p2", "last"]


def test_a_position_too_long_to_read_orders_nothing(tmp_path: Path) -> None:
    """It is text, like any other in metadata."""
    known = [passage("p1", "a", position="9" * 5000), passage("p2", "a", position="1")]
    assert ids(in_document(corpus_of(tmp_path, *known), 0).passages) == ["p1", "p2"]


def test_where_a_document_goes_on_is_told_in_its_order(tmp_path: Path) -> None:
    """Also where positions order against the corpus."""
    known = [passage(str(n), "a", position=n) for n in range(8, -1, -1)]
    corpus = corpus_of(tmp_path, *known)
    size = len((tmp_path / LINES).read_bytes()) // 9
    found = in_document(corpus, 7, max_bytes=3 * size)
    assert "".join(ids(found.passages)) == "0123"
    assert (found.found, found.more_before, found.more_after) == (1, False, True)


def test_neighbours_are_bounded_in_bytes(tmp_path: Path) -> None:
    """The nearest on both sides, and a word where the document goes on; the passage is whole."""
    corpus = corpus_of(tmp_path, *(passage(str(n), "a") for n in range(9)))
    size = len((tmp_path / LINES).read_bytes()) // 9
    for max_bytes, expected in ((0, "4"), (2 * size, "345"), (5 * size, "123456")):
        found = in_document(corpus, 4, max_bytes=max_bytes)
        assert "".join(ids(found.passages)) == expected
        assert (found.more_before, found.more_after) == (True, True)
        assert found.passages[found.found].doc_id == "4"
    whole = in_document(corpus, 4, max_bytes=8 * size)
    assert (len(whole.passages), whole.more_before, whole.more_after) == (9, False, False)
    first = in_document(corpus, 0, max_bytes=2 * size)
    assert "".join(ids(first.passages)) == "012"
    assert (first.more_before, first.more_after) == (False, True)


def test_there_is_no_such_row(tmp_path: Path) -> None:
    """Negative rows are not rows from the end."""
    corpus = corpus_of(tmp_path, passage("p", "a"))
    for row in (-1, 1):
        with pytest.raises(IndexError):
            in_document(corpus, row)
