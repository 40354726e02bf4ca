"""Groups by default: the largest thing that repeats in the labels and still leaves ten of it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rerank.data import duplicates
from rerank.data.duplicates import near_duplicates
from rerank.data.grouping import NEW_DOCUMENTS, THESE_DOCUMENTS, grouped, groupings
from rerank.data.labelled_set import LabelledSet
from rerank.fitting.plan import plan
from rerank.types import Passage, Query

WORDS = [f"word{k}" for k in range(12)]


def library(documents: int, passages: int, *, asked: int = 1, titled: bool = True) -> LabelledSet:
    """Documents of passages of their own words, of which each is asked about so many times."""
    corpus, queries, qrels = {}, {}, {}
    for d in range(documents):
        for k in range(passages):
            doc = f"p{d}-{k}"
            text = " ".join(f"{word}{d}x{k}" for word in WORDS)
            corpus[doc] = Passage(doc, f"Book {d}" if titled else "", text)
            for n in range(asked):
                i = f"q{d}-{k}-{n}"
                queries[i] = Query(f"question {i}", i)
                qrels[i] = {doc: 1.0}
    return LabelledSet(corpus, queries, qrels, {"train": tuple(queries)}, "library")


def names(labelled: LabelledSet, ids: Sequence[str] | None = None) -> list[str]:
    """The names of what may be a group."""
    return [g.name for g in groupings(labelled, ids or list(labelled.queries))]


def test_documents_are_groups_where_there_are_ten_of_them() -> None:
    """By title; with nine documents it is their passages, with nine of these the question."""
    ten = grouped(library(10, 3), list(library(10, 3).queries))
    assert ten.grouping is not None
    assert (ten.grouping.name, ten.grouping.about) == ("document", NEW_DOCUMENTS)
    assert ten.group("q3-0-0") == ten.group("q3-2-0") != ten.group("q4-0-0")
    nine = grouped(library(9, 3), list(library(9, 3).queries))
    assert nine.grouping is not None
    assert (nine.grouping.name, nine.grouping.about) == ("passage", THESE_DOCUMENTS)
    assert nine.group("q3-0-0") != nine.group("q3-2-0")
    assert names(library(3, 3)) == ["question"]


def test_passages_that_name_no_document_are_called_passages() -> None:
    """Each counts as a document of its own, as in runs of TREC, but is not called one."""
    untitled = library(10, 3, titled=False)
    first = next(groupings(untitled, list(untitled.queries)))
    assert (first.name, first.about) == ("passage", NEW_DOCUMENTS)


def test_a_document_can_be_named() -> None:
    """`metadata.document` of a passage comes before its title, whose case does not count."""
    labelled = library(12, 2)
    corpus = {
        d: Passage(d, p.title.upper(), p.text, {"document": i // 4} if i < 4 else {})
        for i, (d, p) in enumerate(labelled.corpus.items())
    }
    found = grouped(
        LabelledSet(corpus, labelled.queries, labelled.qrels, labelled.splits),
        list(labelled.queries),
    )
    assert found.group("q0-0-0") == found.group("q1-0-0") == "document:0"
    assert found.group("q5-0-0") == found.group("q5-1-0") == "document:book 5"


@pytest.mark.parametrize("missing", ["", " ", math.nan, None])
def test_a_missing_document_is_the_title(missing: object) -> None:
    """As tables write it: such passages are neither each by itself nor all in one document."""
    labelled = library(12, 2)
    corpus = {
        d: Passage(d, p.title, p.text, {"document": missing}) for d, p in labelled.corpus.items()
    }
    found = grouped(replace(labelled, corpus=corpus), list(labelled.queries))
    assert found.group("q5-0-0") == found.group("q5-1-0") == "document:book 5"


def test_one_query_or_one_text_joins_documents() -> None:
    """A query that two documents answer, and passages that are nearly the same, join them."""
    labelled = library(14, 1)
    corpus = dict(labelled.corpus)
    corpus["p3-0"] = Passage("p3-0", "Book 3", corpus["p2-0"].text + " more")
    qrels = {**labelled.qrels, "q0-0-0": {"p0-0": 1.0, "p1-0": 1.0}}
    found = grouped(
        LabelledSet(corpus, labelled.queries, qrels, labelled.splits), list(labelled.queries)
    )
    assert found.group("q0-0-0") == found.group("q1-0-0")
    assert found.group("q2-0-0") == found.group("q3-0-0")
    assert len({found.group(i) for i in labelled.queries}) == 12


def test_what_nothing_answers_is_with_what_it_was_asked_about() -> None:
    """Else it is by itself, told by its words."""
    labelled = library(12, 2)
    queries = {
        **labelled.queries,
        "about": Query("unanswerable", "about", {"asked_about": "p5-1"}),
        "lost": Query("nothing", "lost", {"asked_about": "gone"}),
        "alone": Query("nothing", "alone"),
    }
    found = grouped(LabelledSet(labelled.corpus, queries, labelled.qrels, {}), list(queries))
    assert found.group("about") == found.group("q5-0-0")
    assert found.group("lost") == found.question_group("lost")
    assert found.group("alone") == found.question_group("alone")


def test_a_named_group_comes_first() -> None:
    """Where the labels name groups these are taken."""
    labelled = library(12, 2)
    queries = {i: Query(q.text, i, {"group": i[:2]}) for i, q in labelled.queries.items()}
    named = LabelledSet(labelled.corpus, queries, labelled.qrels, labelled.splits)
    assert names(named) == ["metadata.group"]
    assert grouped(named, list(queries)).group("q1-0-0") == "group:q1"


def test_a_group_that_some_queries_have_joins_their_documents() -> None:
    """The documents are still the groups of all, whether a query has a given group or not."""
    labelled = library(12, 2)
    together = {i: {"group": "rephrased"} for i in ("q1-0-0", "q2-0-0", "alone")}
    queries = {**labelled.queries, "alone": Query("question alone", "alone")}
    queries = {i: Query(q.text, i, together.get(i, {})) for i, q in queries.items()}
    some = LabelledSet(labelled.corpus, queries, labelled.qrels, {"train": tuple(queries)})
    assert names(some) == ["document", "passage", "question"]
    found = grouped(some, list(queries))
    assert found.group("q3-0-0") == found.group("q3-1-0") != found.group("q4-0-0")
    assert {found.group(i) for i in ("q1-0-0", "q1-1-0", "q2-1-0", "alone")} == {
        found.group("q2-0-0")
    }


def test_a_group_of_most_queries_is_none() -> None:
    """Where one document has more than half of the queries its passages are the groups."""
    labelled = library(11, 12)
    kept = [i for i in labelled.queries if i.startswith("q0-") or i.split("-")[1] == "0"]
    assert names(labelled, kept) == ["passage", "question"]


def with_a_test_split(labelled: LabelledSet, *, documents: int) -> LabelledSet:
    """The set with the queries of the first documents as `test`, the others as `train`."""
    tested = {f"q{k}-" for k in range(documents)}
    splits: dict[str, list[str]] = {"train": [], "test": []}
    for i in labelled.queries:
        splits["test" if i[: i.index("-") + 1] in tested else "train"].append(i)
    return replace(labelled, splits={name: tuple(ids) for name, ids in splits.items()})


@pytest.mark.parametrize(("most", "name"), [(None, "document"), (40, "document")])
def test_the_plan_holds_whole_documents_out(most: int | None, name: str) -> None:
    """Reported documents are not fitted on, and a bound on the queries leaves as many documents."""
    labelled = with_a_test_split(library(20, 5, asked=2), documents=6)
    planned = plan(labelled, trained_hashes=frozenset(), max_queries=most, seed=0)
    assert planned.grouping.name == name
    fit, report = (set(part.groups.tolist()) for part in (planned.fit, planned.report))
    assert not fit & report
    assert planned.reported_of_fitted_groups == 0
    assert len(fit) >= 10
    assert len(planned.fit) <= (most or 200)


def test_a_plan_that_leaves_too_few_documents_takes_passages() -> None:
    """Of twelve documents eight are fitted on."""
    labelled = with_a_test_split(library(12, 6), documents=4)
    planned = plan(labelled, trained_hashes=frozenset(), max_queries=None, seed=0)
    assert planned.grouping.name == "passage"
    assert planned.reported_of_fitted_groups == 0


def test_a_split_of_the_same_documents_is_told() -> None:
    """Queries of a given split whose documents are fitted on are counted."""
    whole = library(20, 5)
    ids = list(whole.queries)
    splits = {"train": tuple(ids[::2]), "test": tuple(ids[1::2])}
    labelled = LabelledSet(whole.corpus, whole.queries, whole.qrels, splits)
    planned = plan(labelled, trained_hashes=frozenset(), max_queries=None, seed=0)
    assert planned.reported_of_fitted_groups == len(planned.report) == 50


def test_near_duplicates_share_most_runs_of_words() -> None:
    """A word more is nearly the same, half of another text is not, an empty text like nothing."""
    text = " ".join(WORDS * 2)
    other = " ".join(f"{word}s" for word in WORDS * 2)
    texts = [text, other, text.upper() + " more", text + " " + other, "", "", "short", "Short!"]
    assert sorted(near_duplicates(texts)) == [(0, 2), (6, 7)]


def test_the_work_per_form_letter_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters alike by 60% are compared with a bounded number of others; copies are still found."""
    rng = random.Random(0)
    form = [f"f{i}" for i in range(150)]
    letters = [" ".join([*form, *(f"o{rng.random()}" for _ in range(25))]) for _ in range(1500)]
    letters += [f"{letter} again" for letter in letters[:20]]
    compared = [0]
    resemblance = duplicates._resemblance

    def counted(*runs: Any) -> float:
        compared[0] += 1
        return resemblance(*runs)

    monkeypatch.setattr(duplicates, "_resemblance", counted)
    assert set(near_duplicates(letters)) == {(i, 1500 + i) for i in range(20)}
    assert 0 < compared[0] <= duplicates.COMPARED * len(letters)
