"""A small builder of test graphs: nodes in order, weights drawn from one generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter import packing


class Builder:
    """Collects nodes, inputs and initializers, and makes a model of them."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[ir.Node] = []
        self.inputs: list[ir.Value] = []
        self.initializers: list[ir.Value] = []

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[int | str | None]) -> ir.Value:
        """A graph input."""
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
        self.inputs.append(value)
        return value

    def const(self, name: str, array: npt.ArrayLike | ir.TensorProtocol) -> ir.Value:
        """An initializer."""
        tensor = array if isinstance(array, ir.TensorProtocol) else ir.tensor(np.asarray(array))
        tensor.name = name
        value = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        self.initializers.append(value)
        return value

    def node(
        self,
        op: str,
        inputs: Sequence[ir.Value | None],
        names: Sequence[str],
        **attributes: Any,
    ) -> tuple[ir.Value, ...]:
        """A node ``domain::Type`` with named outputs."""
        domain, _, op_type = op.rpartition("::")
        given = ir.convenience.convert_attributes(attributes)
        node = ir.Node(domain, op_type, inputs, given, num_outputs=len(names),
                       name=f"{names[0]}/{op_type}")  # fmt: skip
        for value, name in zip(node.outputs, names, strict=True):
            value.name = name
        self.nodes.append(node)
        return tuple(node.outputs)

    def op(self, op: str, *inputs: ir.Value | None, name: str, **attributes: Any) -> ir.Value:
        """A node with one output."""
        return self.node(op, inputs, [name], **attributes)[0]

    def linear(self, x: ir.Value, name: str, k: int, n: int, weights: str) -> ir.Value:
        """x·W for W (k, n): ``fp32``, ``int4`` (MatMulNBits), ``int4_qdq`` or ``noise``.

        Blocks are of 32. ``noise`` is ``int4`` of random bytes that are drawn when the model is
        saved, so that a model of any size can be made.
        """
        if weights == "noise":
            codes = self.const(f"{name}.weight_Q4", self.noise((n, k // 32, 16), ir.DataType.UINT8))
            scales = self.const(f"{name}.weight_scales", self.noise((n, k // 32), spread=k**-0.5))
            return self.blocks(x, codes, scales, name, k, n)
        weight = (self.rng.standard_normal((k, n)) / np.sqrt(k)).astype(np.float32)
        if weights == "fp32":
            return self.op("MatMul", x, self.const(f"{name}.weight", weight), name=name)
        scales = np.abs(weight.reshape(k // 32, 32, n)).max(axis=1) / 7
        codes = np.clip(np.round(weight / np.repeat(scales, 32, axis=0)), -8, 7).astype(np.int8)
        if weights == "int4":
            packed = self.const(f"{name}.weight_Q4", packing.matrix_to_blocks(codes, 32, 4))
            stored = self.const(f"{name}.weight_scales", np.ascontiguousarray(scales.T))
            return self.blocks(x, packed, stored, name, k, n)
        weight_q = self.op(
            "DequantizeLinear",
            self.const(f"{name}.weight_Q4", packing.integers(codes, ir.DataType.INT4)),
            self.const(f"{name}.weight_scales", scales),
            name=f"{name}.dq",
            axis=0,
            block_size=32,
        )
        return self.op("MatMul", x, weight_q, name=name)

    def blocks(
        self, x: ir.Value, codes: ir.Value, scales: ir.Value, name: str, k: int, n: int
    ) -> ir.Value:
        """MatMulNBits of 4 bits in blocks of 32."""
        sizes = {"K": k, "N": n, "bits": 4, "block_size": 32, "accuracy_level": 4}
        return self.op("com.microsoft::MatMulNBits", x, codes, scales, name=name, **sizes)

    def noise(
        self, shape: Sequence[int], dtype: ir.DataType = ir.DataType.FLOAT, spread: float = 1.0
    ) -> ir.LazyTensor:
        """Random bytes, or floats from an eighth to a quarter of ``spread``, drawn when read."""
        seed = int(self.rng.integers(1 << 32))

        def draw() -> ir.TensorProtocol:
            rng = np.random.default_rng(seed)
            if dtype == ir.DataType.FLOAT:
                return ir.tensor((1 + rng.random(shape, np.float32)) * np.float32(spread / 8))
            return ir.tensor(np.frombuffer(rng.bytes(math.prod(shape)), np.uint8).reshape(shape))

        return ir.LazyTensor(draw, dtype, ir.Shape(shape))

    def model(
        self,
        outputs: Sequence[tuple[ir.Value, ir.DataType, Sequence[int | str | None]]],
        opset: int = 22,
    ) -> ir.Model:
        """The model, with outputs declared as given."""
        for value, dtype, shape in outputs:
            value.type, value.shape = ir.TensorType(dtype), ir.Shape(shape)
        graph = ir.Graph(
            self.inputs,
            [value for value, _, _ in outputs],
            nodes=self.nodes,
            initializers=self.initializers,
            opset_imports={"": opset, "com.microsoft": 1},
            name="main",
        )
        return ir.Model(graph, ir_version=10, producer_name="rewrite tests")
