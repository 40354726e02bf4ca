"""A reranker around any scorer: what is kept, how lists and batches are called, what is checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from rerank.errors import InputError
from rerank.inference.cross_encoder import Reranker, open_reranker
from rerank.inference.given import Given, scores_of, vectors_of
from rerank.inference.score_cache import ScoreCache
from rerank.protocols import Request, Role, Scores, Traits
from rerank.retrieval.dense import Encoder
from rerank.types import Passage

PAIRS = [("q", "one"), ("q", "three"), ("r", "seven"), ("q", "one")]


class Lengths:
    """The length of a text, and in a list of several its place; texts of five letters are cut."""

    def __init__(self, **traits: object) -> None:
        self.traits = Traits("lengths", **traits)  # type: ignore[arg-type]
        self.asked: list[list[Request]] = []

    def score(self, requests: Sequence[Request]) -> list[Scores]:
        """The scores of each request."""
        self.asked.append(list(requests))
        place = 10.0 if self.traits.listwise else 0.0
        return [
            Scores(
                [len(text) + place * i for i, text in enumerate(texts)],
                [len(text) == 5 for text in texts],
            )
            for _, texts in requests
        ]


def reranker_of(scorer: Lengths, cache: ScoreCache | None = None) -> Reranker:
    return open_reranker(Given.of(scorer, "reranker"), max_length=9, cache=cache)


@pytest.mark.parametrize("identity", ["", "1"])
def test_scores_are_kept_under_an_identity_alone(tmp_path: Path, identity: str) -> None:
    """Each different pair is scored once in a call, and with an identity once for all."""
    cache = ScoreCache(tmp_path / "scores")
    for again in range(2):
        scorer = Lengths(identity=identity)
        logits, cut = reranker_of(scorer, cache).score(PAIRS)
        assert logits.tolist() == [3, 5, 5, 3]
        assert cut.tolist() == [False, True, True, False]
        scored = [text for call in scorer.asked for _, texts in call for text in texts]
        assert scored == ([] if again and identity else ["one", "three", "seven"])
    assert (tmp_path / "scores").exists() is bool(identity)


def test_a_list_is_scored_whole(tmp_path: Path) -> None:
    """A listwise scorer sees each list in its order; a list of other neighbours is scored anew."""
    cache = ScoreCache(tmp_path / "scores")
    scorer = Lengths(identity="1", listwise=True)
    ranked = reranker_of(scorer, cache)
    assert ranked.score(PAIRS, [2, 1, 1])[0].tolist() == [3, 15, 5, 3]
    assert ranked.score(PAIRS[:2], [2])[0].tolist() == [3, 15]
    assert len(scorer.asked) == 1
    assert ranked.score(PAIRS[1::-1], [2])[0].tolist() == [5, 13]
    assert scorer.asked[-1] == [Request("q", ["three", "one"])]
    lists = [("q", "one"), ("q", "two")]
    assert ranked.score(lists, [1, 1])[0].tolist() == [3, 3]


def test_batches_and_threads_are_those_of_the_traits() -> None:
    """Texts of a query stay together; calls at the same time meet at a barrier."""
    meeting = Barrier(2)

    class Meeting(Lengths):
        def score(self, requests: Sequence[Request]) -> list[Scores]:
            meeting.wait(timeout=600)
            return super().score(requests)

    scorer = Meeting(batch=2, threads=2)
    requests = [Request("a", ["x"]), Request("b", ["x", "yy"])]
    assert [values.tolist() for values, _ in scores_of(scorer, requests)] == [[1], [1, 2]]
    assert sorted(map(len, scorer.asked)) == [1, 1]


class ByRole:
    """A vector that tells the role of its text."""

    traits = Traits("by-role", batch=2)

    def embed(self, texts: Sequence[str], role: Role) -> np.ndarray:
        """Its vectors."""
        assert len(texts) <= 2
        return np.array([[len(text), 5.0 if role == "passage" else 0.0] for text in texts])


def test_a_text_has_a_vector_of_its_role() -> None:
    """A passage and a query of the same words differ, whichever come together."""
    encoder = Encoder(Given.of(ByRole(), "encoder"), max_length=9)
    ((text,),) = encoder.windows_of([Passage("1", "", "12345")])
    assert text != "12345"
    vectors = encoder.encode([text, "12345", "1", text])
    half = 0.5**0.5
    np.testing.assert_allclose(vectors, [[half, half], [1, 0], [1, 0], [half, half]], rtol=1e-6)
    (of_passage,) = encoder.encode_passages([Passage("1", "", "12345")])
    np.testing.assert_array_equal(of_passage, vectors[:1])
    np.testing.assert_array_equal(vectors_of(ByRole(), ["12345"], "query"), vectors[1:2])


def test_objects_without_identity_are_never_the_same() -> None:
    """So no index and no model made with one is taken for that of another."""
    one, two = (Given.of(len, "encoder").fingerprint for _ in range(2))
    assert one != two
    named = [Given.of(Lengths(identity=x), "reranker").fingerprint for x in "112"]
    assert named[0] == named[1] != named[2]


@pytest.mark.parametrize("choice", [3, None, Lengths, ByRole()])
def test_what_is_no_model_is_refused(choice: object) -> None:
    """A class, an encoder in place of a reranker, anything else."""
    with pytest.raises(InputError, match="a name, a function, or an object"):
        Given.of(choice, "reranker")


@pytest.mark.parametrize("values", [{"name": ""}, {"batch": 0}, {"threads": 0}, {"cost": -1.0}])
def test_traits_are_checked(values: dict[str, object]) -> None:
    """No name, or a number out of range."""
    with pytest.raises(InputError):
        Traits(**{"name": "x", **values})  # type: ignore[arg-type]
