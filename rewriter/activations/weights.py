"""Exact forms of MatMulNBits' weights behind DequantizeLinear, as an integer product reads them.

W (K, N) = s·(q - middle) with a scale per block of K. Moved by the middle the codes are signed and
their zero point is 0: no number changes. Scales that are equal in all blocks of a column are one
scale per channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from capabilities import Facts, Target
from capabilities.facts import Tensor
from rewriter import packing
from rewriter.nodes import attributes_of, constant, dims_of, opset_of

_SIGNED = {4: ir.DataType.INT4, 8: ir.DataType.INT8}
Grain = Literal["channel", "block"]


@dataclass(frozen=True, slots=True)
class WeightForm:
    """One exact form of the weight of a MatMulNBits.

    Attributes:
        k: rows.
        n: columns.
        block: of K, as it is stored.
        dtype: of the codes.
        grain: what shares a scale.
        facts: of the DequantizeLinear and the MatMul that it takes.
    """

    k: int
    n: int
    block: int
    dtype: ir.DataType
    grain: Grain
    facts: tuple[Facts, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of scales and zero points."""
        return (self.n,) if self.grain == "channel" else (self.k // self.block, self.n)

    def __str__(self) -> str:
        shared = "per channel" if self.grain == "channel" else f"in blocks of {self.block}"
        return f"{self.dtype.name.lower()} {shared}"


def forms_of(
    node: ir.Node, imports: Mapping[str, int], target: Target
) -> tuple[list[WeightForm], str]:
    """Forms that hold the very numbers of a MatMulNBits, the coarsest scales first.

    Args:
        node: the MatMulNBits.
        imports: opset imports of the model.
        target: whose options the facts have.

    Returns:
        The forms; why there are none.
    """
    given = attributes_of(node, opset_of("com.microsoft::MatMulNBits", imports))
    k, n, block, bits = (given[name] for name in ("K", "N", "block_size", "bits"))
    dtype = _SIGNED.get(bits)
    if dtype is None:
        return [], f"codes of {bits} bits have no form that is exact and as small"
    if any(value is not None for value in node.inputs[4:]):
        return [], "its rows are in another order, or it has a bias"
    if k % block:
        return [], f"its last block of {block} is not full"
    if not _middle(node, k, n, block, bits):
        return [], "its zero points are not the middle code, so signed codes do not hold it"
    scales = _scales(node, k, n, block)
    if scales is None:
        return [], "its scales are not stored"
    grains: list[Grain] = ["block"]
    if bool((scales == scales[:, :1]).all()):
        grains = ["channel"] if k == block else ["channel", "block"]
    forms = [WeightForm(k, n, block, dtype, grain) for grain in grains]
    negative = {"negative scales"} if bool((scales < 0).any()) else set()
    return [
        _with_facts(form, node, imports, target, negative if form.grain == "channel" else set())
        for form in forms
    ], ""


def _middle(node: ir.Node, k: int, n: int, block: int, bits: int) -> bool:
    points = node.inputs[3] if len(node.inputs) > 3 else None
    if points is None:
        return True
    stored = constant(points)
    if stored is None or stored.dtype != ir.DataType.UINT8:
        return False
    codes = packing.unpack_bits(stored.numpy().reshape(n, -1), bits, k // block)
    return bool((codes == 1 << (bits - 1)).all())


def _scales(node: ir.Node, k: int, n: int, block: int) -> npt.NDArray[np.float32] | None:
    stored = constant(node.inputs[2])
    return None if stored is None else stored.numpy().reshape(n, k // block)


def _with_facts(
    form: WeightForm,
    node: ir.Node,
    imports: Mapping[str, int],
    target: Target,
    traits: set[str],
) -> WeightForm:
    opset = opset_of("MatMul", imports)
    blocked = form.grain == "block"
    attributes = {"axis": 0 if blocked else 1, "block_size": form.block if blocked else 0}
    a, weight = node.inputs[0], Tensor("float", (form.k, form.n), source="DequantizeLinear")
    assert a is not None
    read = Tensor("float", dims_of(a), source="DequantizeLinear")
    dequantize = Facts(
        "DequantizeLinear",
        opset,
        {**attributes, "output_dtype": 0},
        {
            "x": Tensor(form.dtype.name.lower(), (form.k, form.n), const=True),
            "x_scale": Tensor("float", form.shape, const=True),
            "x_zero_point": Tensor(form.dtype.name.lower(), form.shape, const=True, uniform=0.0),
        },
        {"y": Tensor("float", (form.k, form.n))},
        traits=frozenset(traits),
        options=target.options,
    )
    product = Facts(
        "MatMul",
        opset,
        {},
        {"A": read, "B": weight},
        {"Y": Tensor("float", dims_of(node.outputs[0]))},
        options=target.options,
    )
    return replace(form, facts=(dequantize, product))


def codes(node: ir.Node, form: WeightForm) -> ir.TensorProtocol:
    """Signed codes (K, N), made when they are saved."""
    stored = constant(node.inputs[1])
    assert stored is not None

    def matrix() -> ir.TensorProtocol:
        return packing.matrix_of_blocks(stored.numpy().view(np.uint8), form.k, form.dtype)

    return ir.LazyTensor(matrix, form.dtype, ir.Shape((form.k, form.n)))


def scales(node: ir.Node, form: WeightForm) -> ir.TensorProtocol:
    """Scales (N) of channels, or (K/block, N) of blocks."""
    found = _scales(node, form.k, form.n, form.block)
    assert found is not None
    picked = found[:, 0] if form.grain == "channel" else np.ascontiguousarray(found.T)
    return ir.tensor(np.ascontiguousarray(picked))


def zero_points(form: WeightForm) -> ir.TensorProtocol:
    """Zeros, which some runtimes need to be there: without them they read codes as unsigned."""
    return packing.integers(np.zeros(form.shape, np.int8), form.dtype)
