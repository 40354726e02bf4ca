"""Training sets: whole groups are held out, and nothing measured on later is trained on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rerank.data.checks import query_hash
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.training.mining import (
    TrainingSet,
    examples_per_set,
    leave_out,
    split_validation,
    without_overlap,
)


def test_temperature_lies_between_the_sizes_and_equal_shares() -> None:
    """By hand: 900 and 100 are as 9 to 1, at temperature 2 as 3 to 1, and nearly equal at 1000."""
    assert examples_per_set([900, 100], 400, 1.0) == [360, 40]
    assert examples_per_set([900, 100], 400, 2.0) == [300, 100]
    assert examples_per_set([900, 100], 400, 1000.0) == [200, 200]
    assert examples_per_set([10**6, 1], 100, 1.0) == [100, 1]
    assert examples_per_set([5000, 100, 5000], 1000, 0.001) == [500, 1, 500]


def test_whole_groups_are_held_out(pydata: LabelledSet) -> None:
    """No group stands on both sides, nothing is lost, and the count is close to what was asked."""
    ids, held = split_validation(TrainingSet(pydata, "dev"), 60, seed=0)
    assert sorted([*ids, *held]) == sorted(pydata.splits["dev"])
    assert not {pydata.group(i) for i in ids} & {pydata.group(i) for i in held}
    assert 55 <= len(held) <= 60
    assert split_validation(TrainingSet(pydata, "dev"), 60, seed=0) == (ids, held)
    assert split_validation(TrainingSet(pydata, "dev"), 60, seed=1)[1] != held
    assert split_validation(TrainingSet(pydata, "dev"), 0, seed=0)[1] == []
    seen = frozenset(query_hash(pydata.queries[i].text) for i in held[:5])
    again = split_validation(TrainingSet(pydata, "dev"), 60, seed=0, seen=seen)[1]
    assert 55 <= len(again) <= 60
    assert not {pydata.group(i) for i in held[:5]} & {pydata.group(i) for i in again}
    assert (
        len(split_validation(TrainingSet(pydata, "dev"), 9999, seed=0)[1])
        <= len(pydata.splits["dev"]) / 5
    )


def test_a_limit_leaves_whole_groups_over(pydata: LabelledSet) -> None:
    """What is trained on and what is left share no group, and the limit is nearly filled."""
    ids, held = split_validation(TrainingSet(pydata, "dev", 200), 60, seed=0)
    left = set(pydata.splits["dev"]) - {*ids, *held}
    assert 190 <= len(ids) <= 200
    assert not {pydata.group(i) for i in ids} & {pydata.group(i) for i in left}


def test_a_source_that_is_not_there_is_refused(small: LabelledSet) -> None:
    """The error names the splits that there are, or the limit."""
    with pytest.raises(InputError, match=r"no split 'dev'; it has \['train', 'test'\]"):
        TrainingSet(small, "dev")
    with pytest.raises(InputError, match="at least 1 query, got 0"):
        TrainingSet(small, limit=0)


def test_what_is_validated_on_is_not_trained_on(small: LabelledSet) -> None:
    """The same words, even in another set, a right passage in common, or the same group."""
    first, second, third, fourth, *others = [
        i for i in small.splits["train"] if len(small.relevant(i)) == 1
    ]
    alike = {
        second: replace(small.queries[second], text=small.queries[first].text.upper()),
        first: replace(small.queries[first], metadata={"group": "g"}),
        fourth: replace(small.queries[fourth], metadata={"group": "g"}),
    }
    qrels = {**small.qrels, third: {**small.qrels[third], **small.qrels[first]}}
    labelled = replace(small, queries={**small.queries, **alike}, qrels=qrels)
    ids = [second, third, fourth, *others]
    assert without_overlap(labelled, ids, [first], frozenset()) == others
    elsewhere = frozenset({query_hash(small.queries[others[0]].text)})
    assert without_overlap(labelled, others, [], elsewhere) == others[1:]


def test_nothing_of_a_set_that_is_left_out_is_trained_on(small: LabelledSet) -> None:
    """Neither its questions, nor questions with its answers, nor those of its groups."""
    ids = small.splits["train"]
    answered = [i for i in ids if small.relevant(i)]
    first, second, third = answered[:3]
    asked = replace(
        small,
        queries={
            first: small.queries[first],  # the same question
            "x": replace(small.queries[second], text="words of its own", query_id="x"),
        },
        qrels={"x": small.qrels[second]},  # the same answer
        splits={"test": (first, "x")},
        name="other",
    )
    kept = leave_out(small, [asked], "train").splits["train"]
    assert {first, second}.isdisjoint(kept)
    assert third in kept
    assert len(kept) >= len(ids) - 10
    grouped = replace(small.queries[third], text="a question of the same group", query_id="y")
    part = replace(asked, queries={"y": grouped}, qrels={}, splits={"test": ("y",)})
    group = {i for i in ids if small.group(i) == part.group("y")}
    assert group.isdisjoint(
        leave_out(small, [replace(part, name=small.name)], "train").splits["train"]
    )
    assert leave_out(small, [part], "train").splits["train"] == ids
    with pytest.raises(InputError, match="--leave-out leaves no query of 'train'"):
        leave_out(small, [replace(small, name="copy")], "train")
    assert leave_out(small, [], "train") is small


def test_equal_ids_of_another_part_are_no_group(small: LabelledSet) -> None:
    """Each part of a set may count its passages anew: their texts say what is the same."""
    ids = small.splits["train"]
    plain = {i: replace(q, metadata={}) for i, q in small.queries.items()}
    part = LabelledSet(
        {d: replace(p, title="", text=f"something else, {d}") for d, p in small.corpus.items()},
        {i: replace(plain[i], text=f"what else is {i}?") for i in ids},
        {i: small.qrels[i] for i in ids if i in small.qrels},
        {"train": ids},
        small.name,
    )
    assert leave_out(replace(small, queries=plain), [part], "train").splits["train"] == ids
