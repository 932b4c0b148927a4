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
    """

    dtype: str = ""
    shape: tuple[int | None, ...] | None = None
    const: bool = False
    uniform: float | None = None
    source: str = ""
    boundary: bool = False

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
        traits: what is known of the nodes around it, by name: ``of positions`` for a Cos or Sin
            of integers times constants; ``weight before norm`` for the last Mul of a written-out
            RMS norm whose first operand is the weight.
        activations: for a weight's DequantizeLinear, the type the consumers' other operand is
            quantized to (``uint16``, ``uint8``, ...), or ``float``; empty elsewhere.
        options: provider options the target is used with.
    """

    op: str
    opset: int = 0
    attributes: Mapping[str, object] = field(default_factory=dict)
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    outputs: Mapping[str, Tensor] = field(default_factory=dict)
    standard: bool = True
    activations: str = ""
    traits: frozenset[str] = frozenset()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def domain(self) -> str:
        """``ai.onnx`` or the op's own domain."""
        return self.op.rpartition("::")[0] or "ai.onnx"
