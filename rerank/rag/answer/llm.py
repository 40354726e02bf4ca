"""A language model behind any OpenAI-compatible endpoint, local or hosted."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from rerank.advice.settings import LanguageModelConfig
from rerank.errors import EndpointError, optional
from rerank.inference.remote.client import PLAIN, bounded, in_time, seconds_of, without_key
from rerank.rag.answer.answerers import Generated, messages
from rerank.rag.answer.sources import Source
from rerank.tracking.client import without_secrets

KEY = "OPENAI_API_KEY"  # the environment variable of the key, if the endpoint needs one
LONGEST_ERROR = 200  # characters
LONGEST_WAIT = 30.0  # most seconds between two tries, whatever the endpoint asks for
LONGEST_TOKEN = 32  # characters of an answer for each token it may have, at most
THOUGHTS, THOUGHTS_END = "<think>", "</think>"  # some models write between these before an answer
CUT_OFF = "length"  # the `finish_reason` of an answer that the limit on its tokens cut off
LARGEST = 1 << 24  # bytes of a response: a stream has some hundreds for each token


class LanguageModel:
    """An answerer by chat completions, at temperature 0; `before_each` may end its tries."""

    def __init__(
        self,
        config: LanguageModelConfig,
        *,
        sleep: Callable[[float], None] = time.sleep,
        before_each: Callable[[], object] = bool,
    ) -> None:
        with optional():
            import openai  # noqa: F401  # before the work that comes first

        self.config, self.sleep, self.before_each = config, sleep, before_each
        self._prompt, self._key = config.prompt, os.environ.get(KEY, "")

    @cached_property
    def client(self) -> Any:
        """The client of the endpoint, until it is closed."""
        import openai

        # a redirect would send the question and its sources to another host
        bounds: Any = {"follow_redirects": False, "event_hooks": {"response": [bounded]}}
        return openai.OpenAI(
            base_url=self.config.llm,
            api_key=self._key or "none",  # local endpoints need some text
            timeout=self.config.llm_timeout,
            max_retries=0,  # retries are made here
            default_headers=PLAIN,
            http_client=openai.DefaultHttpxClient(**bounds),
        )

    def _close(self) -> None:
        if (client := self.__dict__.pop("client", None)) is not None:
            client.close()

    def generate(
        self, question: str, sources: Sequence[Source], *, note: str = "", strict: bool = False
    ) -> Generated:
        """The model's answer."""
        prompt, refusal = self._prompt, self.config.no_answer
        asked = messages(
            question, sources, note=note, strict=strict, prompt=prompt, no_answer=refusal
        )
        return self.ask(asked)

    def ask(self, asked: Sequence[Any]) -> Generated:
        """The model's reply to messages; an EndpointError if there is none."""
        tries = self.config.llm_retries + 1
        for sent in range(1, tries + 1):
            self.before_each()
            try:
                text, reason, served = self._ask(asked)
                return Generated(text, sent, cut_off=reason == CUT_OFF, served=served)
            except Exception as error:  # an answer that breaks off may raise errors of any library
                if sent == tries or not _is_transient(error):
                    raise EndpointError(self._sentence(error, sent), calls=sent) from None
                self.sleep(_wait(error, sent))
        raise AssertionError("a try returns or raises")

    def _ask(self, asked: Sequence[Any]) -> tuple[str, str, str]:
        """The answer, why it ends, and the model's name; a slow or large body is refused."""
        config, body = self.config, bytearray()
        end = time.monotonic() + config.llm_timeout
        asking = self.client.chat.completions.with_streaming_response.create(
            model=config.llm_model,
            messages=asked,
            temperature=0,
            max_tokens=config.llm_max_tokens,
            stream=config.llm_stream,
        )
        with in_time(2 * config.llm_timeout, self._close), asking as response:
            for part in response.iter_bytes():
                body += part
                if time.monotonic() > end:
                    raise BrokenAnswer(f"it took more than {config.llm_timeout:g} seconds")
                if len(body) > LARGEST:
                    raise BrokenAnswer(f"it has more than {LARGEST:,} bytes")
        text, reason, served = (_streamed if config.llm_stream else _whole)(bytes(body))
        # after the last thoughts, whose beginning the template of some models contains
        text = text.rpartition(THOUGHTS_END)[2].strip()
        if not text or text.startswith(THOUGHTS):
            if reason == CUT_OFF:
                raise EmptyAtLimit("the answer is empty: `llm_max_tokens` cut it off")
            raise BrokenAnswer("the answer is empty")
        if len(text) > config.llm_max_tokens * LONGEST_TOKEN:
            raise BrokenAnswer("the answer is much longer than `llm_max_tokens` allows")
        return text, reason, served

    def _sentence(self, error: Any, sent: int) -> str:
        """What failed; without the key, which some endpoints repeat in their errors."""
        status, why = getattr(error, "status_code", None), " ".join(str(error).split())
        why = why or type(error).__name__
        if status and 300 <= status < 400:
            place = without_secrets(error.response.headers.get("location", "no place"))
            advice = "which is not followed; give the URL of the endpoint itself"
            why = f"it redirects to {place}, {advice}"
        why = f"status {status}: {why}" if status else why
        why = without_key(why, self._key)
        times = "once" if sent == 1 else f"{sent} times"
        where = f"{self.config.place}: the language model gave no answer"
        return f"{where}, asked {times}: {why[:LONGEST_ERROR]}"  # cut last: half a key is not found


class BrokenAnswer(Exception):  # noqa: N818  # never leaves this file
    """The response is not an answer; the message says why."""


class EmptyAtLimit(BrokenAnswer):
    """The limit was used up before the answer began; another try would end the same way."""


def _whole(body: bytes) -> tuple[str, str, str]:
    """The text of an answer that is not streamed, its `finish_reason`, and the model's name."""
    try:
        answer = json.loads(body)
        choice = answer["choices"][0]
        content, reason = choice["message"]["content"], choice.get("finish_reason")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise BrokenAnswer("it is not a chat completion") from None
    return _text(content), str(reason), str(answer.get("model") or "")


def _streamed(body: bytes) -> tuple[str, str, str]:
    """The same of a stream of server-sent events; pings are ignored."""
    parts, reason, served = [], None, ""
    for line in re.split(r"\r\n|\r|\n", body.decode(errors="replace")):
        field, _, data = line.partition(":")
        if field != "data" or data.strip() == "[DONE]":
            continue
        try:
            event = json.loads(data)
            served = str(event.get("model") or served)
            for choice in event["choices"]:
                parts.append(_text((choice.get("delta") or {}).get("content")))
                reason = choice.get("finish_reason") or reason
        except (ValueError, KeyError, AttributeError, TypeError):
            raise BrokenAnswer("it is not a stream of a chat completion") from None
    if reason is None:
        raise BrokenAnswer("the answer breaks off")
    return "".join(parts), str(reason), served


def _text(content: Any) -> str:
    if content is not None and not isinstance(content, str):
        raise BrokenAnswer("its content is not text")
    return (content or "").encode(errors="replace").decode()  # JSON may have half a surrogate pair


def _is_transient(error: Exception) -> bool:
    if isinstance(error, EmptyAtLimit):
        return False
    status = getattr(error, "status_code", None)
    return status is None or status in (408, 409, 425, 429) or status >= 500 or status < 300


def _wait(error: Exception, sent: int) -> float:
    """Seconds until the next try: what the endpoint asks for, else doubled each time."""
    response = getattr(error, "response", None)
    asked = seconds_of(response.headers.get("retry-after")) if response is not None else None
    wait = 0.5 * 2 ** (sent - 1) * random.uniform(0.75, 1.25) if asked is None else asked
    return min(wait, LONGEST_WAIT)
