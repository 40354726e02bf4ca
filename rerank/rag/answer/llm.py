"""A language model behind any OpenAI-compatible endpoint, local or hosted.

Temporary failures (no connection, a stall, 429, 5xx, an answer that breaks off or is not JSON) are
retried a few times; what cannot succeed fails at once.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from rerank.errors import EndpointError, optional
from rerank.rag.answer.answerer import Generated
from rerank.rag.answer.context import Source
from rerank.rag.answer.prompt import Message, messages
from rerank.rag.settings import LanguageModelConfig

KEY = "OPENAI_API_KEY"  # the environment variable of the key, if the endpoint needs one
LONGEST_WAIT = 30.0  # most seconds between two tries, whatever the endpoint asks for


class LanguageModel:
    """An answerer that uses chat completions, at temperature 0.

    `sleep` waits between two tries.

    Raises:
        MissingExtraError: the client is not installed.
    """

    def __init__(
        self, config: LanguageModelConfig, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        with optional():
            import openai

        self.config = config
        self.sleep = sleep
        self.client = openai.OpenAI(
            base_url=config.llm,
            api_key=os.environ.get(KEY) or "none",  # local endpoints need some text
            timeout=config.llm_timeout,
            max_retries=0,  # retries are made here
        )

    def generate(
        self, question: str, sources: Sequence[Source], *, note: str = "", strict: bool = False
    ) -> Generated:
        """The model's answer.

        Raises:
            EndpointError: the endpoint does not answer, or refuses.
        """
        asked = messages(question, sources, note=note, strict=strict)
        tries = self.config.llm_retries + 1
        for sent in range(1, tries + 1):
            try:
                return Generated(self._ask(asked), sent)
            except Exception as error:  # an answer that breaks off may raise errors of any library
                if sent == tries or not _is_transient(error):
                    raise EndpointError(self._sentence(error, sent), calls=sent) from None
                self.sleep(_wait(error, sent))
        raise AssertionError("a try returns or raises")

    def _ask(self, asked: Sequence[Message]) -> str:
        given: dict[str, Any] = {
            "model": self.config.llm_model,
            "messages": list(asked),
            "temperature": 0,
            "max_tokens": self.config.llm_max_tokens,
        }
        make = self.client.chat.completions.create
        text = (
            self._streamed(make(**given, stream=True))
            if self.config.llm_stream
            else _whole(make(**given))
        )
        if not text.strip():
            raise BrokenAnswer("the answer is empty")
        return text.strip()

    def _streamed(self, stream: Any) -> str:
        """The text of a stream, which must end in time."""
        end, parts, finished = time.monotonic() + self.config.llm_timeout, [], False
        with stream:
            for chunk in stream:
                for choice in chunk.choices:
                    parts.append(choice.delta.content or "")
                    finished = finished or choice.finish_reason is not None
                if time.monotonic() > end:
                    raise BrokenAnswer(f"it took more than {self.config.llm_timeout:g} seconds")
        if not finished:
            raise BrokenAnswer("the answer breaks off")
        return "".join(parts)

    def _sentence(self, error: Exception, sent: int) -> str:
        times = "once" if sent == 1 else f"{sent} times"
        why = _error_text(error)
        return f"{self.config.llm}: the language model gave no answer, asked {times}: {why}"


class BrokenAnswer(Exception):  # noqa: N818  # never leaves this file
    """The response is not an answer; the message says why."""


def _whole(answer: Any) -> str:
    """The text of an answer that is not streamed."""
    try:
        content = answer.choices[0].message.content
    except (AttributeError, IndexError, TypeError):
        raise BrokenAnswer("it is no chat completion") from None
    if content is not None and not isinstance(content, str):
        raise BrokenAnswer("its content is no text")
    return content or ""


def _is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    status = getattr(error, "status_code", None)
    return status is None or status in (408, 409, 425, 429) or status >= 500 or status < 400


def _wait(error: Exception, sent: int) -> float:
    """Seconds until the next try: what the endpoint asks for, else doubled each time."""
    response = getattr(error, "response", None)
    asked = response.headers.get("retry-after", "") if response is not None else ""
    try:
        wait = float(asked)
    except ValueError:
        wait = 0.5 * 2 ** (sent - 1) * random.uniform(0.75, 1.25)
    return min(max(wait, 0.0), LONGEST_WAIT)


def _error_text(error: Exception) -> str:
    status = getattr(error, "status_code", None)
    text = " ".join(str(error).split())[:200] or type(error).__name__
    return f"status {status}: {text}" if status else text
