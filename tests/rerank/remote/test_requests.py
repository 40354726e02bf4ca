"""Requests to models behind addresses: each form, each failure, counted exactly, no key told."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from remote_server import (
    KEY,
    Fault,
    Server,
    endless,
    half,
    late,
    no_head,
    score_of,
    status,
    vector_of,
)

from rerank.errors import InputError, RetrieverError
from rerank.inference.given import scores_of, vectors_of
from rerank.inference.remote import client
from rerank.inference.remote.client import (
    METER,
    Budget,
    Client,
    LimitError,
    RemoteEmbedder,
    RemoteScorer,
)
from rerank.inference.remote.wires import BadAnswerError, address_of, is_remote
from rerank.protocols import Request

TEXTS = ["a red house", "the bird sings", "red birds in the old house", "no"]
QUERY = "red house"
RIGHT = [score_of(QUERY, text) for text in TEXTS]


def scorer_at(name: str) -> RemoteScorer:
    return RemoteScorer(Client(address_of(name, "reranker"), of_folder=False))


def scores(scorer: RemoteScorer) -> list[float]:
    ((values, _),) = scores_of(scorer, [Request(QUERY, TEXTS)])
    return list(values.tolist())


@pytest.mark.parametrize(
    ("stated", "form", "path", "sent"),
    [
        ("", "jina", "/rerank", 1),
        ("", "cohere", "/rerank", 1),
        ("", "voyage", "/rerank", 1),
        ("", "tei", "/rerank", 2),  # the first one found out that its form is another
        ("cohere+", "cohere", "/v2/rerank", 1),
        ("jina+", "jina", "/v1/rerank", 1),
        ("voyage+", "voyage", "/v1/rerank", 1),
        ("tei+", "tei", "/rerank", 1),
    ],
)
def test_scores_of_every_form(server: Server, stated: str, form: str, path: str, sent: int) -> None:
    """Answers are sorted by score; scores come back in the order of the texts."""
    server.form = form
    scorer = scorer_at(f"{stated}{server.url}#m-1")
    assert scores(scorer) == RIGHT
    assert scores(scorer) == RIGHT
    assert [asked for asked, _, _ in server.requests] == [path] * (sent + 1)
    assert METER.sent.total() == sent + 1
    body = server.requests[-1][2]
    assert body["query"] == QUERY
    assert body.get("model") == ("m-1" if form != "tei" else None)


def test_a_question_for_each_passage(server: Server) -> None:
    """System One answers with a probability for each question, by its id."""
    assert scores(scorer_at(f"systemone+{server.url}#jev")) == [s / 20 for s in RIGHT]
    ((path, _, body),) = server.requests
    assert path == "/v1/systemone"
    assert {q["type"] for q in body["questions"].values()} == {"noul"}
    assert body["state"] == {"query": QUERY}


def test_a_predicate_for_each_passage(server: Server) -> None:
    """OpenAI's Decisions answer in a list, with the names of the questions."""
    server.form = "decisions"
    assert scores(scorer_at(f"openai-decisions+{server.url}#luna")) == [s / 20 for s in RIGHT]
    assert server.requests[0][0] == "/v1/decisions"
    assert address_of("openai-decisions:luna", "reranker").key == "OPENAI_API_KEY"


def test_one_choice_over_all_passages_or_none(server: Server) -> None:
    """What none of them takes is missing from their sum; a score depends on the list."""
    scorer = scorer_at(f"systemone-choice+{server.url}")
    found = scores(scorer)
    assert scorer.traits.listwise
    assert len(server.requests) == 1
    np.testing.assert_allclose(np.array(found) / sum(found), np.array(RIGHT) / sum(RIGHT))
    assert 0 < sum(found) < 1


@pytest.mark.parametrize(
    ("form", "answer", "said"),
    [
        ("openai-decisions", [{"type": "refusal", "name": "p0"}], "other questions"),
        ("systemone-choice", {"best": {"choice": "none"}}, "other questions"),
        ("systemone-choice", {"best": {"probabilities": {"p0": 2}}}, "other questions"),
        ("systemone-choice", {"best": {"probabilities": [0.2, 0.8]}}, "other questions"),
        ("openai-decisions", [{"name": ["p0"]}, {"name": {}}], "other questions"),
        ("systemone", {"p0": {"noul": 10**400}, "p1": {"noul": 0}}, "where a number is due"),
    ],
)
def test_a_decision_that_lacks_a_passage_is_not_used(form: str, answer: Any, said: str) -> None:
    """Nor one that was refused."""
    wire = address_of(f"{form}+http://h", "reranker").wires[0]
    with pytest.raises(BadAnswerError, match=said):
        wire.read({"model": "m", "answers": answer}, 2)


@pytest.mark.parametrize(("stated", "sent"), [("", 1), ("openai+", 1), ("tei+", 1)])
def test_vectors_of_every_form(server: Server, stated: str, sent: int) -> None:
    """Unit vectors in the order of the texts, whatever the order of the answer."""
    address = address_of(f"{stated}{server.url}", "encoder")
    embedder = RemoteEmbedder(Client(address, of_folder=False))
    expected = np.array([vector_of(text) for text in TEXTS])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors_of(embedder, TEXTS, "passage"), expected, rtol=1e-6)
    assert METER.sent.total() == len(server.requests) == sent


def test_many_texts_are_several_requests(server: Server) -> None:
    """No request has more texts than the form allows."""
    server.form, texts = "tei", [f"text {i}" for i in range(70)]
    ((values, _),) = scores_of(scorer_at(f"tei+{server.url}"), [Request(QUERY, texts)])
    assert values.tolist() == [score_of(QUERY, text) for text in texts]
    assert [len(body["texts"]) for _, _, body in server.requests] == [32, 32, 6]


def changed(change: Any) -> Fault:
    """A fault: the answer, with its results changed."""
    return lambda handler, answer: {**answer, "results": change(answer["results"])}


WRONG = {
    "half of the results": changed(lambda rows: rows[:2]),
    "a repeated index": changed(lambda rows: [rows[0], *rows[:3]]),
    "an index that was not asked": changed(lambda rows: [*rows[1:], {**rows[0], "index": 9}]),
    "not a number": changed(
        lambda rows: [{**row, "relevance_score": float("nan")} for row in rows]
    ),
    "no number": changed(lambda rows: [{**row, "relevance_score": None} for row in rows]),
    "one more": changed(lambda rows: [*rows, {**rows[0], "index": 4}]),
    "other JSON": lambda handler, answer: {"detail": "fine"},
    "a list": lambda handler, answer: [1, 2],
    "half a body": half,
    "busy": status(429, retry_after="0"),
    "broken": status(500),
    "starting": status(503, retry_after="0"),
    "broken HTML": status(502, "<html>"),
}


@pytest.mark.parametrize("fault", WRONG.values(), ids=WRONG)
def test_a_failure_is_tried_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """The next answer is right; every try counts. If none is, the error says so."""
    monkeypatch.setattr(client, "TRIES", 3)
    scorer = scorer_at(f"jina+{server.url}")
    server.faults = [fault]
    assert scores(scorer) == RIGHT
    assert METER.sent.total() == len(server.requests) == 2
    server.faults = [fault] * 3
    with pytest.raises(RetrieverError, match=r"try 3 of 3"):
        scores(scorer)
    assert METER.sent.total() == len(server.requests) == 5


def test_no_answer_in_time_is_tried_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may take so long, and all its tries."""
    scorer = scorer_at(f"jina+{server.url}")
    monkeypatch.setattr(client, "TIMEOUT", 1.0)
    server.faults = [late]
    assert scores(scorer) == RIGHT
    assert METER.sent.total() >= 2
    server.faults = [late] * 9
    token = client.patience.set(2.0)
    with pytest.raises(RetrieverError, match="no answer"):
        scores(scorer)
    client.patience.reset(token)


FLOODS = {
    "large": (endless(b" " * 2**16), "has more than 1,048,576 bytes"),
    "a large error": (endless(b"x" * 2**16, code=503), "has more than 1,048,576 bytes"),
    "a large refusal": (endless(b"x y " * 2**14, code=400), "has more than 1,048,576 bytes"),
    "compressed": (endless(b"\0" * 2**16, content_encoding="gzip"), "it is compressed"),
    "twice": (endless(b"\0" * 2**16, content_encoding="gzip, gzip"), "it is compressed"),
    "slow": (endless(b" ", wait=0.05), "it took more than 0.6 seconds"),
    "slow headers": (no_head(b"HTTP/1.1 2", wait=0.05), "it took more than 0.6 seconds"),
    "no end of headers": (no_head(b"HTTP/1.1 100 Continue\r\n\r\n", wait=0.01), "it took more"),
}


@pytest.mark.parametrize(("fault", "said"), FLOODS.values(), ids=FLOODS)
def test_an_answer_without_end_costs_a_bounded_amount(
    server: Server, monkeypatch: pytest.MonkeyPatch, fault: Fault, said: str
) -> None:
    """Of bytes, memory and seconds; the next answer is right, and the connection is closed."""
    monkeypatch.setattr(client, "TRIES", 2)
    monkeypatch.setattr(client, "LARGEST", 2**20)
    monkeypatch.setattr(client, "TIMEOUT", 0.3 if "took" in said else 60.0)
    scorer = scorer_at(f"jina+{server.url}")
    server.faults = [fault] * 2
    with pytest.raises(RetrieverError, match=said):
        scores(scorer)
    assert server.left.wait(60)
    assert server.sent < 2**25  # most of it is on its way
    monkeypatch.setattr(client, "TIMEOUT", 60.0)
    assert scores(scorer) == RIGHT


ODD = {
    "a number without end": lambda rows: [{**row, "relevance_score": 10**400} for row in rows],
    "a number too large": lambda rows: [{**row, "relevance_score": -1e200} for row in rows],
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
def test_numbers_that_no_score_has_are_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    """JSON has numbers that no float holds, and floats have some whose squares are none."""
    monkeypatch.setattr(client, "TRIES", 1)
    server.faults = [changed(change)]
    with pytest.raises(RetrieverError, match="where a number is due"):
        scores(scorer_at(f"jina+{server.url}"))


def test_what_an_answer_says_besides_is_bounded(server: Server) -> None:
    """The name of the model, and the tokens that it took."""
    scorer = scorer_at(f"jina+{server.url}")
    usage = {"total_tokens": 10**400}
    server.faults = [lambda _, answer: {**answer, "model": "m" * 10**6, "usage": usage}]
    assert scores(scorer) == RIGHT
    assert scorer.client.served == "m" * client.LONGEST_NAME
    assert METER.tokens.total() == 0


@pytest.mark.parametrize(
    "asked", ["Wed, 21 Oct 99999999999 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:00 +99999999999999"]
)
def test_no_date_of_a_retry_is_an_accident(asked: str) -> None:
    """A date that no calendar has is none."""
    assert client.seconds_of(asked) is None


def test_a_long_wait_is_an_error_at_once(server: Server) -> None:
    """A server that asks for an hour is not waited for."""
    server.faults = [status(429, retry_after="3600")]
    with pytest.raises(RetrieverError, match="3600 seconds"):
        scores(scorer_at(server.url))
    assert len(server.requests) == 1


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, after the tries."""
    monkeypatch.setattr(client, "FIRST_WAIT", 0.0)
    scorer = scorer_at("http://127.0.0.1:9/rerank")
    with pytest.raises(RetrieverError, match="no answer"):
        scores(scorer)


def test_keys_come_from_the_environment_and_go_nowhere_else(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The key is a header; no error and no log has it, even if the server repeats it."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("RERANK_API_KEY", KEY)
    monkeypatch.setenv("COHERE_API_KEY", "sk-of-cohere")
    server.faults = [status(401, f"invalid key {KEY}")]
    with pytest.raises(RetrieverError) as refused:
        scores(scorer_at(f"cohere+{server.url}"))
    assert "RERANK_API_KEY" in str(refused.value)
    assert KEY not in str(refused.value)
    assert {key for _, key, _ in server.requests} == {f"Bearer {KEY}"}
    assert KEY not in caplog.text
    assert address_of("cohere:rerank-v4.0-pro", "reranker").key == "COHERE_API_KEY"
    monkeypatch.setenv("RERANK_API_KEY", "two\nlines")
    with pytest.raises(InputError, match="RERANK_API_KEY") as refused_key:
        scorer_at(server.url)
    assert "lines" not in str(refused_key.value)


ECHOES = {
    "in capitals": status(401, f"invalid key {KEY.upper()}/=".upper()),
    "as in an address": status(400, f"no ?key={KEY}%2F%3D"),
    "broken over lines": status(500, f"{KEY[:9]}\n{KEY[9:]}/="),
    "as a score": changed(lambda rows: [{**row, "relevance_score": f"{KEY}/="} for row in rows]),
}


@pytest.mark.parametrize("fault", ECHOES.values(), ids=ECHOES)
def test_a_key_that_a_server_repeats_in_another_way_is_not_told(
    server: Server, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """Nor in what cannot be used of an answer."""
    monkeypatch.setattr(client, "TRIES", 1)
    monkeypatch.setenv("RERANK_API_KEY", f"{KEY}/=")
    server.faults = [fault]
    with pytest.raises(RetrieverError) as refused:
        scores(scorer_at(f"jina+{server.url}"))
    assert KEY[3:9] not in str(refused.value).lower()


@pytest.mark.parametrize(
    "name",
    [
        f"http://me:{KEY}@host/rerank",
        f"https://host/rerank?api_key={KEY}",
        f"http://me:{KEY}@host:port/rerank",
    ],
)
def test_keys_in_an_address_are_refused(name: str) -> None:
    """And not repeated."""
    with pytest.raises(InputError, match="environment") as refused:
        address_of(name, "reranker")
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("foo+http://host", "reranker"),
        ("openai:text-embedding-3-small", "reranker"),
        ("cohere:rerank-v4.0-pro", "encoder"),
        ("http://", "reranker"),
        ("http://host:99999/x", "reranker"),
        ("http://host/a b", "reranker"),
    ],
)
def test_other_addresses_are_refused(name: str, role: str) -> None:
    """In a sentence."""
    assert is_remote(name)
    with pytest.raises(InputError):
        address_of(name, role)


@pytest.mark.parametrize("name", ["minilm", "org/model@main", "./folder", "C:\\models\\x", "a:b"])
def test_names_of_files_are_no_addresses(name: str) -> None:
    """They are looked up on this machine."""
    assert not is_remote(name)


def test_no_more_requests_than_allowed(server: Server) -> None:
    """The one too many is not sent."""
    scorer = scorer_at(server.url)
    METER.start(Budget(most_requests=2))
    requests = [Request(f"{QUERY} {i}", TEXTS) for i in range(4)]
    kept: list[int] = []
    with pytest.raises(RetrieverError, match="2 were sent"):
        scores_of(scorer, requests, lambda start, _: kept.append(start))
    assert len(server.requests) == 2
    assert len(kept) == 2
    assert METER.sentences() == [f"2 requests to {server.url}"]


def test_no_more_is_spent_than_allowed(server: Server) -> None:
    """By the price of requests to the cent; by that of tokens, as the server counts them."""
    scorer = scorer_at(server.url)
    METER.start(Budget(most_cost=0.3, price_per_1000_requests=100))
    for _ in range(3):
        scores(scorer)
    with pytest.raises(LimitError, match=r"have cost 0\.3,"):
        scores(scorer)
    assert len(server.requests) == 3
    assert METER.sentences()[-1] == "their cost: 0.3"
    answer = server.answer
    server.answer = lambda path, body: {  # type: ignore[method-assign]
        **answer(path, body),
        "usage": {"total_tokens": 500},
    }
    METER.start(Budget(most_cost=0.002, price_per_million_tokens=2.0))
    for _ in range(2):
        scores(scorer)
    with pytest.raises(LimitError):
        scores(scorer)
    assert METER.sentences() == [f"2 requests to {server.url}", "their cost: 0.002"]


def test_a_budget_of_money_needs_a_price() -> None:
    """Else it would never be used up."""
    with pytest.raises(InputError, match="--price-per-1000-requests"):
        METER.start(Budget(most_cost=1.0))


def test_a_price_of_tokens_needs_their_number(server: Server) -> None:
    """A server that does not tell it would seem to be free."""
    METER.start(Budget(price_per_million_tokens=2.0))
    with pytest.raises(InputError, match="--price-per-1000-requests"):
        scores(scorer_at(server.url))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("voyage", "be strict\nred house"),
        ("systemone", "red house\n\nWhat counts as an answer: be strict"),
    ],
)
def test_an_instruction_goes_where_the_form_has_a_place_for_it(
    server: Server, name: str, expected: str
) -> None:
    """In the query of Voyage, in the state of a decision; other forms refuse one."""
    server.form = name
    scorer = scorer_at(f"{name}+{server.url}").with_instruction("be strict")
    scores(scorer)
    body = server.requests[-1][2]
    assert body.get("query", body.get("state", {}).get("query")) == expected
    with pytest.raises(InputError, match="without an instruction"):
        scorer_at(f"jina+{server.url}").with_instruction("be strict")
