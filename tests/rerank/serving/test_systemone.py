"""The wire of decision models: its clients read calibrated probabilities."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
import systemone

from rerank.assessment.model import CalibratedReranker
from rerank.inference.given import open_remote, scores_of
from rerank.protocols import Request
from rerank.serving.systemone import chosen

QUERY = "median along an axis while ignoring NaNs"


@pytest.fixture(scope="module")
def passages(texts: list[str]) -> dict[str, str]:
    """Five passages by name."""
    return {f"p{i}": text for i, text in enumerate(texts[:5])}


def ask(client: httpx.Client, questions: dict[str, Any], state: Any = QUERY) -> httpx.Response:
    """One request; the client has a path of its own."""
    body = json.dumps({"state": state, "questions": questions})  # in ASCII, so surrogates too
    return client.post("/v1/systemone", content=body, headers={"Content-Type": "application/json"})


def test_its_own_client_reads_the_answers(
    client: httpx.Client, model: CalibratedReranker, passages: dict[str, str]
) -> None:
    """A noul a passage, and a choice over all of them with none, as the library assesses them."""
    found = systemone.Client(str(client.base_url), api_key="k").system_one(
        state={"query": QUERY},
        questions={
            **{name: systemone.Noul(text) for name, text in passages.items()},
            "best": systemone.Choice("which passage answers?", {**passages, "none": None}),
        },
    )
    expected = model.rerank(QUERY, list(passages.values()))
    relevance = {f"p{p.row}": p.relevance for p in expected.passages}
    assert {name: answer.noul for name, answer in found.nouls.items()} == relevance
    best = found.choices["best"]
    assert sum(best.probabilities.values()) == pytest.approx(1)
    none = best.probabilities["none"]
    assert none == pytest.approx(1 - expected.sufficiency_at[4])
    scale = (1 - none) / sum(relevance.values())
    assert {n: p for n, p in best.probabilities.items() if n != "none"} == pytest.approx(
        {name: scale * p for name, p in relevance.items()}
    )
    assert best.confidence == expected.confidence
    assert best.choice == max(best.probabilities, key=lambda name: best.probabilities[name])


def test_our_own_client_of_that_wire_reads_them(
    client: httpx.Client, model: CalibratedReranker, passages: dict[str, str]
) -> None:
    """A server of ours is a reranker of another one."""
    scorer = open_remote(f"systemone+{client.base_url}", "reranker").model
    ((found, _),) = scores_of(scorer, [Request(QUERY, list(passages.values()))])  # type: ignore[arg-type]
    expected = model.rerank(QUERY, list(passages.values()))
    assert found.tolist() == [p.relevance for p in sorted(expected.passages, key=lambda p: p.row)]


def test_how_far_to_trust_them_is_beside_them(
    client: httpx.Client, model: CalibratedReranker, passages: dict[str, str]
) -> None:
    """A choice without none shares all of the probability; the fields that we add are named."""
    found = ask(client, {"best": {"type": "choice", "criteria": passages}}).json()
    expected = model.rerank(QUERY, list(passages.values()))
    assert sum(found["answers"]["best"]["probabilities"].values()) == pytest.approx(1)
    assert found["calibrated"] is expected.calibrated
    assert found["certified"] is expected.certified
    assert found["probability_of_none"] == pytest.approx(1 - expected.sufficiency_at[4])


@pytest.mark.parametrize(
    ("questions", "state", "said"),
    [
        ({"p": {"type": "score", "criteria": {"1": "low", "2": "high"}}}, QUERY, "questions"),
        ({"p": {"type": "noul", "instructions": " "}}, QUERY, "questions.p"),
        ({"p": {"type": "choice", "criteria": {"a": None, "b": None}}}, QUERY, "2 of 2"),
        ({"p": {"type": "choice", "criteria": {"a": "x", "b": None, "c": None}}}, QUERY, "2 of 3"),
        ({"p": {"type": "choice", "criteria": {"a": " ", "b": None}}}, QUERY, "2 of 2"),
        ({"p": {"type": "choice", "criteria": {"\ud800": "x"}}}, QUERY, "questions.p"),
        ({"\ud800": {"type": "noul", "instructions": "x"}}, QUERY, "questions"),
        ({f"{i}": {"type": "choice", "criteria": {"a": "x"}} for i in range(1001)}, QUERY, "1001"),
        ({"p": {"type": "noul", "instructions": "x"}}, {"email": "text"}, "state"),
        ({}, QUERY, "questions"),
    ],
)
def test_what_is_about_no_passage_is_refused(
    client: httpx.Client, questions: dict[str, Any], state: Any, said: str
) -> None:
    """With the field that is wrong."""
    refused = ask(client, questions, state)
    assert refused.status_code == 422
    assert said in refused.text


def test_where_no_passage_is_ever_right_the_names_share_evenly(
    model: CalibratedReranker, passages: dict[str, str]
) -> None:
    """As maps of few labels may say; nothing is divided by zero."""
    made = model.rerank(QUERY, list(passages.values()))
    never = replace(made, relevance=np.zeros(5), confidence=0.0, sufficiency_at=(0.0,) * 5)
    found = chosen({**passages, "none": None}, never).probabilities
    assert found == {**dict.fromkeys(passages, 0.0), "none": 1.0}
    assert chosen(passages, never).probabilities == dict.fromkeys(passages, 0.2)
