"""What running a model in QNN's emulator costs, estimated before it is tried."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

_CREATE_4BIT, _STEP_4BIT = 0.13, 0.28
_CREATE_FLOAT, _STEP_FLOAT = 0.03, 0.06
"""CPU seconds per million weights (real_size.md, on two cores)."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Weights of a model, in millions, by how the emulator handles them."""

    packed: float
    plain: float

    def minutes(self, runs: int) -> float:
        """To create one session and run it so often."""
        create = self.packed * _CREATE_4BIT + self.plain * _CREATE_FLOAT
        step = self.packed * _STEP_4BIT + self.plain * _STEP_FLOAT
        return (create + runs * step) / 60


def estimate(model: ir.Model) -> Cost:
    """Count the weights of the products of a model."""
    packed = plain = 0
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.op_type == "MatMulNBits":
            packed += node.attributes["K"].as_int() * node.attributes["N"].as_int()
        elif node.op_type in {"MatMul", "Gemm", "Conv"}:
            weight = node.inputs[1]
            if weight is not None and weight.const_value is not None:
                plain += weight.const_value.size
    return Cost(packed / 1e6, plain / 1e6)
