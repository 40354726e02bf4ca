"""Training data of a cross-encoder: which queries train and validate, and their lists of passages.

A training query gets one right passage (if it has any) and wrong ones; a validation query keeps the
first stage's list as it is. What is measured on later must not be trained on: not a query, nor its
group, nor its right passage.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from rerank.config import Config
from rerank.data.checks import query_hash
from rerank.data.labelled_set import LabelledSet, asked_about, given_group
from rerank.data.records import JUDGED_WRONG
from rerank.data.words import STOP_WORDS
from rerank.errors import InputError
from rerank.retrieval.dense import Encoder, Vectors
from rerank.retrieval.index import Index
from rerank.training.settings import FinetuneConfig
from rerank.types import Passage, Query

NAME = re.compile(r"\b[A-Z][\w-]*\w(?: (?:of |the |de |and )?[A-Z][\w-]*\w)*")
SENTENCE_START = re.compile(r"(?:^|[.!?:;\n\"“(])\s*\Z")
NUMBER = re.compile(r"\b\d+(?:[.,]\d+)*\b")
YEAR = re.compile(r"1\d{3}|20\d{2}")
YEARS_AWAY = (-20, -10, -5, -3, -2, 2, 3, 5, 10)
WORD = re.compile(r"\b[a-z]+\b")
# a passage that answers such a question also answers its opposite
SAME_OPPOSITE = re.compile(r"(?i)how (?:many|much)\b|(?:is|are|was|were|did|do|does|can)\b")
NEGATED = {"can": "can't", "will": "won't"} | {
    verb: f"{verb}n't"
    for verb in ("is", "are", "was", "were", "do", "does", "did", "has", "had", "could", "would")
}
PAIRS = """
after before|above below|accept reject|accepted rejected|active passive|add remove|added removed
allowed forbidden|always never|ancient modern|append prepend|ascending descending|attack defend
began ended|begin end|best worst|bigger smaller|biggest smallest|broad narrow|cause prevent
cheap expensive|cold hot|column row|columns rows|create delete|created deleted|decrease increase
decreased increased|deep shallow|disable enable|disabled enabled|earlier later|earliest latest
early late|east west|eastern western|encode decode|enter leave|even odd|exclude include
external internal|fail succeed|failed succeeded|false true|fast slow|faster slower|fastest slowest
female male|first last|gain lose|gained lost|global local|hard easy|heavier lighter|heavy light
hide show|high low|higher lower|highest lowest|horizontal vertical|import export|inside outside
install uninstall|join split|larger smaller|largest smallest|least most|less more|load save
lock unlock|longer shorter|longest shortest|maximum minimum|merge split|modern traditional
most fewest|new old|newest oldest|north south|northern southern|opened closed
opposed supported|oppose support|parallel serial|positive negative|private public|read write
rich poor|rise fall|rose fell|rural urban|safe dangerous|send receive|shrink grow|start stop
started stopped|strong weak|strongest weakest|thick thin|upper lower|upload download|weaker stronger
well badly|wet dry|win lose|with without|won lost|young old|youngest oldest
"""


ANTONYMS: dict[str, list[str]] = {}
for _one, _other in map(str.split, PAIRS.replace("\n", "|").strip("|").split("|")):
    ANTONYMS.setdefault(_one, []).append(_other)
    ANTONYMS.setdefault(_other, []).append(_one)
Rule = Callable[[str, str, random.Random], str | None]


def alter(question: str, passage: str, draw: random.Random) -> str | None:
    """The question with one change, after which the passage no longer answers it; or None.

    As in SQuAD 2.0 (Rajpurkar et al. 2018, table 1), by rule (Gautam et al. 2023): another name or
    number, of the `passage` that answers it, an antonym, or a negation; in English. None if no
    change fits, and sometimes instead of a rare one. Some altered ones keep their answer.
    """
    texts = [rule(question, passage, draw) for rule in RULES]
    weights = [weight if text else 0.0 for text, weight in zip(texts, RULES.values(), strict=True)]
    return draw.choices([*texts, None], [*weights, 1.0])[0]


def _other_name(question: str, passage: str, draw: random.Random) -> str | None:
    """A name of the question becomes another of the passage, which shares no word with it."""
    asked = _names(question)
    if not asked:
        return None
    name = draw.choice(asked)
    words = set(name[0].lower().split())
    others = {
        other[0]
        for other in _names(passage)
        if other[0].lower() not in question.lower()
        and words.isdisjoint(other[0].lower().split())
        and abs(len(other[0].split()) - len(words)) <= 1
        and other[0].isupper() == name[0].isupper()
    }
    return _replaced(question, name, draw.choice(sorted(others))) if others else None


def _names(text: str) -> list[re.Match[str]]:
    """Runs of capitalised words; one that begins a sentence only without a stop word before it."""
    names = []
    for found in NAME.finditer(text):
        name: re.Match[str] | None = found
        if SENTENCE_START.search(text, max(0, found.start() - 3), found.start()):
            first = found[0].split()[0]
            if first.lower() not in STOP_WORDS["english"]:
                continue
            name = NAME.search(text, found.start() + len(first), found.end())
        if name:
            names.append(name)
    return names


def _other_number(question: str, passage: str, draw: random.Random) -> str | None:
    """A number becomes another of the passage, of as many digits, or else one near it."""
    asked = list(NUMBER.finditer(question))
    if not asked:
        return None
    number = draw.choice(asked)
    digits = re.sub(r"\d", "0", number[0])
    in_passage = {m[0] for m in NUMBER.finditer(passage) if re.sub(r"\d", "0", m[0]) == digits}
    others = sorted(in_passage - {m[0] for m in asked})
    if others:
        return _replaced(question, number, draw.choice(others))
    if YEAR.fullmatch(number[0]):
        return _replaced(question, number, str(int(number[0]) + draw.choice(YEARS_AWAY)))
    if number[0].isascii() and number[0].isdecimal() and len(number[0]) < 6:
        return _replaced(question, number, str(int(number[0]) * draw.choice((2, 3)) + 1))
    return None


def _antonym(question: str, _passage: str, draw: random.Random) -> str | None:
    words = list(WORD.finditer(question))
    asked = {word[0] for word in words}
    found = [w for w in words if w[0] in ANTONYMS and asked.isdisjoint(ANTONYMS[w[0]])]
    if not found or SAME_OPPOSITE.match(question):
        return None
    word = draw.choice(found)
    return _replaced(question, word, draw.choice(ANTONYMS[word[0]]))


def _negated(question: str, _passage: str, _draw: random.Random) -> str | None:
    if SAME_OPPOSITE.match(question) or "n't" in question or " not " in question:
        return None
    verb = next((m for m in WORD.finditer(question) if m[0] in NEGATED), None)
    return _replaced(question, verb, NEGATED[verb[0]]) if verb else None


def _replaced(text: str, found: re.Match[str], by: str) -> str:
    return text[: found.start()] + by + text[found.end() :]


RULES: dict[Rule, float] = {  # how often each that fits is taken, beside 1 for none of them
    _other_name: 6.0,
    _other_number: 6.0,
    _antonym: 3.0,
    _negated: 0.7,
}


NEAR_DUPLICATE = 0.8  # Jaccard overlap of word sets above which a "negative" repeats the answer
POOL = 50  # passages that each first stage returns, at least


@dataclass(frozen=True, slots=True)
class Example:
    """One query and its short list; `labels` is 1 where the passage is right.

    Right passages come first, then `judged` ones that a person judged wrong. `teacher`: a teacher's
    logits of them. `altered_from`: the query of the set that `alter` made this one of; its right
    passage is then a wrong one, and `judged`.
    """

    query: str
    passages: tuple[str, ...]
    labels: tuple[int, ...]
    teacher: tuple[float, ...] = ()
    judged: int = 0
    altered_from: str = ""


@dataclass(frozen=True, slots=True)
class ValidationQuery:
    """One validation query: its right passages, and the first stage's list, best first."""

    query: str
    right: tuple[str, ...]
    found: tuple[str, ...]


def mine(
    labelled: LabelledSet,
    ids: Sequence[str],
    index: Index | None,
    encoder: Encoder,
    config: FinetuneConfig,
    *,
    limit: int | None = None,
) -> list[Example]:
    """`limit` examples from the queries `ids`, in their order; by default one per query.

    A limit above the number of queries goes round again, and draws other wrong passages. Passages
    that a person judged wrong come first, above all the one that an unanswerable query was asked
    about; the first stage's best fill the rest. Without an `index`, for questions that do not name
    their subject, only passages of the query's own group do.
    """
    draw = random.Random(f"{config.seed}:{labelled.name}:lists")
    queries = [labelled.queries[i] for i in ids[:limit]]
    if index is None:  # the passages that are right, wrong or asked about for a query of the group
        known: dict[str, dict[str, Passage]] = {}  # by group
        for i in labelled.queries:
            ids_of = sorted({*labelled.relevant(i), *_judged_wrong(labelled, i)})
            known.setdefault(labelled.group(i), {}).update({d: labelled.corpus[d] for d in ids_of})
        lists = [list(known[labelled.group(q.query_id)].values()) for q in queries]
    else:
        vectors = encoder.encode([q.text for q in queries], label=f"mining {labelled.name}")
        lists = [
            _first_stage(q, vector, index, config.depth + len(labelled.relevant(q.query_id)))
            for q, vector in zip(queries, vectors, strict=True)
        ]
    rounds = itertools.cycle(zip(queries, lists, strict=True))
    examples = (
        _example(labelled, query, candidates, index, config, draw)
        for query, candidates in itertools.islice(rounds, limit or len(queries))
    )
    return [example for example in examples if 0 in example.labels]


def _judged_wrong(labelled: LabelledSet, query_id: str) -> list[str]:
    """Ids of passages known to be wrong; an unanswerable query's passage asked about is first."""
    query, right = labelled.queries[query_id], labelled.relevant(query_id)
    judged = query.metadata.get(JUDGED_WRONG)
    ids = map(str, judged) if isinstance(judged, (list, tuple)) else ()
    wrong = dict.fromkeys(ids if right else (asked_about(query), *ids))
    return [i for i in wrong if i in labelled.corpus and i not in right]


def _example(
    labelled: LabelledSet,
    query: Query,
    candidates: Sequence[Passage],
    index: Index | None,
    config: FinetuneConfig,
    draw: random.Random,
) -> Example:
    """One example from the first stage's `candidates`, best first; unordered without `index`."""
    right = sorted(labelled.relevant(query.query_id))
    shown = [labelled.corpus[draw.choice(right)]] if right else []
    answers = {doc_id: _word_set(labelled.corpus[doc_id]) for doc_id in right}
    judged = [labelled.corpus[i] for i in _judged_wrong(labelled, query.query_id)]
    question, altered_from = query.text, ""
    if shown and config.altered and draw.random() < config.altered:
        changed = alter(question, shown[0].full_text, draw)
        if changed:
            question, altered_from, judged, shown = changed, query.text, shown, []
    near = [p for p in candidates if _is_wrong(p, answers) and p not in judged]
    near = near if index is None else near[: config.depth]
    withheld = bool(shown and near and config.withheld and draw.random() < config.withheld)
    room = config.hard + (withheld or not shown)
    first_wrong, others = (judged[:0], judged) if shown else (judged[:1], judged[1:])
    sure = [*first_wrong, *draw.sample(others, len(others))][:room]
    hard = [*sure, *draw.sample(near, min(room - len(sure), len(near)))]
    easy: list[Passage] = []
    if index is not None:
        easy = [index.passage(draw.randrange(len(index))) for _ in range(config.easy)]
    easy = [p for p in easy if _is_wrong(p, answers)]
    if withheld:
        shown = []
    passages = tuple(p.full_text for p in (*shown, *hard, *easy))
    labels = (1,) * len(shown) + (0,) * (len(passages) - len(shown))
    return Example(question, passages, labels, judged=len(sure), altered_from=altered_from)


def without_misled_teacher(example: Example) -> Example:
    """Without the teacher of a list of wrong passages, one of them judged so: a teacher takes the
    passage that an unanswerable question was asked about for its answer.
    """
    misled = example.judged and not any(example.labels)
    return replace(example, teacher=()) if misled else example


def validation_queries(
    labelled: LabelledSet, ids: Sequence[str], index: Index, encoder: Encoder, depth: int
) -> list[ValidationQuery]:
    """The first stage's `depth` best passages of each answerable query of `ids`."""
    queries = [labelled.queries[i] for i in ids if labelled.relevant(i)]
    vectors = encoder.encode([q.text for q in queries]) if queries else ()
    return [
        ValidationQuery(
            query.text,
            tuple(labelled.corpus[d].full_text for d in sorted(labelled.relevant(query.query_id))),
            tuple(p.full_text for p in _first_stage(query, vector, index, depth)),
        )
        for query, vector in zip(queries, vectors, strict=True)
    ]


def _first_stage(query: Query, vector: Vectors, index: Index, count: int) -> list[Passage]:
    pool, rrf_k = max(POOL, count), Config().rrf_k
    stage = index.search(query.text, vector, pool=pool, count=count, rrf_k=rrf_k)
    found = map(index.passage, stage.rows)
    return [passage for passage in found if passage.doc_id not in query.without]


def _is_wrong(passage: Passage, answers: Mapping[str, set[str]]) -> bool:
    """Whether it is neither right nor nearly a right one; `answers` are these' words, by id."""
    words = _word_set(passage)
    return passage.doc_id not in answers and all(
        len(answer & words) < NEAR_DUPLICATE * len(answer | words) for answer in answers.values()
    )


def _word_set(passage: Passage) -> set[str]:
    return set(passage.full_text.lower().split())


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """A labelled set to train on: its split, and how many examples (default: one per query)."""

    labelled: LabelledSet
    split: str = "train"
    limit: int | None = None
    within: bool = False  # wrong passages are of the query's own group: see `mine`

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise InputError(f"{self.labelled.name}: expected at least 1 query, got {self.limit}")
        self.labelled.split(self.split)


def split_validation(
    one: TrainingSet, count: int, *, seed: int, seen: frozenset[str] = frozenset()
) -> tuple[list[str], list[str]]:
    """(ids of queries to train on, at most the set's limit; ids of about `count` to validate on).

    Both are whole groups, in random order. At most a fifth of the queries are held out, and no
    group with a query (`query_hash`) that the base has `seen`: it would look too good there.
    """
    labelled, limit, ids = one.labelled, one.limit, one.labelled.splits[one.split]
    groups: dict[str, list[str]] = {}
    for query_id in ids:
        groups.setdefault(labelled.group(query_id), []).append(query_id)
    names = sorted(groups)
    random.Random(f"{seed}:{labelled.name}").shuffle(names)
    room = min(count, len(ids) // 5)
    held: list[str] = []
    to_train: list[str] = []
    for group in map(groups.__getitem__, names):
        is_seen = any(query_hash(labelled.queries[i].text) in seen for i in group)
        if not is_seen and len(held) + len(group) <= room:
            held += group
        elif limit is None or len(to_train) + len(group) <= limit:
            to_train += group
    if not to_train:
        raise InputError(
            f"{labelled.name}: every group of its {one.split!r} has more than the {limit} queries "
            "asked for; ask for more, or group them more finely"
        )
    return to_train, held


def without_overlap(
    labelled: LabelledSet, ids: Sequence[str], held: Sequence[str], validated_on: Set[str]
) -> list[str]:
    """`ids` without those whose question is one of `validated_on` (`query_hash`), of whatever set,
    or which share the group or a right passage with one of the `held` queries of this set.
    """
    marks = {mark for i in held for mark in _overlap_keys(labelled, i)}
    return [
        i
        for i in ids
        if query_hash(labelled.queries[i].text) not in validated_on
        and marks.isdisjoint(_overlap_keys(labelled, i))
    ]


def leave_out(labelled: LabelledSet, held: Sequence[LabelledSet], split: str) -> LabelledSet:
    """The set with a `split` that holds nothing of the sets `held`, for training.

    A query is dropped if one of `held` asks it, or has one of its right passages as a right one, or
    has the same name, as a part of this set, and a query of the same group.
    """
    if not held:
        return labelled
    asked = {query_hash(q.text) for other in held for q in other.queries.values()}
    answers = {text for other in held for i in other.queries for text in _answers(other, i)}
    parts = [other for other in held if other.name == labelled.name]
    groups = {_group_of_texts(other, i) for other in parts for i in other.queries}
    ids = labelled.split(split)
    kept = tuple(
        i
        for i in ids
        if query_hash(labelled.queries[i].text) not in asked
        and _group_of_texts(labelled, i) not in groups
        and answers.isdisjoint(_answers(labelled, i))
    )
    if ids and not kept:
        raise InputError(f"{labelled.name}: --leave-out leaves no query of {split!r} to train on")
    return replace(labelled, splits={**labelled.splits, split: kept})


def _group_of_texts(labelled: LabelledSet, query_id: str) -> str | frozenset[str]:
    """The group of a query; unless it has a name, by texts: the parts of a set count ids anew."""
    query = labelled.queries[query_id]
    if named := given_group(query):
        return named
    about = labelled.corpus.get(asked_about(query))
    texts = _answers(labelled, query_id) or ({about.full_text} if about else set())
    return frozenset(texts or {query_hash(query.text)})


def _answers(labelled: LabelledSet, query_id: str) -> set[str]:
    return {labelled.corpus[doc_id].full_text for doc_id in labelled.relevant(query_id)}


def _overlap_keys(labelled: LabelledSet, query_id: str) -> frozenset[tuple[str, str]]:
    questions = {("question", mark) for mark in labelled.duplicate_keys(query_id)}
    return frozenset(questions | {("right", doc_id) for doc_id in labelled.relevant(query_id)})


def examples_per_set(sizes: Sequence[int], total: int, temperature: float) -> list[int]:
    """How many of `total` examples each set gives, at least one: by its size ** (1 / temperature).

    Temperature 1 gives the proportions of the sizes, a high one equal shares (Arivazhagan 2019).
    """
    logits = np.log(np.asarray(sizes, dtype=np.float64)) / temperature
    weights = np.exp(logits - logits.max())  # a power of a size would overflow
    return [max(1, int(n)) for n in np.rint(total * weights / weights.sum())]
