"""Labelling at the terminal, by scripted keys: made, killed and resumed, undone, by two people."""

from __future__ import annotations

import gc
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import call, refused
from processes import run_python

from rerank.assessment.model import CalibratedReranker
from rerank.data.beir import read_corpus, read_queries
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.labelling import session as session_module
from rerank.labelling.commands import _read_questions, _without_escapes
from rerank.labelling.judgements import LabelConfig, gone, questions_of
from rerank.labelling.session import JUDGEMENTS, Pool, Session, pool

Run = Any  # the session's run, see conftest
Label = Callable[..., str]


@pytest.fixture
def label(
    run: Run,
    questions: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Label:
    """Run the command with keys as its input, and return what it prints."""

    def labelling(keys: Sequence[str], *more: object, given: bool = True) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{key}\n" for key in keys)))
        asked = ["--questions", questions] if given else []
        arguments = ["label", run.folder, "--out", tmp_path / "set", "--depth", 2, *asked, *more]
        assert call(*arguments) == 0
        return capsys.readouterr().out

    return labelling


def events(tmp_path: Path) -> list[dict[str, Any]]:
    """The lines of the file of judgements."""
    return [json.loads(line) for line in (tmp_path / "set" / JUDGEMENTS).read_text().splitlines()]


def test_ten_labels_killed_and_resumed(label: Label, tmp_path: Path, small: LabelledSet) -> None:
    """Ten questions in two sittings, a line torn by a kill between them; the set can be read."""
    first = label(["r", "n", "p", "n", "n", "r", "n"], "--count", 12)
    assert "4 questions labelled; run the same command again to continue" in first
    with (tmp_path / "set" / JUDGEMENTS).open("a") as file:
        file.write('{"do": "judge", "by": "me", "que')
    second = label(["n"] * 6 + ["q"], "--count", 12)
    assert "10 labelled: the top passage is right for" in second
    assert "95% interval" in second
    labelled = LabelledSet.read(tmp_path / "set")
    assert labelled.corpus == small.corpus
    ids = labelled.split("test")
    assert len(ids) == 10
    assert set(ids) <= set(small.splits["test"])
    grades = [set(labelled.qrels.get(i, {}).values()) for i in ids]
    assert grades == [{2.0}, set(), set(), {2.0}, *[set()] * 6]
    assert [len(labelled.queries[i].metadata.get("partly", ())) > 0 for i in ids[:3]] == [
        False,
        True,
        False,
    ]
    for i in ids:
        known = {*labelled.qrels.get(i, ()), *labelled.queries[i].metadata.get("partly", ())}
        wrong = set(labelled.queries[i].metadata["judged_wrong"])
        assert wrong
        assert not wrong & known
    again = label([], "--count", 12, "--partly-right")
    assert "10 questions labelled" in again
    assert 1.0 in LabelledSet.read(tmp_path / "set").qrels[ids[1]].values()


def test_questions_of_a_second_file_get_labels_that_can_be_used(
    label: Label, questions: Path, tmp_path: Path
) -> None:
    """The first file was finished before; each draw says how large its pool was, and whose."""
    lines = questions.read_text().splitlines(keepends=True)
    for part, count in ((lines[:2], 2), (lines[2:6], 4)):
        questions.write_text("".join(part))
        label(["n"] * 20, "--count", count, "--draw", "even")
    labelled = LabelledSet.read(tmp_path / "set")
    found = sorted(q.metadata["weight"] for q in labelled.queries.values())
    assert found == [1.0, 1.0, 2.0, 2.0]
    questions.write_text("".join(lines[:7]))
    label(["n"] * 20, "--count", 5, "--draw", "even")
    drawn = [event for event in events(tmp_path) if event["do"] == "draw"]
    assert [event["pool"] for event in drawn] == [2, 2, 4, 4, 3]
    assert [event["continues"] for event in drawn] == [[], [], [], [], [0, 1]]


@pytest.mark.parametrize(("first", "evenly"), [("even", True), ("accuracy", False)])
def test_more_questions_of_an_even_set_are_drawn_evenly(
    first: str, evenly: bool, label: Label, tmp_path: Path
) -> None:
    """Also if the model is calibrated: else no label of the set, old or new, certifies anything."""
    label([], "--count", 6, "--draw", first)
    label([], "--count", 12)
    drawn = [event for event in events(tmp_path) if event["do"] == "draw"]
    assert {event["draw"] for event in drawn} == {0, 1}
    assert (len({event["weight"] for event in drawn if event["draw"] == 1}) == 1) is evenly


def test_the_page_has_the_only_model_in_memory(
    label: Label, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server loads its own; the sentences at the end are those of a session in a terminal."""

    def models() -> int:
        gc.collect()
        return sum(type(thing) is CalibratedReranker for thing in gc.get_objects())

    before, found = models(), list[int]()
    label(["n", "q"], "--count", 2)
    monkeypatch.setattr("rerank.labelling.commands._serve", lambda *_: found.append(models()))
    assert "1 question labelled" in label([], "--count", 2, "--page")
    assert found == [before]


def test_ctrl_c_ends_the_page_and_the_report_follows(
    label: Label, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is how people are told to end, so it is no error."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    label(["n", "q"], "--count", 2)
    monkeypatch.setattr("rerank.labelling.commands._serve", interrupted)
    assert "1 question labelled" in label([], "--count", 2, "--page")


def test_the_end_says_how_to_go_on(label: Label, questions: Path) -> None:
    """A higher count draws more, unless the file has no more questions: then others are needed."""
    questions.write_text("".join(questions.read_text().splitlines(keepends=True)[:4]))
    said = label(["n"] * 20, "--count", 2)
    assert "No question is left; a higher --count asks for more, if there are more." in said
    assert "2 questions labelled; a higher --count asks for more, if there are more\n" in said
    said = label(["n"] * 20, "--count", 50)
    assert "No question is left; no more can be drawn: give others with" in said
    assert "--count asks for more" not in said
    assert "run the same command again" not in said


def test_no_key_is_lost_that_is_typed_before_its_prompt() -> None:
    """In a terminal a fast hand is ahead of the program."""
    code = """
import os, pty, signal, sys
signal.alarm(60)  # rather than to wait for ever
from rerank.labelling.commands import KeyReader
terminal, keyboard = pty.openpty()
sys.stdin = os.fdopen(keyboard)
os.write(terminal, b"rpwnq")
keys = KeyReader()
typed = [keys.one("", "rpwnq") for _ in range(5)]
print("typed", *typed)
"""
    assert run_python(code).splitlines()[-1] == "typed r p w n q"


class Interrupted(io.StringIO):
    """Keys, and then Ctrl-C."""

    def readline(self, size: int | None = -1, /) -> str:
        """The next line."""
        line = super().readline(-1 if size is None else size)
        if not line:
            raise KeyboardInterrupt
        return line


def test_ctrl_c_loses_nothing(
    run: Run,
    questions: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 130; the set holds what was finished, the file what was begun too."""
    monkeypatch.setattr("sys.stdin", Interrupted("n\nr\n"))
    out = tmp_path / "set"
    asked = ("--questions", questions, "--count", 3, "--draw", "even")
    assert call("label", run.folder, "--out", out, *asked) == 130
    assert "run the same command again to resume" in capsys.readouterr().err
    labelled = LabelledSet.read(out)
    assert len(labelled.split("test")) == 1
    assert all("weight" not in q.metadata for q in labelled.queries.values())
    begun = questions_of(events(tmp_path))[1]
    assert "right" in begun.person("me").grades.values()


def test_undo_takes_back_one_key_after_the_other(label: Label, tmp_path: Path) -> None:
    """A judgement, a question that was finished, and one that was skipped."""
    label(["n", "s", "r", "u", "u", "u", "u"], "--count", 3)
    standing = questions_of(events(tmp_path))
    assert not any(p.grades or p.skipped for q in standing for p in q.people.values())
    assert not (tmp_path / "set" / "queries.jsonl").exists()
    label(["n", "u", "r", "n"], "--count", 3)
    (done, *rest) = questions_of(events(tmp_path))
    assert done.done
    assert sorted({low for low, *_ in done.judged.values()}) == ["right", "wrong"]
    assert not any(question.done for question in rest)


def test_one_key_says_that_one_passage_is_right_and_no_other(label: Label, tmp_path: Path) -> None:
    """It ends the question."""
    label(["w", "o"], "--count", 2)
    (done, other) = questions_of(events(tmp_path))
    assert (done.done, other.done) == (True, False)
    grades = [low for low, *_ in done.judged.values()]
    assert grades.count("right") == 1
    assert set(grades[:1] + grades[2:]) == {"wrong"}


def test_the_beginning_says_what_it_takes(run: Run, tmp_path: Path, questions: Path) -> None:
    """Judgements; and minutes, once the pace of this person is known, without the breaks."""
    model = CalibratedReranker.load(run.folder)
    session = Session(model, tmp_path / "set", LabelConfig(count=12, depth=2))
    session.prepare(read_queries(questions))
    assert "minute" not in session.outlook()
    times = iter([*range(0, 120, 10), 5000])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_module, "time", SimpleNamespace(time=lambda: next(times)))
        for _ in range(11):
            task = session.task()
            assert task
            session.act(task, "nothing")
    shown = len(session.task().pool.shown)  # type: ignore[union-attr]
    minutes = max(1, round(shown * 10 / 60))
    assert f"1 question left, about {shown} passages" in session.outlook()
    assert f": {minutes} minute" in session.outlook()
    assert "your 10 s each" in session.outlook()


def test_two_people_share_every_fifth_question(label: Label, tmp_path: Path) -> None:
    """The second is asked the shared ones and what the first left; a dispute counts as wrong."""
    label(["r", "n", *["n"] * 6], "--count", 8, "--annotator", "ada")
    said = label(["n", "n", "n", "n"], "--count", 8, "--annotator", "ben")
    found = questions_of(events(tmp_path))
    by = [sorted(name for name, p in q.people.items() if p.done) for q in found]
    assert by == [["ada", "ben"], *[["ada"]] * 4, ["ada", "ben"], ["ada"], ["ben"]]
    assert "ada and ben agree on" in said
    assert "kappa" in said
    labelled = LabelledSet.read(tmp_path / "set")
    first = labelled.split("test")[0]
    assert first not in labelled.qrels
    assert len(labelled.queries[first].metadata["disputed"]) >= 1


def test_proposed_questions_are_accepted_or_reworded(label: Label, tmp_path: Path) -> None:
    """Without a file: as proposed, in other words, and skipped; the set has what was accepted."""
    label(["a", "n", "e", "how do I sort?", "r", "n", "s"], "--count", 3, given=False)
    labelled = LabelledSet.read(tmp_path / "set")
    one, other = (labelled.queries[i] for i in labelled.split("test"))
    assert one.text.startswith("What does the documentation say about ") or one.text.endswith("?")
    assert other.text == "how do I sort?"
    assert all(q.metadata["proposed"] for q in (one, other))
    assert "weight" not in one.metadata


def test_a_question_for_which_nothing_is_found_gets_no_label(
    label: Label, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has seen a passage of it, so nobody can say that none answers."""
    monkeypatch.setattr("rerank.labelling.session.pool", lambda *_: Pool((), 0.1, None))
    label([], "--count", 2)
    assert not any(q.done for q in questions_of(events(tmp_path)))
    assert not (tmp_path / "set" / "queries.jsonl").exists()


def test_what_every_stage_finds_is_shown_once_in_an_order_of_its_own(
    run: Run, small: LabelledSet
) -> None:
    """The top of BM25, the bi-encoder, the fusion and the relevance; the order is by none."""
    model = CalibratedReranker.load(run.folder)
    orders = []
    for query_id in small.splits["test"][:5]:
        text = small.queries[query_id].text
        shown = pool(model, text, 3)
        ids = [doc_id for one in shown.shown for doc_id in one.doc_ids]
        assert len(ids) == len(set(ids))
        answer = model.search(text)
        ranking, stage = answer.ranking, answer.ranking.first_stage
        best = {*ranking.doc_ids[:3]}
        for place in (stage.bm25_rank, stage.dense_rank):
            best |= {d for d, r in zip(ranking.doc_ids, place, strict=True) if r <= 3}
        assert best <= set(ids)
        assert shown.top == ranking.doc_ids[0]
        orders.append(ids[0] == ranking.doc_ids[0])
    assert not all(orders)


def test_bad_input_is_one_sentence(
    run: Run, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A set that was made otherwise, other passages, an empty name, a file that is not there."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "corpus.jsonl").write_text('{"_id": "1", "text": "another"}\n')
    start = ("label", run.folder, "--questions", questions, "--out")
    assert "other passages" in refused(capsys, *start, other)
    (other / "queries.jsonl").write_text("")
    assert "was not made by `rerank label`" in refused(capsys, *start, other)
    assert "annotator" in refused(capsys, *start, tmp_path / "new", "--annotator", " ")
    nowhere = ("label", run.folder, "--out", tmp_path / "new", "--questions", tmp_path / "no.txt")
    assert "no such file" in refused(capsys, *nowhere)
    ours = ("label", "default", "--out", tmp_path / "new")
    assert "no index to search" in refused(capsys, *ours)
    assert "--count" in refused(capsys, *start, tmp_path / "new", "--count", "0")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["asked.txt", "asked.TXT", "asked", "asked.md", "asked.txt.gz"])
def test_questions_are_text_unless_the_name_says_json(name: str, tmp_path: Path) -> None:
    """In capitals, without an ending, packed: one question per line."""
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "wt", encoding="utf-8") as file:
        file.write("how do I sort\n\nwhat is a mask\n")
    found = _read_questions(tmp_path / name)
    assert [query.text for query in found] == ["how do I sort", "what is a mask"]


@pytest.mark.parametrize("name", ["asked.jsonl", "asked.JSONL", "asked.json", "asked.ndjson.gz"])
def test_json_lines_are_known_by_the_name(name: str, tmp_path: Path) -> None:
    """Under another name they are refused: they would be asked as they are."""
    row = json.dumps({"_id": "q1", "text": "how do I sort"}) + "\n"
    opened = gzip.open if name.endswith(".gz") else open
    for path in (tmp_path / name, tmp_path / "asked"):
        with (opened if path.name == name else open)(path, "wt", encoding="utf-8") as file:
            file.write(row)
    assert [query.query_id for query in _read_questions(tmp_path / name)] == ["q1"]
    with pytest.raises(InputError, match=r"expected a question, got JSON; .*\.jsonl"):
        _read_questions(tmp_path / "asked")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("\x1b[Ar", "r"),  # an arrow
        ("\x1bORw", "w"),  # F3
        ("\x1b[15~p", "p"),
        ("\x1b[[Ap", "p"),
        ("\x1br", "r"),
        ("\x1b[A", ""),
    ],
)
def test_arrows_and_function_keys_judge_nothing(typed: str, expected: str) -> None:
    """They send an escape and letters, which are no keys of ours."""
    assert _without_escapes(io.StringIO(typed)) == expected


def test_a_right_passage_that_changed_is_asked_about_again(
    label: Label, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id is gone with its text; until it is judged again the question has no label."""
    label(["r", "n", "n", "q"], "--count", 3)
    whole = LabelledSet.read(tmp_path / "set")
    (labelled,) = whole.qrels
    (right,) = whole.qrels[labelled]
    monkeypatch.setattr(
        "rerank.labelling.session.gone", lambda known, corpus: gone(known, corpus - {right})
    )
    label(["q"], "--count", 3)
    assert LabelledSet.read(tmp_path / "set").queries.keys() == whole.queries.keys() - {labelled}
    assert events(tmp_path)[-1] == {"do": "gone", "query_id": labelled, "doc_ids": [right]}


def test_a_split_of_others_in_the_folder_is_refused(
    label: Label, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as one that somebody made of earlier labels: its queries would be lost."""
    label(["n", "n", "q"], "--count", 2)
    other = tmp_path / "set" / "splits" / "train.txt"
    other.write_text("")
    said = refused(capsys, "label", run.folder, "--out", tmp_path / "set")
    assert "train.txt exists and was not made by `rerank label`" in said
    assert other.exists()


def test_a_corpus_is_compared_once_for_all_annotators(
    run: Run, label: Label, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The set's file is read again only when it has changed, and then it counts."""
    label(["n", "q"], "--count", 3)
    read = list[Path]()

    def counted(path: Path) -> Any:
        read.append(path)
        return read_corpus(path)

    monkeypatch.setattr("rerank.labelling.session.read_corpus", counted)
    model, out = CalibratedReranker.load(run.folder), tmp_path / "set"
    for annotator in ("ann", "ben"):
        Session(model, out, annotator=annotator)
    assert len(read) == 1
    with (out / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "new", "title": "", "text": "another passage"}\n')
    with pytest.raises(InputError, match="holds other passages than the model searches"):
        Session(model, out, annotator="cat")
