"""From a journal to labels and queries for jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from journals import make_entry, sqlite_url

from rerank.assessment.model import CalibratedReranker
from rerank.data.feedback import feedback_from, without_moved
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.journal.reading import journal_labels, journal_queries, label_of, newest_labels
from rerank.journal.store import JournalStore, entry_of
from rerank.types import Passage, Query

Run = Any  # the session's run, see conftest
Write = Callable[..., str]


@pytest.fixture(scope="module")
def model(run: Run) -> CalibratedReranker:
    return CalibratedReranker.load(run.folder)


@pytest.fixture
def written(model: CalibratedReranker, tmp_path: Path) -> Write:
    """A writer of what a model answered to queries, each judged; it returns the journal's URL."""

    def write(queries: list[Query], *, without_text: bool = False, **changed: Any) -> str:
        with JournalStore(sqlite_url(tmp_path), create=True) as store:
            for i, found in enumerate(model.assess(queries)):
                entry = entry_of(
                    found, answer_id=str(i), model="m", latency=0, without_text=without_text
                )
                store.add([{**entry, **changed}])
                store.judge(str(i), i % 2 == 0)
        return sqlite_url(tmp_path)

    return write


def test_labels_come_back_with_their_queries(
    model: CalibratedReranker, small: LabelledSet, written: Write
) -> None:
    """Searches and lists of callers, with metadata and passages, in the order judged."""
    texts = [q.text for q in list(small.queries.values())[:2]]
    passages = (Passage("0", "Title", "the median"), Passage("1", "", "a chart"))
    queries = [
        Query(texts[0], metadata={"lang": "en"}),
        Query(texts[1]),
        Query("median", passages=passages),
    ]
    labels, notes = journal_labels(model, url := written(queries))
    assert notes == ()
    assert [f.query for f in labels] == queries
    assert [f.right for f in labels] == [True, False, True]
    newest, _ = journal_labels(model, url, newest=1)
    assert [f.query for f in newest] == queries[2:]
    assert [(q.text, q.metadata) for q in journal_queries(model, url, newest=1)] == [(texts[1], {})]
    assert [q.text for q in journal_queries(model, url, newest=9)] == texts


def test_a_label_of_another_top_passage_is_left_out(
    model: CalibratedReranker, small: LabelledSet, written: Write
) -> None:
    """It says nothing of the passage that comes first now."""
    query = next(iter(small.queries.values()))
    url = written([Query(query.text)], top_doc_id="another")
    with pytest.raises(
        InputError,
        match="no label of searches that can be used, left out: 1 labels, because the model",
    ):
        journal_labels(model, url)


def test_an_older_label_of_the_present_first_passage_applies(
    model: CalibratedReranker, small: LabelledSet, tmp_path: Path
) -> None:
    """Where another passage was first in between; and what is left out takes no place of others."""
    first, second = (q.text for q in list(small.queries.values())[:2])
    with JournalStore(sqlite_url(tmp_path), create=True) as store:
        for i, (text, moved) in enumerate([(first, False), (second, False), (first, True)]):
            entry = entry_of(model.search(text), answer_id=str(i), model="m", latency=0)
            store.add([{**entry, "top_doc_id": "another"} if moved else entry])
            assert store.judge(str(i), not moved)
    labels, notes = journal_labels(model, sqlite_url(tmp_path))
    assert [(f.query.text, f.right) for f in labels] == [(first, True), (second, True)]
    assert notes == ("left out: 1 labels, because the model now puts another passage first.",)
    labels, _ = journal_labels(model, sqlite_url(tmp_path), newest=2)
    assert [f.query.text for f in labels] == [first, second]
    labels, _ = journal_labels(model, sqlite_url(tmp_path), newest=1)
    assert [f.query.text for f in labels] == [second]


def test_labels_in_a_file_name_their_passage(
    model: CalibratedReranker, small: LabelledSet, written: Write, tmp_path: Path
) -> None:
    """So that those whose passage is not the first one any more are left out, with the note."""
    queries = [Query(q.text) for q in list(small.queries.values())[:2]]
    brought = Query("median", passages=(Passage("0", "", "the median"),))
    with JournalStore(written([*queries, brought])) as store:
        rows = newest_labels(store)
    assert json.loads(json.dumps(label_of(rows[0])))["top"] == {"doc_id": rows[0]["top_doc_id"]}
    labels = [feedback_from(label_of(row)) for row in rows]
    assert without_moved(labels, model.assess) == (labels, [])
    drawn = [replace(f, chosen=False) for f in labels]
    assert without_moved(drawn, model.assess) == (drawn, [])
    drawn[0] = replace(drawn[0], top="another")
    nothing = replace(labels[1], top="")
    unknown = replace(labels[1], top=None)
    kept, notes = without_moved([*drawn, nothing, unknown], model.assess)
    assert [f.top for f in kept] == [labels[1].top, labels[2].top, None]
    assert notes == ["left out: 2 labels, because the model now puts another passage first."]
    assert all(f.chosen for f in kept)  # what is left of a random sample is none
    with pytest.raises(InputError, match="no label can be used, left out: 1 labels, because the"):
        without_moved(drawn[:1], model.assess)


@pytest.mark.parametrize(
    ("top", "words"), [("d0", "'top' should be an object"), ({}, r"'top\.doc_id' .* got null|text")]
)
def test_a_passage_that_is_none_is_refused(top: Any, words: str) -> None:
    """In a labels file."""
    with pytest.raises(InputError, match=words):
        feedback_from({"query": "x", "right": True, "top": top})


def test_hashes_cannot_be_asked_again(
    model: CalibratedReranker, small: LabelledSet, written: Write
) -> None:
    """The sentence says why."""
    query = next(iter(small.queries.values()))
    url = written([Query(query.text)], without_text=True)
    with pytest.raises(InputError, match="1 labels, because the journal holds no text"):
        journal_labels(model, url)
    with pytest.raises(InputError, match="no search with its text"):
        journal_queries(model, url, newest=10)


def test_labels_of_another_kind_of_model_are_left_out(
    model: CalibratedReranker, small: LabelledSet, written: Write
) -> None:
    """A journal may be that of several servers."""
    query = next(iter(small.queries.values()))
    url = written([Query(query.text)])
    listed = '{"query": "x", "passages": [{"_id": "a", "text": "b", "scores": {"bm25": 1}}]}'
    with JournalStore(url) as store:  # as a model over another search system keeps its searches
        store.add([make_entry("other", mode="search", asked=listed, top_doc_id="a")])
        assert store.judge("other", True)
    labels, notes = journal_labels(model, url)
    assert [f.query.text for f in labels] == [query.text]
    assert "1 labels, because they are of answers of another kind of model" in notes[0]
    assert [q.text for q in journal_queries(model, url, newest=9)] == [query.text]


def test_a_query_that_cannot_be_read_is_left_out_alone(
    model: CalibratedReranker, small: LabelledSet, written: Write
) -> None:
    """The others are taken, and the note says why it was not."""
    query = next(iter(small.queries.values()))
    url = written([Query(query.text)])
    with JournalStore(url) as store:
        store.add([make_entry("bad", asked='{"query": "x", "passages": [{"text": 5}]}')])
        assert store.judge("bad", True)
    labels, notes = journal_labels(model, url)
    assert [f.query.text for f in labels] == [query.text]
    assert "left out: 1 labels, because passages[0]" in notes[0]


def test_a_journal_without_labels_is_told(model: CalibratedReranker, tmp_path: Path) -> None:
    """And one that is not there."""
    with pytest.raises(InputError, match="there is no journal"):
        journal_labels(model, sqlite_url(tmp_path))
    with JournalStore(sqlite_url(tmp_path), create=True) as store:
        store.add([make_entry()])
    with pytest.raises(InputError, match=r"has no label of searches that can be used"):
        journal_labels(model, sqlite_url(tmp_path))


def test_a_search_that_no_file_could_hold_is_passed_over(
    small: LabelledSet, tmp_path: Path, model: CalibratedReranker
) -> None:
    """Such as a longer question, which a server may be set to take: the others are compared."""
    text = next(iter(small.queries.values())).text
    entry = entry_of(model.search(text), answer_id="0", model="m", latency=0)
    longer = json.dumps({"query": "x" * 10_001})
    with JournalStore(sqlite_url(tmp_path), create=True) as store:
        store.add([entry, {**entry, "entry_id": "1", "answer_id": "1", "asked": longer}])
    assert [q.text for q in journal_queries(model, sqlite_url(tmp_path), newest=9)] == [text]
