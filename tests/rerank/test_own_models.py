"""A reranker and an encoder of the user's, from outside: only the public face is imported.

docs/extending.md says how; this is what it promises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_sets import WORDS, two_word_questions

import rerank

pytestmark = pytest.mark.usefixtures("untracked")
CONFIG = rerank.Config(rerank_depth=3, candidates=6, pool=12, folds=2)


class SharedWords:
    """A reranker in ten lines: the number of words that a text shares with the query."""

    traits = rerank.Traits("shared-words", identity="1")
    calls = 0

    def score(self, requests: Sequence[Any]) -> list[list[float]]:
        """The scores of each request."""
        self.calls += 1
        return [[float(shared(query, text)) for text in texts] for query, texts in requests]


def shared(query: str, text: str) -> int:
    return len(set(query.split()) & set(text.split()))


def my_scorer(query: str, texts: Sequence[str]) -> list[float]:
    return [shared(query, text) + len(text) / 1000 for text in texts]


def my_encoder(texts: Sequence[str]) -> np.ndarray:
    counts = [[text.split().count(word) for word in WORDS] for text in texts]
    return np.array(counts, dtype=np.float64) + 0.01


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> rerank.LabelledSet:
    return rerank.LabelledSet.read(two_word_questions(tmp_path_factory.mktemp("set")))


@pytest.mark.parametrize(
    ("own", "takes"),
    [
        ({"reranker": lambda q: [1.0]}, "the reranker takes (q)"),
        ({"reranker": lambda q, texts, depth: [1.0]}, "the reranker takes (q, texts, depth)"),
        ({"encoder": lambda: [[1.0]]}, "the encoder takes ()"),
        ({"encoder": lambda *, texts: [[1.0]]}, "the encoder takes (*, texts)"),
        (
            {
                "reranker": SimpleNamespace(
                    traits=rerank.Traits("own"), score=lambda query, texts: [1.0]
                )
            },
            "the reranker's `score` takes (query, texts)",
        ),
    ],
)
def test_a_function_of_other_arguments_is_refused(
    labelled: rerank.LabelledSet, tmp_path: Path, own: dict[str, Any], takes: str
) -> None:
    """Before anything is made: what it takes, and what it should."""
    with pytest.raises(rerank.InputError, match=re.escape(takes)):
        rerank.calibrate(labelled, tmp_path / "model", CONFIG, work=tmp_path, **own)
    assert not (tmp_path / "model").exists()


@pytest.fixture(scope="module")
def made(labelled: rerank.LabelledSet, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A model folder with an object as reranker and a function as encoder."""
    work, scorer = tmp_path_factory.mktemp("work"), SharedWords()
    run = rerank.calibrate(
        labelled, work / "model", CONFIG, work=work, reranker=scorer, encoder=my_encoder
    )
    return SimpleNamespace(folder=run.folder, work=work, scorer=scorer)


def test_a_folder_is_loaded_with_what_it_was_calibrated_with(made: SimpleNamespace) -> None:
    """The manifest says what that is; predictions are equal, and search and rerank both work."""
    given = json.loads((made.folder / "manifest.json").read_text())["given"]
    assert given["reranker"]["name"] == "shared-words"
    assert given["encoder"] == {**given["encoder"], "name": "my_encoder", "identity": ""}
    models = [
        rerank.load(made.folder, reranker=SharedWords(), encoder=my_encoder) for _ in range(2)
    ]
    one, two = (model.search("redhouse n7").to_dict() for model in models)
    assert one == two
    best = models[0].rerank("redhouse bluebird", ["newsong", "redhouse bluebird"]).top
    assert best is not None
    assert best.doc_id == "1"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "rerank.load(FOLDER, encoder=...)"),
        ({"encoder": my_encoder}, "rerank.load(FOLDER, reranker=...)"),
        ({"encoder": my_encoder, "reranker": my_scorer}, "the name 'my_scorer'"),
        ({"encoder": my_encoder, "reranker": 3}, "a name, a function, or an object"),
    ],
)
def test_without_them_it_is_refused(
    made: SimpleNamespace, given: dict[str, Any], said: str
) -> None:
    """The sentence says what to pass, or which part differs."""
    with pytest.raises(rerank.InputError) as refused:
        rerank.load(made.folder, **given)
    assert said in str(refused.value)


def test_a_changed_model_is_told_by_its_numbers(made: SimpleNamespace) -> None:
    """Name and identity are promises; the probe is not. A function may be renamed."""

    def renamed(texts: Sequence[str]) -> np.ndarray:
        return my_encoder(texts)

    rerank.load(made.folder, reranker=SharedWords(), encoder=renamed)
    other = lambda texts: [[len(text), 1.0] for text in texts]  # noqa: E731
    with pytest.raises(rerank.InputError, match="encoder '<lambda>' gives other numbers"):
        rerank.load(made.folder, reranker=SharedWords(), encoder=other)

    class Twice(SharedWords):
        def score(self, requests: Sequence[Any]) -> list[list[float]]:
            return [[2 * x for x in scores] for scores in super().score(requests)]

    with pytest.raises(rerank.InputError, match="differ by"):
        rerank.load(made.folder, reranker=Twice(), encoder=my_encoder)
    for traits in (rerank.Traits("shared-words", "2"), rerank.Traits("shared-words", "1", True)):
        other = SharedWords()
        other.traits = traits
        with pytest.raises(rerank.InputError, match=r"identity|listwise"):
            rerank.load(made.folder, reranker=other, encoder=my_encoder)


def test_every_job_works_with_it_or_refuses(
    made: SimpleNamespace, labelled: rerank.LabelledSet, tmp_path: Path
) -> None:
    """Evaluate, rescore and the same calibration again; export and another process refuse."""
    model = rerank.load(made.folder, reranker=SharedWords(), encoder=my_encoder)
    assert rerank.evaluate(model, labelled, work=made.work).right.size == 18
    rows = [{"_id": "a", "query": "redhouse n7"}, {"_id": "b", "query": "oldsong n8"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert rerank.rescore(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl").answered == 2
    from rerank.jobs.update import export

    with pytest.raises(rerank.InputError, match="given as an object"):
        export(model, tmp_path / "exported")
    with pytest.raises(rerank.InputError, match="another process"):
        model.__reduce__()
    with pytest.raises(rerank.InputError, match="no effect"):
        rerank.calibrate(labelled, tmp_path / "m", rerank.Config(max_length=99), reranker=my_scorer)


def wrong(answer: Any) -> Any:
    return lambda query, texts: answer(texts)


@pytest.mark.parametrize(
    "answer",
    [
        lambda texts: [1.0] * (len(texts) - 1),
        lambda texts: [float("nan")] * len(texts),
        lambda texts: ["1"] * len(texts),
        lambda texts: [[1.0]] * len(texts),
        lambda texts: None,
    ],
)
def test_what_a_scorer_returns_is_checked(
    labelled: rerank.LabelledSet, tmp_path: Path, answer: Any
) -> None:
    """One finite number for each text; it is refused before any work is done."""
    with pytest.raises(rerank.InputError, match="one number for each text"):
        rerank.calibrate(
            labelled,
            tmp_path / "m",
            CONFIG,
            work=tmp_path,
            reranker=wrong(answer),
            encoder=my_encoder,
        )
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "answer",
    [
        lambda texts: np.zeros((len(texts), 4)),
        lambda texts: np.ones((len(texts) + 1, 4)),
        lambda texts: np.full((len(texts), 4), np.inf),
        lambda texts: np.ones(len(texts)),
    ],
)
def test_what_an_encoder_returns_is_checked(
    labelled: rerank.LabelledSet, tmp_path: Path, answer: Any
) -> None:
    """An array (n, d) of finite numbers, no row of zeros."""
    with pytest.raises(rerank.InputError, match=r"array \(n, d\)|zeros"):
        rerank.calibrate(
            labelled, tmp_path / "m", CONFIG, work=tmp_path, reranker=my_scorer, encoder=answer
        )
