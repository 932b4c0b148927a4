"""What is known of one unit: a node with its operands, as the table is asked about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Tensor:
    """What is known of one input or output of a node.

    Attributes:
        dtype: ONNX element type in lower case (``float``, ``float16``, ``int4``, ``bool``, ...);
            empty when unknown.
        shape: dims, an ``int`` where static and ``None`` where not; ``None`` for unknown rank.
        const: the value is stored in the model (and no graph input overrides it).
        uniform: the one value that all elements of a small constant or a zero point have.
        source: op that produces it; empty for graph inputs and constants.
        boundary: it is an input or an output of the whole graph.
        outside: its content is written to a file of external data beside the model's; where it
            was read from does not matter.
    """

    dtype: str = ""
    shape: tuple[int | None, ...] | None = None
    const: bool = False
    uniform: float | None = None
    source: str = ""
    boundary: bool = False
    outside: bool = False

    @property
    def rank(self) -> int | None:
        """Number of dims, if known."""
        return None if self.shape is None else len(self.shape)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one unit.

    Attributes:
        op: ``domain::Type``; ops of ai.onnx by type alone.
        opset: version of the op's domain in the model.
        attributes: with the schema's defaults filled in.
        inputs: those that are given, by the schema's name, in the node's order.
        outputs: those that exist, by the schema's name.
        standard: the op is in the ONNX standard at this opset.
        newer: the op, or what this node uses of it, came after the highest opset of ai.onnx that
            the target takes.
        traits: what is known of the nodes around it, by name: ``negative scales`` for a stored
            weight's DequantizeLinear, blocked ones aside, where one is below 0; ``of positions``
            for a Cos or Sin of integers times constants; ``root last`` for the Mul x ·
            Reciprocal(root of the mean square of x) of a written-out RMS norm; ``minimum beside``
            for a MatMulNBits with zero points of 0 that a product of sums of A with a constant is
            added to; ``zero points padded`` for packed ones of more than a byte per row, the last
            of which is not full; ``may hide a row`` for an Attention with a mask that is not known
            to show a key to every query.
        activations: for a weight's DequantizeLinear, the type the consumers' other operand is
            quantized to (``uint16``, ``uint8``, ...), or ``float``. For any other node between
            DequantizeLinear and QuantizeLinear, the type that its activations are quantized to.
            Empty elsewhere.
        options: provider options the target is used with.
    """

    op: str
    opset: int = 0
    attributes: Mapping[str, object] = field(default_factory=dict)
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    outputs: Mapping[str, Tensor] = field(default_factory=dict)
    standard: bool = True
    newer: bool = False
    activations: str = ""
    traits: frozenset[str] = frozenset()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def domain(self) -> str:
        """``ai.onnx`` or the op's own domain."""
        return self.op.rpartition("::")[0] or "ai.onnx"
