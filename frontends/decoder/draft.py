"""A graph under construction: parts are built on tapes, so every value has dtype and shape."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import onnx_ir as ir

from frontends.decoder.weights import Float, Weight, Weights
from rewriter.errors import BadInput
from rewriter.tape import Tape, Workspace

BATCH, NEW = "batch_size", "sequence_length"
PAST, TOTAL = "past_sequence_length", "total_sequence_length"
"""Names of dims, as onnxruntime-genai gives them."""

OPSETS = {"": 24, "com.microsoft": 1}
_IR_VERSION = 10


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a part is built: a tape, and the weights whose names start with a prefix.

    Attributes:
        op: the tape.
        weights: all of the checkpoint.
        source: what messages call the checkpoint.
        prefix: what names given here start with in it.
    """

    op: Tape
    weights: Weights
    source: str
    prefix: str = ""

    def has(self, name: str) -> bool:
        """Whether there is a weight."""
        return self.prefix + name in self.weights

    def weight(self, name: str) -> Weight:
        """A weight."""
        return self.weights[self.prefix + name]

    def constant(self, name: str, tensor: ir.TensorProtocol, part: str = "") -> ir.Value:
        """A weight's tensor as a constant; one for all that use it."""
        label = self.prefix + name + (f".{part}" if part else "")
        return self.op.weight(label, tensor, label)

    def sized(self, name: str, *shape: int | None) -> Weight:
        """A weight of a shape; ``None`` is any size.

        Raises:
            BadInput: it has another shape.
        """
        weight = self.weight(name)
        if len(weight.shape) != len(shape) or any(
            wanted not in {None, found} for wanted, found in zip(shape, weight.shape, strict=True)
        ):
            raise self.fault(name, weight, shape)
        return weight

    def vector(self, name: str, *shape: int | None) -> ir.Value:
        """The weight of a norm, or a bias, in float32.

        Raises:
            BadInput: it has another shape, or is stored as integers.
        """
        weight = self.sized(name, *shape)
        if not isinstance(weight, Float):
            raise BadInput(
                f"{self.source}: the weight '{self.prefix}{name}' is quantized, which no norm or "
                "bias is; convert the model again"
            )
        return self.constant(name, as_float32(weight.tensor))

    def fault(self, name: str, weight: Weight, shape: Sequence[int | None]) -> BadInput:
        """What to raise for a weight that has another shape than it should."""
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        return BadInput(
            f"{self.source}: the weight '{self.prefix}{name}' has the shape {list(weight.shape)} "
            f"where the rest of the model needs [{wanted}]; convert the model again"
        )


def width(x: ir.Value) -> int | None:
    """Size of the last axis, if it is known."""
    size = x.shape[-1] if x.shape is not None else None
    return size if isinstance(size, int) else None


def as_float32(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """The same numbers in float32, converted when they are read."""
    if tensor.dtype == ir.DataType.FLOAT:
        return tensor
    return ir.LazyTensor(
        lambda: ir.tensor(tensor.numpy().astype("float32")),
        ir.DataType.FLOAT,
        ir.Shape(tensor.shape.numpy()),
    )


class Draft:
    """Collects inputs, parts and outputs of one graph."""

    def __init__(self, name: str) -> None:
        self._graph = ir.Graph([], [], nodes=[], opset_imports=dict(OPSETS), name=name)
        self._space = Workspace(self._graph, set())

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[int | str]) -> ir.Value:
        """A graph input; dims are numbers or names."""
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
        self._space.names.add(name)
        self._graph.inputs.append(value)
        return value

    def output(self, name: str, value: ir.Value) -> None:
        """A graph output, which the value is renamed to."""
        value.name = self._space.unique(name)
        self._graph.outputs.append(value)

    @contextmanager
    def part(self, name: str) -> Generator[Tape, None, None]:
        """A tape whose nodes are named ``name/...``; they enter the graph at the end.

        A draft is thrown away when something fails, so nothing is undone.
        """
        tape = Tape(self._space, name, OPSETS)
        yield tape  # ruff: ignore[fallible-context-manager] - see above
        tape.keep()
        for constant in tape.constants:
            self._graph.register_initializer(constant)
        self._graph.extend(tape.nodes)

    def model(self) -> ir.Model:
        """The finished graph."""
        return ir.Model(self._graph, ir_version=_IR_VERSION, producer_name="rewrite")
