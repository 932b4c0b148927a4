"""A small graph that makes attention mask and positions for graphs of fixed sizes.

onnxruntime-genai reads a prompt in windows and fills the last one (``left``) or the first one
(``right``) with pads. What it makes of mask and positions itself does not fit: its mask marks the
pads of the first window, is aligned to the end and has as many columns in each phase; and of a
second prompt in the same conversation it loses count (0.18.0: ``windowed_position_inputs.cpp``,
``input_ids.cpp``). So a stage on the CPU counts the tokens: it runs before every step, and what it
counted comes back to it through ``output_names_forwarder``. The graphs of the device keep the
interface that they have everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from rewriter.genai.graphs import Port

BEFORE, AFTER = "tokens_before", "tokens_after"
"""What is counted: goes in, nothing at first, and comes out."""

PAD = "rewriter.pad_token_id"
"""Key of its metadata: the token that it takes for padding."""

IDS, MASK, POSITIONS = "input_ids", "attention_mask", "position_ids"
_OPSET = 18
_LAST = np.iinfo(np.int64).max


def lengths_graph(
    alignment: str, step: Mapping[str, Port], names: Mapping[str, str], rows: int, pad: int
) -> ir.Model:
    """The graph, for steps of any number S of tokens.

    Args:
        alignment: of the caches, ``left`` or ``right``.
        step: inputs of a step by role, of whose dtype the results are: mask (1, C) where the
            caches are ``left`` and (1, C + S) where they are ``right``, positions (1, S).
        names: of those inputs, by role.
        rows: C, of the caches.
        pad: the token that the runtime fills windows with.
    """
    graph = _Graph()
    ids = graph.input(names[IDS], step[IDS].dtype or ir.DataType.INT64, (1, "tokens"))
    tokens = graph.node("Cast", ids, to=ir.DataType.INT64)
    said = graph.node("Not", graph.node("Equal", tokens, graph.constant("pad", np.int64(pad))))
    count = graph.node("Shape", ids, start=1)  # (1,)
    zero, one = (graph.constant(f"number/{n}", np.int64(n)) for n in (0, 1))
    index = graph.node("Range", zero, graph.node("Squeeze", count), one)  # (S,)
    make = _front if alignment == "left" else _end
    results = make(graph, said, count, index, rows)
    for role, value in zip((MASK, POSITIONS), results, strict=True):
        if role in step:
            graph.output(value, step[role], names[role])
    model = ir.Model(graph.graph, ir_version=10, producer_name="rewrite")
    model.metadata_props[PAD] = str(pad)
    return model


def _front(
    graph: _Graph, said: ir.Value, count: ir.Value, index: ir.Value, rows: int
) -> tuple[ir.Value, ir.Value]:
    """Pads come after the tokens; the next step writes over them."""
    before = graph.state(np.zeros(1, np.int64))
    one = graph.constant("one", np.ones(1, np.int64))
    ends = graph.node("Mul", graph.node("Add", index, one), graph.node("Cast", said, to=7))
    real = graph.node("Max", graph.node("ReduceMax", ends, keepdims=0), one)
    graph.keep(graph.node("Add", before, real), (1,))
    order = graph.constant("rows", np.arange(rows)[None])
    mask = graph.node("Less", order, graph.node("Add", before, count))
    return mask, graph.node("Unsqueeze", graph.node("Add", before, index), graph.axis(0))


def _end(
    graph: _Graph, said: ir.Value, count: ir.Value, index: ir.Value, rows: int
) -> tuple[ir.Value, ir.Value]:
    """Pads come before the tokens, and stay in the cache with a 0 in the mask."""
    before = graph.state(np.zeros((1, rows), np.int64))
    one = graph.constant("one", np.ones(1, np.int64))
    seen = graph.node("CumSum", graph.node("Cast", said, to=7), graph.constant("dim", np.int64(1)))
    last = graph.node("Equal", graph.node("Add", index, one), count)
    real = graph.node("Or", graph.node("Greater", seen, graph.axis(0)), last)  # (1, S)
    real = graph.node("Cast", real, to=7)
    mask = graph.node("Concat", before, real, axis=1)
    newest = (graph.constant(f"newest/{i}", np.array([at])) for i, at in enumerate((-rows, _LAST)))
    graph.keep(graph.node("Slice", mask, *newest, graph.axis(1)), (1, rows))
    held = graph.node("ReduceSum", before, graph.axis(1))
    order = graph.node("CumSum", real, graph.constant("dim", np.int64(1)))
    positions = graph.node("Sub", graph.node("Add", held, order), one)
    return mask, graph.node("Max", positions, graph.axis(0))


class _Graph:
    """Builds a graph of int64."""

    def __init__(self) -> None:
        self.graph = ir.Graph([], [], nodes=[], opset_imports={"": _OPSET}, name="lengths")

    def input(self, name: str, dtype: ir.DataType, shape: tuple[int | str, ...]) -> ir.Value:
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
        self.graph.inputs.append(value)
        return value

    def constant(self, name: str, array: np.generic | np.ndarray) -> ir.Value:
        if name not in self.graph.initializers:
            tensor = ir.tensor(np.asarray(array), name=name)
            value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype))
            value.shape = ir.Shape(np.shape(array))
            self.graph.initializers[name] = value
        return self.graph.initializers[name]

    def axis(self, number: int) -> ir.Value:
        return self.constant(f"axis/{number}", np.array([number]))

    def state(self, first: np.ndarray) -> ir.Value:
        """An input that holds something where nobody gives it."""
        value = self.constant(BEFORE, first)
        self.graph.inputs.append(value)
        return value

    def node(self, op: str, *inputs: ir.Value, **attributes: int) -> ir.Value:
        name = f"{op}/{len(self.graph)}"
        node = ir.node(op, [*inputs], attributes, name=name)
        node.outputs[0].name = name
        self.graph.append(node)
        return node.outputs[0]

    def keep(self, value: ir.Value, shape: tuple[int, ...]) -> None:
        """Give out what is counted."""
        self.output(value, Port(ir.DataType.INT64, shape), AFTER)

    def output(self, value: ir.Value, port: Port, name: str) -> None:
        """Give a value out under a name, in the dtype that the graphs take."""
        dtype = port.dtype or ir.DataType.INT64
        made = self.node("Cast", value, to=dtype)
        sizes = [d if i == 0 or name == AFTER else None for i, d in enumerate(port.shape)]
        made.name, made.type, made.shape = name, ir.TensorType(dtype), ir.Shape(sizes)
        self.graph.outputs.append(made)
