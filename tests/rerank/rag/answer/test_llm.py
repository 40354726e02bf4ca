"""A language model behind a real HTTP endpoint that answers well, badly, late, or not at all."""

from __future__ import annotations

import json
from itertools import count
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from llm_endpoint import (
    Behaviour,
    breaks_off,
    drips,
    endless,
    endpoint,
    no_head,
    says,
    sends,
    stalls,
    status,
)

from rerank.advice.settings import NO_ANSWER, AnswerConfig, LanguageModelConfig
from rerank.config import Thresholds
from rerank.data.words import Lexicon
from rerank.errors import EndpointError, InputError
from rerank.rag.answer.attribution import REMOVED
from rerank.rag.answer.bounded import bounded_answer
from rerank.rag.answer.llm import LanguageModel
from rerank.rag.answer.sources import Source
from rerank.types import Assessment

pytest.importorskip("openai", reason="the extra [llm] is not installed")
GOOD = "The median is the middle value of a sorted sample [S1]."


def model(
    url: str, waited: list[float] | None = None, *, stream: bool = False, **more: float
) -> LanguageModel:
    config = LanguageModelConfig(llm=url, llm_model="m", llm_stream=stream, **more)  # type: ignore[arg-type]
    return LanguageModel(config, sleep=(waited if waited is not None else []).append)


@pytest.mark.parametrize("stream", [False, True])
def test_it_answers_from_the_prompt_alone(stream: bool, sources: list[Source]) -> None:
    """One request, at temperature 0, with the rules and the sources."""
    with endpoint(says(GOOD)) as place:
        made = model(place.url, stream=stream).generate("What is a median?", sources)
    assert (made.text, made.calls) == (GOOD, 1)
    (asked,) = place.requests
    assert (asked["model"], asked["temperature"]) == ("m", 0)
    assert [m["role"] for m in asked["messages"]] == ["system", "user"]
    assert '<source id="S1"' in asked["messages"][1]["content"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "failure",
    [
        status(429, retry_after="7"),
        status(500),
        status(503),
        sends(b"{broken"),
        sends(b"[]"),
        sends(b"{}"),
        says(""),
        breaks_off("The median is"),
    ],
)
def test_what_fails_for_a_moment_is_sent_again(
    failure: Behaviour, stream: bool, sources: list[Source]
) -> None:
    """After a wait: what the endpoint asks for, else about half a second."""
    waited: list[float] = []
    with endpoint(failure, says(GOOD)) as place:
        made = model(place.url, waited, stream=stream).generate("What is a median?", sources)
    assert (made.text, made.calls, len(place.requests)) == (GOOD, 2, 2)
    assert len(waited) == 1
    assert waited[0] == 7 or 0.3 < waited[0] < 0.7


def test_a_stall_ends_in_a_sentence(sources: list[Source]) -> None:
    """After as many tries as allowed, with the endpoint's name."""
    with (
        endpoint(stalls) as place,
        pytest.raises(EndpointError, match=r"asked 2 times.*timed out") as told,
    ):
        model(place.url, llm_timeout=0.2, llm_retries=1).generate("What is a median?", sources)
    assert place.url in str(told.value)
    assert told.value.calls == 2


@pytest.mark.parametrize(("stream", "piece"), [(False, b" "), (True, b": ping\n\n")])
def test_a_slow_drip_ends_in_time(
    stream: bool, piece: bytes, sources: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece comes in time, but the answer does not: a clock counts 250 seconds for each."""
    clock = SimpleNamespace(monotonic=count(0, 250).__next__)
    monkeypatch.setattr("rerank.rag.answer.llm.time", clock)
    with endpoint(drips(piece)) as place, pytest.raises(EndpointError, match=r"more than 600 s"):
        model(place.url, stream=stream, llm_timeout=600, llm_retries=0).generate("What?", sources)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (endless(b" " * 2**16), "more than 1,048,576 bytes"),
        (endless(b"x" * 2**16, code=500), "more than 1,048,576 bytes"),
        (endless(b"x" * 2**16, code=401), "more than 1,048,576 bytes"),
        (endless(b"\0" * 2**16, content_encoding="gzip, gzip"), "it is compressed"),
    ],
)
def test_a_body_without_end_is_bounded(
    behaviour: Behaviour,
    said: str,
    stream: bool,
    sources: list[Source],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of an answer as of an error, and before anything is unpacked."""
    monkeypatch.setattr("rerank.inference.remote.client.LARGEST", 2**20)
    with endpoint(behaviour) as place, pytest.raises(EndpointError, match=said):
        model(place.url, stream=stream, llm_retries=0).generate("What?", sources)


def test_headers_without_end_are_bounded(sources: list[Source]) -> None:
    """Each byte in time; the next try opens another connection."""
    with endpoint(no_head(b"HTTP/1.1 2"), says(GOOD)) as place:
        asked = model(place.url, llm_timeout=1, llm_retries=3)
        assert asked.generate("What?", sources).text == GOOD


@pytest.mark.parametrize("stream", [False, True])
def test_an_endless_answer_is_not_read(stream: bool, sources: list[Source]) -> None:
    """It ignores `max_tokens`; checking so many sentences would take minutes."""
    with endpoint(says(GOOD * 20)) as place, pytest.raises(EndpointError, match="much longer"):
        model(place.url, stream=stream, llm_max_tokens=30, llm_retries=0).generate("A?", sources)


@pytest.mark.parametrize("stream", [False, True])
def test_a_cut_off_answer_says_so(stream: bool, assessment: Assessment, lexicon: Lexicon) -> None:
    """In its record, and as a person reads it; its last sentence may lack its end."""
    with endpoint(says(f"{GOOD} It was first", reason="length")) as place:
        found = bounded_answer(assessment, model(place.url, stream=stream), lexicon)
    assert found.answer == f"{GOOD} {REMOVED}"
    assert found.to_dict()["cut_off"] is True
    assert "the end is missing (--llm-max-tokens)" in found.text()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("thoughts", ["<think>What is it?</think>", "<think>\nWhat is it? The"])
def test_thoughts_that_use_up_the_tokens_are_named(
    stream: bool, thoughts: str, sources: list[Source]
) -> None:
    """No answer has begun; a higher limit helps, another try does not."""
    said = says(thoughts, reason="length")
    with (
        endpoint(said) as place,
        pytest.raises(EndpointError, match=r"asked once: .* `llm_max_tokens` cut it off"),
    ):
        model(place.url, stream=stream, llm_retries=2).generate("What?", sources)


@pytest.mark.parametrize("chunk", ["null", "[]", '{"choices": [null]}', '{"error": "no"}'])
def test_a_stream_of_something_else_is_no_answer(chunk: str, sources: list[Source]) -> None:
    """The sentence does not quote an error of Python."""
    with (
        endpoint(sends(f"data: {chunk}\n\ndata: [DONE]\n\n".encode())) as place,
        pytest.raises(EndpointError, match="not a stream of a chat completion"),
    ):
        model(place.url, stream=True, llm_retries=0).generate("What?", sources)


@pytest.mark.parametrize("begun", ["<think>\n", "", "<think>A mean?</think> <think>No."])
def test_thoughts_are_no_part_of_the_answer(begun: str, sources: list[Source]) -> None:
    """Some models write them before it; joined to its first sentence they would pass the check.

    The template of some models hides where they begin.
    """
    with endpoint(says(f"{begun}What is it?\nMaybe the mean.</think>{GOOD}")) as place:
        assert model(place.url).generate("What is a median?", sources).text == GOOD


def test_no_key_is_told(sources: list[Source]) -> None:
    """Errors are printed, and stand in the file of answers."""
    with endpoint(status(401)) as place:
        asked = model(place.url.replace("//", "//me:secret@"))
        with pytest.raises(EndpointError) as told:
            asked.generate("What is a median?", sources)
    assert place.url in str(told.value)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(code: int, sources: list[Source]) -> None:
    """The question and the sources stay with the host that was named; the other is told."""
    with endpoint(says(GOOD)) as other, endpoint(status(code, location=other.url)) as place:
        with pytest.raises(EndpointError, match=f"status {code}: it redirects to {other.url}"):
            model(place.url).generate("What is a median?", sources)
        assert (len(place.requests), len(other.requests)) == (1, 0)


@pytest.mark.parametrize("before", ["", "x" * 190])
def test_a_key_that_comes_back_is_not_told(
    before: str, sources: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even its beginning, where the message is cut."""
    key = "sk-8a/61+c0ffee-and-more"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    for told in (key, quote(key, safe=""), key.upper(), f"{key[:9]}\n{key[9:]}"):
        error = json.dumps({"error": {"message": f"{before} no such key: {told}"}}).encode()
        with endpoint(sends(error, code=401)) as place, pytest.raises(EndpointError) as raised:
            model(place.url).generate("What is a median?", sources)
        assert "8a" not in str(raised.value).lower()


@pytest.mark.parametrize("stream", [False, True])
def test_half_a_surrogate_pair_can_be_written(stream: bool, sources: list[Source]) -> None:
    """JSON can hold one, UTF-8 cannot."""
    with endpoint(says(f"{GOOD} \ud800")) as place:
        made = model(place.url, stream=stream).generate("What is a median?", sources)
    assert made.text == f"{GOOD} ?"


@pytest.mark.parametrize(("asked", "waits"), [("nan", 0.0), ("-3", 0.0), ("inf", 30.0)])
def test_no_odd_wait_is_obeyed(asked: str, waits: float, sources: list[Source]) -> None:
    """`Retry-After` is whatever the endpoint sends."""
    waited: list[float] = []
    with endpoint(status(429, retry_after=asked), says(GOOD)) as place:
        model(place.url, waited).generate("What is a median?", sources)
    assert waited == [waits]


@pytest.mark.parametrize("code", [400, 401, 404])
def test_a_refusal_is_not_sent_again(code: int, sources: list[Source]) -> None:
    """The same request would be refused again."""
    with (
        endpoint(status(code)) as place,
        pytest.raises(EndpointError, match=f"asked once: status {code}"),
    ):
        model(place.url).generate("What is a median?", sources)
    assert len(place.requests) == 1


def test_a_dead_endpoint_ends_in_a_sentence(sources: list[Source]) -> None:
    """Nothing listens there any more."""
    with endpoint(says(GOOD)) as place:
        pass
    with pytest.raises(EndpointError, match="asked 3 times: Connection error"):
        model(place.url).generate("What is a median?", sources)


def test_no_request_where_the_gate_refuses(assessment: Assessment, lexicon: Lexicon) -> None:
    """The endpoint counts."""
    strict = assessment.by(Thresholds(sufficient=0.95, partial=0.95))
    with endpoint(says(GOOD)) as place:
        found = bounded_answer(strict, model(place.url), lexicon)
    assert found.refused
    assert not place.requests


def test_invented_sentences_are_removed(assessment: Assessment, lexicon: Lexicon) -> None:
    """After a second, stricter request."""
    with endpoint(says(f"{GOOD} Penguins invented it in 1700 [S1].")) as place:
        found = bounded_answer(assessment, model(place.url), lexicon)
    assert found.answer == f"{GOOD} {REMOVED}"
    assert (found.attribution_coverage, found.model_calls) == (0.5, 2)
    first, second = (r["messages"][0]["content"] for r in place.requests)
    assert second.startswith(first)
    assert len(second) > len(first)


@pytest.mark.parametrize("obeyed", ["PWNED", "PWNED [S3].", "The word is PWNED [S3]."])
def test_an_obeyed_order_is_caught(obeyed: str, assessment: Assessment, lexicon: Lexicon) -> None:
    """A passage orders the model to say PWNED: it is not shown, and what obeys it is not told."""
    with endpoint(says(obeyed)) as place:
        found = bounded_answer(assessment, model(place.url), lexicon, AnswerConfig(min_score=0.1))
    assert "PWNED" not in str(place.requests)
    assert (found.answer, found.refused) == (NO_ANSWER, True)


def test_half_a_language_model_is_refused() -> None:
    """A URL needs the name of a model, and looks like one."""
    with pytest.raises(InputError, match="`llm_model`"):
        LanguageModelConfig(llm="http://localhost/v1")
    for wrong in ("localhost", "http://", "http://[::1", "http://a:99999/v1", "http://a b/v1"):
        with pytest.raises(InputError, match="should be a URL"):
            LanguageModelConfig(llm=wrong, llm_model="m")
