"""What a request is refused with: a status and a sentence, always as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


class Refusal(Exception):  # noqa: N818  # an answer, not an error of ours
    """An answer other than 200: the status, the sentence, and headers."""

    def __init__(
        self, status: int, sentence: str, *, reason: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.reason = reason
        self.headers = dict(headers or {})


def body(sentence: str) -> bytes:
    """The JSON of an error: `message`, as Cohere's clients read it, and `detail`, as Jina's do."""
    return json.dumps({"message": sentence, "detail": sentence}).encode()


def sentence_of(errors: Sequence[Mapping[str, Any]]) -> str:
    """What a validator found, as one sentence without any of the values given."""
    said = []
    for error in errors[:3]:
        if error["type"] == "json_invalid":
            return f"the body is no JSON: it breaks at character {error['loc'][-1]}"
        place = ".".join(str(part) for part in error["loc"] if part not in ("body", "str"))
        said.append(f"{place}: {error['msg']}" if place else str(error["msg"]))
    if len(errors) > 3:
        said.append(f"and {len(errors) - 3} more")
    return "; ".join(dict.fromkeys(said))
