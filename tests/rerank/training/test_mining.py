"""Mining: the lists are labelled as the set says, and hard where they should be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rerank.data.labelled_set import LabelledSet
from rerank.inference.model_files import resolve
from rerank.retrieval.dense import Encoder
from rerank.retrieval.index import Index
from rerank.training.mining import (
    Example,
    mine,
    validation_queries,
    without_misled_teacher,
)
from rerank.training.settings import FinetuneConfig
from rerank.types import Passage


@pytest.fixture(scope="module")
def encoder(run: Any) -> Encoder:
    return Encoder(resolve("minilm"), max_length=64)


@pytest.fixture(scope="module")
def mined(small: LabelledSet, index: Index, encoder: Encoder) -> list[Example]:
    return mine(small, small.splits["train"], index, encoder, FinetuneConfig(hard=2, easy=1))


def test_every_list_is_labelled_as_the_set_says(mined: list[Example], small: LabelledSet) -> None:
    """A query has one right passage, first, if it has any; what is labelled 0 is not right."""
    by_text = {q.text: q.query_id for q in small.queries.values()}
    texts: dict[str, set[str]] = {}
    for passage in small.corpus.values():
        texts.setdefault(passage.full_text, set()).add(passage.doc_id)
    assert len(mined) == len(small.splits["train"])
    for example in mined:
        right = small.relevant(by_text[example.query])
        assert len(example.labels) == len(example.passages)
        assert list(example.labels) == [1] * bool(right) + [0] * (
            len(example.passages) - bool(right)
        )
        for text, label in zip(example.passages, example.labels, strict=True):
            assert bool(texts[text] & right) == bool(label)
        assert 3 <= len(example.passages) <= 4


def test_unanswerable_queries_teach_as_well(mined: list[Example]) -> None:
    """A query without a right passage has a list of wrong ones."""
    none = [e for e in mined if not any(e.labels)]
    assert len(none) >= 5
    assert all(e.passages for e in none)


def test_mining_is_drawn_by_seed(small: LabelledSet, index: Index, encoder: Encoder) -> None:
    """The same seed draws the same lists, another seed others; a limit bounds them."""
    one, again, other = (
        mine(small, small.splits["test"], index, encoder, FinetuneConfig(seed=s), limit=6)
        for s in (0, 0, 1)
    )
    assert one == again
    assert one != other
    assert len(one) == 6


def test_a_limit_above_the_queries_goes_round_again(
    small: LabelledSet, index: Index, encoder: Encoder
) -> None:
    """Every query comes twice, mostly with other wrong passages."""
    ids = small.splits["train"][:10]
    twice = mine(small, ids, index, encoder, FinetuneConfig(), limit=20)
    first, again = twice[:10], twice[10:]
    assert [e.query for e in first] == [e.query for e in again]
    assert len({e.query for e in first}) == 10
    assert sum(a.passages != b.passages for a, b in zip(first, again, strict=True)) > 5


def test_a_copy_of_the_answer_is_no_hard_negative(
    small: LabelledSet, index: Index, encoder: Encoder
) -> None:
    """A passage that says the same as a right one, but is not judged, is not called wrong."""
    answerable = [i for i in small.splits["test"] if small.relevant(i)]
    found = {
        i: c
        for i in answerable
        for c in [
            index.search(
                small.queries[i].text,
                encoder.encode([small.queries[i].text])[0],
                pool=50,
                count=5,
                rrf_k=60,
            )
        ]
    }
    query_id, candidates = next(iter(found.items()))
    near, next_ = (index.passage(int(row)) for row in candidates.rows[:2])
    copies = {f"copy {p.doc_id}": p for p in (near, next_)}
    labelled = LabelledSet(
        {**small.corpus, **{i: Passage(i, p.title, p.text) for i, p in copies.items()}},
        {query_id: small.queries[query_id]},
        {query_id: dict.fromkeys(copies, 1.0)},
        {"test": (query_id,)},
    )
    config = FinetuneConfig(hard=5, easy=0)
    (example,) = mine(labelled, labelled.splits["test"], index, encoder, config)
    texts = {near.full_text, next_.full_text}
    assert example.passages[0] in texts
    assert texts.isdisjoint(example.passages[1:])
    assert len(example.passages) > 2


def test_the_passage_asked_about_is_among_the_wrong_ones(
    small: LabelledSet, index: Index, encoder: Encoder
) -> None:
    """An unanswerable query learns from the passage that it was asked about."""
    ids = [i for i in small.splits["train"] if not small.relevant(i)][:4]
    asked = list(small.corpus)[:4]
    queries = {
        i: replace(small.queries[i], metadata={"asked_about": d})
        for i, d in zip(ids, asked, strict=True)
    }
    known = replace(small, queries={**small.queries, **queries})
    for example, doc_id in zip(
        mine(known, ids, index, encoder, FinetuneConfig(easy=0)), asked, strict=True
    ):
        assert example.passages[0] == small.corpus[doc_id].full_text
        assert len(set(example.passages)) == len(example.passages) == 3
        assert not any(example.labels)


def test_what_a_person_calls_wrong_comes_first(
    small: LabelledSet, index: Index, encoder: Encoder
) -> None:
    """Before the first stage's finds; never where it is right after all, and counted."""
    query_id = next(i for i in small.splits["train"] if len(small.relevant(i)) == 1)
    (right,) = small.relevant(query_id)
    wrong = [d for d in small.corpus if d != right][:3]
    query = replace(small.queries[query_id], metadata={"judged_wrong": [right, *wrong]})
    known = replace(small, queries={**small.queries, query_id: query})
    texts = {small.corpus[d].full_text for d in wrong}
    for hard, judged in ((2, 2), (5, 3)):
        (example,) = mine(known, [query_id], index, encoder, FinetuneConfig(hard=hard, easy=0))
        assert example.passages[0] == small.corpus[right].full_text
        assert set(example.passages[1 : 1 + judged]) <= texts
        assert example.judged == judged
        assert len(set(example.passages)) == len(example.passages) == 1 + hard


@pytest.mark.parametrize("judged", [None, 7, "a passage", ["unknown"]])
def test_what_is_no_list_of_passages_judges_nothing(
    small: LabelledSet, index: Index, encoder: Encoder, judged: object
) -> None:
    """Metadata of other tools may have a field of this name."""
    query_id = next(i for i in small.splits["train"] if small.relevant(i))
    query = replace(small.queries[query_id], metadata={"judged_wrong": judged})
    known = replace(small, queries={**small.queries, query_id: query})
    (example,) = mine(known, [query_id], index, encoder, FinetuneConfig(hard=2, easy=0))
    assert example.judged == 0


def test_within_a_group_no_other_passage_is_wrong(
    small: LabelledSet, index: Index, encoder: Encoder
) -> None:
    """Neither from the first stage nor from anywhere; a query alone in its group is left out."""
    ids = [i for i in small.splits["train"] if small.relevant(i)][:6]
    name = {i: "a" if k < 3 else "b" if k < 5 else "alone" for k, i in enumerate(ids)}
    queries = {i: replace(small.queries[i], metadata={"group": name[i]}) for i in ids}
    known = replace(small, queries=queries, qrels={i: small.qrels[i] for i in ids})
    found = mine(known, ids, None, encoder, FinetuneConfig(hard=2, easy=1))
    by_text = {small.queries[i].text: i for i in ids}
    assert {by_text[e.query] for e in found} <= set(ids[:5])
    assert found  # fewer than five where two of a group have the same answer
    for example in found:
        group = name[by_text[example.query]]
        same = {d for i in ids if name[i] == group for d in small.relevant(i)}
        assert set(example.passages) <= {small.corpus[d].full_text for d in same}
        assert 0 in example.labels


def test_a_share_of_the_answers_is_withheld(
    small: LabelledSet, index: Index, encoder: Encoder
) -> None:
    """Then the list is of wrong passages alone, without the answer, and one longer."""
    ids = [i for i in small.splits["train"] if small.relevant(i)]
    config = FinetuneConfig(hard=2, easy=0, withheld=0.5)
    found = mine(small, ids, index, encoder, config)
    without = [(i, e) for i, e in zip(ids, found, strict=True) if not any(e.labels)]
    assert 0.3 < len(without) / len(ids) < 0.7
    for i, example in without:
        answers = {small.corpus[d].full_text for d in small.relevant(i)}
        assert answers.isdisjoint(example.passages)
        assert len(example.passages) == 3


def test_validation_lists_are_those_of_the_first_stage(
    small: LabelledSet, index: Index, encoder: Encoder
) -> None:
    """Each answerable query once, with its right passages and the fused order."""
    ids = small.splits["test"][:12]
    held = validation_queries(small, ids, index, encoder, depth=5)
    answerable = [i for i in ids if small.relevant(i)]
    assert [h.query for h in held] == [small.queries[i].text for i in answerable]
    for i, h in zip(answerable, held, strict=True):
        query = small.queries[i]
        found = index.search(
            query.text, encoder.encode([query.text])[0], pool=50, count=5, rrf_k=60
        )
        assert list(h.found) == [index.passage(row).full_text for row in found.rows]
        assert set(h.right) == {small.corpus[d].full_text for d in small.relevant(i)}
    assert validation_queries(small, [], index, encoder, depth=5) == []


def test_an_altered_query_is_asked_about_its_passage(
    small: LabelledSet, index: Index, encoder: Encoder
) -> None:
    """The right passage comes first, is wrong, counts as judged, and the query is remembered."""
    ids = [i for i in small.splits["train"] if small.relevant(i)][:40]
    config = FinetuneConfig(altered=0.9, withheld=0.3, easy=0)
    by_text = {small.queries[i].text: small.relevant(i) for i in ids}
    examples = mine(small, ids, index, encoder, config)
    altered = [e for e in examples if e.altered_from]
    assert 0 < len(altered) < len(examples)
    for example in altered:
        right = {small.corpus[d].full_text for d in by_text[example.altered_from]}
        assert example.query != example.altered_from
        assert example.passages[0] in right
        assert not any(example.labels)
        assert example.judged == 1
        assert right.isdisjoint(example.passages[1:])
        assert len(example.passages) == 3
    assert all(e.query in by_text for e in examples if not e.altered_from)


def test_a_teacher_is_not_heard_on_what_it_takes_for_an_answer() -> None:
    """The passage that an unanswerable question was asked about; all other lists keep theirs."""
    asked = Example("q", ("a", "b"), (0, 0), teacher=(4.0, -2.0), judged=1)
    assert without_misled_teacher(asked) == replace(asked, teacher=())
    for example in (
        Example("q", ("a", "b"), (1, 0), teacher=(4.0, -2.0), judged=1),
        Example("q", ("a", "b"), (0, 0), teacher=(-4.0, -2.0)),
    ):
        assert without_misled_teacher(example) == example
