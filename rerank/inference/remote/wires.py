"""What servers of rerankers and encoders read and write: addresses, JSON bodies, answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from rerank.errors import InputError, check_one_of

PLAIN_KEY = "RERANK_API_KEY"  # environment: the key of an address
PLAIN_HOSTS = "RERANK_API_HOSTS"  # environment: where it may be sent for a model folder
FORM = re.compile(
    r"(?:(?P<wire>[\w-]+)\+)?(?P<url>https?://.*)|(?P<host>[a-z-]+):(?P<model>(?!//).+)"
)
ASK = "Does this passage answer the query of the state?\n\nPassage: {}"
ASK_ALL = "Which passage answers the query of the state?"
NONE = "none"  # the name of the option that no passage answers
RELEVANT = "The passage answers the query."
NOT_RELEVANT = "The passage does not answer the query, or only mentions its subject."


MOST = 1e100  # of a number in an answer: sums of squares of such numbers are finite


class BadAnswerError(ValueError):
    """An answer that is not what was asked for; each function that reads one raises it."""


Body = Callable[[str, Sequence[str]], dict[str, Any]]  # of a query or a role, and texts
Read = Callable[[Any, int], list[Any]]  # of an answer, and the number of texts


@dataclass(frozen=True, slots=True)
class Wire:
    """One form of requests and answers; `most` texts fit in a request."""

    fields: Body
    read: Read
    path: str
    most: int = 32
    host: str = ""  # of the vendor, whose name the wire has
    key: str = PLAIN_KEY  # environment variable with the vendor's key
    listwise: bool = False  # a score depends on the other texts of a request
    told: str = ""  # the query with an instruction, where the form has a place for one
    names_model: bool = True

    def body(self, model: str, asked: str, texts: Sequence[str]) -> dict[str, Any]:
        """The body of a request about a query or a role, and texts."""
        named = {"model": model} if model and self.names_model else {}
        return named | self.fields(asked, texts)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a model is: the name as typed, the URL of its route, and what the server calls it."""

    name: str
    url: str
    model: str
    key: str  # environment variable
    wires: tuple[Wire, ...] = field(repr=False)  # one, or those to try in turn


def _of_documents(query: str, texts: Sequence[str]) -> dict[str, Any]:
    return {"query": query, "documents": list(texts)}


def _of_texts(query: str, texts: Sequence[str]) -> dict[str, Any]:
    # logits tell more than what a sigmoid leaves
    return {"query": query, "texts": list(texts), "raw_scores": True, "truncate": True}


def _of_questions(query: str, texts: Sequence[str]) -> dict[str, Any]:
    criteria = {"true": RELEVANT, "false": NOT_RELEVANT}
    questions = {
        f"p{i}": {"type": "noul", "instructions": ASK.format(text), "criteria": criteria}
        for i, text in enumerate(texts)
    }
    return {"state": {"query": query}, "questions": questions}


def _of_choice(query: str, texts: Sequence[str]) -> dict[str, Any]:
    passages = {f"p{i}": text for i, text in enumerate(texts)}
    criteria = {**passages, NONE: "No passage answers the query."}
    question = {"type": "choice", "instructions": ASK_ALL, "criteria": criteria}
    return {"state": {"query": query}, "questions": {"best": question}}


def _of_predicates(query: str, texts: Sequence[str]) -> dict[str, Any]:
    ask = f"{RELEVANT}\n\nPassage: {{}}"
    questions = [
        {"type": "predicate", "name": f"p{i}", "instructions": ask.format(text)}
        for i, text in enumerate(texts)
    ]
    return {"input": query, "questions": questions}


def _of_input(role: str, texts: Sequence[str]) -> dict[str, Any]:
    return {"input": list(texts), "encoding_format": "float"}


def _of_typed_input(role: str, texts: Sequence[str]) -> dict[str, Any]:
    return {"input": list(texts), "input_type": "query" if role == "query" else "document"}


def _of_inputs(role: str, texts: Sequence[str]) -> dict[str, Any]:
    return {"inputs": list(texts), "truncate": True}


def read_ranks(answer: Any, count: int) -> list[float]:
    """The scores of results in any order, by `index`."""
    rows = _rows(answer, "results", "data")
    name = next((n for n in ("relevance_score", "score") if rows and n in rows[0]), "score")
    return list(map(number, _by_index(rows, count, name)))


def read_questions(answer: Any, count: int) -> list[float]:
    """The probabilities of System One's answers, by the ids of the questions."""
    return _probabilities(_answers(answer), count, "noul")


def read_choice(answer: Any, count: int) -> list[float]:
    """The probabilities of the passages in System One's answer to one choice."""
    best = _answers(answer).get("best")
    given = best.get("probabilities") if isinstance(best, dict) else None
    given = given if isinstance(given, dict) else {}
    return _probabilities({i: {"": p} for i, p in given.items() if i != NONE}, count, "")


def read_predicates(answer: Any, count: int) -> list[float]:
    """The probabilities of OpenAI's answers, by the names of the questions."""
    rows = {str(row.get("name")): row for row in _rows(answer, "answers")}
    return _probabilities(rows, count, "probability")


def _answers(answer: Any) -> dict[str, Any]:
    """System One's answers by the names of the questions; none if there is something else."""
    found = answer.get("answers") if isinstance(answer, dict) else None
    return found if isinstance(found, dict) else {}


def _probabilities(answers: Any, count: int, name: str) -> list[float]:
    """The value of `name` in the answers to the questions p0, p1, ..., each a probability."""
    if set(answers) != {f"p{i}" for i in range(count)}:
        raise BadAnswerError(f"answers to other questions than the {count} asked")
    given = [answers[f"p{i}"] for i in range(count)]
    scores = [one.get(name) if isinstance(one, dict) else None for one in given]
    for score in scores:
        if not 0 <= number(score) <= 1:
            raise BadAnswerError(f"the probability {score!r:.40}")
    return list(map(number, scores))


def read_vectors(answer: Any, count: int) -> list[list[float]]:
    """The vectors by `index`, or in their order from a bare list; all of one width."""
    bare = isinstance(answer, list)
    rows = _by_index(_rows(answer, "data"), count, "embedding") if not bare else answer
    if len(rows) != count:
        raise BadAnswerError(f"{len(rows)} vectors for {count} texts")
    if not all(isinstance(row, list) and row and len(row) == len(rows[0]) for row in rows):
        raise BadAnswerError("something else than vectors of one width")
    return [list(map(number, row)) for row in rows]


def number(value: object) -> float:
    """The value, which must be a finite number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) <= MOST:
        raise BadAnswerError(f"{value!r:.40} where a number is due")
    return float(value)


BEFORE = "{instruction}\n{query}"
AFTER = "{query}\n\nWhat counts as an answer: {instruction}"
COHERE = ("https://api.cohere.com", "COHERE_API_KEY")
JINA = ("https://api.jina.ai", "JINA_API_KEY")
OPENAI = ("https://api.openai.com", "OPENAI_API_KEY")
TYPESAFE = ("https://api.typesafe.ai", "TYPESAFE_API_KEY")
VOYAGE = ("https://api.voyageai.com", "VOYAGE_API_KEY")
RERANKERS: Mapping[str, Wire] = {  # by the name of the form
    "cohere": Wire(_of_documents, read_ranks, "/v2/rerank", 500, *COHERE),
    "jina": Wire(_of_documents, read_ranks, "/v1/rerank", 500, *JINA),
    "voyage": Wire(_of_documents, read_ranks, "/v1/rerank", 500, *VOYAGE, told=BEFORE),
    "tei": Wire(_of_texts, read_ranks, "/rerank", names_model=False),
    "systemone": Wire(_of_questions, read_questions, "/v1/systemone", told=AFTER),
    "systemone-choice": Wire(_of_choice, read_choice, "/v1/systemone", listwise=True, told=AFTER),
    "typesafe": Wire(_of_questions, read_questions, "/v1/systemone", 32, *TYPESAFE, told=AFTER),
    "openai-decisions": Wire(
        _of_predicates, read_predicates, "/v1/decisions", 32, *OPENAI, told=AFTER
    ),
}
ENCODERS: Mapping[str, Wire] = {
    "openai": Wire(_of_input, read_vectors, "/v1/embeddings", 128, *OPENAI),
    "voyage": Wire(_of_typed_input, read_vectors, "/v1/embeddings", 128, *VOYAGE),
    "tei": Wire(_of_inputs, read_vectors, "/embed", names_model=False),
}
ROLES = {"reranker": RERANKERS, "encoder": ENCODERS}
UNSTATED = {  # forms to try at a plain address, and its route if only a host is named
    "reranker": (Wire(_of_documents, read_ranks, "/rerank"), RERANKERS["tei"]),
    "encoder": (Wire(_of_input, read_vectors, "/v1/embeddings"), ENCODERS["tei"]),
}


def is_remote(name: str) -> bool:
    """Whether a name is that of a model behind an address, not of files."""
    found = FORM.fullmatch(name)
    return found is not None and bool(found["url"] or found["host"] in {*RERANKERS, *ENCODERS})


def address_of(name: str, role: str) -> Address:
    """The address of `cohere:MODEL`, `https://HOST/ROUTE#MODEL` or `tei+http://HOST`."""
    known, found = ROLES[role], FORM.fullmatch(name)
    if found is None:
        raise InputError(f"the {role} {name!r:.200} is no address, such as http://HOST:PORT/rerank")
    if not found["url"]:
        vendors = [n for n, wire in known.items() if wire.host]
        check_one_of(f"the host of the {role}", found["host"], vendors)
        wire = known[found["host"]]
        return Address(name, wire.host + wire.path, found["model"], wire.key, (wire,))
    if found["wire"]:
        check_one_of(f"the form of the {role}'s address", found["wire"], known)
    wires = (known[found["wire"]],) if found["wire"] else UNSTATED[role]
    place, _, model = found["url"].partition("#")
    if "@" in place or "?" in place:
        raise InputError(
            f"the address of the {role} holds a password or parameters; expected a key in the "
            f"environment, as {PLAIN_KEY}, and the model's name after #"
        )
    try:
        parts = urlsplit(place)
        fits = bool(parts.hostname) and parts.port != 0 and name.isprintable() and " " not in name
    except ValueError:
        fits = False
    if not fits:
        raise InputError(f"the {role} {name!r:.200} is no address, such as http://HOST:PORT/rerank")
    route = parts.path if parts.path.strip("/") else wires[0].path
    url = f"{parts.scheme}://{parts.netloc}{route}"
    return Address(name, url, model, PLAIN_KEY, wires)


def _rows(answer: Any, *names: str) -> list[dict[str, Any]]:
    listed = answer
    if isinstance(answer, dict):
        listed = next((answer[name] for name in names if name in answer), None)
    if not isinstance(listed, list) or not all(isinstance(row, dict) for row in listed):
        raise BadAnswerError(f"no list of {' or '.join(names)}")
    return listed


def _by_index(rows: Sequence[Mapping[str, Any]], count: int, name: str) -> list[Any]:
    if len(rows) != count:
        raise BadAnswerError(f"{len(rows)} results for {count} texts")
    places = [row.get("index") for row in rows]
    if any(type(place) is not int for place in places) or set(places) != set(range(count)):
        raise BadAnswerError(f"the indexes {str(places)[:60]} for {count} texts")
    found = {row["index"]: row.get(name) for row in rows}
    return [found[place] for place in range(count)]
