"""Labelled sets in memory: what their digests see, and which queries stay together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rerank.data.labelled_set import LabelledSet
from rerank.types import Passage, Query

LABELLED = LabelledSet(
    {
        "d1": Passage("d1", "fillna", "Fill missing values."),
        "d2": Passage("d2", "", "Drop missing values.", {"temperature": 80}),
    },
    {
        "q1": Query("replace gaps", "q1", {"group": "gaps", "article": "Gap"}),
        "q2": Query("remove gaps", "q2", {"article": "Gap"}),
        "q3": Query("train a network", "q3"),
    },
    {"q1": {"d1": 1.0}, "q2": {"d2": 2.0}},
    {"test": ("q1", "q2", "q3")},
)


def shuffled(labelled: LabelledSet) -> LabelledSet:
    return replace(
        labelled,
        corpus=dict(reversed(labelled.corpus.items())),
        queries=dict(reversed(labelled.queries.items())),
        splits={s: ids[::-1] for s, ids in reversed(labelled.splits.items())},
        name="another name",
    )


def test_the_digest_does_not_see_order(small: LabelledSet) -> None:
    """The same content in another order has the same digests."""
    assert shuffled(small).digest() == small.digest()
    assert shuffled(small).corpus_digest() == small.corpus_digest()


CHANGES: dict[str, Callable[[LabelledSet], LabelledSet]] = {
    "a passage's text": lambda s: replace(
        s, corpus={**s.corpus, "d1": replace(s.corpus["d1"], text="other")}
    ),
    "a passage's metadata": lambda s: replace(
        s, corpus={**s.corpus, "d1": replace(s.corpus["d1"], metadata={"a": 1})}
    ),
    "a query's text": lambda s: replace(
        s, queries={**s.queries, "q3": replace(s.queries["q3"], text="other")}
    ),
    "a query's group": lambda s: replace(
        s, queries={**s.queries, "q3": replace(s.queries["q3"], metadata={"group": "x"})}
    ),
    "a grade": lambda s: replace(s, qrels={**s.qrels, "q1": {"d1": 2.0}}),
    "a right passage": lambda s: replace(s, qrels={**s.qrels, "q3": {"d1": 1.0}}),
    "a split": lambda s: replace(s, splits={"test": ("q1", "q2"), "train": ("q3",)}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_digest_sees_every_change(what: str) -> None:
    """Another content has another digest; the corpus digest moves with the corpus alone."""
    changed = CHANGES[what](LABELLED)
    assert changed.digest() != LABELLED.digest()
    assert (changed.corpus_digest() != LABELLED.corpus_digest()) == ("passage's" in what)


def test_a_group_is_given_or_follows_from_the_answers() -> None:
    """Of group, right passages, the passage asked about and the words, the first that is there."""
    labelled = LabelledSet(
        {d: Passage(d, "", d) for d in "ab"},
        {
            "g1": Query("x", "g1", {"group": 0}),
            "g2": Query("x", "g2", {"group": 0}),
            "same": Query("one", "same"),
            "too": Query("two", "too"),
            "other": Query("three", "other"),
            "none": Query("four", "none"),
            "again": Query(" FOUR", "again"),
            "nothing": Query("five", "nothing"),
            "about": Query("six", "about", {"asked_about": "a"}),
            "too_about": Query("seven", "too_about", {"asked_about": 0}),
        },
        {
            "g1": {"a": 1.0},
            "g2": {"b": 1.0},
            "same": {"a": 1.0, "b": 1.0},
            "too": {"b": 2.0, "a": 1.0},
            "other": {"a": 1.0},
        },
        {},
    )
    group = labelled.group
    assert group("g1") == group("g2")
    assert group("same") == group("too")
    assert group("none") == group("again")
    assert group("about") == group("other")
    apart = ("g1", "same", "other", "none", "nothing", "too_about")
    assert len({group(q) for q in apart}) == len(apart)
    assert "seven" not in group("too_about")


@pytest.mark.parametrize("blank", [None, "", "  ", float("nan")])
def test_a_blank_passage_asked_about_is_none(blank: object) -> None:
    """Such queries share nothing: they are not one group."""
    queries = {i: Query(f"query {i}", i, {"asked_about": blank}) for i in "ab"}
    labelled = LabelledSet({"None": Passage("None", "", "text")}, queries, {}, {})
    assert labelled.group("a") != labelled.group("b")


@pytest.mark.parametrize("blank", [None, "", "  ", float("nan")])
def test_a_blank_group_is_none(blank: object) -> None:
    """Tables export what is missing as blank or NaN: such queries are not one group."""
    queries = {i: replace(q, metadata={"group": blank}) for i, q in LABELLED.queries.items()}
    labelled = replace(LABELLED, queries=queries)
    assert len({labelled.group(i) for i in queries}) == len(queries)
    assert all(len(labelled.duplicate_keys(i)) == 1 for i in queries)


def test_a_number_is_the_same_group_however_it_is_written() -> None:
    """A column with a gap turns 1 into 1.0."""
    queries = {
        i: Query(i, i, {"group": g}) for i, g in {"a": 1, "b": 1.0, "c": "1", "d": 2}.items()
    }
    labelled = replace(LABELLED, queries=queries, qrels={})
    assert [labelled.group(i) for i in "abcd"] == ["group:1"] * 3 + ["group:2"]


def test_any_metadata_can_be_the_group() -> None:
    """Queries that have it are grouped by it, the others as before; the digest sees it."""
    grouped = LABELLED.grouped_by("article")
    assert LABELLED.group("q1") != LABELLED.group("q2")
    assert grouped.group("q1") == grouped.group("q2") == "group:Gap"
    assert grouped.duplicate_keys("q1") & grouped.duplicate_keys("q2") == {"group:Gap"}
    assert grouped.group("q3") == LABELLED.group("q3")
    assert list(grouped.queries) == list(LABELLED.queries)
    assert grouped.digest() != LABELLED.digest()
    assert LABELLED.grouped_by("nothing") == LABELLED
    assert grouped.described()["group_by"] == "article"
    assert "group_by" not in LABELLED.described()
