"""Few labels to a moved model: what is read, what moves, what is written and refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coherence import check_coherent
from command_line import call

from calibration.arrays import log_odds
from calibration.recalibration import WORSE
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import REPORT, open_folder
from rerank.config import Config
from rerank.data.beir import write_corpus
from rerank.data.checks import query_hash
from rerank.data.feedback import (
    LATER,
    MOVED,
    Feedback,
    check_known_passages,
    feedback_from,
    feedback_of,
    group_labels,
    hit_labels,
    read_feedback,
)
from rerank.data.grouping import NEW_DOCUMENTS, THESE_DOCUMENTS, grouped
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import hits
from rerank.errors import FolderError, InputError
from rerank.fitting import recalibrated_modes
from rerank.fitting.certificates import (
    CUT_FROM_SEARCH,
    KNOWN_GROUPS,
    KNOWN_GROUPS_LEFT_OUT,
    NOT_AT_RANDOM,
)
from rerank.inference.score_cache import ScoreCache
from rerank.jobs.calibrate import calibrate
from rerank.jobs.evaluate import evaluate
from rerank.jobs.recalibrate import (
    WEIGHTED,
    WORSE_IN,
    fresh,
    labels_and_pipeline,
    recalibrate,
    subsample,
    usable_labels,
)
from rerank.jobs.track import record_of
from rerank.jobs.update import init
from rerank.report.calibration import BOUNDS
from rerank.storage.files import sha256_file
from rerank.storage.folder import MANIFEST, Workspace
from rerank.types import Query, Ranking

pytestmark = pytest.mark.usefixtures("untracked")
Run = Any  # the session's run, see conftest


def written(folder: Path, lines: Sequence[str]) -> Path:
    path = folder / "labels.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_labels_are_read_in_both_forms(tmp_path: Path, rankings: dict[str, Ranking]) -> None:
    """Right or wrong is taken as said; ids are compared with the top passage."""
    ranking = next(iter(rankings.values()))
    top, other = ranking.doc_ids[:2]
    lines = [
        {"query": "a", "right": True},
        {"query": "A ", "right": False},
        {"query": "b", "relevant": [other, top]},
        {"query": "c", "relevant": [other]},
        {"query": "d", "relevant": []},
    ]
    found = read_feedback(written(tmp_path, [json.dumps(line) for line in lines]))
    assert hit_labels(found, [ranking] * 5).tolist() == [1, 0, 1, 0, 0]
    assert found[0].group == found[1].group != found[2].group


def test_labels_that_label_next_chose_are_chosen() -> None:
    """They were drawn by confidence, so unweighted they are no random sample."""
    row = {"query": "x", "right": True}
    assert not feedback_from(row).chosen
    assert feedback_from({**row, "metadata": {"weight": 2.5}}).chosen


def test_weights_of_labels_are_checked_and_noted(
    small: LabelledSet, opened: CalibratedReranker
) -> None:
    """They are not used, which a note says; one that is no weight is a mistake."""
    labels = feedback_of(small, "test")
    drawn = [replace(f, query=replace(f.query, metadata={"weight": 2.5})) for f in labels]
    assert WEIGHTED.format(count=len(labels)) in usable_labels(opened, drawn, None)[1]
    assert usable_labels(opened, labels, None)[1] == []
    for bad in ("2.5", 0, -1, True, float("nan"), [1]):
        with pytest.raises(InputError, match="'weight' should be a number above 0"):
            feedback_from({"query": "x", "right": True, "metadata": {"weight": bad}})
    first = small.splits["test"][0]
    query = replace(small.queries[first], metadata={"weight": "many"})
    with pytest.raises(InputError, match=f"query '{first}': metadata 'weight'"):
        feedback_of(replace(small, queries={**small.queries, first: query}), "test")


def test_labels_of_a_set_that_have_a_weight_are_chosen(small: LabelledSet) -> None:
    """As those of a file."""
    ids = small.splits["test"]
    weighted = replace(small.queries[ids[0]], metadata={"weight": 2.5})
    drawn = replace(small, queries={**small.queries, ids[0]: weighted})
    assert [f.chosen for f in feedback_of(drawn, "test")] == [True] + [False] * (len(ids) - 1)


def test_a_rephrasing_of_a_known_query_is_not_fresh(
    run: Run, small: LabelledSet, opened: CalibratedReranker
) -> None:
    """Also if only `metadata.group` says so."""
    known, new = run.plan.fit.items[0].text, "a question that nobody has asked before"
    rows = [
        {"query": known, "right": True, "metadata": {"group": "one"}},
        {"query": f"{new} again", "right": True, "metadata": {"group": "one"}},
        {"query": new, "right": True, "metadata": {"group": "two"}},
        {"query": f"{new} too", "right": True},
    ]
    left = fresh(opened, list(map(feedback_from, rows)))
    assert [f.query.text for f in left] == [new, f"{new} too"]


@pytest.mark.parametrize("groups", [1, 3])
def test_labels_of_few_groups_are_refused(
    small: LabelledSet, tmp_path: Path, groups: int, opened: CalibratedReranker
) -> None:
    """A correction is measured on other groups than it is fitted on, and the alarm needs four."""
    lines = [
        json.dumps(
            {
                "query": small.queries[i].text,
                "right": right,
                "metadata": {"group": f"faq {number % groups}"},
            }
        )
        for number, (i, right) in enumerate(
            zip(small.splits["test"][:14], [True, False] * 7, strict=True)
        )
    ]
    labels = read_feedback(written(tmp_path, lines))
    with pytest.raises(InputError, match=f"at least 4 groups.* the 14 labels are of {groups}:"):
        recalibrate(opened, labels, tmp_path / "new", work=tmp_path)


def test_a_mode_of_few_groups_stays_and_says_why(
    run: Run, small: LabelledSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the other mode has enough labels: in the notes and in the report, and shown once."""
    one_group = [
        {"query": f"{f.query.text} please", "right": i % 2 == 0, "metadata": {"group": "one"}}
        for i, f in enumerate(feedback_of(small, "test")[:12])
    ]
    lists = [
        {"query": f.query.text, "right": f.right, "passages": [p.text for p in f.query.passages]}
        for f in lists_with_labels(small, "test")
        if f.query.passages
    ]
    labels = written(tmp_path, [json.dumps(row) for row in [*one_group, *lists]])
    where = ("--labels", labels, "--work", tmp_path / "work", "--out", tmp_path / "new")
    assert call("recalibrate", run.folder, *where) == 0
    why = "the mode `search` is unchanged: expected labels of at least 4 groups"
    told = capsys.readouterr()
    assert (told.out + told.err).count(why) == 1
    assert why in (tmp_path / "new" / REPORT).read_text(encoding="utf-8")
    assert why in (tmp_path / "new" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("[]", "expected a JSON object, got a list"),
        ("{", "not JSON"),
        ('{"query": "x"}', 'expected one of "right": true'),
        ('{"query": "x", "right": true, "relevant": []}', 'expected one of "right": true'),
        ('{"query": "x", "right": "yes"}', "'right' should be true or false"),
        ('{"query": "x", "right": true, "chosen": 1}', "'chosen' should be true or false"),
        ('{"query": "x", "relevant": [1.5]}', "'relevant'"),
        ('{"query": " ", "right": true}', "'query' is empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    """File, line, what came and what was expected."""
    path = written(tmp_path, ['{"query": "good", "right": true}', line])
    with pytest.raises(InputError, match="1 bad line") as refused:
        read_feedback(path)
    assert f"{path}:2: {complaint}" in str(refused.value)


def test_labels_of_a_set_are_its_qrels(
    small: LabelledSet, run: Run, rankings: dict[str, Ranking]
) -> None:
    """A split of a labelled set says of each top passage what its qrels say."""
    given = feedback_of(small, "test")
    assert [f.query for f in given] == list(run.plan.report.items)
    own = [rankings[f.query.query_id] for f in given]
    ranked = replace(run.plan.report, items=own)
    assert hit_labels(given, ranked.items).tolist() == hits(ranked)[:, 0].tolist()
    with pytest.raises(InputError, match="no split 'dev'"):
        feedback_of(small, "dev")


@pytest.fixture(scope="module")
def moved(
    small: LabelledSet, opened: CalibratedReranker, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The session's model, moved by the labels of its reported queries."""
    out = tmp_path_factory.mktemp("moved") / "moved"
    recalibrate(opened, feedback_of(small, "test"), out)
    return out


def test_the_moved_model_loads_and_ranks_as_before(
    run: Run, moved: Path, small: LabelledSet, opened: CalibratedReranker
) -> None:
    """Same passages in the same order; the confidence is the old one, its log odds moved."""
    kept = ScoreCache(Workspace(run.work).scores)
    old, new = opened, CalibratedReranker.load(moved, cache=kept)
    update = new.maps["search"].confidence.update
    assert update is not None
    queries = run.plan.report.items
    for before, after in zip(old.assess(queries), new.assess(queries), strict=True):
        assert before.ranking.doc_ids == after.ranking.doc_ids
        expected = update.predict(log_odds([before.confidence]))[0]
        assert after.confidence == pytest.approx(expected, abs=1e-9)
        check_coherent(after)
    assert {"report.html", "reliability_before.png", "reliability_after.png"} <= set(
        new.manifest["files"]
    )
    assert new.manifest["parent"] == sha256_file(run.folder / MANIFEST)
    labels = feedback_of(small, "test")
    assert new.manifest["recalibrated"]["labels"] == len(labels)
    assert {query_hash(f.query.text) for f in labels} <= new.fitted_on
    assert old.fitted_on < new.fitted_on


def test_calibrate_does_not_take_it_for_its_own(
    run: Run, moved: Path, small: LabelledSet, config: Config
) -> None:
    """The same data and configuration made the parent, not this: it is not handed out for it."""
    with pytest.raises(FolderError, match="exists"):
        calibrate(small, moved, config, work=run.work)


def test_what_cannot_be_used_is_refused(
    small: LabelledSet, moved: Path, opened: CalibratedReranker
) -> None:
    """Too few labels, or a folder that is there, stop it before anything is ranked."""
    labels = feedback_of(small, "test")
    with pytest.raises(FolderError, match="exists"):
        recalibrate(opened, labels, moved)
    few = moved.parent / "few"
    with pytest.raises(InputError, match=r"for which passages were found, got labels of \d"):
        recalibrate(opened, labels[:3], few)
    assert not few.exists()


def test_a_measurably_worse_model_is_advised_against(
    run: Run,
    small: LabelledSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On the command line, in --json, and in the report."""
    fit = recalibrated_modes.fit_recalibration
    monkeypatch.setattr(
        recalibrated_modes,
        "fit_recalibration",
        lambda *a, **more: replace(fit(*a, **more), gain=-0.03, gain_interval=(-0.05, -0.01)),
    )
    rows = [{"query": f"sort array number {i}", "right": i % 2 == 0} for i in range(12)]
    labels = written(tmp_path, [json.dumps(row) for row in rows])
    more = ("--labels", labels, "--work", tmp_path / "work")
    assert call("recalibrate", run.folder, *more, "--out", tmp_path / "moved") == 0
    told = capsys.readouterr()
    assert told.out.startswith(f"Searches:\n{WORSE}")
    assert WORSE_IN.format(mode="search") in told.err
    assert WORSE in (tmp_path / "moved" / "report.html").read_text(encoding="utf-8")
    assert call("recalibrate", run.folder, *more, "--out", tmp_path / "again", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["worse"] == ["search"]
    assert WORSE_IN.format(mode="search") in found["notes"]


@pytest.mark.parametrize("right", [True, False])
def test_labels_of_one_outcome_are_noted(
    small: LabelledSet, tmp_path: Path, right: bool, opened: CalibratedReranker
) -> None:
    """They are used, and say nothing of the other outcome."""
    labels = [
        replace(f, right=right, relevant=frozenset()) for f in feedback_of(small, "test")[:20]
    ]
    made = recalibrate(opened, labels, tmp_path / "new")
    outcome = "right" if right else "wrong"
    assert any(f"all 20 labels of the mode search are {outcome}:" in one for one in made.notes)


def test_labels_of_known_queries_are_left_out(
    run: Run, small: LabelledSet, opened: CalibratedReranker
) -> None:
    """The confidence flatters itself on queries that it was fitted on, and on their groups."""
    assert fresh(opened, feedback_of(small, "train")) == []
    new = feedback_of(small, "test")
    assert fresh(opened, new) == new
    beside = replace(new[0], group=feedback_of(small, "train")[0].group)
    assert fresh(opened, [beside, *feedback_of(small, "train")]) == []
    with pytest.raises(
        InputError, match=r"of 0 in all \(left out: \d+ labels of queries that the model"
    ):
        recalibrate(opened, feedback_of(small, "train"), run.work / "x")


def test_labels_must_name_passages_of_the_index(
    small: LabelledSet, opened: CalibratedReranker
) -> None:
    """An id that is not there is a mistake, not a wrong answer."""
    corpus = opened.pipeline.index.corpus
    known = feedback_of(small, "test")
    check_known_passages(known, corpus)
    lost = replace(known[0], relevant=frozenset({"nowhere"}))
    with pytest.raises(InputError, match=r"1 of the .* such as 'nowhere'"):
        check_known_passages([*known, lost], corpus)


def test_the_maps_of_the_other_mode_follow(moved: Path, opened: CalibratedReranker) -> None:
    """Ids tell of other lists too: its maps move, and promise nothing of what callers bring."""
    old, new = opened, CalibratedReranker.load(moved)
    before, after = old.maps["rerank"], new.maps["rerank"]
    assert after.confidence.update is not None
    assert after.confidence.first == before.confidence.first
    assert (after.certificate.threshold, after.certificate.refused) == (None, CUT_FROM_SEARCH)


def test_right_and_wrong_say_nothing_of_other_lists(
    small: LabelledSet, tmp_path: Path, opened: CalibratedReranker
) -> None:
    """Those on which both modes agree would be a selection: the other mode stays as it was."""
    labels = feedback_of(small, "test")
    said = [replace(f, right=i % 2 == 0, relevant=frozenset()) for i, f in enumerate(labels)]
    made = recalibrate(opened, said, tmp_path / "moved")
    new = CalibratedReranker.load(tmp_path / "moved")
    assert new.maps["rerank"] == opened.maps["rerank"]
    assert new.maps["search"] != opened.maps["search"]
    assert any("callers bring: the mode `rerank` is unchanged" in note for note in made.notes)
    assert new.sketch == opened.sketch


def lists_with_labels(small: LabelledSet, split: str) -> list[Feedback]:
    """Labels of lists that callers brought: two of three top passages are right."""
    provided = tuple(small.corpus.values())[:3]
    return [
        replace(f, query=replace(f.query, passages=provided), right=i % 3 > 0, relevant=frozenset())
        for i, f in enumerate(feedback_of(small, split))
    ]


def test_labels_of_lists_move_and_certify_that_mode_alone(
    small: LabelledSet, tmp_path: Path, opened: CalibratedReranker
) -> None:
    """They are about the lists that callers brought, by the top passage that was shown."""
    model, lists = opened, lists_with_labels(small, "test")
    recalibrate(model, lists, tmp_path / "moved")
    new = CalibratedReranker.load(tmp_path / "moved")
    assert new.maps["search"] == model.maps["search"]
    after = new.maps["rerank"]
    assert after.confidence.update is not None
    assert (after.certificate.queries, after.certificate.refused) == (len(lists), "")
    assert new.manifest["recalibrated"]["mode"] == "rerank"


def test_documents_may_be_those_fitted_on(
    small: LabelledSet, tmp_path: Path, opened: CalibratedReranker
) -> None:
    """So labels grouped by document promise nothing of new documents."""
    labels = [replace(f, query=Query(f.query.text)) for f in feedback_of(small, "test")]
    assert group_labels(labels, small.corpus.values())[1] == NEW_DOCUMENTS
    recalibrate(opened, labels, tmp_path / "moved")
    certificate = CalibratedReranker.load(tmp_path / "moved").maps["search"].certificate
    assert certificate.about == THESE_DOCUMENTS


def test_labels_are_grouped_as_calibrate_groups(small: LabelledSet) -> None:
    """By the largest thing that repeats in them; labels without ids keep groups of their own."""
    labels = feedback_of(small, "test")
    ids = [f.query.query_id for f in labels]
    expected = grouped(small, ids)
    groups, about = group_labels(labels, small.corpus.values())
    assert expected.grouping is not None
    assert about == expected.grouping.about
    pairs = {(g, expected.group(i)) for g, i in zip(groups, ids, strict=True)}
    assert len(pairs) == len(set(groups)) == len({expected.group(i) for i in ids})
    said = [replace(f, query=Query(f.query.text), right=True, relevant=frozenset()) for f in labels]
    assert group_labels(said, small.corpus.values())[0] == [f.group for f in said]


def test_a_list_is_read_with_its_label(tmp_path: Path) -> None:
    """`passages` as in a request; ids that are right must be among them."""
    listed = {"query": "a", "passages": ["one", {"_id": "x", "text": "two"}], "relevant": ["x"]}
    (found,) = read_feedback(written(tmp_path, [json.dumps(listed)]))
    assert found.query.mode == "rerank"
    assert [p.doc_id for p in found.query.passages or ()] == ["0", "x"]
    lists = {"passages": [{"_id": "x", "text": "t", "scores": {"bm25": 1.0}}], "relevant": ["y"]}
    assert feedback_from({"query": "a", **lists}).relevant == {"y"}  # their stages missed it
    with pytest.raises(InputError, match="'relevant' names 'y', which is not in 'passages'"):
        read_feedback(written(tmp_path, [json.dumps({**listed, "relevant": ["y"]})]))


def test_a_limit_draws_labels_from_all_of_them(small: LabelledSet) -> None:
    """In their order, the same each time, and not the first ones."""
    labels = feedback_of(small, "train")
    some = subsample(labels, 10)
    assert len(some) == 10
    assert some == [f for f in labels if f in some] == subsample(labels, 10)
    assert some != labels[:10]
    assert subsample(labels, None) == subsample(labels, len(labels)) == labels


def test_figures_are_tracked_under_the_mode_that_they_are_about(
    small: LabelledSet, tmp_path: Path, moved: Path, opened: CalibratedReranker
) -> None:
    """Of lists alone, nothing is measured of searches; of both, each has its own."""
    labels = lists_with_labels(small, "test")
    recalibrate(opened, labels, tmp_path / "lists")
    of_lists = open_folder(tmp_path / "lists")
    metrics = record_of(of_lists).metrics
    assert "brier" not in metrics
    assert metrics["rerank_hit_at_1"] == pytest.approx(np.mean([f.right for f in labels]))
    report = (tmp_path / "lists" / REPORT).read_text(encoding="utf-8")
    assert report.startswith("Passages that callers bring:\n")
    of_both = record_of(open_folder(moved)).metrics
    assert {"brier", "rerank_brier"} <= of_both.keys()
    report = (moved / REPORT).read_text(encoding="utf-8")
    assert report.index("Searches:\n") < report.index("Passages that callers bring:\n")
    assert report.count(BOUNDS) == 1
    assert BOUNDS in (moved / "report.html").read_text(encoding="utf-8")


def test_lists_alone_can_be_recalibrated_again(small: LabelledSet, tmp_path: Path) -> None:
    """Searches of a model without labels stay uncalibrated, and have no sketch."""
    labels = lists_with_labels(small, "train") + lists_with_labels(small, "test")
    write_corpus(tuple(small.corpus.values())[:6], tmp_path)
    model = init(tmp_path, tmp_path / "model", work=tmp_path / "work")
    for name in ("first", "second"):
        half = labels[::2] if name == "first" else labels[1::2]
        recalibrate(CalibratedReranker.load(model), half, tmp_path / name)
        model = tmp_path / name
    new = CalibratedReranker.load(model)
    assert (new.maps["search"].calibrated, new.maps["rerank"].calibrated) == (False, True)
    with pytest.raises(InputError, match="is not calibrated"):
        new.sketch  # noqa: B018


def test_a_model_without_a_folder_is_refused(tmp_path: Path, small_folder: Path) -> None:
    """It cannot be the parent of another."""
    with pytest.raises(InputError, match="default is not a model folder"):
        recalibrate(CalibratedReranker.load("default"), small_folder, tmp_path / "new")


def test_labels_of_a_passage_that_is_no_longer_first_are_left_out(
    small: LabelledSet, tmp_path: Path, opened: CalibratedReranker
) -> None:
    """A label of a file names the passage that was judged; what is left is no random sample."""
    queries = [small.queries[i].text for i in small.splits["test"]]
    tops = [answer.top.doc_id if answer.top else "" for answer in opened.assess(queries)]
    moved = {0, 1}
    rows = [
        {"query": q, "right": i % 3 > 0, "top": {"doc_id": "another" if i in moved else top}}
        for i, (q, top) in enumerate(zip(queries, tops, strict=True))
    ]
    labels = written(tmp_path, [json.dumps(row) for row in rows])
    made = recalibrate(opened, labels, tmp_path / "new", work=tmp_path)
    assert f"left out: 2 labels, because {MOVED}." in made.notes
    new = CalibratedReranker.load(made.folder)
    assert new.manifest["recalibrated"]["labels"] == len(rows) - 2
    assert new.maps["search"].certificate.refused == NOT_AT_RANDOM


def test_a_question_counts_once_by_its_last_label(opened: CalibratedReranker) -> None:
    """Copies are no independent labels; other passages with it make another question."""
    top = opened.assess(["sort array number 0"])[0].top
    assert top is not None
    first = {"query": "sort array number 0", "top": {"doc_id": top.doc_id}}
    listed = {"query": "sort array number 0", "right": True, "passages": ["one", "two"]}
    rows = [
        *[{"query": "sort array number 1", "right": True}] * 31,
        {**first, "right": True},
        listed,
        {**listed, "passages": ["two", "one"], "right": False},
        {**listed, "passages": ["one", "three"]},
        {"query": "Sort  array number 0", "right": False},
        {**first, "top": {"doc_id": "another"}, "right": True},  # does not apply
    ]
    labels, notes = usable_labels(opened, list(map(feedback_from, rows)), None)
    found = [(f.query.text, f.query.mode, f.right) for f in labels]
    assert found == [
        ("sort array number 1", "search", True),
        ("sort array number 0", "rerank", False),
        ("sort array number 0", "rerank", True),
        ("Sort  array number 0", "search", False),
    ]
    assert notes == [
        f"left out: 1 labels, because {MOVED}.",
        f"left out: 32 labels, because {LATER}.",
    ]


def test_labels_of_groups_that_were_fitted_on_certify_nothing(
    run: Run, small: LabelledSet, config: Config, tmp_path: Path
) -> None:
    """The question is new, its `metadata.group` is not: the certificate rests on the others.

    The groups of a recalibration count for the next one.
    """
    labelled = replace(
        small,
        queries={i: replace(q, metadata={"group": f"of {i}"}) for i, q in small.queries.items()},
    )
    made = calibrate(labelled, tmp_path / "grouped", config, work=run.work)
    fitted = [f"of {q.query_id}" for q in run.plan.fit.items]
    texts = [small.queries[i].text for i in small.splits["test"]]
    n = len(texts)

    def moved(start: Path, known: int, words: str, other: str = "new {}") -> tuple[list[str], Any]:
        """The notes and the certificate, with `known` labels of groups that were fitted on."""
        groups = fitted[:known] + [other.format(i) for i in range(known, n)]
        rows = [
            {"query": f"{text}{words}", "right": i % 3 > 0, "metadata": {"group": group}}
            for i, (text, group) in enumerate(zip(texts, groups, strict=True))
        ]
        labels, out = written(tmp_path, [json.dumps(row) for row in rows]), tmp_path / "new"
        if start == out:
            out = tmp_path / "again"
        model = CalibratedReranker.load(start, cache=ScoreCache(Workspace(tmp_path).scores))
        new = recalibrate(model, labels, out, work=tmp_path, overwrite=True)
        return list(new.notes), CalibratedReranker.load(out).maps["search"].certificate

    notes, certificate = moved(made.folder, n - 9, "")
    assert certificate.refused == KNOWN_GROUPS.format(count=n - 9, n=n, least=10)
    notes, certificate = moved(made.folder, 1, "")
    assert KNOWN_GROUPS_LEFT_OUT.format(count=1, n=n, mode="search") in notes
    assert (certificate.refused, certificate.queries) == ("", n - 1)
    notes, certificate = moved(made.folder, 1, "", other="")  # of no group: perhaps of a known one
    assert certificate.refused == KNOWN_GROUPS.format(count=n, n=n, least=10)
    moved(made.folder, 1, "")
    notes, certificate = moved(tmp_path / "new", 0, " again")
    assert certificate.refused == KNOWN_GROUPS.format(count=n - 1, n=n, least=10)


def test_labels_are_grouped_by_what_the_model_was_calibrated_with(
    run: Run, small: LabelledSet, config: Config, tmp_path: Path
) -> None:
    """`calibrate --group-by` is recorded, and labels that have this metadata are grouped by it."""
    queries = {i: replace(q, metadata={"faq": f"of {i}"}) for i, q in small.queries.items()}
    labelled = replace(small, queries=queries)
    made = calibrate(labelled.grouped_by("faq"), tmp_path / "by_faq", config, work=run.work)
    model = CalibratedReranker.load(made.folder)
    rows = [
        {"query": queries[i].text, "right": True, "metadata": {"faq": n // 2}}
        for n, i in enumerate(small.splits["test"])
    ]
    labels = written(tmp_path, [json.dumps(row) for row in rows])
    for given in (labels, read_feedback(labels), labelled):
        found, _, corpus = labels_and_pipeline(model, given, "test", Workspace(run.work))
        assert all(f.query.metadata["group"] == f.query.metadata["faq"] for f in found)
        assert not corpus or corpus["dataset"]["group_by"] == "faq"
    _, _, corpus = labels_and_pipeline(model, small, "test", Workspace(run.work))
    assert corpus["dataset"]["group_by"] == "faq"  # for the next labels: these have no such key

    fitted = {q.query_id: q for q in run.plan.fit.items}
    about_fitted = zip(small.splits["test"], fitted, strict=False)
    asked = {i: replace(queries[i], metadata={"faq": f"of {known}"}) for i, known in about_fitted}
    again = replace(labelled, queries={**queries, **asked})
    notes = evaluate(model, again, work=run.work).notes
    assert any(f"was fitted on {len(asked)} of these" in note for note in notes)
