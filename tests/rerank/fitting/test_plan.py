"""Who is fitted on and who is reported on: never the same question twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_sets import relabelled

from rerank.data.checks import query_hash
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import Labelled
from rerank.errors import InputError
from rerank.fitting.plan import CALIBRATED_FROM, CROSS_FITTED, Plan, count_unused, plan
from rerank.types import Passage, Query

NONE: frozenset[str] = frozenset()


def ids(part: Labelled[Query]) -> tuple[str, ...]:
    return tuple(query.query_id for query in part.items)


def set_of(groups: dict[str, list[int]]) -> LabelledSet:
    """A set whose splits hold a query for each group number given."""
    queries, splits = {}, {}
    for split, numbers in groups.items():
        names = tuple(f"{split}{k}" for k in range(len(numbers)))
        for i, number in zip(names, numbers, strict=True):
            queries[i] = Query(f"question {i}", i, {"group": number})
        splits[split] = names
    return LabelledSet({"d": Passage("d", "", "text")}, queries, {}, splits, "made")


GROUPS = st.lists(st.integers(0, 60), min_size=0, max_size=80)


@settings(max_examples=150, deadline=None)
@given(
    groups=st.dictionaries(st.sampled_from(["train", "dev", "test", "more"]), GROUPS),
    limit=st.one_of(st.none(), st.integers(0, 50)),
    seed=st.integers(0, 3),
)
def test_fit_and_report_share_no_group(
    groups: dict[str, list[int]], limit: int | None, seed: int
) -> None:
    """Whatever the splits, a plan is disjoint by group, within bounds, or a refusal."""
    labelled = set_of(groups)
    try:
        found = plan(labelled, trained_hashes=NONE, max_queries=limit, seed=seed)
    except InputError:
        return
    fit, report = (part.groups.tolist() for part in (found.fit, found.report))
    assert (found.report is found.fit) == found.cross_fitted
    assert found.cross_fitted or not set(fit) & set(report)
    assert len(fit) >= CALIBRATED_FROM
    assert report
    assert len(set(ids(found.fit))) == len(found.fit)
    if limit is not None:
        assert max(len(fit), len(report)) <= limit


@pytest.mark.parametrize("split", ["test", "train"])
def test_the_same_words_are_never_on_both_sides(split: str) -> None:
    """Queries without a group, asked again in the same words with another answer."""
    queries, qrels = {}, {}
    for k in range(120):
        queries[f"q{k}"] = Query(f"question {k // 2}", f"q{k}")
        qrels[f"q{k}"] = {f"d{k}": 1.0}
    corpus = {f"d{k}": Passage(f"d{k}", "", f"text {k}") for k in range(120)}
    every = tuple(queries)
    splits = {"train": every}
    if split == "test":
        splits = {"train": every[::2], "test": every[1::2][:20]}
    used = {i: queries[i] for part in splits.values() for i in part}
    labelled = LabelledSet(corpus, used, {i: qrels[i] for i in used}, splits, "made")
    found = plan(labelled, trained_hashes=NONE, max_queries=None, seed=0)
    if split == "train":
        texts = [q.text for q in found.fit.items]
        groups = dict(zip(texts, found.fit.groups.tolist(), strict=True))
        assert found.fit.groups.tolist() == [groups[text] for text in texts]
        return
    fit, report = ({q.text for q in part.items} for part in (found.fit, found.report))
    assert not fit & report
    assert found.asked_twice > 0


def test_test_is_reported_before_dev() -> None:
    """`test` is what a set is reported on; without it `dev`; the rest is fitted on."""
    groups = {"train": [*range(40)], "dev": [*range(40, 60)], "test": [*range(60, 75)]}
    labelled = set_of(groups)
    found = plan(labelled, trained_hashes=NONE, max_queries=None, seed=0)
    assert found.report_split == "test"
    assert ids(found.report) == labelled.splits["test"]
    assert ids(found.fit) == labelled.splits["train"] + labelled.splits["dev"]
    del groups["test"]
    found = plan(set_of(groups), trained_hashes=NONE, max_queries=None, seed=0)
    assert found.report_split == "dev"
    assert len(found.report) == 20


def test_a_rephrasing_of_a_reported_question_is_not_fitted_on() -> None:
    """A training query whose group stands in the reported split is dropped."""
    labelled = set_of({"train": [*range(40)], "test": [0, 1, 2, 99]})
    found = plan(labelled, trained_hashes=NONE, max_queries=None, seed=0)
    assert ids(found.fit) == labelled.splits["train"][3:]


def test_a_set_with_one_split_wastes_no_label_on_reporting() -> None:
    """Of a set that has only `train`, all is fitted on, and reported on in folds."""
    labelled = set_of({"train": [k // 2 for k in range(100)]})
    found = plan(labelled, trained_hashes=NONE, max_queries=None, seed=0)
    assert found.cross_fitted
    assert found.report_split == "cross-fitted"
    assert found.report is found.fit
    assert ids(found.fit) == labelled.splits["train"]
    assert found.asked_twice == found.reported_of_fitted_groups == 0


@pytest.mark.parametrize("reported", [{}, {"test": [7, 8]}])
def test_three_groups_are_too_few_to_fit_on(reported: dict[str, list[int]]) -> None:
    """Cross-fitting and the drift alarm need several groups, four at least."""

    def planned(groups: int) -> Plan:
        labelled = set_of({"train": [k % groups for k in range(60)], **reported})
        return plan(labelled, trained_hashes=NONE, max_queries=None, seed=0)

    with pytest.raises(InputError, match="are 3 groups; expected at least 4"):
        planned(3)
    assert len(planned(4).fit) == 60


def test_queries_that_the_reranker_was_trained_on_are_left_out() -> None:
    """They are neither fitted on nor reported on, and they are counted; case does not hide them."""
    labelled = set_of({"train": [*range(50)], "test": [*range(50, 70)]})
    seen = {"train3", "train7", "test2"}
    hashes = frozenset(query_hash(f"  Question {i.upper()} ") for i in seen)
    found = plan(labelled, trained_hashes=hashes, max_queries=None, seed=0)
    assert not seen & {*ids(found.fit), *ids(found.report)}
    assert found.seen_by_reranker == 3
    assert (len(found.fit), len(found.report)) == (48, 19)


def test_queries_that_the_pooled_maps_have_seen_are_left_out_but_not_their_split() -> None:
    """With the others of their group; the rest of the split is still new to the maps."""
    labelled = set_of({"train": [*range(50), 0], "test": [*range(50, 70)]})
    marks = frozenset(query_hash(f"Question train{i}") for i in range(20))
    found = plan(labelled, trained_hashes=NONE, max_queries=None, seed=0, pooled_marks=marks)
    assert ids(found.fit) == labelled.splits["train"][20:50]
    assert (len(found.report), found.seen_by_pooled, found.seen_by_reranker) == (20, 21, 0)
    assert "21 queries that the pooled maps were fitted on" in found.reported
    with pytest.raises(InputError, match="20 because the pooled maps were fitted on them"):
        plan(
            replace(labelled, splits={"train": labelled.splits["train"][:35]}),
            trained_hashes=NONE,
            max_queries=None,
            seed=0,
            pooled_marks=marks,
        )


def test_questions_are_drawn_one_by_one() -> None:
    """Of twenty groups of ten, 50 queries are of nearly all groups, not of five whole ones."""
    labelled = set_of({"train": [k // 10 for k in range(200)]})
    for seed in range(3):
        found = plan(labelled, trained_hashes=NONE, max_queries=50, seed=seed)
        assert len(found.fit) == 50
        assert len(set(found.fit.groups.tolist())) >= 17


def test_the_rest_of_a_split_that_was_trained_on_is_left_out() -> None:
    """Where another split is left to fit on, the trained split's other queries go as well."""
    labelled = set_of({"train": [*range(50)], "dev": [*range(50, 90)], "test": [*range(90, 99)]})
    hashes = frozenset(query_hash(labelled.queries[f"train{i}"].text) for i in range(20))
    found = plan(labelled, trained_hashes=hashes, max_queries=None, seed=0)
    assert ids(found.fit) == labelled.splits["dev"]
    assert found.seen_by_reranker == 50


def test_a_stray_query_that_was_trained_on_does_not_cost_its_split() -> None:
    """One query in fifty that the reranker saw is left out by itself."""
    labelled = set_of({"train": [*range(50)], "test": [*range(90, 99)]})
    hashes = frozenset({query_hash(labelled.queries["train3"].text)})
    found = plan(labelled, trained_hashes=hashes, max_queries=None, seed=0)
    assert ids(found.fit) == tuple(i for i in labelled.splits["train"] if i != "train3")


def test_fitting_beside_the_training_is_told() -> None:
    """Where nothing but the rest of a trained split is left to fit on, the plan says so."""
    labelled = set_of({"train": [*range(80)], "test": [*range(90, 99)]})
    hashes = frozenset(query_hash(labelled.queries[f"train{i}"].text) for i in range(30))
    found = plan(labelled, trained_hashes=hashes, max_queries=None, seed=0)
    assert found.beside_training
    assert len(found.fit) == 50
    assert not plan(labelled, trained_hashes=NONE, max_queries=None, seed=0).beside_training
    stray = frozenset({query_hash(labelled.queries["train3"].text)})
    assert not plan(labelled, trained_hashes=stray, max_queries=None, seed=0).beside_training


def test_documents_that_were_kept_apart_from_the_training_are_no_cause_for_a_warning() -> None:
    """Half of a split was trained on; what is left asks about the same documents, or others."""
    corpus = {f"d{k}": Passage(f"d{k}", f"title {k}", f"words {k}") for k in range(40)}
    queries = {f"q{k}": Query(f"question {k}", f"q{k}") for k in range(160)}
    splits = {"train": tuple(queries)}
    qrels = {i: {f"d{k // 4}": 1.0} for k, i in enumerate(queries)}
    labelled = LabelledSet(corpus, queries, qrels, splits, "titled")
    for trained, beside in ((range(80), False), (range(0, 160, 2), True)):
        hashes = frozenset(query_hash(queries[f"q{k}"].text) for k in trained)
        found = plan(labelled, trained_hashes=hashes, max_queries=None, seed=0)
        assert len(found.fit) == 80
        assert found.grouping.name == "document"
        assert found.beside_training is beside


def test_rephrasings_of_what_was_trained_on_are_left_out() -> None:
    """A query whose group holds a trained query is not fitted or reported on, in any split."""
    labelled = set_of({"train": [*range(50), 3], "test": [3, *range(90, 99)]})
    hashes = frozenset({query_hash(labelled.queries["train3"].text)})
    found = plan(labelled, trained_hashes=hashes, max_queries=None, seed=0)
    groups = {*found.fit.groups.tolist(), *found.report.groups.tolist()}
    assert labelled.group("train3") not in groups
    assert len(groups) == 49 + 9


def test_training_on_a_passage_does_not_tilt_the_labels() -> None:
    """Queries that share their right passage with one trained on stay; only it is left out."""
    queries = {f"{s}{k}": Query(f"{s} {k}", f"{s}{k}") for s in ("dev", "test") for k in range(60)}
    queries |= {f"train{k}": Query(f"train {k}", f"train{k}") for k in range(60)}
    qrels = {i: {f"d{k % 5}": 1.0} for k, i in enumerate(queries) if k % 3}
    splits = {s: tuple(i for i in queries if i.startswith(s)) for s in ("train", "dev", "test")}
    corpus = {f"d{k}": Passage(f"d{k}", "", "text") for k in range(5)}
    labelled = LabelledSet(corpus, queries, qrels, splits, "intents")
    hashes = frozenset(query_hash(queries[i].text) for i in splits["train"])
    found = plan(labelled, trained_hashes=hashes, max_queries=None, seed=0)
    assert (ids(found.fit), ids(found.report)) == (splits["dev"], splits["test"])
    assert not found.beside_training


def test_a_given_group_does_not_hide_the_same_words() -> None:
    """Asked in the same words under two groups, a question is still on one side only."""
    labelled = set_of({"train": [*range(40)], "test": [*range(40, 50)]})
    same = replace(labelled.queries["train5"], text=labelled.queries["test2"].text)
    labelled = replace(labelled, queries={**labelled.queries, "train5": same})
    found = plan(labelled, trained_hashes=NONE, max_queries=None, seed=0)
    assert "train5" not in ids(found.fit)
    assert found.asked_twice == 1


def test_a_report_on_the_rest_of_a_trained_split_is_told() -> None:
    """`dev` is reported on where a part of `test` was trained on; without it the plan warns."""
    groups = {"train": [*range(40)], "dev": [*range(40, 60)], "test": [*range(60, 80)]}
    labelled = set_of(groups)
    hashes = frozenset(query_hash(labelled.queries[f"test{k}"].text) for k in range(10))
    found = plan(labelled, trained_hashes=hashes, max_queries=None, seed=0)
    assert (found.report_split, found.beside_training) == ("dev", False)
    assert ids(found.fit) == labelled.splits["train"]
    del groups["dev"]
    found = plan(set_of(groups), trained_hashes=hashes, max_queries=None, seed=0)
    assert (found.report_split, found.beside_training) == ("test", True)
    assert len(found.report) == 10


def test_a_question_asked_in_the_same_words_is_not_fitted_on() -> None:
    """Without groups the words mark a question: case and spacing aside, it is on one side only."""
    labelled = set_of({"train": [*range(40)], "test": [*range(40, 50)]})
    queries = {i: replace(q, metadata={}) for i, q in labelled.queries.items()}
    queries["train5"] = replace(queries["train5"], text="QUESTION  test2")
    found = plan(replace(labelled, queries=queries), trained_hashes=NONE, max_queries=None, seed=0)
    assert "train5" not in ids(found.fit)
    assert len(found.fit) == 39
    assert found.asked_twice == 1


def test_queries_of_one_group_are_no_basis_for_a_fit() -> None:
    """Cross-fitting needs several groups: one question in forty wordings is refused."""
    with pytest.raises(InputError, match="are 1 group; expected at least 4"):
        plan(
            set_of({"train": [7] * 40, "test": [1]}), trained_hashes=NONE, max_queries=None, seed=0
        )


def test_a_split_that_was_all_trained_on_is_not_reported_on() -> None:
    """Where the whole of `test` was trained on, `dev` is reported on instead."""
    labelled = set_of({"train": [*range(40)], "dev": [*range(40, 50)], "test": [50, 51]})
    hashes = frozenset(query_hash(labelled.queries[i].text) for i in labelled.splits["test"])
    found = plan(labelled, trained_hashes=hashes, max_queries=None, seed=0)
    assert found.report_split == "dev"


def test_where_all_others_were_trained_on_the_reported_split_is_fitted_on() -> None:
    """After a training on the whole of `train`, `test` alone gives fit and report, cross-fitted."""
    labelled = set_of({"train": [*range(40)], "test": [*range(40, 80)]})
    hashes = frozenset(query_hash(labelled.queries[i].text) for i in labelled.splits["train"])
    found = plan(labelled, trained_hashes=hashes, max_queries=None, seed=0)
    assert found.cross_fitted
    assert ids(found.fit) == labelled.splits["test"]
    assert (found.seen_by_reranker, found.asked_twice, found.beside_training) == (40, 0, False)


def test_too_few_queries_are_refused() -> None:
    """Below twenty queries to fit on the refusal counts what there is and why."""
    labelled = set_of({"train": [*range(21)], "test": [40]})
    hashes = frozenset(query_hash(labelled.queries[f"train{k}"].text) for k in range(2))
    plan(labelled, trained_hashes=NONE, max_queries=None, seed=0)
    with pytest.raises(
        InputError, match=r"made: 19 queries to fit on.*\(left out: 2 because a model[^,]*\);"
    ):
        plan(labelled, trained_hashes=hashes, max_queries=None, seed=0)
    few = set_of({"train": [*range(9)]})
    said = "9 queries to fit on and the same ones, cross-fitted, to report on, of 9; expected"
    with pytest.raises(InputError, match=said):
        plan(few, trained_hashes=NONE, max_queries=None, seed=0)


@pytest.mark.parametrize("bound", [-1, 0, CALIBRATED_FROM - 1])
def test_a_bound_below_the_least_is_refused(bound: int) -> None:
    """`max_queries` below what fitting needs is bad input, a negative one above all."""
    labelled = set_of({"train": [*range(60)], "test": [*range(60, 80)]})
    with pytest.raises(InputError):
        plan(labelled, trained_hashes=NONE, max_queries=bound, seed=0)


def test_the_plan_depends_on_the_seed_alone(small: LabelledSet) -> None:
    """The same seed draws the same queries, another seed others."""
    one, again, other = (
        plan(small, trained_hashes=NONE, max_queries=30, seed=seed) for seed in (0, 0, 1)
    )
    for part in ("fit", "report"):
        assert ids(getattr(one, part)) == ids(getattr(again, part))
        assert getattr(one, part).groups.tolist() == getattr(again, part).groups.tolist()
    assert ids(one.fit) != ids(other.fit)
    assert len(one.fit) == len(one.report) == 30


def test_new_ids_change_nothing(small: LabelledSet) -> None:
    """The plan of a set under other query and passage ids is the same plan."""
    one = plan(small, trained_hashes=NONE, max_queries=None, seed=0)
    other = plan(relabelled(small, "x-{}".format), trained_hashes=NONE, max_queries=None, seed=0)
    assert ids(other.fit) == tuple(f"x-{i}" for i in ids(one.fit))
    assert ids(other.report) == tuple(f"x-{i}" for i in ids(one.report))


def test_unanswerable_queries_count(small: LabelledSet) -> None:
    """Queries without a right passage are fitted on and reported on like any other."""
    found = plan(small, trained_hashes=NONE, max_queries=None, seed=0)
    for part in (found.fit, found.report):
        assert 0.15 < sum(not grades for grades in part.grades) / len(part) < 0.25


def test_a_train_only_real_set_is_fitted_on_whole(small: LabelledSet) -> None:
    """The small set as one split: every query is fitted on, and is reported on in a fold."""
    every = tuple(i for ids in small.splits.values() for i in ids)
    labelled = replace(small, splits={"train": every})
    found = plan(labelled, trained_hashes=NONE, max_queries=None, seed=0)
    assert found.cross_fitted
    assert sorted(ids(found.fit)) == sorted(ids(found.report)) == sorted(every)


@pytest.mark.parametrize(
    ("split", "fit", "report", "left"), [("test", 40, 30, 125), (CROSS_FITTED, 40, 40, 155)]
)
def test_unused_labels_are_counted_once(split: str, fit: int, report: int, left: int) -> None:
    """A cross-fitted report is on the queries that are fitted on; no count is below 0."""
    counts = {"fit": fit, "report": report, "report_split": split}
    counts |= {"left_out_seen_by_reranker": 3, "left_out_asked_twice": 2}
    assert count_unused(counts, of=200) == left
    assert count_unused(counts, of=20) == 0
