"""Which ONNX files may be run: those with standard operators only, and no data but known bytes.

It reads their structure (Protocol Buffers' wire format, onnx.proto) without the onnx package.
"""

from __future__ import annotations

from collections.abc import Iterator

from rerank.errors import InputError

DOMAINS = {"", "ai.onnx", "com.microsoft"}  # of the operators in ONNX Runtime itself
PARTS = {  # the messages within a message, by field number
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse tensor"}
    | {23: "sparse tensor"},
    "sparse tensor": {1: "tensor", 2: "tensor"},
}
DOMAIN = 7  # of a node
EXTERNAL_DATA, DATA_LOCATION = 13, 14  # of a tensor


def check_graph_is_safe(graph: bytes, name: str, *, data: str | None = None) -> None:
    """Refuse an ONNX file that could read another file, or run code that is not ONNX Runtime's own.

    `data` is the one file that it may name, because ONNX Runtime is given its bytes.
    """
    kinds = set()
    try:
        for kind, number, value in _walk("model", memoryview(graph)):
            kinds.add(kind)
            if kind in ("training", "function"):
                raise InputError(f"{name} has a {kind} of its own; expected a plain graph")
            if kind == "node" and number == DOMAIN and _text(value) not in DOMAINS:
                domain = f"an operator of the domain {_text(value)!r}"
                raise InputError(f"{name} has {domain}; expected operators of ONNX Runtime")
            if kind == "tensor" and number in (EXTERNAL_DATA, DATA_LOCATION) and value:
                if data is None:
                    raise InputError(f"{name} has data in another file; expected all in itself")
                if number == EXTERNAL_DATA and not _names(value, data):
                    raise InputError(f"{name} has data in a file that is not {data}")
    except (IndexError, RecursionError) as error:
        raise InputError(f"{name} is not an ONNX file: {error}") from None
    if "node" not in kinds:
        raise InputError(f"{name} is not an ONNX file: it has no graph")


def _names(entry: memoryview | int, data: str) -> bool:
    """Whether a key and value of a tensor's external data name no file but `data`."""
    if isinstance(entry, int):
        return False
    pairs = [(number, _text(value)) for number, value in _fields(entry)]
    keys, values = ([text for number, text in pairs if number == n] for n in (1, 2))
    return len(keys) == len(values) == 1 and (keys != ["location"] or values == [data])


def _walk(kind: str, message: memoryview) -> Iterator[tuple[str, int, memoryview | int]]:
    """Every field of a message and of its nested messages: its message's kind, number, value."""
    for number, value in _fields(message):
        yield kind, number, value
        part_kind = PARTS.get(kind, {}).get(number)
        if part_kind is not None:
            if isinstance(value, int):
                raise IndexError(f"field {number} of a {kind} is a number; expected a {part_kind}")
            yield from _walk(part_kind, value)


def _text(value: memoryview | int) -> str:
    return str(value) if isinstance(value, int) else bytes(value).decode(errors="replace")


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """The number and value of each field: an integer, or the bytes of anything else."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(message, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise IndexError(f"field of the unknown kind {wire} at byte {at}")
        if at + size > len(message):
            raise IndexError(f"it ends within a field of {size} bytes")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise IndexError(f"an integer of more than 10 bytes ends at byte {at}")
