"""What an ONNX file may hold; the onnx package makes the files."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from rerank.errors import InputError
from rerank.inference.onnx_safety import check_graph_is_safe

ONE = numpy_helper.from_array(np.ones(3, dtype=np.float32), "one")


def model(*nodes: Any, initializer: Any = (), **more: Any) -> onnx.ModelProto:
    """A model of one graph."""
    graph = helper.make_graph(list(nodes), "graph", [], [], list(initializer))
    return helper.make_model(graph, **more)


def external() -> TensorProto:
    """A tensor whose numbers lie in another file."""
    made = TensorProto(name="one", data_type=TensorProto.FLOAT, dims=[3])
    made.data_location = TensorProto.EXTERNAL
    made.external_data.add(key="location", value="../secret")
    return made


def named_only() -> TensorProto:
    """The same, but for the word that says so."""
    made = external()
    made.data_location = TensorProto.DEFAULT
    return made


def within(node: Any, depth: int = 3) -> Any:
    """A node that holds another in the graph of its branch, and that in another."""
    for _ in range(depth):
        branch = helper.make_graph([node], "branch", [], [])
        node = helper.make_node("If", ["x"], ["y"], then_branch=branch)
    return node


ADD = helper.make_node("Add", ["one", "one"], ["row"])
CUSTOM = helper.make_node("Add", ["one", "one"], ["row"], domain="someone.else")
PLAIN = [
    model(ADD, initializer=[ONE]),
    model(helper.make_node("FastGelu", ["one"], ["row"], domain="com.microsoft")),
    model(helper.make_node("Constant", [], ["row"], value=ONE)),
    model(within(ADD)),
]
SPARSE = helper.make_sparse_tensor(
    external(), numpy_helper.from_array(np.arange(3, dtype=np.int64)), [9]
)
UNSAFE = {
    "operator of the domain 'someone.else'": [model(CUSTOM), model(within(CUSTOM))],
    "data in another file": [
        model(ADD, initializer=[external()]),
        model(ADD, initializer=[named_only()]),
        model(helper.make_node("Constant", [], ["row"], value=external())),
        model(helper.make_node("Constant", [], ["row"], sparse_value=SPARSE)),
        model(within(helper.make_node("Constant", [], ["row"], value=external()))),
    ],
    "function of its own": [
        model(
            ADD,
            functions=[
                helper.make_function("", "Add", ["a"], ["b"], [ADD], [helper.make_opsetid("", 17)])
            ],
        )
    ],
    "no graph": [onnx.ModelProto()],
}


@pytest.mark.parametrize("plain", PLAIN)
def test_a_plain_graph_passes(plain: onnx.ModelProto) -> None:
    """Operators of ONNX and of ONNX Runtime, numbers within."""
    check_graph_is_safe(plain.SerializeToString(), "graph.onnx")


@pytest.mark.parametrize(
    ("sentence", "unsafe"), [(why, each) for why, them in UNSAFE.items() for each in them]
)
def test_an_unsafe_graph_is_refused(sentence: str, unsafe: onnx.ModelProto) -> None:
    """Wherever the part lies, the sentence names it."""
    with pytest.raises(InputError, match=sentence):
        check_graph_is_safe(unsafe.SerializeToString(), "graph.onnx")


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 255), st.booleans())
@example(0, 0, True)
def test_what_passes_is_safe_to_onnx_as_well(place: int, byte: int, cut: bool) -> None:
    """A file with any byte changed, or cut off anywhere: refused, or read alike by onnx."""
    whole = bytearray(model(within(CUSTOM), ADD, initializer=[ONE, external()]).SerializeToString())
    whole = whole.replace(b"someone.else", b"ai.onnx").replace(b"\x70\x01", b"")
    place %= len(whole)
    changed = bytes(whole[:place]) if cut else bytes([*whole[:place], byte, *whole[place + 1 :]])
    try:
        check_graph_is_safe(changed, "graph.onnx")
    except InputError:
        return
    try:
        read = onnx.load_from_string(changed)
    except Exception:  # onnx refuses more than we do
        return
    assert {node.domain for node in read.graph.node} <= {"", "ai.onnx", "com.microsoft"}
    assert not any(t.external_data or t.data_location for t in read.graph.initializer)
    assert not read.functions
