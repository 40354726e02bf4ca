"""A labelling session of one person, whose state is in the file of judgements."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np

from rerank.assessment.model import CalibratedReranker
from rerank.commands.printing import counted
from rerank.data.beir import CORPUS, read_corpus, write_corpus, write_labels
from rerank.data.checks import as_text, query_hash
from rerank.data.labelled_set import corpus_digest
from rerank.data.labels import JUDGED
from rerank.data.records import LONGEST_QUERY, read_id
from rerank.errors import InputError, command_line
from rerank.labelling import labels
from rerank.labelling.judgements import (
    PROPOSED,
    Grade,
    JudgementFile,
    LabelConfig,
    OnTask,
    Question,
    drawn_evenly,
    gone,
    next_question,
    questions_of,
    to_undo,
    without_undone,
)
from rerank.labelling.labels import PREFIX, SPLIT, How, Verdicts
from rerank.retrieval.corpus import Corpus
from rerank.storage.files import file_state
from rerank.types import Passage, Query

JUDGEMENTS = "judgements.jsonl"
LONGEST_PAUSE = 300  # seconds between two judgements: a longer one is a break
FEWEST_PACES = 10  # judgements from which there is a pace


@dataclass(frozen=True, slots=True)
class PooledPassage:
    """A passage to judge; `doc_ids`: its own, and those of passages with the same text."""

    passage: Passage
    doc_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pool:
    """The passages shown for a question, and the model's own answer."""

    shown: tuple[PooledPassage, ...]
    confidence: float
    top: str | None  # id of the passage that the confidence is about; it is in `shown`


def pool(model: CalibratedReranker, text: str, depth: int) -> Pool:
    """The `depth` best of each first stage, fused and by relevance, each passage once.

    The passages are ordered by a hash of question and passage: the order is always the same, and
    unrelated to the stages that found them.
    """
    answer = model.search(text)
    passages = answer.ranking.passages
    fused = np.argsort(-answer.ranking.first_stage.fused, kind="stable")
    best = [*passages[:depth], *(passages[i] for i in fused[:depth])]
    by_text: dict[str, dict[str, Passage]] = {}
    for passage in (*best, *model.pipeline.best_of_stages(text, depth)):
        same = by_text.setdefault(" ".join(passage.full_text.split()), {})
        same.setdefault(passage.doc_id, passage)
    order = sorted(by_text, key=lambda t: hashlib.sha256(f"{text}\n{t}".encode()).hexdigest())
    shown = (PooledPassage(next(iter(by_text[t].values())), tuple(by_text[t])) for t in order)
    return Pool(tuple(shown), answer.confidence, answer.top.doc_id if answer.top else None)


@dataclass(frozen=True, slots=True)
class LabelTask:
    """What a person is asked now: to accept a proposed question, or to judge a passage."""

    question: Question
    pool: Pool
    left: tuple[PooledPassage, ...]  # not judged yet by this person; the first one is asked about
    judge: str = ""  # whose verdict on it is shown; "": none
    verdict: Grade = "wrong"

    @property
    def place(self) -> int:
        """Which passage it is, from 1."""
        return len(self.pool.shown) - len(self.left) + 1

    @property
    def name(self) -> tuple[str, str]:
        """The ids of the question and the passage; the second is "" for a proposed question."""
        doc_id = "" if self.question.proposed else self.left[0].doc_ids[0]
        return self.question.query_id, doc_id


@dataclass(eq=False)
class Session:
    """Labels by `annotator`, kept in the folder `out`, which becomes a labelled set.

    If another system finds the model's passages, the set has no `corpus.jsonl`, and questions must
    be given.
    """

    model: CalibratedReranker
    out: Path
    config: LabelConfig = field(default_factory=LabelConfig)
    annotator: str = "me"

    def __post_init__(self) -> None:
        if not self.model.source.searches:
            raise InputError(
                f"{self.model.folder} has no index to search; label with a model of `rerank model "
                "init` or of `rerank calibrate CORPUS`"
            )
        read_id({"the name of the annotator": self.annotator}, "the name of the annotator")
        self.corpus = self.model.source.corpus
        self.file = JudgementFile(self.out / JUDGEMENTS)
        self._pools: dict[str, Pool] = {}
        self._nothing_found = set[str]()  # ids of questions that bring back no passage
        self._refuse_other_contents()
        self.out.mkdir(parents=True, exist_ok=True)

    def prepare(self, queries: Sequence[Query] | None, verdicts: Verdicts | None = None) -> int:
        """Draw questions until there are `count`; return how many are drawn now.

        The source is `queries`, or proposals from the corpus if that is None. Duplicates, questions
        that the model was fitted on, and those drawn already are left out. `verdicts` are those of
        `rerank.labelling.labels.sample`.
        """
        with self.file.locked() as append:
            known = self.questions()
            if self.corpus is not None and any(question.answers() for question in known):
                append(gone(known, set(self._rows)))
            count = self.config.count - len(known)
            if count <= 0:
                return 0
            if verdicts and known:
                raise InputError(
                    f"{self.out} has questions already, and those drawn by a judge are of one "
                    "draw; give another --out, and a --count for all of them"
                )
            if queries is None:
                if self.corpus is None:
                    raise InputError(
                        f"{self.model.folder} searches another system, and questions are proposed "
                        "from a corpus of ours only; give questions with --questions FILE"
                    )
                if verdicts:
                    raise InputError("a judge is asked about given questions: add --questions FILE")
                queries = labels.propose(self.corpus, 2 * self.config.count)
            if any(query.where for query in queries):
                raise InputError(
                    "a question has a filter, and passages to judge are found without; label such "
                    "questions with `rerank label --next`"
                )
            taken = {query_hash(q.text) for q in known}
            taken |= {q.query_id.removeprefix(PREFIX) for q in known}  # proposed, then reworded
            fresh: dict[str, Query] = {}
            for query in labels.fresh_queries(self.model, queries, taken):
                fresh.setdefault(query_hash(query.text), query)
            if not fresh and not known:
                raise InputError(
                    "there is no question to label that the model was not fitted on; give others "
                    "with --questions FILE"
                )
            hashes = {query_hash(query.text) for query in queries}
            others = {q.draw for q in known if query_hash(q.text) not in hashes}
            continues = sorted({q.draw for q in known} - others)  # draws from the same file
            drawn = self._draw([*fresh.values()], known, count, verdicts) if fresh else []
            append([{**event, "continues": continues} for event in drawn])
            return len(drawn)

    def _draw(
        self,
        queries: Sequence[Query],
        known: Sequence[Question],
        count: int,
        verdicts: Verdicts | None,
    ) -> list[dict[str, Any]]:
        """The events of a draw, in random order, so that it can be stopped at any time."""
        number = 1 + max((question.draw for question in known), default=-1)
        seed, asked = self.config.seed + number, self.config.draw
        proposed = any(query.metadata.get(PROPOSED) for query in queries)
        even = not self.model.calibrated or proposed or (known and drawn_evenly(known))
        if asked == "auto":  # it stays even, so that all of them can certify
            asked = "even" if even and not verdicts else "accuracy"
        named, used = list[Query](), {question.query_id for question in known}
        for query in queries:
            new = bool(query.query_id) and query.query_id not in used
            named.append(query if new else replace(query, query_id=f"q-{query_hash(query.text)}"))
            used.add(named[-1].query_id)
        many = min(count, len(named))
        how = cast(How, asked)
        sampled = labels.sample(self.model, named, many, how=how, seed=seed, verdicts=verdicts)
        order = np.random.default_rng([seed, 1]).permutation(len(sampled)).tolist()
        return [
            {
                "do": "draw",
                "draw": number,
                "query_id": query.query_id,
                "text": query.text,
                "metadata": dict(query.metadata),
                "weight": weight,
                "drawn_by": self.model.version,
                "pool": len(queries),
                "proposed": bool(query.metadata.get(PROPOSED)),
                "confidence": answer.confidence,
                "top": answer.top.doc_id if answer.top else None,
            }
            for query, answer, weight in (sampled[i] for i in order)
        ]

    def questions(self) -> list[Question]:
        """All questions drawn, with everybody's judgements."""
        return questions_of(self.file.read())

    def task(self) -> LabelTask | None:
        """What this person is asked now; None if nothing is left."""
        while (question := self.next_question()) is not None:
            text, judged = question.text, question.person(self.annotator).grades
            if text not in self._pools:
                self._pools[text] = pool(self.model, text, self.config.depth)
            left = tuple(s for s in self._pools[text].shown if s.doc_ids[0] not in judged)
            task = LabelTask(question, self._pools[text], left, *self._verdict(question, left))
            if left or question.proposed:
                return task
            if judged:
                self.act(task, "nothing")  # an update of the model removed the rest
            else:  # no passage was shown, so nobody can say that none is right
                self._nothing_found.add(question.query_id)
        return None

    def next_question(self) -> Question | None:
        """The question that this person is asked now; None if all that are drawn were asked."""
        questions, shared = self.questions(), self.config.shared
        return next_question(questions, self.annotator, shared, without=self._nothing_found)

    def act(self, task: LabelTask, do: OnTask, text: str | None = None) -> None:
        """Do what a person says of what is asked; `text` rewords a proposed question."""
        if do == "accept":
            text = task.question.text if text is None else " ".join(text.split())
            as_text("the question", text, max_length=LONGEST_QUERY)
            self._pools[text] = found = pool(self.model, text, self.config.depth)
            self._append(task, "accept", text=text, confidence=found.confidence, top=found.top)
        elif do == "skip":
            self._append(task, "skip")
        elif do == "confirm":
            if not task.judge:
                raise InputError("no verdict is shown that could be confirmed; judge the passage")
            self.act(task, task.verdict)
        elif do == "only":
            self.act(task, "right")
            self.act(replace(task, left=task.left[1:], judge=""), "nothing")
        elif asked := task.left if do == "nothing" else task.left[:1]:
            ids = [doc_id for one in asked for doc_id in one.doc_ids]
            grade, done = "wrong" if do == "nothing" else do, len(asked) == len(task.left)
            shown = {"shown": {"by": task.judge, "says": task.verdict}} if task.judge else {}
            self._append(task, "judge", grade=grade, done=done, doc_ids=ids, **shown)

    def undo(self) -> bool:
        """Take back this person's latest action; return whether there was one that can be."""
        with self.file.locked() as append:
            if to_undo(without_undone(self.file.read()), self.annotator) is None:
                return False
            append([{"do": "undo", "by": self.annotator}])
            return True

    def write(self) -> int:
        """Write the labelled set, unless nothing was ever labelled; return how many questions."""
        with self.file.locked():
            questions = self.questions()
            if not any(q.done for q in questions) and not (self.out / "queries.jsonl").exists():
                return 0
            if self.corpus is not None and not (self.out / CORPUS).exists():
                write_corpus(self.corpus, self.out)
            made = labels.labels_of(questions, partly_right=self.config.partly_right)
            write_labels(made, self.out)
            return len(made.queries)

    def outlook(self) -> str:
        """What is left for this person: questions, judgements, and minutes at the measured pace."""
        questions = [q for q in self.questions() if not q.person(self.annotator).done]
        if (task := self.task()) is None:
            return "No question is left."
        passages = len(questions) * len(task.pool.shown)
        told = f"{counted(len(questions), 'question')} left, about {passages} passages to judge"
        told += "; o and n end a question"
        at = [e["at"] for e in self.file.read() if e.get("by") == self.annotator and "at" in e]
        paces = [gap for gap in np.diff(at).tolist() if gap <= LONGEST_PAUSE]
        if len(paces) < FEWEST_PACES:
            return f"{told}."
        pace = float(np.median(paces))
        minutes = counted(max(1, round(passages * pace / 60)), "minute")
        return f"{told}: {minutes} at your {pace:.0f} s each."

    def so_far(self) -> list[str]:
        """How accurate the model is so far, and how many more labels are needed, in sentences."""
        questions, config = self.questions(), self.config
        groups, about = labels.groups_of(questions, self._passage, partly_right=config.partly_right)
        return labels.progress_sentences(
            questions,
            groups,
            about=about,
            calibrated=self.model.calibrated,
            version=self.model.version,
            target=self.model.pipeline.config.thresholds.advisory,
            partly_right=config.partly_right,
        )

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {passage.doc_id: row for row, passage in enumerate(self.corpus or ())}

    def _passage(self, doc_id: str) -> Passage | None:
        row = self._rows.get(doc_id)
        return None if row is None or self.corpus is None else self.corpus.passage(row)

    def _verdict(self, question: Question, left: Sequence[PooledPassage]) -> tuple[str, Grade]:
        """The judge of the first passage left, and what it says; "" if that is not shown."""
        judged = question.metadata.get(JUDGED)
        of_top = bool(left) and question.top in left[0].doc_ids
        if self.config.show_verdicts and of_top and isinstance(judged, Mapping):
            yes = judged.get("yes")
            return "" if yes is None else str(judged.get("by")), "right" if yes else "wrong"
        return "", "wrong"

    def _append(self, task: LabelTask, what: str, **more: Any) -> None:
        event: dict[str, Any] = {"do": what, "by": self.annotator, "at": round(time.time())}
        self.file.append([event | {"query_id": task.question.query_id} | more])

    def _refuse_other_contents(self) -> None:
        """Refuse a folder whose labels would be overwritten, or whose corpus differs."""
        splits = (*self.out.glob("qrels/*.tsv"), *self.out.glob("splits/*.txt"))
        others = [path for path in splits if path.stem != SPLIT]
        if not self.file.path.exists():
            named = (self.out / name for name in ("queries.jsonl", "qrels", "splits"))
            others += [path for path in named if path.exists()]
        if others:
            raise InputError(
                f"{others[0]} exists and was not made by `rerank label`, whose split is {SPLIT!r}; "
                "give another --out"
            )
        corpus = self.out / CORPUS
        if not corpus.exists():
            return
        if self.corpus is None:
            raise InputError(
                f"{corpus} exists, but the passages that {self.model.folder} finds are in another "
                "system; give another --out"
            )
        if self.corpus not in _digests:
            _digests[self.corpus] = corpus_digest(self.corpus)
        path = corpus.resolve()
        if _digest_of_file(path, *file_state(path)) != _digests[self.corpus]:
            raise InputError(
                f"{corpus} holds other passages than the model searches; give another --out, or "
                f"run `{command_line('model', 'update', self.model.folder, self.out)}`"
            )


_digests = WeakKeyDictionary[Corpus, str]()
"""The digest of the passages that a model searches, which never change: once for all."""


@lru_cache(maxsize=4)
def _digest_of_file(path: Path, *_state: int) -> str:
    return corpus_digest(read_corpus(path).values())
