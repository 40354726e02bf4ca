"""Refusals of the HTTP API: a status, and a sentence that repeats no text that was given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from rerank.data.checks import json_type

SHAPES = ("one per document", "by stage")  # of scores
IN_PASSING = (
    "body",
    "str",
    "Document",
    *SHAPES,
)  # parts of a location that tell the client nothing
NUMBERS = {  # what is expected, by pydantic's type of an error; the number that came is shown
    "finite_number": "a finite number",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "less_than": "below {lt:g}",
    "less_than_equal": "{le:g} or less",
}
LENGTHS = {  # only the length of what came is shown
    "string_too_short": "a text of {min_length} or more characters",
    "string_too_long": "a text of {max_length} characters or fewer",
}
EXPECTED = {
    "string_type": "text",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "list_type": "a list",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "an object"),
    **NUMBERS,
    **LENGTHS,
}
NO_OBJECT = ("missing", "model_attributes_type", "model_type")  # of the body: none, or no object
PRIVATE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Headers of answers that say nothing else of it: no proxy keeps them, no browser guesses."""
SHOWN = 50  # characters of an unknown field's name


@dataclass(eq=False)
class Refusal(Exception):  # noqa: N818  # an answer, not an error of ours
    """An answer other than 200. `reason` is a word for metrics and logs."""

    status: int
    sentence: str
    reason: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        """Its JSON: `message`, as Cohere's clients read it, and `detail`, as Jina's do."""
        return json.dumps({"message": self.sentence, "detail": self.sentence}).encode()


def not_ready(seconds: float) -> Refusal:
    """The refusal of a request whose answer was not ready within the time limit."""
    return Refusal(504, f"the answer was not ready within {seconds:g} seconds", "late")


def sentence_of(errors: Sequence[Mapping[str, Any]]) -> str:
    """The validation errors as one sentence, without any text that was given."""
    found: list[str] = []
    expected: dict[tuple[str, str], list[str]] = {}  # (field, what came) -> what may stand there
    for error in errors[:3]:
        kind, place = error["type"], _place(error["loc"])
        if kind == "json_invalid":
            return f"the body is not JSON: it breaks at character {error['loc'][-1]}"
        if not place and kind in NO_OBJECT:
            came = "nothing" if kind == "missing" else json_type(error["input"])
            return f"the body should be a JSON object, got {came}; its fields are at /openapi.json"
        if kind == "missing":
            found.append(f"{place} is missing; all fields are at /openapi.json")
        elif place and kind in EXPECTED:
            came = str(error["input"])[:SHOWN] if kind in NUMBERS else json_type(error["input"])
            came = str(len(error["input"])) if kind in LENGTHS else came
            wanted = EXPECTED[kind].format(**error.get("ctx", {}))
            expected.setdefault((place, came), []).append(wanted)
        else:
            found.append(f"{place}: {error['msg']}" if place else str(error["msg"]))
    for (place, came), kinds in expected.items():
        found.append(f"{place} should be {' or '.join(dict.fromkeys(kinds))}, got {came}")
    if len(errors) > 3:
        found.append(f"and {len(errors) - 3} more")
    return "; ".join(dict.fromkeys(found))


def _place(loc: Sequence[str | int]) -> str:
    """The field of the body that an error is about, or the parameter of the address; "" if none."""
    in_address = len(loc) > 1 and loc[0] == "query"
    parts = [str(p)[:SHOWN] for p in (loc[1:] if in_address else loc) if p not in IN_PASSING]
    place = ".".join(part if part.isprintable() else ascii(part)[1:-1] for part in parts)
    return f"the parameter `{place}`" if in_address else place


class ErrorResponse(BaseModel):
    """Why there is no answer, in a sentence; `detail` repeats it for clients that read it there."""

    message: str
    detail: str
